"""The plan of a calibration: cells, rounds, and stretches between two readings of a reference cell. Pure functions."""

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
"""The three benches that time the engine."""
BENCHES: tuple[Bench, ...] = ("execution", "step", "encoder")
ROUNDS, QUICK_ROUNDS = 5, 3
"""Rounds of whole executions, decode steps and encoders."""
LEAST_ROUNDS, ROUNDS_WITHIN_S = 3, 420.0
"""Least rounds of a full calibration; no further round is begun that would end later."""
LARGE_ROWS, LARGE_ROUNDS = 32, 3
"""Batches of more rows are measured only in the first rounds: they take long, and are not needed for single sentences."""

CELLS_A_STRETCH = 10
INFERENCES_A_STRETCH = 40
"""Cells of a stretch in paper mode, which are single inferences of moderate length."""
QUICK_WITHIN_S = 60.0
"""Bound of all measuring in a quick calibration; stretches that would exceed it are not measured again."""
AGAIN_AT_LEAST_S, AGAIN_SHARE = 60.0, 0.25
"""A full calibration may spend this time, or this share of a bench's time if that is more, on measuring the bench again: on a
box with permanent neighbours, further repeats would not help."""
QUICK_FITTED = (1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1_024)
FITTED = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024)
"""Batch sizes that costs are fitted to, up to the largest of the settings. They are dense at the low end: a library may change
its kernel from one row to two, and a step may then take twice as long."""
QUICK_JUDGING = (7, 10, 40, 224, 896)
JUDGING = (7, 10, 20, 40, 112, 224, 448, 896)
"""Batch sizes that only judge the fits; those below the largest fitted size are measured."""
QUICK_MOST_BATCH, MOST_BATCH = 16, 64
"""Default largest batch."""
SHORTENED = ((128, 64), (384, 36), (1_024, 18))
"""(most rows, hypotheses counted; steps of a run); above these `LEAST_STEPS`. Long runs of large batches take minutes, and the
growth of a step with the position is known from smaller batches. Each run ends where a window of positions ends."""
LEAST_STEPS = 10
STEP_SRC_LEN = 20
"""Source tokens of the decode steps: near the mean sentence of news."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Works between two readings of the reference cell."""

    bench: Bench
    number: int
    works: tuple[Work, ...]
    round: int = 0


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """All stretches of one bench, or of several benches measured in the same rounds, in order."""

    bench: Bench | Literal["rounds"]
    """`rounds`: each stretch names its bench."""
    stretches: tuple[Stretch, ...]
    reference: Work
    """Read before the first stretch and after each."""
    readings: int
    """Repeats of a reading; the least counts."""
    again: int
    """Most further attempts at a disturbed stretch."""
    within_s: float = math.inf
    """Bound of all measuring, of all benches, beyond which nothing is measured again."""
    again_at_least_s: float = math.inf
    again_share: float = 0.0
    """Bound of measuring this bench again: these seconds, or this share of its first time without left-out rounds, whichever
    is more."""
    rounds_within_s: float = math.inf
    """Bound of all rounds, beyond which only the least number of rounds is measured; earlier plans do not count."""
    drawn: bool = False
    """True if each work counts once, disturbed or not: draws from a distribution, and executions after gaps."""

    def again_within_s(self, first_s: float) -> float:
        """Return the bound of measuring again if the whole bench took `first_s`."""
        return max(self.again_at_least_s, self.again_share * first_s)

    @property
    def benches(self) -> tuple[Bench, ...]:
        """The benches of the stretches."""
        return tuple(bench for bench in BENCHES if any(stretch.bench == bench for stretch in self.stretches))

    @property
    def works(self) -> list[Work]:
        """All works in order, with repeats."""
        return [work for stretch in self.stretches for work in stretch.works]


def corner_cells(settings: Settings) -> list[Work]:
    """Return the six cells of quick mode: shortest and longest source by shortest, middle and longest target.

    The shortest length is 2, so that one-time costs are not mistaken for the cost of a token.
    """
    longest_src, longest_tgt = settings.max_src_len, settings.max_tgt_len
    tgt_lens = (2, _between(2, longest_tgt, 3)[1], longest_tgt)
    return [Work(src, tgt, 1, settings.beam) for src in (2, longest_src) for tgt in tgt_lens]


def judging_cells(settings: Settings) -> list[Work]:
    """Return four cells between the six: quick mode measures them to judge the plane, and does not fit them."""
    src_lens, tgt_lens = (_between(2, longest, 4)[1:-1] for longest in (settings.max_src_len, settings.max_tgt_len))
    return [Work(src, tgt, 1, settings.beam) for src in src_lens for tgt in tgt_lens]


def grid_cells(settings: Settings) -> list[Work]:
    """Return the full grid: six lengths a side, evenly spaced in their logarithm, with the corner cells of the settings."""
    src_lens = _between(2, settings.max_src_len, 6)
    tgt_lens = sorted({*_between(2, settings.max_tgt_len, 6), _between(2, settings.max_tgt_len, 3)[1]})
    return [Work(src, tgt, 1, settings.beam) for src in src_lens for tgt in tgt_lens]


def plan_execution(settings: Settings, drawn: Sequence[tuple[int, int]] | None = None) -> BenchPlan:
    """Plan single inferences; `drawn`: the (src_len, tgt_len) of paper mode in their order."""
    reference = _reference(settings)
    if settings.mode == "paper":
        assert drawn is not None
        works = [Work(src, tgt, 1, settings.beam) for src, tgt in drawn]
        return BenchPlan("execution", _cut("execution", [works], INFERENCES_A_STRETCH), reference, 3, again=1, drawn=True)
    cells, (rounds, again) = execution_cells(settings), (4, 1) if settings.mode == "quick" else (7, 2)
    every = settings.gap_s is not None
    # Each round does every cell once, in a new order, so that drift affects all cells alike.
    orders = [_shuffled(settings.seed, number, "execution", len(cells)) for number in range(rounds)]
    stretches = _cut("execution", [[cells[at] for at in order] for order in orders], CELLS_A_STRETCH)
    return _bounded(
        BenchPlan("execution", stretches, reference, readings=3, again=0 if every else again, drawn=every), settings
    )


def execution_cells(settings: Settings) -> list[Work]:
    """Return the cells of single executions: in quick mode the corners and the judging cells, else the grid."""
    return corner_cells(settings) + judging_cells(settings) if settings.mode == "quick" else grid_cells(settings)


def step_cells(settings: Settings, *, tells_steps: bool) -> list[Work]:
    """Return the cells of decode steps by batch size; several target lengths for an engine that does not report steps."""
    quick = settings.mode == "quick"
    src_len = min(STEP_SRC_LEN, settings.max_src_len)
    cells = []
    for batch in batches(settings):
        longest = min(20 if quick else _steps(batch * settings.beam), settings.max_tgt_len)
        tgt_lens = [longest] if tells_steps else _between(2, longest, 2 if quick else 4)
        cells += [Work(src_len, tgt, batch, settings.beam) for tgt in tgt_lens]
    return cells


def encoder_cells(settings: Settings, *, tells_steps: bool) -> list[Work]:
    """Return the cells of encoders by batch size and source length, each with a single decode step.

    For an engine that does not report steps, short sources are left out, whose encoders are below the noise of that step.
    """
    shortest = 4 if tells_steps else min(10, settings.max_src_len // 2)
    quick = settings.mode == "quick"
    src_lens = _between(shortest, settings.max_src_len, 2 if quick else 4)
    return [Work(src, 1, batch, settings.beam) for batch in batches(settings) for src in src_lens]


def plan_rounds(settings: Settings, *, tells_steps: bool) -> BenchPlan:
    """Plan rounds of decode steps, encoders and, if the settings include them, whole executions.

    The speed of a box varies over minutes by more than the parts of an execution may differ from the whole. Each round
    measures stretches of all benches in a new order, next to the same reference cell.
    """
    quick = settings.mode == "quick"
    cells: dict[Bench, list[Work]] = {
        "execution": execution_cells(settings) if "execution" in settings.parts and not executes_apart(settings) else [],
        "step": step_cells(settings, tells_steps=tells_steps),
        "encoder": encoder_cells(settings, tells_steps=tells_steps),
    }
    stretches = list[Stretch]()
    for number in range(QUICK_ROUNDS if quick else ROUNDS):
        parts = list[tuple[Bench, tuple[Work, ...]]]()
        for bench, works in cells.items():
            chosen = [work for work in works if number < LARGE_ROUNDS or work.batch * work.beam <= LARGE_ROWS]
            order = _shuffled(settings.seed, number, bench, len(chosen))
            parts += [
                (bench, tuple(chosen[at] for at in order[start : start + CELLS_A_STRETCH]))
                for start in range(0, len(order), CELLS_A_STRETCH)
            ]
        turns = _shuffled(settings.seed, number, "rounds", len(parts))
        stretches += [Stretch(parts[at][0], len(stretches) + place, parts[at][1], number) for place, at in enumerate(turns)]
    within_s = math.inf if quick else ROUNDS_WITHIN_S
    plan = BenchPlan("rounds", tuple(stretches), _reference(settings), readings=3, again=1, rounds_within_s=within_s)
    return _bounded(plan, settings)


def plan_benches(settings: Settings, drawn: Sequence[tuple[int, int]] | None, *, tells_steps: bool) -> list[BenchPlan]:
    """Plan the benches of the settings' parts: in the same rounds, except executions that `executes_apart` names."""
    alone = [plan_execution(settings, drawn)] if "execution" in settings.parts else []
    if "step" not in settings.parts:
        return alone
    return [*(alone if executes_apart(settings) else []), plan_rounds(settings, tells_steps=tells_steps)]


def executes_apart(settings: Settings) -> bool:
    """Return whether single executions have rounds of their own: drawn inferences, and executions after gaps."""
    return settings.mode == "paper" or settings.gap_s is not None


def batches(settings: Settings) -> tuple[int, ...]:
    """Return the batch sizes of steps and encoders, rising; the largest is fitted."""
    quick = settings.mode == "quick"
    most = settings.max_batch or (QUICK_MOST_BATCH if quick else MOST_BATCH)
    fitted = [size for size in (QUICK_FITTED if quick else FITTED) if size <= most]
    return tuple(sorted(fitted + [size for size in (QUICK_JUDGING if quick else JUDGING) if size < fitted[-1]]))


def out_of_reach(work: Work, too_large: Sequence[Work]) -> bool:
    """Return whether some work that did not fit into memory is at most as large as this one in every respect."""
    return any(
        all(getattr(small, name) <= getattr(work, name) for name in ("batch", "beam", "src_len", "tgt_len"))
        for small in too_large
    )


def _reference(settings: Settings) -> Work:
    return Work(min(16, settings.max_src_len), min(8, settings.max_tgt_len), 1, settings.beam)


def _steps(rows: int) -> int:
    return next((steps for most, steps in SHORTENED if rows <= most), LEAST_STEPS)


def _between(low: int, high: int, count: int) -> list[int]:
    """Return `count` lengths evenly spaced in their logarithm, fewer if whole tokens coincide."""
    return sorted({round(length) for length in np.geomspace(low, high, count).tolist()})


def _shuffled(seed: int, number: int, bench: str, count: int) -> list[int]:
    """Return the numbers below `count` in the random order of one round."""
    order: list[int] = random_streams.stream(seed, number, f"calibrate_{bench}").permutation(count).tolist()
    return order


def _bounded(plan: BenchPlan, settings: Settings) -> BenchPlan:
    """Bound the time of measuring disturbed stretches again."""
    if settings.mode == "quick":
        return replace(plan, within_s=QUICK_WITHIN_S)
    return replace(plan, again_at_least_s=AGAIN_AT_LEAST_S, again_share=AGAIN_SHARE)


def _cut(bench: Bench, rounds: Sequence[Sequence[Work]], size: int) -> tuple[Stretch, ...]:
    parts = [tuple(works[start : start + size]) for works in rounds for start in range(0, len(works), size)]
    return tuple(Stretch(bench, number, works) for number, works in enumerate(parts))
