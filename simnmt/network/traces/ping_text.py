"""Readers of what `ping` and `fping` print: `ping` of Linux, macOS and Windows in five languages, `fping` of one host.

The words of Windows were taken from its English, German, French, Spanish and Chinese editions. Letters with accents are matched
as any one to three characters, since a log that was saved in another code page has lost them.
"""

from __future__ import annotations

import math
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
_RTT = re.compile(r"(?:\b(?:time|Zeit|temps|tiempo)|时间)\s*([=<])\s*(\d+(?:[.,]\d+)?)\s*(?:ms?\b|毫秒)", re.IGNORECASE)
"""A Spanish Windows prints `tiempo<1m`, a French one `temps=1 ms`."""
_SEQUENCE = re.compile(r"\b(?:icmp_)?seq[= ](\d+)\b", re.IGNORECASE)
_UNIX_REPLY = re.compile(r"\bbytes (?:from|von|desde)\b|\boctets de\b|字节，来自", re.IGNORECASE)
_WINDOWS_ANSWER = re.compile(r"^(?:Reply from|Antwort von|R.{1,3}ponse de|Respuesta desde|来自)\s+[\w.:%-]+", re.IGNORECASE)
"""The start of a line about a reply, or about a router's answer that the destination was not reached."""
_SIZE = re.compile(r"(?:bytes|octets|字节)=", re.IGNORECASE)
_LOST = re.compile(
    r"^Request timed out|^Request timeout for|no answer yet|\bunreachable\b|\bGeneral failure|\bTTL expired in transit"
    r"|^Zeit.{1,3}berschreitung der Anforderung|nicht erreichbar|\bAllgemeiner Fehler"
    r"|^D.{1,3}lai d.{1,3}attente de la demande|^Impossible de joindre|D.{1,3}faillance g.{1,3}n.{1,3}rale|\bTTL expir"
    r"|^Tiempo de espera agotado|\bdestino inaccesible|\bError general"
    r"|^请求超时|无法访问目标|一般故障|TTL 传输中过期",
    re.IGNORECASE,
)
_GOALS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"^Ping wird ausgef.{1,3}hrt f.{1,3}r (\S+)",
        r"^Envoi d.{1,3}une requ.{1,3}te .Ping.\s+(?:sur )?(\S+)",
        r"^Haciendo ping a (\S+)",
        r"^正在 Ping (\S+)",
        r"^(?:PING|Pinging) (?!: )(\S+)",
    )
)
_WRAP = 1 << 16
_MOST_LOST = 1_000_000
"""Lost requests in a row; more show a misread number."""
_MOST_DIGITS = 12
"""Digits of a number before the point; no ping prints more."""
_CODE_PAGES = ("cp850", "cp936")
"""Encodings in which a western and a Chinese Windows write what is not Unicode; the first in which a ping is recognised."""


def is_ping_text(text: str) -> bool:
    """Return whether the first lines look like output of `ping`."""
    lines = [_STAMP.sub("", line.strip()) for line in text[:4000].split("\n")[:20]]
    return any(_goal(line) or _UNIX_REPLY.search(line) or _is_windows_reply(line) for line in lines)


def decode_code_page(raw: bytes) -> str | None:
    """Return the text of a Windows ping that is not Unicode, decoded from its code page; None if it is no ping."""
    texts = (raw.decode(code_page, errors="replace") for code_page in _CODE_PAGES)
    return next((text for text in texts if is_ping_text(text)), None)


def _goal(line: str) -> str | None:
    return next((match[1] for pattern in _GOALS if (match := pattern.match(line))), None)


def _is_windows_reply(line: str) -> bool:
    return _WINDOWS_ANSWER.match(line) is not None and _RTT.search(line) is not None


@dataclass(slots=True)
class Replies:
    """Replies of one or several runs of a ping to one host, by the number of the request."""

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
    cut: int = 0
    """Entries at the end that are left out, since the file ends within them."""

    def add(self, printed: int | None, rtt_ms: float | None, stamp_s: float = math.nan) -> str | None:
        """Add a request by its printed number, None for the next one; `rtt_ms` is None if it was lost.

        Returns what is wrong with the number, None if nothing is.
        """
        sequence = self._number(printed)
        if sequence > self.last + _MOST_LOST:
            return f"request {sequence if printed is None else printed} follows request {self.last}"
        self.last = max(self.last, sequence)
        if rtt_ms is not None:
            self.rtts_ms[sequence] = rtt_ms
            if math.isfinite(stamp_s):
                self.stamps_s[sequence] = stamp_s
        return None

    def _number(self, printed: int | None) -> int:
        """Return the unique number of a request for the number that was printed; None: the next number."""
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

    def readings(self, path: Path, how: ReadOptions, tool: str = "ping") -> Readings:
        """Return one value per request, lost if it has no reply.

        The times are those that the tool printed; without them, one request per `how.interval_s` is assumed. Raises
        `TraceError` if there is no reply.
        """
        if not self.rtts_ms:
            remedy = "give a run in which at least one request was answered"
            raise TraceError(f"{tool} had no reply", path=path, remedy=remedy)
        granted, repairs = [], []
        if self.below:
            granted.append(f"replies in less than 1 ms, taken for 1 ms: {self.below:,}")
        if self.duplicates:
            repairs.append(f"duplicate replies left out: {self.duplicates:,}")
        if self.cut:
            repairs.append(f"entries skipped, since the file ends within them: {self.cut:,}")
        sequences = np.arange(min(self.rtts_ms), self.last + 1)
        if len(self.stamps_s) == len(self.rtts_ms):
            time_s = _interpolate(self.stamps_s, sequences, how.interval_s)
        else:
            time_s = (sequences - sequences[0]) * how.interval_s
            every = f"a request each {how.interval_s:g} s taken for granted"
            granted.append(f"no times in the file, which {tool} -D prints: {every}")
        value = np.array([self.rtts_ms.get(number, np.nan) for number in sequences.tolist()]) / 1e3
        if zeros := int((value == 0.0).sum()):
            repairs.append(f"replies within 0 ms left out: {zeros:,}")
            value[value == 0.0] = np.nan
        source = f"{tool} to {shorten(self.goal)}" if self.goal else f"{tool}, file {shorten(path.name)}"
        return Readings("rtt", time_s, value, "measured", source, tuple(repairs), tuple(granted))


def read_ping_text(path: Path, text: str, how: ReadOptions) -> list[Readings]:
    """Return the RTTs of a run of `ping`: one value per request, lost if its number is missing. Raises `TraceError`."""
    replies = Replies()
    lines = text.split("\n")
    for at, text_line in enumerate(lines, 1):
        stamp = _STAMP.match(text_line.strip())
        line = _STAMP.sub("", text_line.strip())
        if goal := _goal(line):
            replies.goal, replies.new_run = replies.goal or goal, replies.last >= 0
            continue
        answer = _WINDOWS_ANSWER.match(line)
        replied = answer or _UNIX_REPLY.search(line)
        rtt = _RTT.search(line) if replied else None
        if rtt is None:
            if replied and (not answer or _SIZE.search(line)):
                if at < len(lines):
                    raise TraceError("a reply without a time", path=path, line=at, remedy="complete the line or remove it")
                replies.cut += 1
                continue
            if not answer and not _LOST.search(line):
                continue
        if "DUP!" in line:
            replies.duplicates += 1
            continue
        printed = _SEQUENCE.search(line)
        what = next((long for number in (printed, stamp, rtt and rtt[2]) if number and (long := _too_long(number))), None)
        if what is None:
            rtt_ms = None if rtt is None else float(rtt[2].replace(",", "."))
            what = replies.add(int(printed[1]) if printed else None, rtt_ms, float(stamp[1]) if stamp else math.nan)
        if what is not None:
            raise TraceError(what, path=path, line=at, remedy="give what ping printed, unchanged")
        replies.below += rtt is not None and rtt[1] == "<"
    return [replies.readings(path, how)]


def _too_long(number: re.Match[str] | str) -> str | None:
    digits = number if isinstance(number, str) else number[1]
    if len(re.split("[.,]", digits)[0]) <= _MOST_DIGITS:
        return None
    return f"{shorten(digits, 40)} is no number that ping prints"


def _interpolate(stamps_s: dict[int, float], sequences: NDArray[np.int64], interval_s: float) -> NDArray[np.float64]:
    """Return the times of all requests; lost ones lie evenly between their neighbours."""
    numbers = np.array(sorted(stamps_s))
    known_s = np.array([stamps_s[number] for number in numbers.tolist()])
    step_s = float(np.median(np.diff(known_s) / np.diff(numbers))) if len(numbers) > 1 else interval_s
    time_s: NDArray[np.float64] = np.interp(sequences, numbers, known_s)
    time_s += np.maximum(sequences - numbers[-1], 0) * step_s
    return time_s
