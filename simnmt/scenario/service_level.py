"""What a scenario is judged by: its objective, its service level, further metrics, and the warm-up that is left out.

Metrics and requirements themselves, and how a run is judged by them, are in `simnmt.results.service_level`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from simnmt.base.configuration import Configuration
from simnmt.base.errors import InputError
from simnmt.results.metrics import (
    ANSWERED_WITHIN_KEY,
    PERCENTILE_KEY,
    PLAIN_METRICS,
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


def _known_metric(name: str) -> str:
    if name != "answered_within":
        _refused(lambda: metric(name))
    return name


def _refused(check: Any) -> Any:
    """Return what `check` returns, with its `InputError` as a fault of the value."""
    try:
        return check()
    except InputError as error:
        raise PydanticCustomError("service_level", "{what}", {"what": str(error)}) from None


def _limits_something(level: Mapping[str, Any]) -> Mapping[str, Any]:
    if not level:
        raise PydanticCustomError("no_limit", "limits nothing (write a limit, such as p95_ms: 300, or remove slo)")
    for name, limit in level.items():
        expected = {"answered_within": AnsweredWithin, "stable": bool}.get(name, float)
        if not isinstance(limit, expected):
            form = {"answered_within": "{ms: 500, share: 0.99}", "stable": "true"}.get(name, "one number")
            raise PydanticCustomError(
                "form_of_limit", "{name} takes another value (write {name}: {form})", {"name": name, "form": form}
            )
        _refused(lambda name=name, limit=limit: _requirement(name, limit))
    return level


def _requirement(name: str, limit: Any) -> Requirement:
    if isinstance(limit, AnsweredWithin):
        return Requirement.of(answered_within(limit.ms), limit.share)
    known = metric(name)
    return Requirement.of(known, float(limit))


def requirements(level: Mapping[str, Any] | None) -> Iterator[Requirement]:
    """Yield the requirements of a service level, in its order."""
    for name, limit in (level or {}).items():
        yield _requirement(name, limit)


def _schema_of_limit(most: float | None) -> Mapping[str, Any]:
    return {"type": "number", "exclusiveMinimum": 0, "maximum": 1e9 if most is None else most}


_LEVEL_SCHEMA: dict[str, Any] = {
    "properties": {
        **{name: _schema_of_limit(known.most) for name, known in PLAIN_METRICS.items()},
        "stable": {"const": True, "type": "boolean"},
        **{name: {"type": "number", "exclusiveMinimum": 0, "maximum": 1e9} for name in SPENDINGS},
        "answered_within": {
            "type": "object",
            "properties": {"ms": _schema_of_limit(None), "share": _schema_of_limit(1.0)},
            "required": ["ms", "share"],
            "additionalProperties": False,
        },
    },
    "patternProperties": {PERCENTILE_KEY: _schema_of_limit(None), ANSWERED_WITHIN_KEY: _schema_of_limit(1.0)},
    "additionalProperties": False,
    "minProperties": 1,
}

ServiceLevel = Annotated[
    dict[Annotated[str, AfterValidator(_known_metric)], LimitConfiguration],
    AfterValidator(_limits_something),
    Field(json_schema_extra=_LEVEL_SCHEMA),
]
"""Limits of metrics; a policy that misses one is recommended only if all do."""


def _known_objective(objective: str) -> str:
    _refused(lambda: objective_metric(objective))
    return objective


_OBJECTIVES = rf"^(mean|p[5-9][0-9](\.[1-9])?|{'|'.join(SPENDINGS)})$"
Objective = Annotated[str, AfterValidator(_known_objective), Field(json_schema_extra={"pattern": _OBJECTIVES})]
"""`mean` or a percentile of the latency such as `p95`, or a spending such as `energy_j`."""
MetricName = Annotated[str, AfterValidator(lambda name: _refused(lambda: metric(name)).name)]
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
