"""Times of callables that take turns: what slows the box slows all of them, so that their ratios stay."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Run = Callable[[], object]

LEAST_S = 0.1
"""Each callable is timed for as long at least, in more rounds than were asked for where it is short."""
MOST_ROUNDS = 20
"""Times the rounds that were asked for, at most."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of every callable in every round."""

    of: Mapping[str, tuple[float, ...]]

    @property
    def rounds(self) -> int:
        """Of each callable."""
        return len(next(iter(self.of.values())))

    def median_s(self, name: str) -> float:
        """Of one callable."""
        return statistics.median(self.of[name])

    def least_s(self, name: str) -> float:
        """Of one callable: what it takes where nothing disturbs it."""
        return min(self.of[name])

    def ratio(self, theirs: str, ours: str) -> float:
        """How many times as long `theirs` takes: the median of the rounds' ratios, since a round's two meet the same box."""
        return statistics.median(b / a for a, b in zip(self.of[ours], self.of[theirs], strict=True))


def interleaved(
    runs: Mapping[str, Run],
    rounds: int,
    before: Mapping[str, Run] | None = None,
    *,
    warm: bool = False,
    least_s: float = LEAST_S,
    clock: Callable[[], float] = time.perf_counter,
) -> Times:
    """Time each callable once a round, after one untimed run of each; what is in `before` is done untimed ahead of its own.

    Who begins moves by one from round to round, so that none always follows the same other. `warm`: each is run untimed right
    before it is timed too, so that it finds its data as it leaves them itself; else as the others leave them, whose data may
    have pushed its own out of the cache.
    """
    if rounds < 1 or not runs:
        raise ValueError("give at least one round and one callable")
    names, found = list(runs), {name: list[float]() for name in runs}
    restoring = before or {}

    def timed(name: str) -> float:
        restore = restoring.get(name)
        for again in (False, True) if warm else (True,):
            if restore is not None:
                restore()
            if not again:
                runs[name]()
        start_s = clock()
        runs[name]()
        return clock() - start_s

    collecting = gc.isenabled()
    gc.disable()
    try:
        for name in names:
            timed(name)
        for number in range(MOST_ROUNDS * rounds):
            if number >= rounds and all(sum(times) >= least_s for times in found.values()):
                break
            first = number % len(names)
            for name in names[first:] + names[:first]:
                found[name].append(timed(name))
    finally:
        if collecting:
            gc.enable()
    return Times({name: tuple(times) for name, times in found.items()})
