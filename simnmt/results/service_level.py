"""Requirements: limits of metrics such as `p95_ms<=300`, and whether a run meets them.

Service levels of a scenario, assertions of the command line, sweeps and deployment plans read and judge requirements here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import floor, inf, isfinite, log10
from typing import Any

from simnmt.base.errors import InputError, shorten
from simnmt.base.suggestions import did_you_mean, format_list
from simnmt.results.metrics import Comparison, Metric, metric
from simnmt.results.number_text import digits, format_interval, percent

Row = Mapping[str, Any]

_REQUIREMENT = re.compile(r"\s*([\w.]+)\s*(<=|>=|≤|≥|<|>|==|=)\s*(\S.*?)\s*")
LEAST_LIMIT = 1e-12
"""Least limit of a metric, in its unit: the distance to a smaller one would overflow."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A limit of a metric, such as `p95_ms<=300`."""

    metric: Metric
    limit: float
    """In the metric's unit."""

    @property
    def comparison(self) -> Comparison:
        """`<=` if less of the metric is better, else `>=`."""
        return self.metric.comparison

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Return the requirement of a text such as `p95_ms<=300`, blanks allowed. Raises `InputError`.

        >>> str(Requirement.parse("p95_ms <= 300"))
        'p95_ms<=300'
        """
        if text.strip() == "stable":
            return cls(metric("stable"), 1.0)
        match = _REQUIREMENT.fullmatch(text)
        if match is None:
            raise InputError(f"{shorten(text)!r} is no requirement", remedy="write a metric and its limit, as in p95_ms<=300")
        name, sign, limit = match.groups()
        known = metric(name)
        if known.name == "stable" or sign.replace("≤", "<=").replace("≥", ">=") != known.comparison:
            remedy = "stable" if known.name == "stable" else f"{name}{known.comparison}{limit}"
            raise InputError(f"{known.name} has no limit {sign}", remedy=shorten(f"write {remedy}"))
        return cls.of(known, limit)

    @classmethod
    def of(cls, known: Metric, limit: str | float) -> Requirement:
        """Return the requirement of a metric and a limit in the metric's unit. Raises `InputError` for an impossible limit."""
        try:
            value = float(limit[:-1]) / 100.0 if isinstance(limit, str) and limit.endswith("%") else float(limit)
        except ValueError:
            raise InputError(f"the limit {shorten(limit)!r} of {known.name} is no number") from None
        most = inf if known.most is None else known.most
        if not isfinite(value) or not LEAST_LIMIT <= value <= most:
            raise InputError(f"{known.name} cannot be limited by {value:g}", remedy=f"give {LEAST_LIMIT:g} to {most:g}")
        return cls(known, value)

    def __str__(self) -> str:
        return self.metric.name if self.metric.name == "stable" else f"{self.metric.name}{self.comparison}{self.limit:.15g}"

    def is_met_by(self, value: float) -> bool:
        """Return whether a value in the metric's unit meets the requirement."""
        return value <= self.limit if self.comparison == "<=" else value >= self.limit

    def ratio(self, value: float) -> float:
        """Return how far a value is from the limit: above 1 if it misses it."""
        if self.comparison == "<=":
            return value / self.limit
        return self.limit / value if value > 0.0 else inf

    def assess(
        self, values: Sequence[float | None], *, unstable: str | None = None, lost_share: float = 0.0, lost: bool = False
    ) -> Assessment:
        """Return whether the mean over replications meets the requirement, with its interval and the single replications.

        Without a steady state, or if the metric is infinite since requests are lost, no requirement is met. Raises `InputError`
        if the run does not have the metric.

        Args:
            values: the metric's column of each replication, in SI units.
            unstable, lost_share, lost: of the `Assessment`.
        """
        known = [value for value in values if isinstance(value, (int, float))]
        if not known or len(known) < len(values):
            remedy = f"run the scenario with metrics: [{self.metric.name}]" if self.metric.sample == "latency" else None
            raise InputError(f"this run has no {self.metric.name}", remedy=remedy)
        estimate = self.metric.estimate(known)
        ends = [end for end in (estimate.low, estimate.high) if end is not None]
        each_met = [self.is_met_by(self.metric.per_si_unit * value) for value in known]
        is_failed = lost or unstable is not None
        return Assessment(
            requirement=self,
            value=estimate.mean,
            low=estimate.low,
            high=estimate.high,
            met=not is_failed and self.is_met_by(estimate.mean),
            sure=is_failed or len({self.is_met_by(end) for end in ends}) == 1,
            headroom=(1.0 if self.comparison == "<=" else -1.0) * (self.limit - estimate.mean) / self.limit,
            met_share=0.0 if is_failed else sum(each_met) / len(known),
            replications=len(known),
            unstable=unstable,
            lost_share=lost_share,
            lost=lost,
        )

    def assess_row(self, row: Row, columns: Mapping[str, Sequence[float | None]]) -> Assessment:
        """Return whether a row of a summary meets the requirement (`assess`).

        `columns`: values of each replication by column (`Run.replicated`).
        """
        place = {key: row.get(key, "") for key in ("workload", "network", "policy")}
        unstable: str | None = row.get("unstable")
        if self.metric.name == "stable":
            failed = row.get("unstable_replications") or 0
            values: Sequence[float | None] = [*[1.0] * (row["replications"] - failed), *[0.0] * failed]
            return replace(self.assess(values, unstable=unstable), **place)
        self.metric.check_requests(row["requests"])
        lost_share: float = row.get("lost_share") or 0.0
        further = self.metric.of_answered(lost_share)
        values = () if further is None else columns.get(further.column, ())
        lost = lost_share > 0.0 and (not values or None in values)
        # The values of the answered requests are shown where those of all are infinite.
        values = columns.get(self.metric.column, ()) if lost else values
        return replace(self.assess(values, unstable=unstable, lost_share=lost_share, lost=lost), **place)


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
    lost_share: float = 0.0
    """Share of the requests that were lost; a latency of theirs counts as infinite."""
    lost: bool = False
    """True if so many are lost that the metric is infinite; then `value` is that of the answered requests."""
    workload: str = ""
    network: str = ""
    policy: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the assessment as plain data."""
        known = self.requirement.metric
        return {
            "requirement": str(self.requirement),
            "metric": known.name,
            "comparison": known.comparison,
            "limit": self.requirement.limit,
            "unit": known.unit,
            **{name: value for name, value in asdict(self).items() if name != "requirement"},
        }

    @classmethod
    def of_json(cls, record: Mapping[str, Any]) -> Assessment:
        """Return the assessment of plain data (`as_json`)."""
        values = {field.name: record[field.name] for field in fields(cls)}
        return cls(**values | {"requirement": Requirement.parse(record["requirement"])})

    def __str__(self) -> str:
        place = f"{self.policy} for {self.workload} on {self.network}" if self.policy else ""
        return ": ".join(filter(None, (str(self.requirement), place, self.format_value(), self.format_outcome())))

    def format_value(self) -> str:
        """Return the value with its interval and unit; empty for the requirement of being stable."""
        known = self.requirement.metric
        if known.name == "stable":
            return ""
        factor, unit = (1.0, known.unit) if known.most is None else (100.0, "%")
        low, high = (None if end is None else factor * end for end in (self.low, self.high))
        # A price of a request may be as small as a millionth.
        most = max(2, 2 - floor(log10(self.value))) if known.label and self.value > 0.0 else 2
        text, interval = format_interval(factor * self.value, low, high, signs="minus", most=most)
        return " ".join(filter(None, (text if interval else digits(factor * self.value), interval, unit)))

    def format_outcome(self) -> str:
        """Return whether the requirement is met, and how clearly."""
        outcome = "met" if self.met else "missed"
        if self.unstable is not None:
            return f"{outcome}, unstable ({self.unstable})"
        if self.lost:
            return f"{outcome}, {100.0 * self.lost_share:.2g} % of the requests are lost (the value is of the others)"
        if self.requirement.metric.name == "stable":
            return outcome
        unsure = "" if self.sure or self.low is None else ", not surely"
        distance = f"{percent(abs(self.headroom))} {'below' if self.value < self.requirement.limit else 'above'} the limit"
        met = f"met in {round(self.met_share * self.replications)} of {self.replications} replications"
        return f"{outcome}{unsure} ({distance}; {met})"


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


def assess_run(
    assertion: Assertion,
    rows: Sequence[Row],
    recommendations: Sequence[Row],
    replicated: Mapping[tuple[str, str, str], Mapping[str, Sequence[float | None]]],
    workload: str | None = None,
    network: str | None = None,
) -> list[Assessment]:
    """Return whether a run does as asserted, for every workload and network, or for those that are named.

    Args:
        assertion: what is asserted.
        rows: the rows of the run's summary.
        recommendations: its recommendations; without any, as of a live measurement, the only policy is judged.
        replicated: value of each replication by workload, network and policy, and by column.
        workload, network: the ones judged; None: all.

    Raises `InputError` for an unknown place, and for a metric that the run does not have.
    """
    recommended = {(record["workload"], record["network"]): record["policy"] for record in recommendations}
    places = dict.fromkeys((row["workload"], row["network"]) for row in rows)
    judged = [place for place in places if workload in (None, place[0]) and network in (None, place[1])]
    if not judged:
        what = f"{assertion}: no results of {workload or 'any workload'} on {network or 'any network'}"
        raise InputError(what, remedy=f"the run has {format_list([' on '.join(place) for place in places], ',')}")
    assessments = []
    for place in judged:
        here = {row["policy"]: row for row in rows if (row["workload"], row["network"]) == place}
        policy = assertion.policy or recommended.get(place) or (next(iter(here)) if len(here) == 1 else None)
        if policy is None:
            remedy = f"name a policy, as in '{next(iter(here))}: {assertion}'"
            raise InputError(f"{assertion}: no policy is recommended for {place[0]} on {place[1]}", remedy=remedy)
        assessments.append(assertion.requirement.assess_row(here[policy], replicated.get((*place, policy), {})))
    return assessments
