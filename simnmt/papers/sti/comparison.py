"""Compare methods of running one model under the same deadlines, over the same examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.papers.kit.claims import Effect, Undecided
from simnmt.papers.sti.study import Outcome, Point, StudiedDevice, Study, Upgraded

POINTS = 100.0
"""Points of accuracy in 1."""
CONFIDENCE = 0.95
RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Mean of the first method less that of the second over the same examples, with its 95 % interval."""

    difference: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{POINTS * self.difference:+.2f} points ({POINTS * self.low:+.2f} to {POINTS * self.high:+.2f})"

    def at_least(self, bound: float) -> Effect:
        """Return whether the difference is at least `bound`; both answers if its interval allows both."""
        if self.low >= bound - 1e-12:
            return True
        return False if self.high < bound else [True, False]

    @property
    def above(self) -> Effect:
        """Whether the first is better than the second; both answers if the interval contains 0."""
        return True if self.low > 0.0 else False if self.high < 0.0 else [True, False]


def paired_difference(first: ArrayLike, second: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> PairedDifference:
    """Compare two columns of shape (examples,): right or wrong, or a share such as of deadlines answered right.

    The interval is the percentile bootstrap's over examples. It resamples the differences of pairs, so that examples that both
    find hard do not widen it.
    """
    off = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    values, counts = np.unique(off, return_counts=True)
    return PairedDifference(float(off.mean()), *_interval(tuple(values.tolist()), tuple(counts.tolist()), resamples, seed))


@lru_cache(maxsize=4096)
def _interval(values: tuple[float, ...], counts: tuple[int, ...], resamples: int, seed: int) -> tuple[float, float]:
    # Few values occur, so that drawing how often each one does is drawing the examples. Kept, as a report compares the same
    # two methods for its claims, its tables and its summary.
    examples = sum(counts)
    drawn = np.random.default_rng(seed).multinomial(examples, np.array(counts) / examples, size=resamples)
    low, high = np.quantile(drawn @ np.array(values) / examples, (0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2)).tolist()
    return low, high


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two methods on one device under common deadlines, over the same examples."""

    examples: int
    pairs: tuple[tuple[Point, Point], ...]
    """Points of both methods by deadline, rising."""

    def where(self, keep: Callable[[Point, Point], bool]) -> Comparison:
        """Return the comparison under the deadlines whose pair `keep` accepts."""
        return Comparison(self.examples, tuple(pair for pair in self.pairs if keep(*pair)))

    @property
    def in_time(self) -> Comparison:
        """The comparison under deadlines that neither method misses (errata to STI-22)."""
        return self.where(lambda first, second: not (first.misses or second.misses))

    @property
    def gain(self) -> PairedDifference:
        """Accuracy of the first method less that of the second, mean over deadlines, of which there must be one."""
        first, second = zip(*((one.outcome, other.outcome) for one, other in self.pairs), strict=True)
        return paired_difference(mean_right(first, self.examples), mean_right(second, self.examples))

    @property
    def accuracies(self) -> tuple[float, float]:
        """Mean accuracy of each method."""
        first, second = zip(*((one.outcome.accuracy, other.outcome.accuracy) for one, other in self.pairs), strict=True)
        return fmean(first), fmean(second)

    @property
    def missed(self) -> tuple[int, int]:
        """Number of deadlines that each method misses."""
        return sum(first.misses for first, _ in self.pairs), sum(second.misses for _, second in self.pairs)

    def ratio(self, value: Callable[[Point], float]) -> float:
        """Return the mean of the first method's value over the second's. Raises `Undecided` if the second's is always 0."""
        ratios = [value(first) / value(second) for first, second in self.pairs if value(second) > 0.0]
        if not ratios:
            raise Undecided("nothing is held under a common deadline")
        return fmean(ratios)


def points_of(study: Study, device: StudiedDevice, method: str, preload_share: float | None = None) -> dict[float, Point]:
    """Return one method's points on one device by deadline, rising.

    `preload_share`: for methods with a preload buffer; the default is the device's own.
    """
    shares = (None, device.preload_share) if preload_share is None else (preload_share,)
    points = [
        point for point in study.grid if (point.device, point.method) == (device.name, method) and point.preload_share in shares
    ]
    return {point.deadline_share: point for point in sorted(points, key=lambda point: point.deadline_share)}


def compare(study: Study, device: StudiedDevice, first: str, second: str, second_share: float | None = None) -> Comparison:
    """Compare two methods on one device. Raises `Undecided` if no deadline has both.

    `second_share`: the second method's preload buffer, by default the device's.
    """
    others = points_of(study, device, second, second_share)
    pairs = tuple((one, others[at]) for at, one in points_of(study, device, first).items() if at in others)
    if not pairs:
        raise Undecided("nothing was run under a common deadline")
    return Comparison(study.task.examples, pairs)


def comparisons(study: Study, device: StudiedDevice) -> dict[str, Comparison]:
    """Compare STI with every other method that ran on the device under a common deadline."""
    planned = points_of(study, device, "STI")
    methods = dict.fromkeys(point.method for point in study.grid if point.method != "STI")
    common = [method for method in methods if planned.keys() & points_of(study, device, method)]
    return {method: compare(study, device, "STI", method) for method in common}


def mean_right(outcomes: Sequence[Outcome], examples: int) -> NDArray[np.float64]:
    """Return for each example the share of the outcomes that answer it correctly."""
    shares: NDArray[np.float64] = np.mean([outcome.right(examples) for outcome in outcomes], axis=0, dtype=np.float64)
    return shares


def difference(outcome: Outcome, other: Outcome, examples: int) -> PairedDifference:
    """Return the accuracy of one outcome less that of another."""
    return paired_difference(outcome.right(examples), other.right(examples))


def importance_gain(cases: Sequence[Upgraded], examples: int) -> PairedDifference:
    """Return the gain of raising by importance over the mean of the random orders, mean over cases."""
    best = np.mean([mean_right([case.best], examples) for case in cases], axis=0)
    by_chance = np.mean([mean_right(case.random, examples) for case in cases], axis=0)
    return paired_difference(best, by_chance)


def format_shares(shares: Sequence[float]) -> str:
    """Format deadlines as percentages of the whole computation."""
    return ", ".join(f"{100 * share:g} %" for share in shares)
