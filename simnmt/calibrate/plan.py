"""What is measured, and in which order: cells, rounds and stretches between two readings of a reference cell. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simnmt import streams
from simnmt.calibrate.settings import Settings
from simnmt.nmt.engine import Work

Bench = Literal["execution", "step", "encoder"]
"""What the engine is timed for."""

CELLS_A_STRETCH = 10
INFERENCES_A_STRETCH = 40
"""Of paper mode, whose cells are single inferences of moderate length."""
QUICK_WITHIN_S = 60.0
"""Of measuring, all in all: a quick calibration measures nothing again that would take longer."""
AGAIN_AT_LEAST_S, AGAIN_SHARE = 60.0, 0.5
"""A full one may spend on measuring again, bench by bench, so long or that share of the bench's own time, whichever is more: on
a box whose neighbours never rest, measuring again without end makes nothing calmer."""
QUICK_FITTED = (1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1_024)
FITTED = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024)
"""Batch sizes that costs are fitted to, up to the largest asked for. Dense at the low end: from one row to two a library may
change its kernel, and a step may then take twice as long."""
QUICK_JUDGING = (7, 10, 40, 224, 896)
JUDGING = (7, 10, 20, 40, 112, 224, 448, 896)
"""Batch sizes that are measured to judge by, and never fitted; those below the largest that is."""
QUICK_MOST_BATCH, MOST_BATCH = 16, 64
"""Unless told otherwise."""
SHORTENED = ((128, 64), (384, 36), (1_024, 18))
"""(rows, hypotheses counted; steps timed in a run) and beyond these `LEAST_STEPS`: long runs of large batches take minutes, and
how a step grows with the position is known from smaller ones. Each run ends where a window of positions does."""
LEAST_STEPS = 10
STEP_SRC_LEN = 20
"""Source tokens under the decode steps: near the mean sentence of news."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Work done between two readings of the reference cell."""

    bench: Bench
    number: int
    works: tuple[Work, ...]


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """All stretches of one bench, in order."""

    bench: Bench
    stretches: tuple[Stretch, ...]
    reference: Work
    """Read before the first stretch and after each."""
    readings: int
    """Repeats of a reading, of which the least counts."""
    again: int
    """How often a disturbed stretch is measured again at most."""
    within_s: float = math.inf
    """Only as long as all measuring, of all benches, takes no longer."""
    again_at_least_s: float = math.inf
    again_share: float = 0.0
    """Only as long as measuring this bench again takes no longer than the one, or than that share of its first time."""
    drawn: bool = False
    """The works are draws from a distribution: each counts once, disturbed or not, or the distribution would be another."""

    def again_within_s(self, first_s: float) -> float:
        """Seconds for measuring again where the whole bench took `first_s`."""
        return max(self.again_at_least_s, self.again_share * first_s)

    @property
    def works(self) -> list[Work]:
        """Every work, repeats too, in order."""
        return [work for stretch in self.stretches for work in stretch.works]


def corner_cells(settings: Settings) -> list[Work]:
    """The six cells of quick mode: shortest and longest source by shortest, middling and longest target.

    Lengths of 2 and not of 1, so that what happens once is not mistaken for what a token costs.
    """
    longest_src, longest_tgt = settings.max_src_len, settings.max_tgt_len
    tgt_lens = (2, _between(2, longest_tgt, 3)[1], longest_tgt)
    return [Work(src, tgt, 1, settings.beam) for src in (2, longest_src) for tgt in tgt_lens]


def judging_cells(settings: Settings) -> list[Work]:
    """Four cells inside the six: quick mode measures them to judge the plane by, and does not fit it to them."""
    src_lens, tgt_lens = (_between(2, longest, 4)[1:-1] for longest in (settings.max_src_len, settings.max_tgt_len))
    return [Work(src, tgt, 1, settings.beam) for src in src_lens for tgt in tgt_lens]


def grid_cells(settings: Settings) -> list[Work]:
    """The full grid: six lengths a side, evenly spaced in their logarithm; holds the corner cells of the same settings."""
    src_lens = _between(2, settings.max_src_len, 6)
    tgt_lens = sorted({*_between(2, settings.max_tgt_len, 6), _between(2, settings.max_tgt_len, 3)[1]})
    return [Work(src, tgt, 1, settings.beam) for src in src_lens for tgt in tgt_lens]


def plan_execution(settings: Settings, drawn: Sequence[tuple[int, int]] | None = None) -> BenchPlan:
    """Single inferences; `drawn` are the (src_len, tgt_len) of paper mode, taken in their order."""
    reference = _reference(settings)
    if settings.mode == "paper":
        assert drawn is not None
        works = [Work(src, tgt, 1, settings.beam) for src, tgt in drawn]
        return BenchPlan("execution", _cut("execution", [works], INFERENCES_A_STRETCH), reference, 3, again=1, drawn=True)
    if settings.mode == "quick":
        return _interleaved("execution", corner_cells(settings) + judging_cells(settings), 4, settings, reference, again=1)
    return _interleaved("execution", grid_cells(settings), 7, settings, reference, again=2)


def plan_steps(settings: Settings, *, tells_steps: bool) -> BenchPlan:
    """Decode steps by batch size. An engine that does not tell single steps is timed for several target lengths instead."""
    quick = settings.mode == "quick"
    src_len = min(STEP_SRC_LEN, settings.max_src_len)
    cells = []
    for batch in batches(settings):
        longest = min(20 if quick else _steps(batch * settings.beam), settings.max_tgt_len)
        tgt_lens = [longest] if tells_steps else _between(2, longest, 2 if quick else 4)
        cells += [Work(src_len, tgt, batch, settings.beam) for tgt in tgt_lens]
    return _interleaved("step", cells, 3, settings, _reference(settings), again=1)


def plan_encoder(settings: Settings, *, tells_steps: bool = True) -> BenchPlan:
    """Encoders by batch size and source length, each with a single decode step behind it.

    Where that step can only be subtracted, short sources, whose encoders drown in its noise, are left out, and a full
    calibration has more rounds.
    """
    shortest = 4 if tells_steps else min(10, settings.max_src_len // 2)
    quick = settings.mode == "quick"
    src_lens = _between(shortest, settings.max_src_len, 2 if quick else 4)
    cells = [Work(src, 1, batch, settings.beam) for batch in batches(settings) for src in src_lens]
    return _interleaved("encoder", cells, 3 if tells_steps or quick else 5, settings, _reference(settings), again=1)


def plan_benches(settings: Settings, drawn: Sequence[tuple[int, int]] | None, *, tells_steps: bool) -> list[BenchPlan]:
    """The benches of the parts that were asked for."""
    plans = []
    if "execution" in settings.parts:
        plans.append(plan_execution(settings, drawn))
    if "step" in settings.parts:
        plans += [plan_steps(settings, tells_steps=tells_steps), plan_encoder(settings, tells_steps=tells_steps)]
    return plans


def batches(settings: Settings) -> tuple[int, ...]:
    """Batch sizes at which steps and encoders are measured, rising; the largest is not one that judges."""
    quick = settings.mode == "quick"
    most = settings.max_batch or (QUICK_MOST_BATCH if quick else MOST_BATCH)
    fitted = [size for size in (QUICK_FITTED if quick else FITTED) if size <= most]
    return tuple(sorted(fitted + [size for size in (QUICK_JUDGING if quick else JUDGING) if size < fitted[-1]]))


def out_of_reach(work: Work, too_large: Sequence[Work]) -> bool:
    """Whether some work that memory had no room for asks for no more than this one in any respect."""
    return any(
        all(getattr(small, name) <= getattr(work, name) for name in ("batch", "beam", "src_len", "tgt_len"))
        for small in too_large
    )


def _reference(settings: Settings) -> Work:
    return Work(min(16, settings.max_src_len), min(8, settings.max_tgt_len), 1, settings.beam)


def _steps(rows: int) -> int:
    return next((steps for most, steps in SHORTENED if rows <= most), LEAST_STEPS)


def _between(low: int, high: int, count: int) -> list[int]:
    """`count` lengths evenly spaced in their logarithm, fewer where whole tokens coincide."""
    return sorted({round(length) for length in np.geomspace(low, high, count).tolist()})


def _interleaved(
    bench: Bench, cells: Sequence[Work], rounds: int, settings: Settings, reference: Work, *, again: int
) -> BenchPlan:
    """Each round does every cell once, in an order of its own; so whatever drifts meets all cells alike."""
    orders = (streams.stream(settings.seed, number, f"calibrate_{bench}").permutation(len(cells)) for number in range(rounds))
    shuffled = [[cells[at] for at in order.tolist()] for order in orders]
    stretches = _cut(bench, shuffled, CELLS_A_STRETCH)
    if settings.mode == "quick":
        return BenchPlan(bench, stretches, reference, readings=3, again=again, within_s=QUICK_WITHIN_S)
    return BenchPlan(
        bench,
        stretches,
        reference,
        readings=3,
        again=again,
        again_at_least_s=AGAIN_AT_LEAST_S,
        again_share=AGAIN_SHARE,
    )


def _cut(bench: Bench, rounds: Sequence[Sequence[Work]], size: int) -> tuple[Stretch, ...]:
    parts = [tuple(works[start : start + size]) for works in rounds for start in range(0, len(works), size)]
    return tuple(Stretch(bench, number, works) for number, works in enumerate(parts))
