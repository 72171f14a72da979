"""Timed samples, readings of the reference cell, repeats grouped into cells, and the drift of the box between readings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simnmt.calibrate.plan import Bench
from simnmt.nmt.engine import Timing, Work


@dataclass(frozen=True, slots=True)
class Sample:
    """One work, timed once."""

    bench: Bench
    attempt: int
    stretch: int
    index: int
    """Within the stretch."""
    work: Work
    timing: Timing | None
    """None where memory did not suffice."""


def reduce_timing(bench: Bench, timing: Timing) -> Timing:
    """Return the used part of a timing: single steps of the step bench alone, elsewhere their sum, which gives the gaps."""
    if bench == "step" or timing.steps_s is None:
        return timing
    return Timing(timing.total_s, timing.encode_s, (sum(timing.steps_s),))


@dataclass(frozen=True, slots=True)
class Reading:
    """The reference cell, timed a few times on end."""

    bench: Bench | Literal["rounds"]
    attempt: int
    position: int
    """0 before the first stretch of the attempt, k after its k-th."""
    total_s: tuple[float, ...]
    frequency_mhz: float | None = None
    """Mean clock, right afterwards, of the CPUs that we run on; None where the box does not tell."""

    @property
    def least_s(self) -> float:
        """The least repeat, which counts."""
        return min(self.total_s)


@dataclass(frozen=True, slots=True)
class Cell:
    """All repeats of one work."""

    work: Work
    timings: tuple[Timing, ...]
    disturbed: bool
    """True if no repeat was free of disturbance."""

    @property
    def total_s(self) -> tuple[float, ...]:
        """Seconds of each repeat."""
        return tuple(timing.total_s for timing in self.timings)


def group_by_work(samples: Iterable[Sample], disturbed: Iterable[tuple[int, int]], *, every: bool = False) -> list[Cell]:
    """Repeats by work, sorted by it. `disturbed`: (attempt, stretch).

    Of several attempts at the same place of the plan a calm one counts, else the last. A place without a calm attempt does not
    count where its work has others; with `every` it does, so that there are as many inferences as were planned.
    """
    spoilt = set(disturbed)
    places: dict[tuple[int, int], tuple[bool, Sample, Timing]] = {}
    for sample in samples:
        place, calm = (sample.stretch, sample.index), (sample.attempt, sample.stretch) not in spoilt
        if sample.timing is not None and (calm or place not in places or not places[place][0]):
            places[place] = (calm, sample, sample.timing)
    by_work: dict[Work, list[tuple[bool, Timing]]] = {}
    for calm, sample, timing in places.values():
        by_work.setdefault(sample.work, []).append((calm, timing))
    cells = []
    for work, repeats in by_work.items():
        counted = tuple(timing for calm, timing in repeats if calm or every)
        disturbed_all = not any(calm for calm, _ in repeats)
        cells.append(Cell(work, counted or tuple(timing for _, timing in repeats), disturbed_all))
    return sorted(cells, key=lambda cell: (cell.work.batch, cell.work.beam, cell.work.src_len, cell.work.tgt_len))


BOUND = 0.05
"""Share by which a reading may differ from the usual one. A quiet box stays within 0.01 to 0.02."""
BASE = "the lower quartile of all readings"
"""Base of drift: a disturbance only slows, and a single lucky reading is not the rule."""


@dataclass(frozen=True, slots=True)
class Drift:
    """How steady the reference cell was."""

    usual_s: float
    """As `BASE` says."""
    largest: float
    """The largest share by which a reading differs from it, with its sign."""
    disturbed: frozenset[tuple[str, int, int]]
    """(bench, attempt, stretch) with a disturbed reading before or after."""


def judge_drift(readings: Sequence[Reading], order: Mapping[tuple[str, int], Sequence[int]], bound: float = BOUND) -> Drift:
    """Compare all readings. `order`: the stretches of each (bench, attempt) as they were measured.

    A stretch is disturbed where a reading at either of its ends is off by more than `bound`, or is missing.
    """
    usual_s = float(np.quantile([reading.least_s for reading in readings], 0.25)) if readings else 0.0
    off: dict[tuple[str, int, int], float] = {
        (reading.bench, reading.attempt, reading.position): reading.least_s / usual_s - 1.0 if usual_s > 0.0 else 0.0
        for reading in readings
    }
    disturbed = {
        (bench, attempt, stretch)
        for (bench, attempt), stretches in order.items()
        for position, stretch in enumerate(stretches)
        if any(abs(off.get((bench, attempt, end), np.inf)) > bound for end in (position, position + 1))
    }
    return Drift(usual_s, max(off.values(), key=abs, default=0.0), frozenset(disturbed))
