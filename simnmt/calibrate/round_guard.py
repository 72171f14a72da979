"""Timed rounds guarded against disturbance, as the studies of papers measure them.

A round times several methods in turn, and their ratios count. Two signs make a round disturbed: other processes used more
than `QUIET_SHARE` of the CPUs while it ran, or reference work that is timed before, within and after it changed its speed.
A disturbed round is rejected and measured again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Generic, TypeVar

import numpy as np

from simnmt.calibrate import processor_use
from simnmt.calibrate.box import BoxDescription, describe

REFERENCE_BOUND = 0.10
"""Largest relative difference of the reference readings of one round. A quiet virtual machine stays within 0.02 for seconds."""
ATTEMPTS_PER_ROUND = 3
"""Rounds measured at most, for each round that is wanted."""
LEAST_SHARE = 2 / 3
"""Share of the wanted rounds that must be undisturbed for a conclusion."""

T = TypeVar("T")
Checkpoint = Callable[[], None]
"""Times the reference work; a round calls it between its methods."""


@dataclass(frozen=True, slots=True)
class RoundCheck:
    """Conditions under which one round was measured."""

    others_cpus: float | None
    """CPUs' worth of time that other processes used meanwhile; None if the box keeps no account of it."""
    reference_spread: float
    """Greatest over least reading of the reference work in this round, less 1."""
    busy: bool
    """Other processes used more than their share."""

    @property
    def disturbed(self) -> bool:
        """True if the round's times do not count."""
        return self.busy or self.reference_spread > REFERENCE_BOUND


@dataclass(frozen=True, slots=True)
class GuardedRounds(Generic[T]):
    """All rounds that were measured, in their order, each with its check."""

    wanted: int
    rounds: tuple[tuple[T, RoundCheck], ...]

    @property
    def measured(self) -> int:
        """Number of rounds."""
        return len(self.rounds)

    @property
    def rejected(self) -> int:
        """Number of disturbed rounds."""
        return sum(check.disturbed for _, check in self.rounds)

    @property
    def conclusive(self) -> bool:
        """True if enough rounds were undisturbed."""
        return len(self.rounds) - self.rejected >= math.ceil(LEAST_SHARE * self.wanted)

    @property
    def counted(self) -> list[T]:
        """The undisturbed rounds; all rounds if these are too few for a conclusion."""
        return [result for result, check in self.rounds if not (self.conclusive and check.disturbed)]

    @property
    def worst_others_cpus(self) -> float | None:
        """Greatest use of the CPUs by other processes in a round."""
        return max((check.others_cpus for _, check in self.rounds if check.others_cpus is not None), default=None)

    @property
    def worst_reference_spread(self) -> float:
        """Greatest spread of the reference work in a round."""
        return max((check.reference_spread for _, check in self.rounds), default=0.0)


class RoundGuard:
    """Measures rounds until as many as wanted are undisturbed, or `ATTEMPTS_PER_ROUND` times as many were measured."""

    def __init__(
        self,
        reference: Callable[[], float] | None = None,
        *,
        root: str | os.PathLike[str] = "/",
        watch: Callable[[], processor_use.BusyWatch] | None = None,
        box: BoxDescription | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`reference`: times the reference work once, in seconds; by default products of a matrix that caches hold in part."""
        self._reference = reference or matrix_reference()
        self._watch = watch or (lambda: processor_use.BusyWatch(root))
        self._box = box or describe(libraries=False)
        self._say = say

    def measure(self, wanted: int, run_round: Callable[[int, Checkpoint], T], name: str = "round") -> GuardedRounds[T]:
        """Measure rounds with `run_round(number, checkpoint)`; `number` counts from 0 and includes the rejected rounds.

        `name` stands before the number of a disturbed round in messages.
        """
        rounds: list[tuple[T, RoundCheck]] = []
        undisturbed = 0
        while undisturbed < wanted and len(rounds) < ATTEMPTS_PER_ROUND * wanted:
            readings: list[float] = []
            watch = self._watch()
            checkpoint = partial(self._read, readings)
            checkpoint()
            result = run_round(len(rounds), checkpoint)
            checkpoint()
            check = self._check(readings, watch.others_cpus())
            rounds.append((result, check))
            undisturbed += not check.disturbed
            if check.disturbed:
                self._say(f"{name} {len(rounds)} was disturbed ({describe_check(check)})")
        return GuardedRounds(wanted, tuple(rounds))

    def _read(self, readings: list[float]) -> None:
        readings.append(self._reference())

    def _check(self, readings: Sequence[float], others_cpus: float | None) -> RoundCheck:
        least, greatest = min(readings), max(readings)
        spread = greatest / least - 1.0 if least > 0.0 else 0.0
        return RoundCheck(others_cpus, spread, others_cpus is not None and processor_use.is_busy(others_cpus, self._box))


def describe_check(check: RoundCheck) -> str:
    """State the conditions of a round, as `others used 0.8 CPUs, reference work varied by 12 %`."""
    others = [] if check.others_cpus is None else [f"others used {check.others_cpus:.1f} CPUs"]
    return ", ".join([*others, f"reference work varied by {100 * check.reference_spread:.0f} %"])


def matrix_reference(rows: int = 4_096, columns: int = 512, repeats: int = 25) -> Callable[[], float]:
    """Make reference work: products of an 8 MB matrix with a vector, as a small decoder's output layer does them.

    Returns:
        A function that times the products three times and returns the median in seconds. The matrix does not fit a core's own
        cache, so that neighbours on shared caches and memory show.
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
