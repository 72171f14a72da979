"""When something that fails is down: listed intervals, a random process, or laps of a trace. Pure: nothing has a clock.

Intervals contain their begin and not their end. They are in order and do not overlap; a process has no end, so that its
intervals are drawn as far as they are asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from math import inf

from simnmt.base import random_streams

Span = tuple[float, float]
"""The begin and the end of an interval, seconds."""
_DRAWN = 256
"""Intervals of a process that are drawn at a time."""


def describe_bad_spans(spans: Sequence[Sequence[float]]) -> str | None:
    """Return why pairs of numbers are no intervals in order; None if they are."""
    end_s = 0.0
    for number, span in enumerate(spans):
        if len(span) != 2 or not 0.0 <= span[0] < span[1]:
            return f"interval {number + 1} is {list(span)}, but an interval is [from, to] in seconds, from 0 on (swap them?)"
        if span[0] < end_s:
            before = f"interval {number + 1}, {list(span)}, begins before the end of {list(spans[number - 1])}"
            return f"{before} (sort them, and join those that overlap)"
        end_s = span[1]
    return None


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

    def _read_beyond(self, at_s: float) -> None:
        """Read intervals up to the first that begins after a moment."""
        while not self._begin_s or self._begin_s[-1] <= at_s:
            begin_s, end_s = next(self._more, (inf, inf))
            self._begin_s.append(begin_s)
            self._end_s.append(end_s)
            self._down_s.append(self._down_s[-1] + (end_s - begin_s if begin_s < inf else 0.0))
            if begin_s == inf:
                return

    def up_from(self, at_s: float) -> float:
        """Return the first moment, not before this one, at which it is up."""
        self._read_beyond(at_s)
        last = bisect_right(self._begin_s, at_s) - 1
        return self._end_s[last] if last >= 0 and self._end_s[last] > at_s else at_s

    def is_down(self, at_s: float) -> bool:
        """Return whether it is down at a moment."""
        return self.up_from(at_s) > at_s

    def next_begin(self, at_s: float) -> float:
        """Return when the first interval after a moment begins; infinity if there is none."""
        self._read_beyond(at_s)
        return self._begin_s[bisect_right(self._begin_s, at_s)]

    def down_s(self, until_s: float) -> float:
        """Return the seconds that it is down from 0 to a moment."""
        self._read_beyond(until_s)
        begun = bisect_right(self._begin_s, until_s)
        return self._down_s[begun] - max(self._end_s[begun - 1] - until_s, 0.0) if begun else 0.0


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
