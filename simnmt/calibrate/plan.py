"""What is measured, and in which order: cells, rounds and stretches between two readings of a reference cell. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from simnmt.base import random_streams
from simnmt.calibrate.settings import Settings
from simnmt.nmt.engine import Work

Bench = Literal["execution", "step", "encoder"]
"""What the engine is timed for."""
BENCHES: tuple[Bench, ...] = ("execution", "step", "encoder")
ROUNDS, QUICK_ROUNDS = 5, 3
"""In which whole executions, decode steps and encoders are measured together."""
LEAST_ROUNDS, ROUNDS_WITHIN_S = 3, 420.0
"""Of a full calibration: so many in any case; no further one is begun that would end later."""
LARGE_ROWS, LARGE_ROUNDS = 32, 3
"""Batches of more rows are measured in the first rounds alone: they take long, and no sentence alone rests on them."""

CELLS_A_STRETCH = 10
INFERENCES_A_STRETCH = 40
"""Of paper mode, whose cells are single inferences of moderate length."""
QUICK_WITHIN_S = 60.0
"""Of measuring, all in all: a quick calibration measures nothing again that would take longer."""
AGAIN_AT_LEAST_S, AGAIN_SHARE = 60.0, 0.25
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
    round: int = 0


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """All stretches of one bench, or of several that are measured in the same rounds, in order."""

    bench: Bench | Literal["rounds"]
    """`rounds`: each stretch says its own."""
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
    """Only as long as measuring this bench again takes no longer than the one, or than that share of its first time, in
    which rounds that were left out do not count."""
    rounds_within_s: float = math.inf
    """No round after the least number of them is begun with which these rounds would take longer; what was measured before
    them, such as the inferences of paper mode, does not count."""
    drawn: bool = False
    """The works are draws from a distribution: each counts once, disturbed or not, or the distribution would be another."""

    def again_within_s(self, first_s: float) -> float:
        """Seconds for measuring again where the whole bench took `first_s`."""
        return max(self.again_at_least_s, self.again_share * first_s)

    @property
    def benches(self) -> tuple[Bench, ...]:
        """Whose stretches these are."""
        return tuple(bench for bench in BENCHES if any(stretch.bench == bench for stretch in self.stretches))

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
    quick = settings.mode == "quick"
    return _interleaved("execution", execution_cells(settings), 4 if quick else 7, settings, reference, again=1 if quick else 2)


def execution_cells(settings: Settings) -> list[Work]:
    """What is executed alone: in quick mode the corners and what judges them, else the grid."""
    return corner_cells(settings) + judging_cells(settings) if settings.mode == "quick" else grid_cells(settings)


def step_cells(settings: Settings, *, tells_steps: bool) -> list[Work]:
    """Decode steps by batch size. An engine that does not tell single steps is timed for several target lengths instead."""
    quick = settings.mode == "quick"
    src_len = min(STEP_SRC_LEN, settings.max_src_len)
    cells = []
    for batch in batches(settings):
        longest = min(20 if quick else _steps(batch * settings.beam), settings.max_tgt_len)
        tgt_lens = [longest] if tells_steps else _between(2, longest, 2 if quick else 4)
        cells += [Work(src_len, tgt, batch, settings.beam) for tgt in tgt_lens]
    return cells


def encoder_cells(settings: Settings, *, tells_steps: bool) -> list[Work]:
    """Encoders by batch size and source length, each with a single decode step behind it.

    Where that step can only be subtracted, short sources, whose encoders drown in its noise, are left out.
    """
    shortest = 4 if tells_steps else min(10, settings.max_src_len // 2)
    quick = settings.mode == "quick"
    src_lens = _between(shortest, settings.max_src_len, 2 if quick else 4)
    return [Work(src, 1, batch, settings.beam) for batch in batches(settings) for src in src_lens]


def plan_rounds(settings: Settings, *, tells_steps: bool) -> BenchPlan:
    """Whole executions, where they are asked for, decode steps and encoders, each round of all of them.

    A box's speed wanders over minutes by more than the parts of an execution may differ from the whole. Within a round
    stretches of all benches take turns in an order of its own, each beside the same reference cell.
    """
    quick = settings.mode == "quick"
    cells: dict[Bench, list[Work]] = {
        "execution": execution_cells(settings) if "execution" in settings.parts and settings.mode != "paper" else [],
        "step": step_cells(settings, tells_steps=tells_steps),
        "encoder": encoder_cells(settings, tells_steps=tells_steps),
    }
    stretches = list[Stretch]()
    for number in range(QUICK_ROUNDS if quick else ROUNDS):
        parts = list[tuple[Bench, tuple[Work, ...]]]()
        for bench, works in cells.items():
            chosen = [work for work in works if number < LARGE_ROUNDS or work.batch * work.beam <= LARGE_ROWS]
            order = random_streams.stream(settings.seed, number, f"calibrate_{bench}").permutation(len(chosen)).tolist()
            parts += [
                (bench, tuple(chosen[at] for at in order[start : start + CELLS_A_STRETCH]))
                for start in range(0, len(order), CELLS_A_STRETCH)
            ]
        turns = random_streams.stream(settings.seed, number, "calibrate_rounds").permutation(len(parts)).tolist()
        stretches += [Stretch(parts[at][0], len(stretches) + place, parts[at][1], number) for place, at in enumerate(turns)]
    plan = BenchPlan("rounds", tuple(stretches), _reference(settings), readings=3, again=1)
    if quick:
        return replace(plan, within_s=QUICK_WITHIN_S)
    return replace(plan, again_at_least_s=AGAIN_AT_LEAST_S, again_share=AGAIN_SHARE, rounds_within_s=ROUNDS_WITHIN_S)


def plan_benches(settings: Settings, drawn: Sequence[tuple[int, int]] | None, *, tells_steps: bool) -> list[BenchPlan]:
    """The benches of the parts that were asked for; all in the same rounds but the drawn inferences of paper mode."""
    if "step" not in settings.parts:
        return [plan_execution(settings, drawn)] if "execution" in settings.parts else []
    alone = [plan_execution(settings, drawn)] if settings.mode == "paper" and "execution" in settings.parts else []
    return [*alone, plan_rounds(settings, tells_steps=tells_steps)]


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
    orders = (
        random_streams.stream(settings.seed, number, f"calibrate_{bench}").permutation(len(cells)) for number in range(rounds)
    )
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
