"""Reader of the output of `ping` on Linux, macOS or Windows."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simnmt.base.errors import shorten
from simnmt.network.errors import TraceError
from simnmt.network.trace_options import ReadOptions
from simnmt.network.traces.readings import Readings

_STAMP = re.compile(r"^\[(\d+(?:\.\d+)?)\]\s*")
_RTT = re.compile(r"\btime\s*([=<])\s*(\d+(?:\.\d+)?)\s*ms\b", re.IGNORECASE)
_SEQUENCE = re.compile(r"\b(?:icmp_)?seq[= ](\d+)\b", re.IGNORECASE)
_REPLY = re.compile(r"\bbytes from\b|^Reply from\b.*\btime", re.IGNORECASE)
_LOST = re.compile(
    r"^Request timed out|^Request timeout for|no answer yet|\bunreachable\b|\bGeneral failure|\bTTL expired in transit",
    re.IGNORECASE,
)
_GOAL = re.compile(r"^(?:PING|Pinging) (\S+)", re.IGNORECASE)
_WRAP = 1 << 16
_MOST_LOST = 1_000_000
"""Lost requests in a row; more show a misread number."""
_MOST_DIGITS = 12
"""Digits of a number before the point; no ping prints more."""


def is_ping_text(text: str) -> bool:
    """Return whether the first lines look like output of `ping`."""
    lines = [_STAMP.sub("", line.strip()) for line in text[:4000].split("\n")[:20]]
    return any(_GOAL.match(line) or _REPLY.search(line) for line in lines)


@dataclass(slots=True)
class _Replies:
    """Replies of one or several runs of `ping`, by the number of the request."""

    rtts_ms: dict[int, float] = field(default_factory=dict)
    stamps_s: dict[int, float] = field(default_factory=dict)
    goal: str | None = None
    last: int = -1
    """Greatest number of a request, answered or lost, -1 before the first."""
    offset: int = 0
    """Offset of the printed numbers, which restart after 65,535 and with each run."""
    new_run: bool = False
    duplicates: int = 0
    below: int = 0
    """Number of replies printed as less than a millisecond."""

    def number(self, printed: int | None) -> int:
        """Return the unique number of a request for the number that `ping` printed; None: the next number."""
        if printed is None:
            return self.last + 1
        if self.new_run:  # a second run in the same file continues where the first ended
            self.offset, self.new_run = self.last + 1 - printed, False
        number = printed + self.offset
        if number < self.last - _WRAP // 2:
            self.offset += _WRAP
            return number + _WRAP
        # Sent before the printed number restarted, answered after.
        late = self.offset >= _WRAP and number > self.last + _WRAP // 2
        return number - _WRAP if late else number


def read_ping_text(path: Path, text: str, how: ReadOptions) -> list[Readings]:
    """Return the RTTs of a run of `ping`: one value per request, lost if its number is missing.

    The times are those that `ping -D` prints; without them, one request per `how.interval_s` is assumed. Raises `TraceError`
    if the text has no reply.
    """
    replies = _read_replies(path, text)
    if not replies.rtts_ms:
        raise TraceError("ping had no reply", path=path, remedy="give a run in which at least one request was answered")
    granted, repairs = [], []
    if replies.below:
        granted.append(f"replies in less than 1 ms, taken for 1 ms: {replies.below:,}")
    if replies.duplicates:
        repairs.append(f"duplicate replies left out: {replies.duplicates:,}")
    sequences = np.arange(min(replies.rtts_ms), replies.last + 1)
    if len(replies.stamps_s) == len(replies.rtts_ms):
        time_s = _interpolate(replies.stamps_s, sequences, how.interval_s)
    else:
        time_s = (sequences - sequences[0]) * how.interval_s
        granted.append(f"no times in the file, which ping -D prints: a request each {how.interval_s:g} s taken for granted")
    value = np.array([replies.rtts_ms.get(number, np.nan) for number in sequences.tolist()]) / 1e3
    if zeros := int((value == 0.0).sum()):
        repairs.append(f"replies within 0 ms left out: {zeros:,}")
        value[value == 0.0] = np.nan
    source = f"ping to {shorten(replies.goal)}" if replies.goal else f"ping, file {shorten(path.name)}"
    return [Readings("rtt", time_s, value, "measured", source, tuple(repairs), tuple(granted))]


def _read_replies(path: Path, text: str) -> _Replies:
    replies = _Replies()
    for at, text_line in enumerate(text.split("\n"), 1):
        stamp = _STAMP.match(text_line.strip())
        line = _STAMP.sub("", text_line.strip())
        if match := _GOAL.match(line):
            replies.goal, replies.new_run = replies.goal or match[1], replies.last >= 0
            continue
        rtt = _RTT.search(line) if _REPLY.search(line) else None
        if rtt is None and not _LOST.search(line):
            continue
        if "DUP!" in line:
            replies.duplicates += 1
            continue
        printed = _SEQUENCE.search(line)
        what = ""
        for number in (printed, stamp):
            if number and len(number[1].partition(".")[0]) > _MOST_DIGITS:
                what = f"{shorten(number[1], 40)} is no number that ping prints"
        if not what:
            sequence = replies.number(int(printed[1]) if printed else None)
            if sequence > replies.last + _MOST_LOST:
                what = f"request {printed[1] if printed else sequence} follows request {replies.last}"
        if what:
            raise TraceError(what, path=path, line=at, remedy="give what ping printed, unchanged")
        replies.last = max(replies.last, sequence)
        if rtt is not None:
            replies.rtts_ms[sequence] = float(rtt[2])
            replies.below += rtt[1] == "<"
            if stamp:
                replies.stamps_s[sequence] = float(stamp[1])
    return replies


def _interpolate(stamps_s: dict[int, float], sequences: NDArray[np.int64], interval_s: float) -> NDArray[np.float64]:
    """Return the times of all requests; lost ones lie evenly between their neighbours."""
    numbers = np.array(sorted(stamps_s))
    known_s = np.array([stamps_s[number] for number in numbers.tolist()])
    step_s = float(np.median(np.diff(known_s) / np.diff(numbers))) if len(numbers) > 1 else interval_s
    time_s: NDArray[np.float64] = np.interp(sequences, numbers, known_s)
    time_s += np.maximum(sequences - numbers[-1], 0) * step_s
    return time_s
