"""A law of seconds kept as a few of its quantiles, and how alike two neighbours drawn from it have to be."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simnmt.configuration import Configuration

Floats = NDArray[np.float64]

Seconds = Annotated[float, Field(ge=-3600, le=3600)]
"""An RTT, or what is added to one: no network is slower than an hour."""

_GRID = 300


class QuantileLaw(Configuration):
    """A law by its quantiles, linear between them."""

    shares: tuple[float, ...]
    """Increasing from 0 to 1; one share alone stands for a law of one value."""
    values_s: tuple[Seconds, ...]
    """The quantile at each share, seconds; never decreasing."""

    @model_validator(mode="after")
    def _is_a_law(self) -> QuantileLaw:
        if not self.shares or len(self.shares) != len(self.values_s):
            raise ValueError("needs as many shares as values, and at least one")
        if len(self.shares) > 1 and (self.shares[0], self.shares[-1]) != (0.0, 1.0):
            raise ValueError("shares must run from 0 to 1")
        if any(later <= before for before, later in pairwise(self.shares)):
            raise ValueError("shares must increase")
        if any(later < before for before, later in pairwise(self.values_s)):
            raise ValueError("values_s must not decrease")
        return self

    @classmethod
    def of(cls, values_s: Floats, shares: Floats) -> QuantileLaw:
        """The law of what was seen, at those shares; seconds are kept to the nanosecond."""
        kept_s = np.round(np.quantile(values_s, shares), 9)
        return cls(shares=tuple(shares.tolist()), values_s=tuple(np.maximum.accumulate(kept_s).tolist()))

    def at(self, share: Floats) -> Floats:
        """The quantile at each share; same shape."""
        return np.interp(share, self.shares, self.values_s)


def score_correlation(law: QuantileLaw, mean_product_s2: float) -> float:
    """Correlation of two normal scores such that the product of the values drawn by them has that mean; within 0 and 1.

    Each value is the law's quantile at the score's probability: a Gaussian copula. Values of heavy tails are less
    correlated than their scores, so the scores have to be solved for.
    """
    from scipy.special import ndtr, ndtri  # here, since it takes a third of the start of a process

    score = ndtri((np.arange(_GRID) + 0.5) / _GRID)
    value_s = law.at(ndtr(score))
    correlations = np.linspace(0.0, 1.0, 26)
    means = []
    for correlation in correlations:
        neighbour = correlation * score[:, None] + np.sqrt(1 - correlation**2) * score
        means.append(float(value_s @ law.at(ndtr(neighbour)).mean(axis=1)) / _GRID)
    # The mean is a power series in the correlation without negative terms (Mehler's formula), so it rises.
    return float(np.interp(mean_product_s2, np.maximum.accumulate(means), correlations))
