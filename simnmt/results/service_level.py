"""Metrics and requirements: what a deployment is judged by, and whether a run meets it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from simnmt.base.errors import InputError, shorten
from simnmt.base.suggestions import did_you_mean

Comparison = Literal["<=", ">="]


@dataclass(frozen=True, slots=True)
class Metric:
    """A named number by which a deployment is judged."""

    name: str
    column: str
    unit: str
    comparison: Comparison
    per_si_unit: float = 1.0
    least_requests: int = 1


_COLUMNS = {
    "mean_ms": "mean_latency_s",
    "p50_ms": "p50_latency_s",
    "p90_ms": "p90_latency_s",
    "p95_ms": "p95_latency_s",
    "p99_ms": "p99_latency_s",
}


def metric(name: str) -> Metric:
    """Return the metric of a name. Raises `InputError` for an unknown one."""
    if name not in _COLUMNS:
        raise InputError(f"unknown metric {shorten(name)}", remedy=did_you_mean(name, _COLUMNS))
    return Metric(name, _COLUMNS[name], "ms", "<=", 1e3)


@dataclass(frozen=True, slots=True)
class Requirement:
    """A limit of a metric, such as `p95_ms<=300`."""

    metric: Metric
    comparison: Comparison
    limit: float

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Return the requirement of a text such as `p95_ms<=300`. Raises `InputError`."""
        match = re.fullmatch(r"\s*([\w.]+)\s*(<=|>=)\s*([\d.e+]+)\s*", text)
        if match is None:
            raise InputError(f"{shorten(text)!r} is no requirement", remedy="write a metric and its limit, as in p95_ms<=300")
        return cls(metric(match[1]), match[2], float(match[3]))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.metric.name}{self.comparison}{self.limit:g}"

    def is_met_by(self, value: float) -> bool:
        """Return whether a value in the metric's unit meets the requirement."""
        return value <= self.limit if self.comparison == "<=" else value >= self.limit
