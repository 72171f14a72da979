"""Outages of a link, during which every message that is sent is lost: listed, drawn, or those of the trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidatorFunctionWrapHandler, WrapValidator, model_validator
from pydantic_core import PydanticCustomError

from simnmt.base.configuration import Configuration
from simnmt.network.down_times import Span, describe_bad_spans, drawn_spans, spans_of_laps
from simnmt.network.errors import TraceError
from simnmt.network.series import RttSeries

MeanSeconds = Annotated[float, Field(ge=1e-3, le=1e9)]
Moment = Annotated[float, Field(ge=0.0, le=1e12)]


def _as_tuples(value: Any) -> Any:
    # A file has lists, and strict models take no list for a tuple, which can be hashed.
    return tuple(tuple(span) if isinstance(span, list) else span for span in value) if isinstance(value, list) else value


Spans = Annotated[tuple[tuple[Moment, ...], ...], Field(min_length=1), BeforeValidator(_as_tuples)]
"""Begin and end of intervals, seconds after the run began."""


def checked_spans(spans: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
    """Return intervals after a check that they are in order; raise `PydanticCustomError` with the first fault."""
    if fault := describe_bad_spans(spans):
        raise PydanticCustomError("bad_intervals", "{fault}", {"fault": fault})
    return spans


class ListedOutages(Configuration):
    """Outages at given times of the run."""

    intervals_s: Spans
    """Begin and end of each outage, seconds after the run began: `[[60, 75], [300, 320]]`."""

    @model_validator(mode="after")
    def _are_in_order(self) -> ListedOutages:
        checked_spans(self.intervals_s)
        return self

    def spans(self, key: tuple[int, int, str], series: RttSeries, begin_s: float) -> Iterator[Span]:
        """Yield the outages of one replication; `key`: of the random stream, `begin_s`: of the run on the series."""
        return iter([(span[0], span[1]) for span in self.intervals_s])

    def describe(self) -> str:
        """Describe the outages."""
        return f"{len(self.intervals_s)} outage{'s' * (len(self.intervals_s) != 1)} as listed"


class DrawnOutages(Configuration):
    """Outages that come and go at random, the same for all policies."""

    mean_between_s: MeanSeconds
    """Mean time from the end of an outage to the next one, exponential."""
    mean_duration_s: MeanSeconds
    """Mean time that an outage lasts, exponential."""

    def spans(self, key: tuple[int, int, str], series: RttSeries, begin_s: float) -> Iterator[Span]:
        """Yield the outages of one replication; `key`: of the random stream, `begin_s`: of the run on the series."""
        return drawn_spans(*key, self.mean_between_s, self.mean_duration_s)

    def describe(self) -> str:
        """Describe the outages."""
        return f"outages of {self.mean_duration_s:g} s in the mean, {self.mean_between_s:g} s apart"


class TraceOutages(Configuration):
    """An outage wherever samples of the RTT series were lost, until the next sample that was not."""

    kind: Literal["trace"]
    """Name of this form."""

    def spans(self, key: tuple[int, int, str], series: RttSeries, begin_s: float) -> Iterator[Span]:
        """Yield the outages of the series lap after lap. Raises `TraceError` if none of its samples is known to be lost."""
        lost_s = series.lost_spans_s
        if not lost_s:
            what = f"RTT series {series.name}: no sample in it is lost, so it has no outages"
            raise TraceError(what, remedy="give outages: {mean_between_s: ..., mean_duration_s: ...}, or leave them out")
        return spans_of_laps(lost_s, series.duration_s, begin_s)

    def describe(self) -> str:
        """Describe the outages."""
        return "an outage wherever samples of the trace were lost"


def _one_form(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(value, (ListedOutages, DrawnOutages, TraceOutages)):
        return value
    if value == "trace":
        return TraceOutages(kind="trace")
    if isinstance(value, Mapping):
        if "kind" in value:
            return TraceOutages.model_validate(value)
        return (ListedOutages if "intervals_s" in value else DrawnOutages).model_validate(dict(value))
    raise ValueError("give trace, {mean_between_s: number, mean_duration_s: number} or {intervals_s: [[from, to], ...]}")


OutageConfiguration = Annotated[
    ListedOutages | DrawnOutages | TraceOutages,
    WrapValidator(_one_form, json_schema_input_type=Literal["trace"] | ListedOutages | DrawnOutages | TraceOutages),
]
"""`trace`, `{mean_between_s: 600, mean_duration_s: 10}` or `{intervals_s: [[60, 75], [300, 320]]}`."""
