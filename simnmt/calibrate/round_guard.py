"""Timed rounds guarded against disturbance, for the studies of papers.

A round times several methods one after the other, and the ratios of their times count. A round is disturbed if other processes
used more than `QUIET_SHARE` of the CPUs meanwhile, or if the speed of reference work, timed before, within and after the round,
changed. A disturbed round is rejected and measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from time import perf_counter
from typing import Generic, TypeVar

import numpy as np

from simnmt.calibrate import processor_use
from simnmt.calibrate.box import BoxDescription, describe

REFERENCE_BOUND = 0.10
"""Largest relative difference of the reference readings of one round. A quiet virtual machine stays within 0.02 for seconds."""
MOST_ATTEMPTS = 3
"""Most attempts at one round."""

T = TypeVar("T")
Checkpoint = Callable[[], None]
"""Times the reference work; a round calls it between its methods."""


@dataclass(frozen=True, slots=True)
class RoundCheck:
    """Conditions under which one round was measured."""

    others_cpus: float | None
    """CPUs' worth of time that other processes used meanwhile; None if unknown."""
    reference_spread: float
    """Greatest over least reading of the reference work in this round, less 1."""
    busy: bool
    """True if other processes used more than `QUIET_SHARE` of the CPUs."""

    @property
    def disturbed(self) -> bool:
        """True if the round's times do not count."""
        return self.busy or self.reference_spread > REFERENCE_BOUND


@dataclass(frozen=True, slots=True)
class GuardedRound(Generic[T]):
    """A round that was measured until an attempt was undisturbed, or `MOST_ATTEMPTS` times."""

    result: T
    """Result of the last attempt."""
    checks: tuple[RoundCheck, ...]
    """Conditions of each attempt."""

    @property
    def conclusive(self) -> bool:
        """True if the last attempt was undisturbed."""
        return not self.checks[-1].disturbed


@dataclass
class RoundGuard:
    """A loop that measures a round again while it is disturbed, `MOST_ATTEMPTS` times at most."""

    reference: Callable[[], float] = field(default_factory=lambda: matrix_reference())
    """Times the reference work once, in seconds; by default products of a matrix that caches hold in part."""
    watch: Callable[[], processor_use.BusyWatch] = processor_use.BusyWatch
    box: BoxDescription = field(default_factory=lambda: describe())
    say: Callable[[str], None] = lambda _: None

    def measure(self, run_round: Callable[[Checkpoint], T], name: str = "round") -> GuardedRound[T]:
        """Measure a round with `run_round(checkpoint)`; `name`: name of the round in messages."""
        checks: list[RoundCheck] = []
        while not checks or (checks[-1].disturbed and len(checks) < MOST_ATTEMPTS):
            readings: list[float] = []
            watch = self.watch()
            checkpoint = partial(self._read, readings)
            checkpoint()
            result = run_round(checkpoint)
            checkpoint()
            checks.append(self._check(readings, watch.others_cpus()))
            if checks[-1].disturbed:
                self.say(f"{name}, attempt {len(checks)} was disturbed ({describe_check(checks[-1])})")
        return GuardedRound(result, tuple(checks))

    def _read(self, readings: list[float]) -> None:
        readings.append(self.reference())

    def _check(self, readings: Sequence[float], others_cpus: float | None) -> RoundCheck:
        least, greatest = min(readings), max(readings)
        spread = greatest / least - 1.0 if least > 0.0 else 0.0
        return RoundCheck(others_cpus, spread, others_cpus is not None and processor_use.is_busy(others_cpus, self.box))


def describe_check(check: RoundCheck) -> str:
    """Describe the conditions of a round: `others used 0.8 CPUs, reference work varied by 12 %`."""
    others = [] if check.others_cpus is None else [f"others used {check.others_cpus:.1f} CPUs"]
    return ", ".join([*others, f"reference work varied by {100 * check.reference_spread:.0f} %"])


def matrix_reference(rows: int = 4_096, columns: int = 512, repeats: int = 25) -> Callable[[], float]:
    """Return a function that times products of an 8 MB matrix with a vector, the median of three repeats in seconds.

    A small decoder's output layer computes such products. The matrix does not fit into the private cache of a core, so that
    neighbours on shared caches and memory change the time.
    """
    random = np.random.default_rng(0)
    matrix, vector = random.standard_normal((rows, columns), np.float32), random.standard_normal(columns, np.float32)
    out = np.empty(rows, np.float32)

    def seconds() -> float:
        times_s = []
        for _ in range(3):
            begin_s = perf_counter()
            for _ in range(repeats):
                np.einsum("ij,j->i", matrix, vector, out=out)
            times_s.append(perf_counter() - begin_s)
        return median(times_s)

    return seconds
