"""Metrics: the named numbers of one policy on one workload and network by which deployments are judged, such as `p95_ms`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import ceil, inf
from typing import Literal

from simnmt.base.errors import InputError, shorten
from simnmt.base.suggestions import did_you_mean
from simnmt.results.statistics import Estimate, over_replications

Comparison = Literal["<=", ">="]
Sample = Literal["latency", "first_token"]
"""What a metric summarises over the requests: latencies, or times to the first token."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A named number by which a deployment is judged."""

    name: str
    """With its unit, such as `p95_ms`."""
    column: str
    """The column of a run's summary that holds it, in SI units."""
    unit: str
    """Unit of values and limits; empty for a share."""
    comparison: Comparison
    """The comparison of a useful limit: `<=` if less is better."""
    per_si_unit: float = 1.0
    """Factor from the column to the unit, such as 1000 for milliseconds."""
    most: float | None = None
    """Greatest possible value; None if there is none."""
    sample: Sample | None = None
    """The sample that it summarises by `quantile`, or by its mean; None if it has a computation of its own."""
    quantile: float | None = None
    label: str = ""
    """Name in sentences of what a deployment spends; empty for a metric that is no spending."""

    @property
    def columns(self) -> tuple[str, str, str]:
        """Names of the columns of a sweep's table: the mean and the ends of its 95 % interval."""
        return self.name, f"{self.name}_low", f"{self.name}_high"

    @property
    def least_requests(self) -> int:
        """Fewest requests per replication from which the metric is known: ten beyond a percentile above the 99th."""
        if self.quantile is None or self.quantile <= 0.99:
            return 1
        return ceil(REQUESTS_BEYOND / (1.0 - self.quantile) - 1e-6)

    def check_requests(self, requests: int) -> None:
        """Raise `InputError` if a replication has too few requests to know the metric."""
        if requests < self.least_requests:
            what = f"{self.name} is not known from {requests:,} requests per replication"
            raise InputError(what, remedy=f"give {self.least_requests} requests or more, or a lower percentile")

    def of_answered(self, lost_share: float) -> Metric | None:
        """Return a metric of the answered requests that is no better than this one of all requests; None if this is infinite.

        A lost request is infinitely late, but latencies are known of the answered requests alone. So a mean is infinite, and a
        percentile stands further up among the answered requests: there the next standard percentile is taken.

        >>> metric("p95_ms").of_answered(0.03).name, metric("p95_ms").of_answered(0.06)
        ('p99_ms', None)
        """
        if lost_share <= 0.0 or self.sample is None:
            return self
        if self.quantile is None:
            return None
        least = self.quantile / (1.0 - lost_share) if lost_share < 1.0 else inf
        further = [one for one in STANDARD_METRICS if one.sample == self.sample and (one.quantile or 0.0) >= least]
        return min(further, key=lambda one: one.quantile or 0.0, default=None)

    def estimate(self, values: Sequence[float]) -> Estimate:
        """Return the mean over replications and its 95 % interval, in the metric's unit; `values`: those of the column."""
        estimate = over_replications([self.per_si_unit * value for value in values], positive=True)
        if self.most is None or estimate.high is None:
            return estimate
        return Estimate(estimate.mean, estimate.low, min(estimate.high, self.most))


REQUESTS_BEYOND = 10
"""Requests that a percentile above the 99th needs beyond it: p99.9 is known from 10,000 requests on."""


SPENDINGS = {
    name: Metric(name, column, unit, "<=", label=label)
    for name, column, unit, label in (
        ("energy_j", "mean_energy_j", "J", "mean energy"),
        ("energy_j_per_thousand_tokens", "energy_j_per_thousand_tokens", "J", "mean energy per thousand tokens"),
        ("cost_per_request", "mean_cost", "", "mean cost"),
        ("cost_per_thousand_tokens", "cost_per_thousand_tokens", "", "mean cost per thousand tokens"),
    )
}
"""Metrics of energy and money (`results.energy`), which a run knows only with powers and prices."""
PLAIN_METRICS: Mapping[str, Metric] = SPENDINGS | {
    known.name: known
    for known in (
        Metric("mean_ms", "mean_latency_s", "ms", "<=", 1e3, sample="latency"),
        Metric("first_token_ms", "mean_first_token_s", "ms", "<=", 1e3, sample="first_token"),
        Metric("deadline_met_share", "deadline_met_share", "", ">=", most=1.0),
        Metric("goodput_rps", "goodput_rps", "requests/s", ">="),
        Metric("stable", "stable", "", ">=", most=1.0),
    )
}
"""Metrics with fixed names. A further one needs a line here, and a column of the same numbers in the summary."""
_PERCENTILE = re.compile(r"(first_token_)?p([5-9]\d)(?:\.([1-9]))?_ms")
_STANDARD = (
    *PLAIN_METRICS,
    *(f"{first}p{q}_ms" for first in ("", "first_token_") for q in ("50", "90", "95", "99", "99.9")),
)


def metric(name: str) -> Metric:
    """Return the metric of a name. Raises `InputError` for an unknown one.

    >>> metric("p95_ms").column, metric("p99.9_ms").least_requests
    ('p95_latency_s', 10000)
    """
    if name in PLAIN_METRICS:
        return PLAIN_METRICS[name]
    if match := _PERCENTILE.fullmatch(name):
        sample: Sample = "first_token" if match[1] else "latency"
        quantile = (10 * int(match[2]) + int(match[3] or 0)) / 1000
        return Metric(name, f"p{match[2]}{match[3] or ''}_{sample}_s", "ms", "<=", 1e3, sample=sample, quantile=quantile)
    remedy = did_you_mean(
        name,
        _STANDARD,
        "metrics are mean_ms, percentiles from p50_ms to p99.9_ms, first_token_ms, first_token_p95_ms, deadline_met_share, "
        "goodput_rps, stable, energy_j and cost_per_request",
    )
    raise InputError(f"unknown metric {shorten(name)}", remedy=remedy)


_COLUMN = re.compile(r"p(\d\d)(\d?)_(latency|first_token)_s")


@cache
def metric_of_column(column: str) -> Metric | None:
    """Return the metric that a column of a run's summary holds; None for a column that is none.

    >>> metric_of_column("p95_latency_s").name, metric_of_column("p999_latency_s").name
    ('p95_ms', 'p99.9_ms')
    """
    if match := _COLUMN.fullmatch(column):
        percent, tenths, sample = match.groups()
        return metric(f"{'first_token_' * (sample == 'first_token')}p{percent}{f'.{tenths}' * bool(tenths)}_ms")
    return next((known for known in PLAIN_METRICS.values() if known.column == column), None)


def objective_metric(objective: str) -> Metric:
    """Return the metric of an objective: `mean` or a percentile of the latency such as `p95`, or a spending such as `energy_j`.

    Raises `InputError`.

    >>> objective_metric("p99.9").column, objective_metric("cost_per_thousand_tokens").label
    ('p999_latency_s', 'mean cost per thousand tokens')
    """
    if objective in SPENDINGS:
        return SPENDINGS[objective]
    if re.fullmatch(r"mean|p[\d.]+", objective):
        with suppress(InputError):
            return metric(f"{objective}_ms")
    remedy = "objectives are mean, a percentile from p50 to p99.9, energy_j, cost_per_request"
    proposed = ("mean", "p50", "p90", "p95", "p99", "p99.9", *SPENDINGS)
    raise InputError(f"unknown objective {shorten(objective)}", remedy=did_you_mean(objective, proposed, remedy))


@dataclass(frozen=True, slots=True)
class Criteria:
    """What the runs of a workload are judged by, beyond the numbers that every run has."""

    metrics: tuple[Metric, ...] = ()
    """Metrics to be measured beside the standard ones."""
    deadline_s: float | None = None
    """Deadline of the workload's requests; None if it has none."""
    good_within_s: float | None = None
    """Time within which an answer counts for the goodput; None if every answer does."""


NO_CRITERIA = Criteria()
STANDARD_METRICS = tuple(map(metric, _STANDARD))
"""Metrics that every run has of which it knows the numbers."""


def columns_of(metrics: Iterable[Metric]) -> tuple[str, ...]:
    """Return the columns of the standard metrics and some others, each once."""
    return tuple(dict.fromkeys(known.column for known in (*STANDARD_METRICS, *metrics)))
