"""Executions in service: costs of single sentences measured as the box works, with idle gaps.

The bench runs a tight loop on a quiet box. In service an execution follows an idle gap, and some executions are disturbed: it
takes longer, and the spread has a tail. The block `in_service` of a profile holds the mean times and the distribution of the
residual under stated conditions.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simnmt.base.configuration import Configuration
from simnmt.profile.blocks import CellSample, Count, Duration, Kind, NotNegative, Positive, RelativeError, Rising
from simnmt.profile.execution_plane import PlaneCoefficients

Floats = NDArray[np.float64]
GapKind = Literal["none", "poisson", "fixed"]
SLOW = 1.5
"""Ratio to the plane from which an execution counts as slow."""
SHORT_TARGET = 5
"""Targets of fewer tokens count as short: what a box takes after a gap weighs most on them."""
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


class ServiceConditions(Configuration):
    """Conditions under which executions were measured, and for which the block holds."""

    gaps: GapKind
    """How the box idles before an execution: not at all, as open-loop arrivals of `rate_rps` let it, or `gap_s` each time."""
    rate_rps: Positive | None = None
    """Requests a second of gaps `poisson`."""
    gap_s: Duration | None = None
    """Seconds of gaps `fixed`."""
    mean_gap_s: NotNegative
    """Mean seconds of idling before an execution, as measured; 0 counts for an execution right after another."""
    idled_share: Share
    """Share of the executions before which the box idled."""
    load: Share
    """Seconds of executing over seconds of executing and idling."""
    pinned_cpus: tuple[int, ...] = ()
    """Processors to which the engine was bound; empty: none."""
    lengths: str
    """Length table of the sentences, or `spread`: targets evenly spaced in their logarithm under short to long sources."""

    @model_validator(mode="after")
    def _states_its_gaps(self) -> ServiceConditions:
        for name, kind in (("rate_rps", "poisson"), ("gap_s", "fixed")):
            if (getattr(self, name) is not None) != (self.gaps == kind):
                raise ValueError(f"{name}: given with gaps {kind}, and only then")
        return self

    def describe_gaps(self) -> str:
        """Describe the gaps, such as `Poisson arrivals of 12/s (idle 44 ms before an execution, load 0.4)`."""
        if self.gaps == "none":
            return "back to back"
        how = f"Poisson arrivals of {self.rate_rps:.4g}/s" if self.rate_rps else f"gaps of {1e3 * (self.gap_s or 0.0):.4g} ms"
        return f"{how} (idle {1e3 * self.mean_gap_s:.3g} ms before an execution, load {self.load:.2f})"


class ServiceBlock(Configuration):
    """Time of one request alone in service: the mean of all executions, disturbed ones included, and their distribution."""

    kind: Kind
    conditions: ServiceConditions
    plane: PlaneCoefficients
    """Plane of the mean times, fitted by relative error to all executions."""
    residual: ResidualQuantiles
    executions: Count
    """Number of executions; none was left out."""
    heldout_error: RelativeError | None = None
    """Mean absolute relative error of the plane on the mean times of cells (pairs of lengths) that were left out of the fit."""
    slow_share: Share | None = None
    """Share of the executions that took more than 1.5 times the plane."""
    short_over_plane: Positive | None = None
    """Mean ratio of executions with targets of fewer than 5 tokens to the plane: 1 if the plane needs no bend for them."""
    reference: CellSample | None = None
    """Executions of one fixed short work between the others, less than a second apart unless an execution takes longer: the
    pace of the box itself during the measurement."""
    samples: Annotated[tuple[CellSample, ...], Field(min_length=1)]
    """Measured times by cell, all repeats."""

    def lengths(self) -> tuple[Floats, Floats, Floats]:
        """Return source length, target length and number of executions of each cell."""
        columns: Any = zip(*((sample.src_len, sample.tgt_len, sample.repeats) for sample in self.samples), strict=True)
        src_len, tgt_len, repeats = (np.array(column, np.float64) for column in columns)
        return src_len, tgt_len, repeats
