"""Time a real decoder by parts (FNI-17), with and without the fused output layer, on two length mixes (FNI-11, FNI-15)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from simnmt.base.random_streams import stream
from simnmt.batching import maxi
from simnmt.calibrate import harness
from simnmt.calibrate.settings import CalibrationError
from simnmt.nmt import output_layer
from simnmt.nmt.agreement import agreement
from simnmt.nmt.architecture import Architecture
from simnmt.nmt.decoder import BatchedRun, decode
from simnmt.nmt.decoder_timing import STAGES, stage_timer
from simnmt.nmt.devices import torch_threads
from simnmt.nmt.models import LoadedModel, TranslationModel, load_model
from simnmt.nmt.output_layer import FusedOutput, Output
from simnmt.nmt.search import Search
from simnmt.workload.lognormal_lengths import MIXES

PARTS = ("body", "project", "softmax", "search", "fused_product", "fused")
"""`project`: the plain product with its bias; `fused`: bias, softmax and search in one pass."""
LAYER = ("project", "softmax", "search")
"""The plain output layer."""


@contextmanager
def watched(model: TranslationModel, clock: Callable[[], float] = perf_counter) -> Iterator[dict[str, float]]:
    """Yield the seconds of each of `PARTS`, summed over all decoding in the block; each part costs two readings of the clock.

    `clock`: on a GPU a clock that waits for the GPU (`vocabulary_bench.clock_of`), which slows the decoder.
    """
    seconds = dict.fromkeys(PARTS, 0.0)
    plain: Any = output_layer
    model_products: Any = model.products

    def timed(part: str, do: Any) -> Any:
        def run(*given: Any, **named: Any) -> Any:
            start_s, products_s = clock(), seconds["fused_product"]
            try:
                return do(*given, **named)
            finally:
                seconds[part] += clock() - start_s - (seconds["fused_product"] - products_s)

        return run

    def products(*given: Any) -> Iterator[tuple[int, Any]]:
        blocks = model_products(*given)
        while True:
            start_s = clock()
            block = next(blocks, None)
            seconds["fused_product"] += clock() - start_s
            if block is None:
                return
            yield block

    with (
        patch.object(model, "body", timed("body", model.body)),
        patch.object(model, "project", timed("project", model.project)),
        patch.object(model, "products", products),
        patch.object(plain, "log_softmax_", timed("softmax", plain.log_softmax_)),
        patch.object(plain, "largest", timed("search", plain.largest)),
        patch.object(plain, "largest_sums", timed("search", plain.largest_sums)),
        patch.object(FusedOutput, "project", timed("fused", FusedOutput.project)),
        patch.object(FusedOutput, "largest_sums", timed("fused", FusedOutput.largest_sums)),
    ):
        yield seconds


def parts_of(run: BatchedRun, seconds: dict[str, float]) -> dict[str, float]:
    """Return the seconds of all parts of a watched decoding, including encoder and bookkeeping; they sum to its total."""
    known_s = run.encode_s + run.refill_s + sum(seconds.values())
    return {"encode": run.encode_s, "refill": run.refill_s, **seconds, "rest": run.total_s - known_s}


BATCH = 32
"""Sentences of a mini-batch, ten of which are collected and sorted; a step of the paper's 128 takes one thread seconds."""
COLLECT = 10
ROUNDS = 3
STAGE_BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96)
"""Batch sizes at which single stages are timed; between them times are interpolated linearly. The time of a product is not
smooth in few rows: torch's product of 3 rows was seen to take longer than its product of 4."""
STAGE_ROUNDS, STAGES_WITHIN_S = 5, 5.0
Known = dict[tuple[int, int], dict[str, float]]
"""Seconds of single stages, by batch size and beam."""

Progress = Callable[[int, int], None]
"""Called with the number of finished parts and the number of parts."""


@dataclass(frozen=True, slots=True)
class RealSpeed:
    """Times of the same sentences decoded alternately with and without the fused output layer."""

    model: str
    vocab: int
    test_set: str
    beam: int
    batch: int
    sentences: int
    plain_s: tuple[float, ...]
    """By round."""
    fused_s: tuple[float, ...]
    equal: int
    """Sentences with the same tokens both ways, where they end freely (FNI-11)."""
    near_ties: int
    """Other sentences whose first difference is closer than `NEAR_TIE`, which is allowed."""
    disagreements: int
    """Other sentences without a near tie."""
    weights: str
    """`random`, or of a `checkpoint`."""
    shares: dict[str, float]
    """Share of each part in the plain decoder's time, from `parts_of` a watched decoding; they sum to 1."""
    stages_s: dict[str, float]
    """Seconds of each of `STAGES` over all steps, from `stages_over`."""

    @property
    def ratios(self) -> tuple[float, ...]:
        """Speed-up by the fused output layer, by round."""
        return tuple(plain / fused for plain, fused in zip(self.plain_s, self.fused_s, strict=True))

    @property
    def ratio(self) -> float:
        """Median of `ratios`."""
        return statistics.median(self.ratios)

    @property
    def layer_share(self) -> float:
        """Share of the output layer in the plain decoder's time."""
        return sum(self.shares[name] for name in LAYER)

    @property
    def three_share(self) -> float:
        """Share of bias, softmax and search. The bias is added within the product; its share is that of the single stages."""
        return self.layer_share * self.three_s / self.layer_s

    @property
    def three_s(self) -> float:
        """Seconds of bias, softmax and search, one after another."""
        return sum(self.stages_s[name] for name in ("bias", "softmax", "search"))

    @property
    def layer_s(self) -> float:
        """Seconds of the output layer: product, bias, softmax and search."""
        return self.stages_s["product"] + self.three_s

    @property
    def fused_layer_s(self) -> float:
        """Seconds of the fused output layer."""
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
    """Decode the first `sentences` of each mix in float32 on the CPU, with forced lengths for the times, then freely.

    Raises `CalibrationError` for fewer than one sentence, and the errors of `load_model`.
    """
    if sentences < 1:
        raise CalibrationError(f"{sentences} sentences to decode", remedy="give 1 or more")
    loaded = load_model(model)
    speeds, known = list[RealSpeed](), Known()
    cells = [(test_set, beam) for test_set in MIXES for beam in beams]
    with torch_threads(threads):
        for done, (test_set, beam) in enumerate(cells):
            if progress is not None:
                progress(done, len(cells))
            speeds.append(_speed(loaded, test_set, beam, sentences, seed, rounds, min(batch, sentences), known))
    if progress is not None:
        progress(len(cells), len(cells))
    return speeds


def stages_over(
    model: TranslationModel,
    active: NDArray[np.int64],
    beam: int,
    known: Known,
    *,
    clock: Callable[[], float] = perf_counter,
) -> dict[str, float]:
    """Return the seconds of each of `STAGES` over all steps, from single stages timed at a few batch sizes.

    Args:
        model: the decoder.
        active: sentences in each step, shape (steps,).
        beam: hypotheses per sentence.
        known: stages timed before; receives those timed now.
        clock: seconds; on a GPU a clock that waits for it.
    """
    most = int(active.max())
    sizes = sorted({size for size in STAGE_BATCHES if size < most} | {most})
    for size in sizes:
        if (size, beam) not in known:
            frame = harness.rounds({"step": stage_timer(model, size, beam, clock=clock)}, STAGE_ROUNDS, STAGES_WITHIN_S)
            medians_s = harness.counted(frame)[list(STAGES)].median().clip(lower=0.0)
            known[size, beam] = {str(name): float(second) for name, second in medians_s.items()}
    timed = [known[size, beam] for size in sizes]
    return {name: float(np.interp(active, sizes, [stages[name] for stages in timed]).sum()) for name in STAGES}


def _speed(
    loaded: LoadedModel, test_set: str, beam: int, count: int, seed: int, rounds: int, batch: int, known: Known
) -> RealSpeed:
    model, architecture = loaded.model, loaded.architecture
    src_len, tgt_len = MIXES[test_set].draw(stream(seed, 0, f"fused {test_set}"), count)
    sources, lens = _sources(architecture, src_len, seed), tgt_len.tolist()
    batching = maxi(batch, COLLECT * batch)
    runs: dict[bool, tuple[BatchedRun, dict[str, float]]] = {}

    def run(fused: bool) -> dict[str, float]:
        with watched(model) as seconds:
            done = decode(model, sources, batching, search=Search(beam), output=Output(fused), forced_lens=lens)
        runs[fused] = done, seconds
        return {"seconds": done.total_s}

    def two_steps(fused: bool) -> None:
        first = sources[: batching.size]
        decode(model, first, batching, search=Search(beam), output=Output(fused), forced_lens=[2] * len(first))

    cases = {fused: harness.Case(partial(run, fused), prepare=partial(two_steps, fused)) for fused in (False, True)}
    times_s = harness.by_round(harness.rounds(cases, rounds))
    parts_s = parts_of(*runs[False])
    whole_s = sum(parts_s.values())
    # Forced sentences cannot show whether a difference is a near tie, so both decode freely.
    plain, fused = (
        decode(model, sources, batching, search=Search(beam), output=Output(is_fused), max_len=lens)
        for is_fused in (False, True)
    )
    compared = agreement(model, sources, plain.hypotheses, fused.hypotheses, beam=beam, max_len=lens)
    return RealSpeed(
        model=loaded.name,
        vocab=model.vocab,
        test_set=test_set,
        beam=beam,
        batch=batch,
        sentences=count,
        plain_s=tuple(times_s[False].tolist()),
        fused_s=tuple(times_s[True].tolist()),
        equal=compared.equal,
        near_ties=len(compared.near_ties),
        disagreements=len(compared.disagreements),
        weights=loaded.weights,
        shares={name: seconds / whole_s for name, seconds in parts_s.items() if not name.startswith("fused")},
        stages_s=stages_over(model, runs[False][0].active, beam, known),
    )


def _sources(architecture: Architecture, src_len: NDArray[np.int64], seed: int) -> list[list[int]]:
    """Draw random words; each sentence ends with the end token."""
    special = [architecture.pad_token, architecture.eos_token, architecture.unk_token]
    words = np.setdiff1d(np.arange(architecture.src_vocab), special)
    generator = stream(seed, 0, "fused sources")
    return [[*generator.choice(words, length - 1).tolist(), architecture.eos_token] for length in src_len.tolist()]
