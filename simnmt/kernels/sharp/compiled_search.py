"""The search in C (native/sharp.h), called."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from simnmt.kernels.errors import KernelError
from simnmt.kernels.sharp import structs
from simnmt.kernels.sharp.asked import Asked, Ints
from simnmt.kernels.sharp.compiled import CompiledMember
from simnmt.kernels.sharp.translation import ForcedSteps, SharpTranslation, StageSeconds
from simnmt.kernels.sharp.weights import Float32, SharpTokens


def compiled_decode(
    members: Sequence[CompiledMember], sources: Sequence[Float32], asked: Asked, *, fused: bool, clock: bool
) -> SharpTranslation:
    """See `reference_decode`; memory is set aside before the search begins, which takes none (SHARP-01)."""
    cdll, columns = members[0].cdll, None if asked.candidates is None else len(asked.candidates)
    request = _request(asked.tokens, sources[0], asked.candidates)
    request.columns = width = members[0].model.vocab if columns is None else columns
    request.members, request.beam, request.max_len = len(members), asked.beam, asked.steps
    request.forced, request.fused, request.clock, request.margin = asked.forced, fused, clock, asked.stop_margin
    mixture = asked.beam * width if len(members) > 1 else 0
    beam_memory = np.empty(cdll.simnmt_sharp_beam_bytes(asked.beam, asked.steps, mixture), np.uint8)
    pointers = ctypes.c_void_p * len(members)
    memory = pointers(*(member.memory(columns) for member in members))
    models = pointers(*(ctypes.addressof(member.model) for member in members))
    states = pointers(*(source.ctypes.data for source in sources))
    result, words, attended = structs.Result(), np.empty(asked.steps, np.int64), np.empty(asked.steps, np.int64)
    found = cdll.simnmt_sharp_decode(
        models, memory, beam_memory.ctypes.data, states, request, result, words.ctypes.data, attended.ctypes.data
    )
    if not found:
        raise KernelError("no word of the candidates may be chosen")
    return SharpTranslation(
        tuple(words[: result.length].tolist()),
        result.log_prob,
        tuple(attended[: result.length].tolist()),
        result.steps,
        result.distinct / result.hypotheses,
        bool(result.stopped_early),
        StageSeconds(*result.seconds) if clock else None,
    )


def compiled_forced(
    member: CompiledMember, source: Float32, tokens: SharpTokens, words: Ints, places: Ints, candidates: Ints | None
) -> ForcedSteps:
    """See `reference_forced`; `places`: the words' columns among the candidates."""
    request, columns = _request(tokens, source, candidates), None if candidates is None else len(candidates)
    request.columns = member.model.vocab if columns is None else columns
    request.members = request.beam = 1
    best, log_probs = np.empty(len(words), np.int64), np.empty(len(words), np.float32)
    member.cdll.simnmt_sharp_forced(
        member.model,
        member.memory(columns),
        source.ctypes.data,
        request,
        words.ctypes.data,
        places.ctypes.data,
        len(words),
        best.ctypes.data,
        log_probs.ctypes.data,
    )
    return ForcedSteps(best, log_probs)


def _request(tokens: SharpTokens, source: Float32, candidates: Ints | None) -> structs.Request:
    ids = None if candidates is None else candidates.ctypes.data
    return structs.Request(src_len=len(source), ids=ids, start=tokens.start, eos=tokens.eos, pad=tokens.pad)
