"""Metrics, such as `p95_ms`, by which deployments are judged, and requirements, such as `p95_ms<=300`, with their outcome."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from math import ceil, floor, inf, isfinite, log10
from typing import Any, Literal, cast

from simnmt.base.arrays import Floats
from simnmt.base.errors import InputError, shorten
from simnmt.base.suggestions import did_you_mean
from simnmt.results.number_text import digits, format_interval, percent
from simnmt.results.places import CellName, Place
from simnmt.results.statistics import Estimate, over_replications

Row = Mapping[str, Any]
Comparison = Literal["<=", ">="]
Sample = Literal["latency", "first_token", "document", "first_sentence"]
"""What a metric summarises: over the requests, latencies or times to the first token; over the documents, times until all
sentences are answered, or until the first one is."""
OF_DOCUMENTS: tuple[Sample, ...] = ("document", "first_sentence")
REQUESTS_BEYOND = 10
"""Requests that a percentile above the 99th needs beyond it: p99.9 is known from 10,000 requests on."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A named number by which a deployment is judged."""

    name: str
    """With its unit, such as `p95_ms`."""
    column: str
    """The column of a run's summary that holds it, in SI units."""
    unit: str
    comparison: Comparison
    """The comparison of a useful limit: `<=` if less is better."""
    per_si_unit: float = 1.0
    """Factor from the column to the unit, such as 1000 for milliseconds."""
    most: float | None = None
    sample: Sample | None = None
    """The sample that it summarises by `quantile`, or by its mean; None if it has a computation of its own."""
    quantile: float | None = None
    label: str = ""
    """Name in sentences of what a deployment spends; empty for a metric that is no spending."""

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

        A request without an answer is infinitely late, but latencies are known of the answered requests alone. So a mean is
        infinite, and a percentile stands further up among the answered requests: there the next standard percentile is taken.

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

    def lost_share(self, row: Row) -> float:
        """Return the share of the requests, or of the documents if it summarises them, without an answer in a row of a run."""
        if self.sample in OF_DOCUMENTS and (answered_share := row.get("answered_documents_share")) is not None:
            return 1.0 - float(answered_share)
        return unanswered_share(row)

    def estimate(self, values: Sequence[float]) -> Estimate:
        """Return the mean over replications and its 95 % interval, in the metric's unit; `values`: those of the column."""
        estimate = over_replications([self.per_si_unit * value for value in values], positive=True)
        return replace(estimate, high=None if estimate.high is None else min(estimate.high, self.most or inf))


PLAIN_METRICS = {
    known.name: known
    for known in (
        Metric("energy_j", "mean_energy_j", "J", "<=", label="mean energy"),
        Metric(*("energy_j_per_thousand_tokens",) * 2, "J", "<=", label="mean energy per thousand tokens"),
        Metric("cost_per_request", "mean_cost", "", "<=", label="mean cost"),
        Metric(*("cost_per_thousand_tokens",) * 2, "", "<=", label="mean cost per thousand tokens"),
        Metric(*("cost_per_million_characters",) * 2, "", "<=", label="mean cost per million characters"),
        Metric("mean_ms", "mean_latency_s", "ms", "<=", 1e3, sample="latency"),
        Metric("first_token_ms", "mean_first_token_s", "ms", "<=", 1e3, sample="first_token"),
        Metric("document_mean_ms", "mean_document_s", "ms", "<=", 1e3, sample="document"),
        Metric("first_sentence_mean_ms", "mean_first_sentence_s", "ms", "<=", 1e3, sample="first_sentence"),
        Metric("deadline_met_share", "deadline_met_share", "", ">=", most=1.0),
        Metric("hit_share", "hit_share", "", ">=", most=1.0),
        Metric("goodput_rps", "goodput_rps", "requests/s", ">="),
        Metric("stable", "stable", "", ">=", most=1.0),
        Metric("chrf", "chrf", "", ">=", most=100.0),
        Metric("bleu", "bleu", "", ">=", most=100.0),
    )
}
"""Metrics with fixed names. A further one needs a line here, and a column of the same numbers in the summary."""
OF_QUALITY = ("chrf", "bleu")
"""Metrics that only runs with `quality` have. Their intervals are over sentences, not over replications."""
SPENDINGS = {name: known for name, known in PLAIN_METRICS.items() if known.label}
_PERCENTILE = re.compile(r"(?:(first_token|document|first_sentence)_)?p([5-9]\d)(?:\.([1-9]))?_ms")
_COLUMN = re.compile(r"p(\d\d)(\d?)_(latency|first_token|document|first_sentence)_s")
_OBJECTIVE = re.compile(r"(?:document_|first_sentence_)?(?:mean|p[\d.]+)")
_STANDARD = (
    *PLAIN_METRICS,
    *(
        f"{first}p{q}_ms"
        for first in ("", "first_token_", "document_", "first_sentence_")
        for q in ("50", "90", "95", "99", "99.9")
    ),
)


def metric(name: str) -> Metric:
    """Return the metric of a name. Raises `InputError` for an unknown one."""
    if name in PLAIN_METRICS:
        return PLAIN_METRICS[name]
    if match := _PERCENTILE.fullmatch(name):
        sample = cast(Sample, match[1] or "latency")
        quantile = (10 * int(match[2]) + int(match[3] or 0)) / 1000
        return Metric(name, f"p{match[2]}{match[3] or ''}_{sample}_s", "ms", "<=", 1e3, sample=sample, quantile=quantile)
    remedy = did_you_mean(
        name,
        _STANDARD,
        "metrics are mean_ms, percentiles from p50_ms to p99.9_ms, first_token_ms, first_token_p95_ms, document_mean_ms, "
        "document_p95_ms, first_sentence_p95_ms, deadline_met_share, hit_share, goodput_rps, stable, energy_j, "
        "cost_per_request, chrf and bleu",
    )
    raise InputError(f"unknown metric {shorten(name)}", remedy=remedy)


@cache
def metric_of_column(column: str) -> Metric | None:
    """Return the metric that a column of a run's summary holds; None for a column that is none."""
    if match := _COLUMN.fullmatch(column):
        percent, tenths, sample = match.groups()
        return metric(f"{f'{sample}_' * (sample != 'latency')}p{percent}{f'.{tenths}' * bool(tenths)}_ms")
    return next((known for known in PLAIN_METRICS.values() if known.column == column), None)


Objective = str
"""What a deployment is judged by: the latency as `mean` or a percentile such as `p95`, that of documents such as
`document_p95`, or a spending such as `energy_j`."""


def objective_metric(objective: Objective) -> Metric:
    """Return the metric of an objective. Raises `InputError`."""
    if objective in SPENDINGS:
        return SPENDINGS[objective]
    if _OBJECTIVE.fullmatch(objective):
        with suppress(InputError):
            return metric(f"{objective}_ms")
    remedy = "objectives are mean, a percentile from p50 to p99.9, energy_j, cost_per_request"
    proposed = ("mean", "p50", "p90", "p95", "p99", "p99.9", *SPENDINGS)
    raise InputError(f"unknown objective {shorten(objective)}", remedy=did_you_mean(objective, proposed, remedy))


@dataclass(frozen=True, slots=True)
class Criteria:
    """What the runs of a workload are judged by, beyond the numbers that every run has."""

    metrics: tuple[Metric, ...] = ()
    deadline_s: float | Floats | None = None
    """One for all requests, or one for each, as is the next."""
    good_within_s: float | Floats | None = None
    """Time within which an answer counts for the goodput; None if every answer does."""


STANDARD_METRICS = tuple(map(metric, _STANDARD))


def columns_of(metrics: Iterable[Metric]) -> tuple[str, ...]:
    """Return the columns of the standard metrics and some others, each once."""
    return tuple(dict.fromkeys(known.column for known in (*STANDARD_METRICS, *metrics)))


def unanswered_share(row: Row) -> float:
    """Return the share of the requests of a row that were lost, refused, or given up by their clients.

    >>> unanswered_share({"lost_share": None, "refused_share": 0.25, "gave_up_share": 0.5})
    0.75
    """
    return float(sum(row.get(name) or 0.0 for name in ("lost_share", "refused_share", "gave_up_share")))


_REQUIREMENT = re.compile(r"\s*([\w.]+)\s*(<=|>=|≤|≥|<|>|==|=)\s*(\S.*?)\s*")
LEAST_LIMIT = 1e-12
"""Least limit of a metric, in its unit: the distance to a smaller one would overflow."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A limit of a metric, such as `p95_ms<=300`."""

    metric: Metric
    limit: float

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
            remedy = f"give a number above 0{'' if known.most is None else f', at most {most:g}'}"
            raise InputError(f"{known.name} cannot be limited by {value:g}", remedy=remedy)
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

    def assess(self, row: Row, columns: Mapping[str, Sequence[float | None]]) -> Assessment:
        """Return whether the mean over replications meets the requirement, with its interval and the single replications.

        Without a steady state, or if the metric is infinite since requests are not answered, no requirement is met. Raises
        `InputError` if the run does not have the metric. `row`: of a summary; `columns`: its values of each replication
        (`Run.replicated`).
        """
        about: dict[str, Any] = {key: row.get(key, "") for key in Place._fields} | {"unstable": row.get("unstable")}
        lost_share = self.metric.lost_share(row)
        is_lost = False
        values: Sequence[float | None]
        if self.metric.name == "stable":
            failed = row.get("unstable_replications") or 0
            values, lost_share = [*[1.0] * (row["replications"] - failed), *[0.0] * failed], 0.0
        else:
            self.metric.check_requests(row["requests"])
            judged = self.metric.of_answered(lost_share)
            values = columns.get(judged.column, ()) if judged else ()
            if lost_share > 0.0 and (not values or None in values):
                is_lost, values = True, columns.get(self.metric.column, ())  # shown are those of the answered requests
        known = [value for value in values if isinstance(value, (int, float))]
        if not known or len(known) < len(values):
            remedy = f"run the scenario with metrics: [{self.metric.name}]" if self.metric.sample == "latency" else None
            if self.metric.sample in OF_DOCUMENTS and "mean_document_s" in row:
                remedy = f"name a workload with documents, as in 'NAME: {self}'"
            raise InputError(f"this run has no {self.metric.name}", remedy=remedy)
        estimate, is_failed = self.metric.estimate(known), is_lost or about["unstable"] is not None
        if self.metric.name in OF_QUALITY:
            estimate = Estimate(*(row[f"{self.metric.column}{end}"] for end in ("", "_low", "_high")))
        met_by = [self.is_met_by(self.metric.per_si_unit * value) for value in known]
        ends = [self.is_met_by(end) for end in (estimate.low, estimate.high) if end is not None]
        return Assessment(
            self,
            estimate.mean,
            estimate.low,
            estimate.high,
            met=not is_failed and self.is_met_by(estimate.mean),
            sure=is_failed or len({*ends}) == 1,
            headroom=(1.0 if self.comparison == "<=" else -1.0) * (self.limit - estimate.mean) / self.limit,
            met_share=0.0 if is_failed else sum(met_by) / len(known),
            replications=len(known),
            lost_share=lost_share,
            lost=is_lost,
            **about,
        )


@dataclass(frozen=True, slots=True)
class Assessment:
    """Whether a run meets a requirement, and how clearly. Numbers are in the metric's unit."""

    requirement: Requirement
    value: float
    low: float | None
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
    """Share of the requests that were not answered; a latency of theirs counts as infinite."""
    lost: bool = False
    """True if so many are not answered that the metric is infinite; then `value` is that of the answered requests."""
    site: str = ""
    workload: str = ""
    network: str = ""
    policy: str = ""

    @property
    def ratio(self) -> float:
        """How far the value is from the limit (`Requirement.ratio`); infinite if too many requests are not answered."""
        return inf if self.lost else self.requirement.ratio(self.value)

    def as_json(self) -> dict[str, Any]:
        """Return the assessment as plain data."""
        known = self.requirement.metric
        named = {"metric": known.name, "comparison": known.comparison, "limit": self.requirement.limit, "unit": known.unit}
        return {"requirement": str(self.requirement)} | named | (asdict(self) | {"requirement": str(self.requirement)})

    @classmethod
    def of_json(cls, record: Mapping[str, Any]) -> Assessment:
        """Return the assessment of plain data (`as_json`)."""
        values = {field.name: record[field.name] for field in fields(cls)}
        return cls(**values | {"requirement": Requirement.parse(record["requirement"])})

    def __str__(self) -> str:
        """Return requirement, place, value with its interval, and outcome in words."""
        known, outcome, shown = self.requirement.metric, "met" if self.met else "missed", ""
        if known.name != "stable":
            factor, unit = (100.0, "%") if known.most == 1.0 else (1.0, known.unit)
            low, high = (None if end is None else factor * end for end in (self.low, self.high))
            # A price of a request may be as small as a millionth.
            most = max(2, 2 - floor(log10(self.value))) if known.label and self.value > 0.0 else 2
            text, interval = format_interval(factor * self.value, low, high, signs="minus", most=most)
            shown = " ".join(filter(None, (text if interval else digits(factor * self.value), interval, unit)))
        if self.unstable is not None:
            outcome += f", unstable ({self.unstable})"
        elif self.lost:
            outcome += f", {100.0 * self.lost_share:.2g} % of the requests are not answered (the value is of the others)"
        elif known.name != "stable":
            outcome += "" if self.sure or self.low is None else ", not surely"
            side = "below" if self.value < self.requirement.limit else "above"
            outcome += f" ({percent(abs(self.headroom))} {side} the limit"
            outcome += f"; met in {round(self.met_share * self.replications)} of {self.replications} replications"
            judged = known.of_answered(self.lost_share)
            if judged is not None and judged != known:
                outcome += (
                    f"; the value is the {judged.name} of the answered requests, {percent(self.lost_share)} are not answered"
                )
            outcome += ")"
        place = f"{self.policy} for {CellName.of(self)}" if self.policy else ""
        return ": ".join(filter(None, (str(self.requirement), place, shown, outcome)))


@dataclass(frozen=True, slots=True)
class Assertion:
    """A requirement that a run is to meet: by its recommended policy, or by a named one; everywhere, or in the rows of one
    workload or class.
    """

    requirement: Requirement
    policy: str | None = None
    workload: str | None = None
    """What stands in the column `workload` of the rows, such as `class files`."""

    @classmethod
    def parse(cls, text: str, policies: Iterable[str], workloads: Iterable[str] = ()) -> Assertion:
        """Return the assertion of `p95_ms<=300`, or of a policy or a workload, as in `cnmt: p95_ms<=300`. Raises `InputError`.

        >>> Assertion.parse("class files: p95_ms<=300", ["cnmt"], ["class files"]).workload
        'class files'
        """
        first, colon, requirement = text.rpartition(":")
        name, policies, workloads = first.strip(), [*policies], [*workloads]
        if colon and name not in (*policies, *workloads):
            remedy = did_you_mean(name, dict.fromkeys((*policies, *workloads)))
            raise InputError(f"unknown policy {shorten(name)} in {shorten(text)!r}", remedy=remedy)
        if not colon or name in policies:
            return cls(Requirement.parse(requirement), name if colon else None)
        return cls(Requirement.parse(requirement), workload=name)

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.policy or self.workload, str(self.requirement))))
