"""What `ping` printed, on Linux, macOS or Windows."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

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
"""Requests in a row: more is a number misread."""
_MOST_DIGITS = 12
"""Of a number: no ping prints more before the point."""


def is_ping_text(text: str) -> bool:
    """Whether the first lines are what `ping` prints."""
    lines = [_STAMP.sub("", line.strip()) for line in text[:4000].split("\n")[:20]]
    return any(_GOAL.match(line) or _REPLY.search(line) for line in lines)


def read_ping_text(path: Path, text: str, how: ReadOptions) -> list[Readings]:
    """Return the RTTs of a run of `ping`: one value a request, lost where its number is missing.

    Times are those that `ping -D` prints; without them requests go out each `how.interval_s`. Raises `TraceError` where no
    reply stands in the text.
    """
    repairs: list[str] = []
    granted: list[str] = []
    rtts_ms: dict[int, float] = {}
    stamps: dict[int, float] = {}
    goal = None
    last, offset, anew, duplicates, below = -1, 0, False, 0, 0
    for at, text_line in enumerate(text.split("\n"), 1):
        stamp = _STAMP.match(text_line.strip())
        line = _STAMP.sub("", text_line.strip())
        if match := _GOAL.match(line):
            goal, anew = goal or match[1], last >= 0
            continue
        rtt = _RTT.search(line) if _REPLY.search(line) else None
        if rtt is None and not _LOST.search(line):
            continue
        if "DUP!" in line:
            duplicates += 1
            continue
        numbered = _SEQUENCE.search(line)
        for number in (numbered, stamp):
            if number and len(number[1].partition(".")[0]) > _MOST_DIGITS:
                what = f"{shorten(number[1], 40)} is no number that ping prints"
                raise TraceError(what, path=path, line=at, remedy="give what ping printed, unchanged")
        if numbered and anew:  # another run of ping in the same file goes on where the one before ended
            offset, anew = last + 1 - int(numbered[1]), False
        sequence = last + 1 if numbered is None else int(numbered[1]) + offset
        if sequence < last - _WRAP // 2:
            offset += _WRAP
            sequence += _WRAP
        elif offset >= _WRAP and sequence > last + _WRAP // 2:
            sequence -= _WRAP  # sent before the number began anew, answered after
        if sequence > last + _MOST_LOST:
            what = f"request {numbered[1] if numbered else sequence} follows request {last}"
            raise TraceError(what, path=path, line=at, remedy="give what ping printed, unchanged")
        last = max(last, sequence)
        if rtt is not None:
            rtts_ms[sequence] = float(rtt[2])
            below += rtt[1] == "<"
            if stamp:
                stamps[sequence] = float(stamp[1])
    if not rtts_ms:
        raise TraceError("ping had no reply", path=path, remedy="give a run in which at least one request was answered")
    if below:
        granted.append(f"replies in less than 1 ms, taken for 1 ms: {below:,}")
    if duplicates:
        repairs.append(f"duplicate replies left out: {duplicates:,}")
    sequences = np.arange(min(rtts_ms), last + 1)
    if len(stamps) == len(rtts_ms):
        known = np.array(sorted(stamps))
        steps = np.diff([stamps[number] for number in known.tolist()]) / np.diff(known)
        step_s = float(np.median(steps)) if steps.size else how.interval_s
        time_s = np.interp(sequences, known, [stamps[number] for number in known.tolist()])
        time_s += np.maximum(sequences - known[-1], 0) * step_s
    else:
        time_s = (sequences - sequences[0]) * how.interval_s
        granted.append(f"no times in the file, which ping -D prints: a request each {how.interval_s:g} s taken for granted")
    value = np.array([rtts_ms.get(number, np.nan) for number in sequences.tolist()]) / 1e3
    zero = value == 0.0
    if zero.any():
        repairs.append(f"replies within 0 ms left out: {int(zero.sum()):,}")
        value[zero] = np.nan
    source = f"ping to {shorten(goal)}" if goal else f"ping, file {shorten(path.name)}"
    return [Readings("rtt", time_s, value, "measured", source, tuple(repairs), tuple(granted))]
