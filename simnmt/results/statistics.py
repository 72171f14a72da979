"""Intervals over replications, never over requests as if those were independent.

Measured on M/M/1 at load 0.8 with 20,000 customers: intervals over requests covered the true mean 17 % of the time where 95 %
was promised, intervals over replications 94 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, sqrt

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over replications with its 95 % interval."""

    mean: float
    low: float | None
    """None with one replication: nothing is known of the spread."""
    high: float | None

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval leaves no doubt about the sign."""
        return self.low is not None and self.high is not None and (self.low > 0.0 or self.high < 0.0)


def over_replications(values: Sequence[float]) -> Estimate:
    """Mean and Student's t interval of one number per replication."""
    sample = np.asarray(values, np.float64)
    mean = float(sample.mean())
    if len(sample) < 2:
        return Estimate(mean, None, None)
    from scipy.special import stdtrit  # scipy.stats would add half a second to the start

    half = float(stdtrit(len(sample) - 1, 0.5 + CONFIDENCE / 2)) * float(sample.std(ddof=1)) / sqrt(len(sample))
    return Estimate(mean, mean - half, mean + half)


def change_percent(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """By how many percent ours differ from theirs, paired by replication: the geometric mean of the ratios and its interval.

    Logarithms of ratios, since near saturation one replication may take several times as long as another: an interval of
    plain percentages came out below -100 %, faster than at once. For ratios that vary little both say the same. Both
    positive.
    """
    if len(ours) == 1:
        return Estimate(100.0 * (ours[0] / theirs[0] - 1.0), None, None)
    logs = over_replications(np.log(np.asarray(ours) / np.asarray(theirs)).tolist())
    mean, low, high = (None if value is None else 100.0 * expm1(value) for value in (logs.mean, logs.low, logs.high))
    assert mean is not None
    return Estimate(mean, low, high)


QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
"""Of the latency; p99.9 from `REQUESTS_FOR_P999` requests on."""
REQUESTS_FOR_P999 = 10_000


def latency_quantiles(latency_s: NDArray[np.float64]) -> dict[str, float | None]:
    """`p50_latency_s` and so on; None for p99.9 where there are too few requests to know it."""
    found = np.quantile(latency_s, list(QUANTILES.values()))
    quantiles: dict[str, float | None] = {f"{name}_latency_s": float(q) for name, q in zip(QUANTILES, found, strict=True)}
    if len(latency_s) < REQUESTS_FOR_P999:
        quantiles["p999_latency_s"] = None
    return quantiles
