"""Difference of two methods on the same examples: bootstrap interval and exact McNemar test.

Pairing matters: one example of a small development set is a tenth of a percentage point.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import ArrayLike

CONFIDENCE = 0.95
RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The first one's mean less the second one's over the same examples, with its 95 % interval."""

    difference: float
    low: float
    high: float
    examples: int
    p_value: float | None
    """Of the exact McNemar test, two-sided; None where a column holds anything but right and wrong."""

    @property
    def distinguishable(self) -> bool:
        """Whether the interval leaves no doubt about the sign."""
        return self.low > 0.0 or self.high < 0.0


def paired_difference(first: ArrayLike, second: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> PairedDifference:
    """Compare two columns of shape (examples,): right or wrong, or any number such as a share of deadlines answered right.

    The interval is the percentile bootstrap's over examples: differences of pairs are drawn again, so that what both find hard
    does not count. A boolean column is a 0 or 1. Raises `ValueError` for columns of other or unequal shapes, empty ones, and
    numbers that are not finite.
    """
    one, other = np.asarray(first), np.asarray(second)
    if one.ndim != 1 or one.shape != other.shape or not one.size:
        raise ValueError(f"two columns of one length are needed, got shapes {one.shape} and {other.shape}")
    off = one.astype(np.float64) - other.astype(np.float64)
    if not np.isfinite(off).all():
        raise ValueError("numbers that are not finite cannot be compared")
    values, counts = np.unique(off, return_counts=True)
    low, high = _interval(tuple(values.tolist()), tuple(counts.tolist()), resamples, seed)
    decided = one.dtype == np.bool_ and other.dtype == np.bool_
    p_value = mcnemar(int((off > 0).sum()), int((off < 0).sum())) if decided else None
    return PairedDifference(float(off.mean()), low, high, int(off.size), p_value)


@lru_cache(maxsize=4096)
def _interval(values: tuple[float, ...], counts: tuple[int, ...], resamples: int, seed: int) -> tuple[float, float]:
    # Few values occur, so that drawing how often each one does is drawing the examples. Kept, as a report compares the same
    # two methods for its claims, its tables and its summary.
    examples = sum(counts)
    drawn = np.random.default_rng(seed).multinomial(examples, np.array(counts) / examples, size=resamples)
    low, high = np.quantile(drawn @ np.array(values) / examples, (0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2)).tolist()
    return low, high


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided p-value that examples which one alone has right fall to either with equal chance."""
    total, least = only_first + only_second, min(only_first, only_second)
    tail = sum(comb(total, right) for right in range(least + 1))
    return min(2 * tail / (1 << total), 1.0)
