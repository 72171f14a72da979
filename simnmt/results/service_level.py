"""Requirements: limits of metrics, and whether a run meets them.

A requirement is a metric (`results.metrics`), a comparison
and a limit, such as `p95_ms<=300`. Service levels of a scenario, assertions of the command line, sweeps and deployment plans
read and judge requirements here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, inf, isfinite, log10
from typing import Any

from simnmt.base.errors import InputError, shorten
from simnmt.base.suggestions import did_you_mean, format_list
from simnmt.results.metrics import Comparison, Metric, metric
from simnmt.results.number_text import digits, format_interval

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
        match = _REQUIREMENT.fullmatch("stable>=1" if text.strip() == "stable" else text)
        if match is None:
            raise InputError(f"{shorten(text)!r} is no requirement", remedy="write a metric and its limit, as in p95_ms<=300")
        name, sign, limit = match.groups()
        known = metric(name)
        comparisons: dict[str, Comparison] = {"<=": "<=", "≤": "<=", ">=": ">=", "≥": ">="}
        if sign not in comparisons:
            remedy = f"write {name}{known.comparison}{limit}"
            raise InputError(f"{shorten(text)!r} compares by {sign}, and a requirement by <= or >=", remedy=shorten(remedy))
        if known.name == "stable" and match[0] != "stable>=1":
            raise InputError("stable takes no limit", remedy="write stable alone")
        if comparisons[sign] != known.comparison:
            side, better = ("a lower", "less") if known.comparison == "<=" else ("an upper", "more")
            what = f"{shorten(text)!r} is {side} limit, and {better} {known.name} is better"
            raise InputError(what, remedy=shorten(f"write {name}{known.comparison}{limit}"))
        return cls.of(known, limit)

    @classmethod
    def of(cls, known: Metric, limit: str | float) -> Requirement:
        """Return the requirement of a metric and a limit in the metric's unit. Raises `InputError` for an impossible limit."""
        try:
            value = float(limit[:-1]) / 100.0 if isinstance(limit, str) and limit.endswith("%") else float(limit)
        except ValueError:
            what = f"the limit {shorten(limit)!r} of {known.name} is no number"
            in_name = f"its unit, {known.unit}, is in its name: {known.name}{known.comparison}300"
            remedy = in_name if known.unit == "ms" else f"as in {known.name}{known.comparison}{0.99 if known.most else 20}"
            raise InputError(what, remedy=remedy) from None
        if not isfinite(value) or value < LEAST_LIMIT or (known.most is not None and value > known.most):
            bounds = f"of {LEAST_LIMIT:g} or more" + ("" if known.most is None else f", at most {known.most:g}")
            raise InputError(f"{known.name} cannot be limited by {value:g}", remedy=f"give a number {bounds}")
        return cls(known, value)

    def __str__(self) -> str:
        return self.metric.name if self.metric.name == "stable" else f"{self.metric.name}{self.comparison}{self.limit:.15g}"

    def describe(self) -> str:
        """Return the requirement in words.

        >>> Requirement.parse("p95_ms<=300").describe(), Requirement.parse("answered_within_500ms>=0.99").describe()
        ('p95 within 300 ms', '99 % answered within 500 ms')
        """
        limit = f"{self.limit:.10g}" if self.metric.most is None else f"{100.0 * self.limit:.10g} %"
        return self.metric.phrase.format(limit=limit)

    def is_met_by(self, value: float) -> bool:
        """Return whether a value in the metric's unit meets the requirement."""
        return value <= self.limit if self.comparison == "<=" else value >= self.limit

    def assess(
        self, values: Sequence[float | None], *, unstable: str | None = None, lost_share: float = 0.0, lost: bool = False
    ) -> Assessment:
        """Return whether the mean over replications meets the requirement, with its interval and the single replications.

        Args:
            values: the metric's column of each replication, in SI units.
            unstable: the overloaded devices of the run, if there are any: without a steady state no requirement is met.
            lost_share: share of the requests that were lost.
            lost: whether so many are lost that the metric of all requests is infinite (`Metric.of_answered`).

        Raises `InputError` if the run does not have the metric.
        """
        known = [value for value in values if isinstance(value, (int, float))]
        if not known or len(known) < len(values):
            remedy = f"run the scenario with metrics: [{self.metric.name}], or assert '{self}' of it"
            if self.metric.sample == "first_token":
                remedy = "first tokens are known where every request is decoded on a device that batches or streams"
            if self.metric.name == "deadline_met_share":
                remedy = "give the workload a deadline_ms"
            raise InputError(f"this run has no {self.metric.name}", remedy=remedy)
        estimate = self.metric.estimate(known)
        ends = (estimate.low, estimate.high)
        one_side = None not in ends and len({self.is_met_by(end) for end in ends if end is not None}) == 1
        each_met = [self.is_met_by(self.metric.per_si_unit * value) for value in known]
        sign = 1.0 if self.comparison == "<=" else -1.0
        return Assessment(
            requirement=self,
            value=estimate.mean,
            low=estimate.low,
            high=estimate.high,
            met=unstable is None and not lost and self.is_met_by(estimate.mean),
            sure=one_side or lost or unstable is not None,
            headroom=sign * (self.limit - estimate.mean) / self.limit,
            met_share=0.0 if lost or unstable is not None else sum(each_met) / len(known),
            replications=len(known),
            unstable=unstable,
            lost_share=lost_share,
            lost=lost,
        )

    def assess_row(self, row: Row, columns: Mapping[str, Sequence[float | None]]) -> Assessment:
        """Return whether a row of a summary meets the requirement (`assess`).

        `columns`: values of each replication by column (`FinishedRun.replicated`).
        """
        unstable: str | None = row.get("unstable")
        if self.metric.name == "stable":
            steady = [1.0] * (row["replications"] - (row.get("unstable_replications") or 0))
            return self.assess([*steady, *[0.0] * (row["replications"] - len(steady))], unstable=unstable)
        self.metric.check_requests(row["requests"])
        lost_share: float = row.get("lost_share") or 0.0
        further = self.metric.of_answered(lost_share)
        further_values = () if further is None else columns.get(further.column, ())
        lost = not further_values or None in further_values
        # The values of the answered requests are shown where those of all are infinite.
        values = further_values if not lost or lost_share == 0.0 else columns.get(self.metric.column, ())
        return self.assess(values, unstable=unstable, lost_share=lost_share, lost=lost and lost_share > 0.0)

    def ratio(self, value: float) -> float:
        """Return how far a value is from the limit: above 1 if it misses it."""
        if self.comparison == "<=":
            return value / self.limit
        return self.limit / value if value > 0.0 else inf


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

    def as_json(self) -> Row:
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
            "lost_share": self.lost_share,
            "lost": self.lost,
        }

    @classmethod
    def of_json(cls, record: Mapping[str, Any]) -> Assessment:
        """Return the assessment of plain data (`as_json`)."""
        names = (
            "value",
            "low",
            "high",
            "met",
            "sure",
            "headroom",
            "met_share",
            "replications",
            "unstable",
            "lost_share",
            "lost",
        )
        return cls(Requirement.parse(record["requirement"]), **{name: record[name] for name in names})

    def __str__(self) -> str:
        return ": ".join(filter(None, (str(self.requirement), self.format_value(), self.format_outcome())))

    def format_value(self) -> str:
        """Return the value with its interval and unit; empty for the requirement of being stable."""
        metric, ends = self.requirement.metric, (self.low, self.high)
        if metric.name == "stable":
            return ""
        factor = 1.0 if metric.most is None else 100.0
        low, high = (None if end is None else factor * end for end in ends)
        # A price of a request may be as small as a millionth.
        most = max(2, 2 - floor(log10(self.value))) if metric.label and self.value > 0.0 else 2
        text, interval = format_interval(factor * self.value, low, high, signs="minus", most=most)
        text = text if interval else digits(factor * self.value)
        return " ".join(part for part in (text, interval, metric.unit if factor == 1.0 else "%") if part)

    def format_outcome(self) -> str:
        """Return whether the requirement is met, and how clearly."""
        if self.unstable is not None:
            return f"missed, since it is unstable ({self.unstable})"
        if self.lost:
            return f"missed, since {100.0 * self.lost_share:.2g} % of the requests are lost (the value is of the others)"
        outcome, of = "met" if self.met else "missed", "replication" if self.replications == 1 else "replications"
        if self.requirement.metric.name == "stable":
            return outcome
        unsure = "" if self.sure or self.low is None else ", not surely: the limit lies within the interval"
        size = abs(self.headroom)
        side = "below" if self.value < self.requirement.limit else "above"
        distance = f"{100.0 * size:,.{0 if size >= 0.1 else 1}f} % {side} the limit"
        met = f"met in {round(self.met_share * self.replications)} of {self.replications} {of}"
        further = None if self.lost_share == 0.0 else self.requirement.metric.of_answered(self.lost_share)
        losses = (
            ""
            if further in (None, self.requirement.metric)
            else f"; {100.0 * self.lost_share:.2g} % lost, so by {further.name}"
        )
        return f"{outcome}{unsure} ({distance}; {met}{losses})"


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

    def as_json(self) -> Row:
        """Return the assessment as plain data."""
        return {"workload": self.workload, "network": self.network, "policy": self.policy, **self.assessment.as_json()}

    def __str__(self) -> str:
        place = f"{self.policy} for {self.workload} on {self.network}"
        requirement, value = str(self.assessment.requirement), self.assessment.format_value()
        return ": ".join(filter(None, (requirement, place, value, self.assessment.format_outcome())))


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
