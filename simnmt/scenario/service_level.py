"""What a scenario is judged by: its objective, its service level, further metrics, and the warm-up that is left out.

Metrics and requirements themselves, and how a run is judged by them, are in `simnmt.results.service_level`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from simnmt.base.configuration import Configuration, misfit
from simnmt.base.errors import InputError
from simnmt.results.metrics import (
    SPENDINGS,
    Metric,
    answered_within,
    metric,
    objective_metric,
)
from simnmt.results.service_level import LEAST_LIMIT, Requirement

Limit = Annotated[float, Field(ge=LEAST_LIMIT, le=1e9)]
"""In the unit of the metric's name."""
Share = Annotated[float, Field(ge=LEAST_LIMIT, le=1.0)]


class AnsweredWithin(Configuration):
    """A share of the requests that must be answered within a time."""

    ms: Limit
    """The time, milliseconds."""
    share: Share
    """Least share of the requests."""


def _form_of_limit(value: Any) -> str:
    return "share_within" if isinstance(value, (dict, AnsweredWithin)) else "yes" if isinstance(value, bool) else "limit"


LimitConfiguration = Annotated[
    Annotated[Limit, Tag("limit")] | Annotated[AnsweredWithin, Tag("share_within")] | Annotated[Literal[True], Tag("yes")],
    Discriminator(_form_of_limit),
]
"""A number in the metric's unit; `{ms: 500, share: 0.99}` for `answered_within`; `true` for `stable`."""


def requirements(level: Mapping[str, Any] | None) -> Iterator[Requirement]:
    """Yield the requirements of a service level, in its order. Raises `InputError` for an unknown metric or another limit."""
    for name, limit in (level or {}).items():
        if isinstance(limit, AnsweredWithin) != (name == "answered_within") or isinstance(limit, bool) != (name == "stable"):
            form = {"answered_within": "{ms: 500, share: 0.99}", "stable": "true"}.get(name, "one number")
            raise InputError(f"takes {form}")
        if isinstance(limit, AnsweredWithin):
            yield Requirement.of(answered_within(limit.ms), limit.share)
        else:
            yield Requirement.of(metric(name), float(limit))


def _checked_level(level: Mapping[str, Any]) -> Mapping[str, Any]:
    if not level:
        raise misfit("", "limits nothing (write a limit, such as p95_ms: 300, or remove slo)")
    for name, limit in level.items():
        _check_limit(name, limit)
    return level


def _check_limit(name: str, limit: Any) -> None:
    try:
        list(requirements({name: limit}))
    except InputError as error:
        raise misfit(name, str(error)) from None


def _checked_name(lookup: Callable[[str], Metric]) -> AfterValidator:
    """Return the check that a function knows a name."""

    def check(name: str) -> str:
        try:
            lookup(name)
        except InputError as error:
            raise misfit("", str(error)) from None
        return name

    return AfterValidator(check)


ServiceLevel = Annotated[
    dict[str, LimitConfiguration], AfterValidator(_checked_level), Field(json_schema_extra={"minProperties": 1})
]
"""Limits of metrics; a policy that misses one is recommended only if all do."""

_OBJECTIVES = rf"^(mean|p[5-9][0-9](\.[1-9])?|{'|'.join(SPENDINGS)})$"
Objective = Annotated[str, _checked_name(objective_metric), Field(json_schema_extra={"pattern": _OBJECTIVES})]
"""`mean` or a percentile of the latency such as `p95`, or a spending such as `energy_j`."""
MetricName = Annotated[str, _checked_name(metric)]
"""Name of a metric, such as `p97.5_ms` or `answered_within_500ms`."""


class WarmUpRequests(Configuration):
    """A number of requests that are left out as warm-up."""

    requests: Annotated[int, Field(ge=0, le=100_000_000)]
    """Requests at the beginning of each replication that count in no number of the summary."""


WarmUp = Annotated[
    Annotated[Literal["mser5", "none"], Tag("rule")] | Annotated[WarmUpRequests, Tag("number")],
    Discriminator(lambda value: "number" if isinstance(value, (dict, WarmUpRequests)) else "rule"),
]
"""`none`; `mser5`: the requests that the rule MSER-5 cuts, in open and closed loops; or `{requests: 1000}`."""


def measured_metrics(objective: str, level: Mapping[str, Any] | None, names: Iterable[str]) -> tuple[Metric, ...]:
    """Return the metrics of an objective, a service level and further names, each once."""
    metrics = [objective_metric(objective), *(one.metric for one in requirements(level)), *map(metric, names)]
    return tuple(dict.fromkeys(metrics))
