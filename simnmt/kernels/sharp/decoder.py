"""The sharp decoder: one model, written as its settings say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.kernels.errors import KernelError
from simnmt.kernels.native_at import native_at
from simnmt.kernels.sharp.arithmetic import arithmetic
from simnmt.kernels.sharp.asked import Asked, check_candidates, check_source, places_of
from simnmt.kernels.sharp.compiled import CompiledMember
from simnmt.kernels.sharp.compiled_search import compiled_decode, compiled_forced
from simnmt.kernels.sharp.reference import reference_decode, reference_forced
from simnmt.kernels.sharp.reference_member import ReferenceMember
from simnmt.kernels.sharp.structs import MOST_MEMBERS
from simnmt.kernels.sharp.translation import ForcedSteps, SharpTranslation
from simnmt.kernels.sharp.weights import Float32, SharpWeights

Ints = NDArray[np.int64]


class SharpDecoder:
    """Beam search of one sentence at a time, on one thread (SHARP-01). One decoder serves one thread.

    Of `settings`, `beam`, `fused`, `gemm` (None: float32), `embeddings`, `frequent_words`, `attention`, `activations` and
    `merge` say how; `candidates` is the caller's, who hands each sentence its list. Weights are packed here, once.

    `level`: the widest of the native kernels to be used, or "none" for the search in numpy, as the variable SIMNMT_KERNELS
    says it.

    Raises `KernelError` where a sentence may be longer than memory was set aside for, and for arrays of a wrong kind.
    """

    def __init__(
        self,
        weights: SharpWeights,
        settings: DecoderSettings,
        *,
        max_len: int,
        most_src_len: int,
        stop_margin: float = 3.0,
        level: str | None = None,
    ) -> None:
        if max_len < 1 or most_src_len < 1:
            raise KernelError(f"max_len and most_src_len are {max_len} and {most_src_len}, not at least 1")
        self.weights, self.settings = weights, settings
        self.max_len, self.most_src_len, self.stop_margin = max_len, most_src_len, stop_margin
        native = native_at(level)
        self.level = None if native is None else native.level
        """Of the native kernels that search; None for the search in numpy: the same results, and no such speed."""
        self._member: CompiledMember | ReferenceMember
        if native is None:
            self._member = ReferenceMember(weights, arithmetic(settings))
        else:
            self._member = CompiledMember(weights, settings, native, most_src_len)

    @property
    def compiled(self) -> bool:
        """Whether the search runs in C."""
        return self.level is not None

    def decode(
        self, source_states: Float32, candidates: Ints | None = None, forced_len: int | None = None, *, clock: bool = False
    ) -> SharpTranslation:
        """Translate one sentence.

        `source_states` [src_len, s] float32; `candidates` words that may be chosen, int64, each once, the end token among them
        (SHARP-02); None: all. `forced_len`: so many steps, the end token banned, for timing. `clock`: see `StageSeconds`.
        """
        return decode_ensemble([self], [source_states], candidates, forced_len, clock=clock)

    def forced(self, source_states: Float32, tokens: Sequence[int] | Ints, candidates: Ints | None = None) -> ForcedSteps:
        """Follow a given translation, whose words are among the candidates (SHARP-10); nothing is banned but padding."""
        source, words = check_source(self.weights, source_states, self.most_src_len), np.ascontiguousarray(tokens, np.int64)
        check_candidates(self.weights, candidates, needs_end=False, forced=False)
        places, special = places_of(words, candidates, self.weights.vocab), self.weights.tokens
        if isinstance(self._member, CompiledMember):
            return compiled_forced(self._member, source, special, words, places, candidates)
        return reference_forced(self._member, source, special, words, places, candidates)


def decode_ensemble(
    decoders: Sequence[SharpDecoder],
    source_states: Sequence[Float32],
    candidates: Ints | None = None,
    forced_len: int | None = None,
    *,
    max_len: int | None = None,
    clock: bool = False,
) -> SharpTranslation:
    """Translate one sentence by several models of one vocabulary and one `settings`, each with its own source states.

    Their distributions are averaged arithmetically over one shared beam (SHARP-14), as is their attention for `attended`; the
    first one's `stop_margin` holds. `max_len`: most steps for this sentence, at most the decoders' own. Raises `KernelError` as
    `SharpDecoder` does, and for decoders that do not fit together.
    """
    if not 1 <= len(decoders) <= MOST_MEMBERS:
        raise KernelError(f"an ensemble is of 1 to {MOST_MEMBERS} decoders, not of {len(decoders)}")
    if len({(each.weights.vocab, each.weights.tokens, each.settings, each.level) for each in decoders}) != 1:
        raise KernelError("an ensemble's decoders do not share vocabulary, special tokens, settings and level")
    if len({id(each) for each in decoders}) != len(decoders):
        raise KernelError("an ensemble names one decoder twice: each carries one state, so make one for each member")
    sources = [
        check_source(each.weights, states, each.most_src_len) for each, states in zip(decoders, source_states, strict=True)
    ]
    if len({len(source) for source in sources}) != 1:
        raise KernelError("source_states of an ensemble are of different lengths, though it reads one sentence")
    first, longest = decoders[0], min(each.max_len for each in decoders)
    if forced_len is not None and not 1 <= forced_len <= longest:
        raise KernelError(f"forced_len is {forced_len}, not 1 to max_len, {longest}")
    forced = forced_len is not None
    check_candidates(first.weights, candidates, needs_end=not forced, forced=forced)
    if max_len is not None and not 1 <= max_len <= longest:
        raise KernelError(f"max_len is {max_len}, not 1 to the decoder's own, {longest}")
    steps = forced_len or max_len or longest
    asked = Asked(first.weights.tokens, first.settings.beam, steps, forced, candidates, first.stop_margin)
    compiled = [each._member for each in decoders if isinstance(each._member, CompiledMember)]
    if compiled:
        return compiled_decode(compiled, sources, asked, fused=first.settings.fused, clock=clock)
    return reference_decode([each._member for each in decoders if isinstance(each._member, ReferenceMember)], sources, asked)
