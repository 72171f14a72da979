"""Faults of a link: outages, bursts of lost messages, and how often a lost message is sent again before it is given up.

A message meets the link when it is sent. If the link is down then, or the message is lost by chance, it is sent again after the
retransmission timeout, which doubles each time, as TCP does. The losses follow the model of Gilbert and Elliott: the link is in
a good and a bad state in turn, for exponential times, and each state has its share of lost messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidatorFunctionWrapHandler, WrapValidator, model_validator
from pydantic_core import PydanticCustomError

from simnmt.base.configuration import Configuration
from simnmt.base.down_times import DownTimes, Span, describe_bad_spans, drawn_spans, spans_of_laps
from simnmt.network.errors import TraceError
from simnmt.network.series import RttSeries

MeanSeconds = Annotated[float, Field(ge=1e-3, le=1e9)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
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


class LossConfiguration(Configuration):
    """Bursts of lost messages (Gilbert and Elliott): a good and a bad state in turn, each with its share of lost messages."""

    mean_good_s: MeanSeconds
    """Mean time of a good state, exponential."""
    mean_bad_s: MeanSeconds
    """Mean time of a bad state, exponential."""
    bad_share: Share = 0.5
    """Share of the messages that are lost in a bad state."""
    good_share: Share = 0.0
    """Share of the messages that are lost in a good state."""

    @property
    def mean_share(self) -> float:
        """Share of the messages that are lost in the long run."""
        bad = self.mean_bad_s / (self.mean_good_s + self.mean_bad_s)
        return bad * self.bad_share + (1.0 - bad) * self.good_share


class Retransmission(Configuration):
    """What becomes of a lost message."""

    timeout_ms: Annotated[float, Field(ge=1.0, le=1e6)] = 200.0
    """Time after which a lost message is sent again; it doubles with each time (RFC 6298; 200 ms is the least of Linux)."""
    times: Annotated[int, Field(ge=0, le=20)] = 6
    """How often it is sent again; after that it is given up, at the end of one more timeout."""


@dataclass(frozen=True, slots=True)
class LinkFaults:
    """The faults of a link as configured."""

    outages: ListedOutages | DrawnOutages | TraceOutages | None
    loss: LossConfiguration | None
    retransmission: Retransmission

    def channel(self, seed: int, replication: int, name: str, series: RttSeries, begin_s: float) -> Channel:
        """Return the link of one replication; `name`: of its random streams. Raises `TraceError` as `TraceOutages` does."""
        outages, loss = self.outages, self.loss
        down = outages.spans((seed, replication, f"{name}/outages"), series, begin_s) if outages is not None else ()
        bad = drawn_spans(seed, replication, f"{name}/bad", loss.mean_good_s, loss.mean_bad_s) if loss is not None else ()
        shares = (0.0, 0.0) if loss is None else (loss.good_share, loss.bad_share)
        again = self.retransmission
        return Channel(DownTimes(down), DownTimes(bad), shares, again.timeout_ms / 1e3, again.times)


@dataclass(frozen=True, slots=True, eq=False)
class Channel:
    """A link with its faults, in one replication."""

    outages: DownTimes
    bad: DownTimes
    lost_shares: tuple[float, float]
    """Shares of the messages that are lost in a good and in a bad state."""
    timeout_s: float
    times: int
    """How often a lost message is sent again."""

    def loses(self, at_s: float, uniform: Callable[[], float]) -> bool:
        """Return whether a message that is sent at a moment is lost; `uniform` gives its number in [0, 1) if chance decides."""
        if self.outages.is_down(at_s):
            return True
        share = self.lost_shares[self.bad.is_down(at_s)]
        return share > 0.0 and (share >= 1.0 or uniform() < share)

    def timeout_of(self, attempt: int) -> float:
        """Return the seconds after which an attempt, counted from 0, is known to be lost."""
        return self.timeout_s * 2.0**attempt
