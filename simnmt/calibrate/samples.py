"""Timed samples, readings of the reference cell, cells of repeats, and the drift of the box between readings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simnmt.calibrate.plan import Bench
from simnmt.nmt.engine import Timing, Work


@dataclass(frozen=True, slots=True)
class Sample:
    """One timing of a work."""

    bench: Bench
    attempt: int
    stretch: int
    index: int
    """Place within the stretch."""
    work: Work
    timing: Timing | None
    """None if memory did not suffice."""


def reduce_timing(bench: Bench, timing: Timing) -> Timing:
    """Return the used part of a timing: single steps for the step bench, else only their sum, which gives the gaps."""
    if bench == "step" or timing.steps_s is None:
        return timing
    return Timing(timing.total_s, timing.encode_s, (sum(timing.steps_s),))


@dataclass(frozen=True, slots=True)
class Reading:
    """A few consecutive timings of the reference cell."""

    bench: Bench | Literal["rounds"]
    attempt: int
    position: int
    """0 before the first stretch of the attempt, k after the k-th."""
    total_s: tuple[float, ...]
    frequency_mhz: float | None = None
    """Mean clock of the CPUs of this process right afterwards; None if unknown."""

    @property
    def least_s(self) -> float:
        """The least repeat."""
        return min(self.total_s)


@dataclass(frozen=True, slots=True)
class Cell:
    """All repeats of one work."""

    work: Work
    timings: tuple[Timing, ...]
    disturbed: bool
    """True if no repeat was free of disturbance."""
    stretches: tuple[int, ...] = ()
    """Stretch of each repeat; empty if not known."""

    @property
    def total_s(self) -> tuple[float, ...]:
        """Seconds of each repeat."""
        return tuple(timing.total_s for timing in self.timings)


def group_by_work(samples: Iterable[Sample], disturbed: Iterable[tuple[int, int]], *, every: bool = False) -> list[Cell]:
    """Group repeats by work, sorted by work. `disturbed`: (attempt, stretch) pairs.

    Of several attempts at the same place of the plan an undisturbed one counts, else the last. A place with disturbed attempts
    only is dropped if its work has other places; with `every` it is kept, so that all planned inferences count.
    """
    spoilt = set(disturbed)
    places: dict[tuple[int, int], tuple[bool, Sample, Timing]] = {}
    for sample in samples:
        place, calm = (sample.stretch, sample.index), (sample.attempt, sample.stretch) not in spoilt
        if sample.timing is not None and (calm or place not in places or not places[place][0]):
            places[place] = (calm, sample, sample.timing)
    by_work: dict[Work, list[tuple[bool, Timing, int]]] = {}
    for calm, sample, timing in places.values():
        by_work.setdefault(sample.work, []).append((calm, timing, sample.stretch))
    cells = []
    for work, repeats in by_work.items():
        disturbed_all = not any(calm for calm, _, _ in repeats)
        _, timings, stretches = zip(*(repeat for repeat in repeats if repeat[0] or every or disturbed_all), strict=True)
        cells.append(Cell(work, timings, disturbed_all, stretches))
    return sorted(cells, key=lambda cell: (cell.work.batch, cell.work.beam, cell.work.src_len, cell.work.tgt_len))


BOUND = 0.05
"""Largest relative difference of a reading from the usual one. A quiet box stays within 0.01 to 0.02."""
BASE = "the lower quartile of all readings"
"""Description of the base of drift: disturbances only slow a reading, but a single fast reading may be exceptional."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Steadiness of the reference cell."""

    usual_s: float
    """The usual reading, see `BASE`."""
    largest: float
    """Largest relative difference of a reading from the usual one, with its sign."""
    disturbed: frozenset[tuple[str, int, int]]
    """(bench, attempt, stretch) with a disturbed reading before or after."""


def judge_drift(readings: Sequence[Reading], order: Mapping[tuple[str, int], Sequence[int]], bound: float = BOUND) -> Drift:
    """Compare all readings. `order`: the stretches of each (bench, attempt) in the order of measuring.

    A stretch is disturbed if a reading before or after it differs by more than `bound` from the usual one, or is missing.
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
