"""Distribution of single executions about the plane, if every repeat of a calibration counts."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from simnmt.base.arrays import Floats
from simnmt.base.configuration import Configuration
from simnmt.profile.blocks import Rising

MEAN_TOLERANCE = 1e-6
"""Largest difference from 1 of the mean of the residual's factors."""
SHARES: Floats = np.array([*(0.05 * np.arange(20)).round(2), 0.975, 0.99, 1.0])
"""Shares at which the residual's quantiles are kept: every twentieth, and the tail."""
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Factor = Annotated[float, Field(ge=1e-6, le=1e6)]


class ResidualQuantiles(Configuration):
    """Distribution of single executions about the plane: quantiles of a factor of mean one, linear between them.

    Example:
        >>> residual = ResidualQuantiles(shares=(0.0, 0.5, 1.0), factors=(0.5, 1.0, 1.5))
        >>> residual.factor(np.array([0.0])).tolist()
        [1.0]
    """

    shares: Annotated[tuple[Share, ...], Field(min_length=2), Rising]
    """Shares of the executions, from 0 to 1."""
    factors: Annotated[tuple[Factor, ...], Field(min_length=2)]
    """Factor on the plane that this share of the executions does not exceed; the first is the least, the last the greatest."""

    @model_validator(mode="after")
    def _is_a_distribution(self) -> ResidualQuantiles:
        if len(self.shares) != len(self.factors):
            raise ValueError(f"{len(self.shares)} shares and {len(self.factors)} factors: one factor for each share is needed")
        if (self.shares[0], self.shares[-1]) != (0.0, 1.0):
            raise ValueError("shares: the first must be 0 and the last 1")
        if list(self.factors) != sorted(self.factors):
            raise ValueError("factors: no factor may be below the one before it")
        mean = _mean(*self._columns)
        if abs(mean - 1.0) > MEAN_TOLERANCE:
            raise ValueError(f"factors: their mean is {mean:.6g}, and must be 1, since the plane holds the mean")
        return self

    @classmethod
    def of(cls, factors: Floats, shares: Floats = SHARES) -> ResidualQuantiles:
        """Return the quantiles of measured factors, shape (executions,), at these shares, scaled to a mean of exactly one."""
        quantiles = np.quantile(factors, shares)
        quantiles /= _mean(shares, quantiles)
        return cls(shares=tuple(shares.tolist()), factors=tuple(quantiles.tolist()))

    @property
    def _columns(self) -> tuple[Floats, Floats]:
        return np.array(self.shares), np.array(self.factors)

    @property
    def relative_sd(self) -> float:
        """Standard deviation of the factor."""
        shares, factors = self._columns
        low, high = factors[:-1], factors[1:]
        square = float(np.diff(shares) @ (low * low + low * high + high * high)) / 3.0
        return float(max(square - _mean(shares, factors) ** 2, 0.0) ** 0.5)

    def factor(self, standard_normal: Floats) -> Floats:
        """Return one factor per standard normal number, at the same quantile; same shape."""
        from scipy.special import ndtr  # takes a tenth of a second to import, which most simulations do not need

        factor: Floats = np.interp(ndtr(standard_normal), *self._columns)
        return factor


def _mean(shares: Floats, factors: Floats) -> float:
    """Return the mean of a distribution whose quantiles are linear between these."""
    return float(np.diff(shares) @ (factors[1:] + factors[:-1])) / 2.0
