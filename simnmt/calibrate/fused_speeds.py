"""A real decoder with and without the fused output layer, on the two length mixes of the paper (FNI-11, FNI-15, XP-07)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from simnmt.batching import maxi
from simnmt.calibrate.errors import CalibrationError
from simnmt.nmt.architecture import Architecture
from simnmt.nmt.batched import decode_batched
from simnmt.nmt.models import LoadedModel, load_model
from simnmt.nmt.output_stages import STAGES, output_stages_s
from simnmt.streams import stream
from simnmt.workload.lognormal_lengths import MIXES

BATCH = 32
"""Sentences of a mini-batch, ten of which are collected and sorted; the paper's 128 keep one thread at a step for seconds."""
COLLECT = 10
ROUNDS = 3
STAGE_BATCHES = (1, 4, 16, 32)
"""At which the stages are timed; between them a line."""

Progress = Callable[[int, int], None]
"""Called with what is done and what there is in all."""


@dataclass(frozen=True, slots=True)
class RealSpeed:
    """The same sentences decoded with and without the fused output layer, in turn."""

    model: str
    vocab: int
    test_set: str
    beam: int
    batch: int
    sentences: int
    plain_s: tuple[float, ...]
    """One a round."""
    fused_s: tuple[float, ...]
    differing: int
    """Sentences whose translations are not the same, token by token."""
    stages_s: dict[str, float]
    """Each of `STAGES` over all steps: timed at a few batch sizes, times the steps that had so many active."""

    @property
    def ratios(self) -> tuple[float, ...]:
        """Times as fast with the fused output layer, by round."""
        return tuple(plain / fused for plain, fused in zip(self.plain_s, self.fused_s, strict=True))

    @property
    def ratio(self) -> float:
        """The median round's."""
        return statistics.median(self.ratios)

    @property
    def layer_s(self) -> float:
        """The output layer: product, bias, softmax and search, one after the other."""
        return sum(self.stages_s[name] for name in ("product", "bias", "softmax", "search"))

    @property
    def fused_layer_s(self) -> float:
        """The output layer with the last three in one."""
        return self.stages_s["fused_product"] + self.stages_s["fused"]


def fused_speeds(
    model: str,
    sentences: int,
    beams: Sequence[int],
    *,
    threads: int = 1,
    seed: int = 1,
    rounds: int = ROUNDS,
    batch: int = BATCH,
    progress: Progress | None = None,
) -> list[RealSpeed]:
    """Decode the first so many sentences of each mix, with forced lengths, in float32 on the CPU.

    Raises `CalibrationError` for fewer than one sentence and what `load_model` raises.
    """
    if sentences < 1:
        raise CalibrationError(f"{sentences} sentences to decode", remedy="give 1 or more")
    loaded = load_model(model)
    before, found = torch.get_num_threads(), []
    torch.set_num_threads(threads)
    try:
        cells = [(test_set, beam) for test_set in MIXES for beam in beams]
        for done, (test_set, beam) in enumerate(cells):
            if progress is not None:
                progress(done, len(cells))
            found.append(_of(loaded, test_set, beam, sentences, seed, rounds, min(batch, sentences)))
        if progress is not None:
            progress(len(cells), len(cells))
    finally:
        torch.set_num_threads(before)
    return found


def _of(loaded: LoadedModel, test_set: str, beam: int, count: int, seed: int, rounds: int, batch: int) -> RealSpeed:
    model, architecture = loaded.model, loaded.architecture
    src_len, tgt_len = MIXES[test_set].draw(stream(seed, 0, f"fused {test_set}"), count)
    sources, forced = _sources(architecture, src_len, seed), tgt_len.tolist()
    batching = maxi(batch, COLLECT * batch)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    runs = {}
    for number in range(rounds):
        for fused in (False, True) if number % 2 == 0 else (True, False):
            runs[fused] = decode_batched(model, sources, batching, beam=beam, forced_lens=forced, fused=fused)
            seconds[fused].append(runs[fused].total_s)
    pairs = zip(runs[False].hypotheses, runs[True].hypotheses, strict=True)
    differing = sum(plain.tokens != other.tokens for plain, other in pairs)
    sizes = [size for size in STAGE_BATCHES if size < batch] + [batch]
    timed = [output_stages_s(model, size, beam) for size in sizes]
    active = runs[False].active
    stages_s = {name: float(np.interp(active, sizes, [getattr(each, f"{name}_s") for each in timed]).sum()) for name in STAGES}
    return RealSpeed(
        loaded.name,
        model.vocab,
        test_set,
        beam,
        batch,
        count,
        tuple(seconds[False]),
        tuple(seconds[True]),
        differing,
        stages_s,
    )


def _sources(architecture: Architecture, src_len: NDArray[np.int64], seed: int) -> list[list[int]]:
    """Random words, each sentence's end token last."""
    special = [architecture.pad_token, architecture.eos_token, architecture.unk_token]
    words = np.setdiff1d(np.arange(architecture.src_vocab), special)
    generator = stream(seed, 0, "fused sources")
    return [[*generator.choice(words, length - 1).tolist(), architecture.eos_token] for length in src_len.tolist()]
