"""When something that fails is down: listed intervals, a random process, or where samples of a trace were lost.

Intervals contain their begin and not their end. They are in order and do not overlap; a process has no end, so that its
intervals are drawn as far as they are asked for. Nothing here has a clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from math import inf
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from simnmt.base import random_streams
from simnmt.base.configuration import Configuration, form_by_key, misfit
from simnmt.network.series import RttSeries, TraceError

Span = tuple[float, float]
"""The begin and the end of an interval, seconds."""
_DRAWN = 256  # intervals of a process that are drawn at a time


class DownTimes:
    """The intervals in which something is down, in order."""

    __slots__ = ("_begin_s", "_down_s", "_end_s", "_more")

    def __init__(self, spans: Iterable[Span]) -> None:
        """`spans`: intervals in order that do not overlap; they are read as far as they are needed, and need not end."""
        self._more: Iterator[Span] = iter(spans)
        self._begin_s: list[float] = []
        self._end_s: list[float] = []
        self._down_s = [0.0]
        """Seconds of all intervals before each."""

    def _read_beyond(self, at_s: float) -> int:
        """Read intervals up to the first that begins after a moment, and return the number of those before it."""
        while not self._begin_s or self._begin_s[-1] <= at_s:
            begin_s, end_s = next(self._more, (inf, inf))
            self._begin_s.append(begin_s)
            self._end_s.append(end_s)
            self._down_s.append(self._down_s[-1] + (end_s - begin_s if begin_s < inf else 0.0))
            if begin_s == inf:
                break
        return bisect_right(self._begin_s, at_s)

    def up_from(self, at_s: float) -> float:
        """Return the first moment, not before this one, at which it is up."""
        number_begun = self._read_beyond(at_s)
        return max(self._end_s[number_begun - 1], at_s) if number_begun else at_s

    def is_down(self, at_s: float) -> bool:
        """Return whether it is down at a moment."""
        return self.up_from(at_s) > at_s

    def next_begin(self, at_s: float) -> float:
        """Return when the first interval after a moment begins; infinity if there is none."""
        return self._begin_s[self._read_beyond(at_s)]

    def down_s(self, until_s: float) -> float:
        """Return the seconds that it is down from 0 to a moment."""
        number_begun = self._read_beyond(until_s)
        return self._down_s[number_begun] - max(self._end_s[number_begun - 1] - until_s, 0.0) if number_begun else 0.0


ALWAYS_UP = DownTimes(())


def drawn_spans(seed: int, replication: int, name: str, mean_up_s: float, mean_down_s: float) -> Iterator[Span]:
    """Yield the intervals of a process that is up and down for exponential times in turn, in equilibrium at 0; for ever.

    At 0 it is down as probably as at any later moment. `name`: of the random stream, so that the same key gives the same
    intervals, however far they are read.
    """
    at_s, down_share = 0.0, mean_down_s / (mean_up_s + mean_down_s)
    is_down = random_streams.uniform(seed, replication, f"{name} at 0", 1)[0] < down_share
    for block in count():
        generator = random_streams.stream(seed, replication, name, block)
        ups_s = generator.standard_exponential(_DRAWN) * mean_up_s
        downs_s = generator.standard_exponential(_DRAWN) * mean_down_s
        if is_down:  # what is left of an exponential time is exponential with the same mean
            ups_s[0], is_down = 0.0, False
        for up_s, down_s in zip(ups_s.tolist(), downs_s.tolist(), strict=True):
            begin_s = at_s + up_s
            at_s = begin_s + down_s
            if at_s > begin_s:
                yield begin_s, at_s


def spans_of_laps(spans: Sequence[Span], lap_s: float, begin_s: float) -> Iterator[Span]:
    """Yield the intervals of a trace lap after lap, for a run that begins at the moment `begin_s` of it; for ever."""
    for lap in count():
        for from_s, to_s in spans:
            at_s = lap * lap_s - begin_s % lap_s
            if at_s + to_s > 0.0:
                yield max(at_s + from_s, 0.0), at_s + to_s


def _in_order(spans: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
    end_s = 0.0
    for number, span in enumerate(spans, 1):
        if len(span) != 2 or not 0.0 <= span[0] < span[1]:
            raise misfit("", f"interval {number} is {list(span)}, but an interval is [from, to] in seconds, 0 <= from < to")
        if span[0] < end_s:
            remedy = "sort them, and join those that overlap"
            raise misfit("", f"interval {number}, {list(span)}, begins before the end of the one before ({remedy})")
        end_s = span[1]
    return spans


MeanSeconds = Annotated[float, Field(ge=1e-3, le=1e9)]
# Not strict, since a file has lists; tuples can be hashed.
_Pair = Annotated[tuple[Annotated[float, Field(ge=0.0, le=1e12)], ...], Field(strict=False)]
Spans = Annotated[tuple[_Pair, ...], Field(min_length=1, strict=False), AfterValidator(_in_order)]
"""Begin and end of intervals, seconds after the run began."""


class ListedOutages(Configuration):
    """Outages at given times of the run."""

    intervals_s: Spans
    """Begin and end of each outage, seconds after the run began: `[[60, 75], [300, 320]]`."""


class DrawnOutages(Configuration):
    """Outages that come and go at random, the same for all policies."""

    mean_between_s: MeanSeconds
    """Mean time from the end of an outage to the next one, exponential."""
    mean_duration_s: MeanSeconds
    """Mean time that an outage lasts, exponential."""


Outages = Literal["trace"] | ListedOutages | DrawnOutages
_form_of_mapping = form_by_key(DrawnOutages, intervals_s=ListedOutages)

OutageConfiguration = Annotated[
    Annotated[Literal["trace"], Tag("trace")]
    | Annotated[ListedOutages, Tag("ListedOutages")]
    | Annotated[DrawnOutages, Tag("DrawnOutages")],
    Discriminator(
        lambda value: "trace" if value == "trace" else _form_of_mapping(value),
        custom_error_type="no_outages",
        custom_error_message="give trace, {mean_between_s: 600, mean_duration_s: 10} or {intervals_s: [[from, to], ...]}",
    ),
]
"""`trace`: wherever samples of the RTT were lost; else `{mean_between_s: 600, mean_duration_s: 10}` or
`{intervals_s: [[60, 75], [300, 320]]}`. Every message that is sent during an outage is lost."""


def outage_spans(outages: Outages, key: tuple[int, int, str], series: RttSeries, begin_s: float) -> Iterator[Span]:
    """Yield the outages of one replication; `key`: of the random stream, `begin_s`: of the run on the series.

    Raises `TraceError` if they are those of a series that lost no sample.
    """
    if isinstance(outages, ListedOutages):
        return iter([(span[0], span[1]) for span in outages.intervals_s])
    if isinstance(outages, DrawnOutages):
        return drawn_spans(*key, outages.mean_between_s, outages.mean_duration_s)
    if not series.lost_spans_s:
        what = f"RTT series {series.name}: no sample in it is lost, so it has no outages"
        raise TraceError(what, remedy="give outages: {mean_between_s: ..., mean_duration_s: ...}, or leave them out")
    return spans_of_laps(series.lost_spans_s, series.duration_s, begin_s)
