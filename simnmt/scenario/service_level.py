"""What a scenario is judged by: its objective, its service level, further metrics, and the warm-up that is left out.

Metrics and requirements themselves, and how a run is judged by them, are in `simnmt.results.service_level`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from simnmt.base.configuration import Configuration, misfit
from simnmt.base.errors import InputError
from simnmt.results.metrics import SPENDINGS, Metric, metric, objective_metric
from simnmt.results.service_level import LEAST_LIMIT, Requirement


def requirement(name: str, limit: float) -> Requirement:
    """Return the requirement of a metric. Raises `InputError` for an unknown metric or another limit."""
    if isinstance(limit, bool) != (name == "stable"):
        raise InputError(f"takes {'true' if name == 'stable' else 'one number'}")
    return Requirement.of(metric(name), float(limit))


def _checked_level(level: Mapping[str, float]) -> Mapping[str, float]:
    if not level:
        raise misfit("", "limits nothing (write a limit, such as p95_ms: 300, or remove slo)")
    for name, limit in level.items():
        try:
            requirement(name, limit)
        except InputError as error:  # noqa: PERF203
            raise misfit(name, str(error)) from None
    return level


def _checked_name(lookup: Callable[[str], Metric]) -> AfterValidator:
    """Return the check that a function knows a name."""

    def check(name: str) -> str:
        try:
            lookup(name)
        except InputError as error:
            raise misfit("", str(error)) from None
        return name

    return AfterValidator(check)


Limit = Annotated[
    Annotated[float, Field(ge=LEAST_LIMIT, le=1e9), Tag("number")] | Annotated[Literal[True], Tag("truth_value")],
    Discriminator(lambda value: "truth_value" if isinstance(value, bool) else "number"),
]
"""A number in the unit of the metric's name; `true` for `stable`."""
ServiceLevel = Annotated[dict[str, Limit], AfterValidator(_checked_level), Field(json_schema_extra={"minProperties": 1})]
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
    Annotated[Literal["none"], Tag("rule")] | Annotated[WarmUpRequests, Tag("number")],
    Discriminator(lambda value: "number" if isinstance(value, (dict, WarmUpRequests)) else "rule"),
]
"""`none` or `{requests: 1000}`."""
