"""Metrics and requirements: what a deployment is judged by, and whether a run meets it.

A metric is a named number of one policy on one workload and network, such as `p95_ms`. A requirement is a metric, a comparison
and a limit, such as `p95_ms<=300`. Service levels of a scenario, assertions of the command line, sweeps and deployment plans
read and judge requirements here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any, Literal

from simnmt.base.errors import InputError, shorten
from simnmt.base.suggestions import did_you_mean, format_list
from simnmt.results.number_text import digits, format_interval, percent
from simnmt.results.statistics import over_replications

Comparison = Literal["<=", ">="]
Row = Mapping[str, Any]


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
    meaning: str
    per_si_unit: float = 1.0
    """Factor from the column to the unit, such as 1000 for milliseconds."""
    least_requests: int = 1
    """Fewest requests per replication from which the metric can be told."""
    most: float | None = None
    """Greatest possible value; None if there is none."""

    def check_requests(self, requests: int) -> None:
        """Raise `InputError` if a replication has too few requests to know the metric."""
        if requests < self.least_requests:
            what = f"{self.name} is not known from {requests:,} requests per replication"
            raise InputError(what, remedy=f"give {self.least_requests} requests or more, or a lower percentile")


_PERCENTILE = re.compile(r"p([5-9]\d)(?:\.([1-9]))?_ms")
_PROPOSED = ("mean_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "p99.9_ms")
"""Names that a message about an unknown metric proposes."""
REQUESTS_BEYOND = 10
"""Requests that a percentile above the 99th needs beyond it: p99.9 is known from 10,000 requests on."""


def metric(name: str) -> Metric:
    """Return the metric of a name. Raises `InputError` for an unknown one.

    >>> metric("p95_ms").column, metric("p99.9_ms").least_requests
    ('p95_latency_s', 10000)
    """
    if name == "mean_ms":
        return Metric(name, "mean_latency_s", "ms", "<=", "mean latency", 1e3)
    if match := _PERCENTILE.fullmatch(name):
        label = f"{match[1]}{match[2] or ''}"
        thousandths = 10 * int(match[1]) + int(match[2] or 0)
        least = ceil(1000 * REQUESTS_BEYOND / (1000 - thousandths)) if thousandths > 990 else 1
        meaning = f"{match[1]}{f'.{match[2]}' if match[2] else ''}th percentile of the latency"
        return Metric(name, f"p{label}_latency_s", "ms", "<=", meaning, 1e3, least)
    remedy = did_you_mean(name, _PROPOSED, "metrics are mean_ms and percentiles from p50_ms to p99.9_ms")
    raise InputError(f"unknown metric {shorten(name)}", remedy=remedy)


_REQUIREMENT = re.compile(r"\s*([\w.]+)\s*(<=|>=|≤|≥|<|>|==|=)\s*(\S.*?)\s*")


@dataclass(frozen=True, slots=True)
class Requirement:
    """A limit of a metric, such as `p95_ms<=300`."""

    metric: Metric
    comparison: Comparison
    limit: float
    """In the metric's unit."""

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Return the requirement of a text such as `p95_ms<=300`, blanks allowed. Raises `InputError`.

        >>> str(Requirement.parse("p95_ms <= 300"))
        'p95_ms<=300'
        """
        match = _REQUIREMENT.fullmatch(text)
        if match is None:
            raise InputError(f"{shorten(text)!r} is no requirement", remedy="write a metric and its limit, as in p95_ms<=300")
        name, sign, limit = match.groups()
        known = metric(name)
        comparisons: dict[str, Comparison] = {"<=": "<=", "≤": "<=", ">=": ">=", "≥": ">="}
        if sign not in comparisons:
            remedy = f"write {name}{known.comparison}{limit}"
            raise InputError(f"{shorten(text)!r} compares by {sign}, and a requirement by <= or >=", remedy=shorten(remedy))
        return cls.of(known, comparisons[sign], limit)

    @classmethod
    def of(cls, known: Metric, comparison: Comparison, limit: str | float) -> Requirement:
        """Return the requirement of a metric and a limit in the metric's unit. Raises `InputError` for an impossible limit."""
        try:
            value = float(limit)
        except ValueError:
            unit = f"its unit, {known.unit}, is in its name" if known.unit else "a share between 0 and 1"
            what = f"the limit {shorten(limit)!r} of {known.name} is no number"
            raise InputError(what, remedy=f"{unit}: {known.name}{comparison}300" if known.unit else unit) from None
        if not isfinite(value) or value <= 0.0 or (known.most is not None and value > known.most):
            bounds = "above 0" if known.most is None else f"above 0 and at most {known.most:g}"
            raise InputError(f"{known.name} cannot be limited by {value:g}", remedy=f"give a number {bounds}")
        return cls(known, comparison, value)

    def __str__(self) -> str:
        return f"{self.metric.name}{self.comparison}{self.limit:g}"

    def is_met_by(self, value: float) -> bool:
        """Return whether a value in the metric's unit meets the requirement."""
        return value <= self.limit if self.comparison == "<=" else value >= self.limit

    def assess(self, values: Sequence[float | None], *, unstable: str | None = None) -> Assessment:
        """Return whether the mean over replications meets the requirement, with its interval and the single replications.

        Args:
            values: the metric's column of each replication, in SI units.
            unstable: the overloaded devices of the run, if there are any: without a steady state no requirement is met.

        Raises `InputError` if the run does not have the metric.
        """
        known = [self.metric.per_si_unit * value for value in values if isinstance(value, (int, float))]
        if not known or len(known) < len(values):
            raise InputError(f"this run has no {self.metric.name}", remedy=f"run the scenario with --assert '{self}'")
        estimate = over_replications(known, positive=True)
        sign = 1.0 if self.comparison == "<=" else -1.0
        met = unstable is None and self.is_met_by(estimate.mean)
        sure = estimate.low is not None and estimate.high is not None
        sure = sure and self.is_met_by(estimate.low) == self.is_met_by(estimate.high)  # type: ignore[arg-type]
        return Assessment(
            requirement=self,
            value=estimate.mean,
            low=estimate.low,
            high=estimate.high,
            met=met,
            sure=sure or unstable is not None,
            headroom=sign * (self.limit - estimate.mean) / self.limit,
            met_share=0.0 if unstable is not None else sum(map(self.is_met_by, known)) / len(known),
            replications=len(known),
            unstable=unstable,
        )

    def assess_row(self, row: Row, columns: Mapping[str, Sequence[float | None]]) -> Assessment:
        """Return whether a row of a summary meets the requirement (`assess`).

        `columns`: values of each replication by column (`FinishedRun.replicated`).
        """
        self.metric.check_requests(row["requests"])
        return self.assess(columns.get(self.metric.column, ()), unstable=row.get("unstable"))


@dataclass(frozen=True, slots=True)
class Assessment:
    """Whether a run meets a requirement, and how clearly. Numbers are in the metric's unit."""

    requirement: Requirement
    value: float
    """Mean over the replications."""
    low: float | None
    """Ends of the 95 % interval over replications; None with one replication."""
    high: float | None
    met: bool
    sure: bool
    """True if the whole interval lies on one side of the limit."""
    headroom: float
    """Distance from the value to the limit, relative to the limit; negative if the value misses it."""
    met_share: float
    """Share of the replications that meet the requirement by themselves."""
    replications: int
    unstable: str | None = None
    """The overloaded devices, such as `cloud: load 1.30`; None if there is a steady state."""

    def as_json(self) -> dict[str, Any]:
        """Return the assessment as plain data."""
        requirement = self.requirement
        return {
            "requirement": str(requirement),
            "metric": requirement.metric.name,
            "comparison": requirement.comparison,
            "limit": requirement.limit,
            "unit": requirement.metric.unit,
            **{name: getattr(self, name) for name in ("value", "low", "high", "met", "sure", "headroom", "met_share")},
            "replications": self.replications,
            "unstable": self.unstable,
        }

    def __str__(self) -> str:
        return f"{self.requirement}: {self.format_value()}: {self.format_outcome()}"

    def format_value(self) -> str:
        """Return the value with its interval and unit."""
        text, interval = format_interval(self.value, self.low, self.high, signs="minus")
        text = text if interval else digits(self.value)
        return " ".join(part for part in (text, interval, self.requirement.metric.unit) if part)

    def format_outcome(self) -> str:
        """Return whether the requirement is met, and how clearly."""
        if self.unstable is not None:
            return f"missed, since it is unstable ({self.unstable})"
        of = f"met in {round(self.met_share * self.replications)} of {self.replications} replications"
        unsure = "" if self.sure or self.low is None else ", not surely: the limit lies within the interval"
        distance = f"{percent(abs(self.headroom))} {'of the limit left' if self.met else 'beyond the limit'}"
        return f"{'met' if self.met else 'missed'}{unsure} ({distance}; {of})"


@dataclass(frozen=True, slots=True)
class Assertion:
    """A requirement that a run is to meet: by its recommended policy, or by a named one."""

    requirement: Requirement
    policy: str | None = None
    """None: the recommended one."""

    @classmethod
    def parse(cls, text: str, policies: Iterable[str]) -> Assertion:
        """Return the assertion of `p95_ms<=300` or `cnmt: p95_ms<=300`. Raises `InputError`, also for an unknown policy."""
        policy, colon, requirement = text.rpartition(":")
        name = policy.strip()
        if colon and name not in policies:
            raise InputError(f"unknown policy {shorten(name)} in {shorten(text)!r}", remedy=did_you_mean(name, policies))
        return cls(Requirement.parse(requirement), name if colon else None)

    def __str__(self) -> str:
        return str(self.requirement) if self.policy is None else f"{self.policy}: {self.requirement}"


@dataclass(frozen=True, slots=True)
class PlacedAssessment:
    """The assessment of one policy on one workload and network."""

    workload: str
    network: str
    policy: str
    assessment: Assessment

    @property
    def met(self) -> bool:
        """Whether the requirement is met."""
        return self.assessment.met

    def as_json(self) -> dict[str, Any]:
        """Return the assessment as plain data."""
        return {"workload": self.workload, "network": self.network, "policy": self.policy, **self.assessment.as_json()}

    def __str__(self) -> str:
        place = f"{self.policy} for {self.workload} on {self.network}"
        value, outcome = self.assessment.format_value(), self.assessment.format_outcome()
        return f"{self.assessment.requirement}: {place}: {value}: {outcome}"


def assess_run(
    assertion: Assertion,
    rows: Sequence[Row],
    recommendations: Sequence[Row],
    replicated: Mapping[tuple[str, str, str], Mapping[str, Sequence[float | None]]],
    workload: str | None = None,
    network: str | None = None,
) -> list[PlacedAssessment]:
    """Return whether a run does as asserted, for every workload and network.

    Args:
        assertion: what is asserted.
        rows: the rows of the run's summary.
        recommendations: its recommendations; without any, as of a live measurement, the only policy is judged.
        replicated: value of each replication by workload, network and policy, and by column.
        workload: the workload judged; None: all.
        network: the network judged; None: all.

    Raises `InputError` for an unknown place, and for a metric that the run does not have.
    """
    recommended = {(record["workload"], record["network"]): record["policy"] for record in recommendations}
    placed = []
    for place in dict.fromkeys((row["workload"], row["network"]) for row in rows):
        if workload not in (None, place[0]) or network not in (None, place[1]):
            continue
        here = {row["policy"]: row for row in rows if (row["workload"], row["network"]) == place}
        policy = assertion.policy or recommended.get(place) or (next(iter(here)) if len(here) == 1 else None)
        if policy is None:
            remedy = f"name a policy, as in '{next(iter(here))}: {assertion}'"
            raise InputError(f"{assertion}: no policy is recommended for {place[0]} on {place[1]}", remedy=remedy)
        assessment = assertion.requirement.assess_row(here[policy], replicated.get((*place, policy), {}))
        placed.append(PlacedAssessment(*place, policy, assessment))
    if not placed:
        places = format_list(dict.fromkeys(f"{row['workload']} on {row['network']}" for row in rows), ",")
        what = f"{assertion}: no results of {workload or 'any workload'} on {network or 'any network'}"
        raise InputError(what, remedy=f"the run has {places}")
    return placed
