"""Reader of what `ping` prints on Linux, BSD, macOS, busybox and Windows, in any language.

A Unix `ping` numbers its requests, a Windows `ping` prints one line for each. Replies are recognised by their numbers
(`icmp_seq=3 ttl=57 time=12.5 ms`, `=12ms TTL=57`) and not by words, so that neither the language nor the code page matters.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.base.errors import shorten
from simnmt.base.suggestions import format_list
from simnmt.network.series import TraceError
from simnmt.network.traces.json_tools import Source
from simnmt.network.traces.trace import ReadOptions, Trace, mend

_STAMP = re.compile(r"\[(\d{1,12}(?:\.\d{1,9})?)\]\s*")
_UNIX_HEAD = re.compile(r"PING6?(?:\(.*--> (\S+)|\s+([^\s(]+)[\s(].*\s\d+(?:\(\d+\))? \S)")
"""`PING host (address) 56(84) bytes of data.`, `PING host (address): 56 data bytes`, `PING6(56=40+8+8 bytes) from --> to`."""
_WINDOWS_HEAD = re.compile(
    r"\S.*?(?:(\S+) \[)?((?:\d+\.){3}\d+|[\da-fA-F]*:[\da-fA-F]*:[\da-fA-F:.%]*)(?![\da-fA-F:.%])\D+\d+\D*:$"
)
"""`Pinging host [address] with 32 bytes of data:`; the line about the statistics has no number after the address."""
_NUMBERED = re.compile(r"seq[= ](\d{1,9})\b")
_UNIX_REPLY = re.compile(
    r"seq=\d+(?: ident=\d+)? (?:ttl|hlim)=\d+(?: [^\s=]+=(-?\d{1,9}(?:[.,]\d{1,9})?)\s*(?:ms\b|[^\x00-\x7f]))?"
)
"""A ping that sends less than 16 bytes prints no time."""
_WINDOWS_REPLY = re.compile(r"([=<])(\d{1,9})\D{0,14}TTL=\d")
_WINDOWS_IPV6_REPLY = re.compile(r":\s?[^\s=<:]+\s?([=<])(\d{1,9})\D{0,14}$")
_UNIX_SUMMARY = re.compile(r"(\d{1,9}) [^\d,]+, (\d{1,9}) [^\d,]+,.*%")
_WINDOWS_SUMMARY = re.compile(r"[ \t]+[^\s:=][^:=]*:[^:=]+= ?(\d{1,9})[^\d=]+= ?(\d{1,9})[^\d=]+= ?(\d{1,9})")
_UNIX_SPAN = re.compile(r"%.*?(\d{1,12}) ?ms\b")  # of the time from the first to the last request, in the summary of Linux
_UNIX_TIMES = re.compile(r"[^=\d]{0,40}/[^=\d]{0,40}= ?" + "/".join([r"(\d{1,9}(?:[.,]\d{1,9})?)"] * 3))
_WINDOWS_TIMES = re.compile(r"[ \t]+[^\s=:][^=:]*= ?(\d{1,9})\D+= ?(\d{1,9})\D+= ?(\d{1,9})\D*$")
_MOST_HEAD = 400  # characters of the first line of a run; names of hosts have 253 at most
_WRAP = 1 << 16  # numbers of requests restart after 65,535
_MOST_LATE = 1000  # requests by which a reply may be behind the latest request
_MOST_REQUESTS = 10_000_000  # 115 days of a request per second; more show a misread number


def is_ping_text(text: str) -> bool:
    """Return whether the first lines look like output of `ping`."""
    return any(_goal(line.strip()) or _is_reply(line) for line in text[:4000].split("\n"))


def decode_code_page(raw: bytes) -> str | None:
    """Return the text of a Windows ping in any code page, with arbitrary letters for all but ASCII; None if it is no ping."""
    text = raw.decode("latin-1")
    return text if is_ping_text(text) else None


def _goal(line: str) -> str | None:
    if len(line) > _MOST_HEAD:
        return None
    head = _WINDOWS_HEAD.match(line) if line.endswith(":") else _UNIX_HEAD.match(line)
    return head and (head[1] or head[2])


def _is_reply(line: str) -> bool:
    reply = _UNIX_REPLY.search(line)
    return (reply is not None and reply[1] is not None) or _WINDOWS_REPLY.search(line) is not None


@dataclass(slots=True)
class _Run:
    """Requests of one run of ping, by number."""

    goal: str | None = None
    """None if the first line of the run is not in the file."""
    rtt_ms: dict[int, float] = field(default_factory=dict)
    """Replies; NaN for a reply without a time."""
    sent_s: dict[int, float] = field(default_factory=dict)
    """Times of sending of the replies that ping stamped."""
    first: int | None = None
    last: int = 0
    sent: int | None = None
    """Number of requests by the summary; None without a summary."""
    received: int | None = None
    """Number of replies by the summary, without the answers of routers, which Windows counts too; None without a summary."""
    answers: int = 0
    """Lines of a Windows run that may be answers of routers."""
    times_ms: Sequence[float] = ()
    """Least, mean and greatest RTT by the summary."""
    interval_s: float | None = None
    """Mean time between two requests by the summary; None if it states none."""

    def number(self, printed: int) -> int | None:
        """Return the number of a request, which goes on where the printed one restarts; None if a new run has begun."""
        if self.first is None:
            return printed
        late = (self.last - printed) % _WRAP
        if late <= _MOST_LATE:
            return self.last - late
        ahead = _WRAP - late
        restarted = printed % _WRAP < self.last % _WRAP and ahead > _WRAP // 2
        return None if restarted else self.last + ahead

    def add(self, number: int, rtt_ms: float | None, stamp: re.Match[str] | None = None) -> None:
        """Add a request, and its reply unless `rtt_ms` is None."""
        self.last = number if self.first is None else max(self.last, number)
        self.first = number if self.first is None else min(self.first, number)
        if rtt_ms is not None:
            self.rtt_ms[number] = rtt_ms
            if stamp is not None:
                self.sent_s[number] = float(stamp[1]) - (0.0 if math.isnan(rtt_ms) else rtt_ms / 1e3)

    @property
    def numbers(self) -> range:
        """Numbers of all requests, those that were lost before the first line and after the last line included."""
        first = 1 if self.first is None else self.first
        if self.goal is not None:
            first = min(first, 1)  # BSD, macOS and busybox begin with 0
        return range(first, max(self.last + 1, first + (self.sent or 0)))


class _Log:
    """Runs of ping to one host, with counts of what is left out or assumed."""

    def __init__(self) -> None:
        self.runs = [_Run()]
        self.is_listing = False
        """True within the lines of a Windows run, of which each is a request."""
        self.is_open = False
        """True within the lines of a run on Unix, before its summary."""
        self.duplicates = 0
        self.counts: Counter[str] = Counter()
        self.skipped: list[int] = []  # numbers of the lines that are of no known form

    def read(self, line: str, number: int) -> None:
        line, run = line.rstrip(), self.runs[-1]
        stamp = _STAMP.match(line)
        line = line[stamp.end() :] if stamp else line
        if goal := _goal(line):
            self.runs.append(_Run(goal))
            self.is_listing = line.endswith(":")
            self.is_open = not self.is_listing
        elif summary := _UNIX_SUMMARY.match(line):
            self.is_open, run.sent, run.received = False, int(summary[1]), int(summary[2])
            if run.sent > 1 and (span := _UNIX_SPAN.search(line)):
                run.interval_s = float(span[1]) / 1e3 / (run.sent - 1)
        elif summary := _WINDOWS_SUMMARY.match(line):
            self.is_listing, run.sent, received = False, int(summary[1]), int(summary[2])
            run.received = received - min(run.answers, max(received - len(run.rtt_ms), 0))
        elif times := _UNIX_TIMES.match(line):
            run.times_ms = [float(times[group].replace(",", ".")) for group in (1, 2, 3)]
        elif times := _WINDOWS_TIMES.match(line):
            run.times_ms = [float(times[group]) for group in (1, 3, 2)]
        elif numbered := _NUMBERED.search(line):
            self._read_numbered(line, int(numbered[1]), stamp)
        elif reply := _WINDOWS_REPLY.search(line) or (self.is_listing and _WINDOWS_IPV6_REPLY.search(line)) or None:
            self.counts["replies in less than 1 ms, taken for 1 ms"] += reply[1] == "<"
            run.add(run.last + 1, float(reply[2]), stamp)
        elif self.is_listing:
            # A line of a Windows run that is no reply is a lost request; a blank, indented or heading line ends the run.
            if line and line[0] not in " \t" and not line.endswith(":"):
                run.add(run.last + 1, None)
                run.answers += re.search(r"\d", line.rpartition(":")[0]) is not None
            else:
                self.is_listing = not line and run.first is None
        elif line.startswith(("---", "^C---")):
            self.is_open = False
        elif line and (self.is_open or not (line.startswith((" ", "\t")) or line.endswith(":") or line in ("^C", "Control-C"))):
            self.skipped.append(number)  # in the statistics of Windows, lines are indented or end with a colon

    def _read_numbered(self, line: str, printed: int, stamp: re.Match[str] | None) -> None:
        if "DUP!" in line:
            self.duplicates += 1
            return
        reply = _UNIX_REPLY.search(line)
        rtt_ms = None if reply is None else float((reply[1] or "nan").replace(",", "."))
        number = self.runs[-1].number(printed)
        if number is None or (rtt_ms is not None and number in self.runs[-1].rtt_ms):
            self.runs.append(_Run())
            number = printed
        self.runs[-1].add(number, rtt_ms, stamp)


def read_ping(source: Source, options: ReadOptions) -> list[Trace]:
    """Return the RTTs of one or several runs of ping to one host: one value per request, lost if it was not answered.

    The time of a request is when it was sent: the stamp of `ping -D`, which is that of the reply, less the RTT. Without stamps,
    `options.interval_s` lies between two requests, else what the summary states, else a second. The remarks state where a
    summary of ping contradicts the lines above it. Raises `TraceError` for runs to several hosts, and for a log that shows no
    reply although ping received some.
    """
    path, log = source.path, _Log()
    *lines, unfinished = source.text.split("\n")
    for number, line in enumerate(lines, 1):
        log.read(line, number)
    if _is_reply(unfinished) or not (log.is_listing or "bytes" in unfinished or "seq" in unfinished):
        log.read(unfinished, len(lines) + 1)
    else:
        log.counts["entries skipped, since the file ends within them"] += bool(unfinished.strip())
    runs = [run for run in log.runs if run.first is not None or run.sent]
    goals = dict.fromkeys(shorten(run.goal) for run in runs if run.goal is not None)
    if len(goals) > 1:
        what = f"ping to {len(goals)} hosts: {format_list(goals, ',')}"
        raise TraceError(what, path=path, remedy="give the runs to each host a file of their own")
    requests = sum(len(run.numbers) for run in runs)
    if requests > _MOST_REQUESTS:
        what = f"the numbers are those of {requests:,} requests"
        raise TraceError(what, path=path, remedy="give what ping printed, unchanged")
    replies = [rtt_ms for run in runs for rtt_ms in run.rtt_ms.values()]
    received = sum(run.received or 0 for run in runs)
    if received and not replies:
        what = f"ping received {received:,} replies, but the file shows none of them"
        raise TraceError(what, path=path, remedy="run ping without -q and without -f")
    read = sum(len(run.rtt_ms) for run in runs if run.received is not None)
    uncounted = sum(len(run.numbers) - run.sent for run in runs if run.sent is not None)
    log.counts["replies without a time in ms, so lost"] = sum(map(math.isnan, replies))
    log.counts["requests in the file that the summary of ping does not count"] = uncounted
    log.counts[f"replies by the summary of ping, of which {read:,} are in the file"] = received if read != received else 0
    log.counts[f"lines skipped, the first of them line {[*log.skipped, 0][0]:,}"] = len(log.skipped)
    remarks = [
        f"replies read: {len(replies):,}, requests without a reply: {requests - len(replies):,}, "
        f"duplicates left out: {log.duplicates:,}",
        *(f"{name}: {count:,}" for name, count in log.counts.items() if count),
    ]
    for run in runs:
        rtt_ms = np.array([*run.rtt_ms.values()])
        if run.times_ms and not log.duplicates and 0 < len(rtt_ms) == run.received:
            pair = np.array([run.times_ms, (rtt_ms.min(), rtt_ms.mean(), rtt_ms.max())])
            if (np.abs(pair[0] - pair[1]) > 1.0 + 0.01 * pair[0]).any():  # ping prints a time with three digits at most
                summary, file = ("/".join(f"{ms:.4g}" for ms in times_ms) for times_ms in pair)
                remarks.append(f"min/avg/max by the summary of ping: {summary} ms, in the file: {file} ms")
    steps_s = [options.interval_s or run.interval_s or 1.0 for run in runs]
    if any(run.sent_s for run in runs) and all(len(run.sent_s) == len(run.rtt_ms) for run in runs):
        time_s = _sending_times(runs, steps_s[0])
    else:
        step_s = np.array([step_s for run, step_s in zip(runs, steps_s, strict=True) for _ in run.numbers])
        time_s = np.cumsum(step_s) - step_s
        is_stated = options.interval_s is None and any(run.interval_s for run in runs)
        origin = "by the summary" if is_stated else "taken for granted"
        every = format_list(dict.fromkeys(f"{step_s:.4g}" for step_s in steps_s))
        remarks.append(f"no times in the file, which ping -D of Linux prints: a request each {every} s {origin}")
    rtt_s = 1e-3 * np.array([run.rtt_ms.get(number, math.nan) for run in runs for number in run.numbers])
    goal = f"ping to {next(iter(goals))}" if goals else f"ping, file {shorten(path.name)}"
    return [mend("rtt", time_s, rtt_s, "measured", goal, remarks, path=path)]


def _sending_times(runs: list[_Run], interval_s: float) -> Floats:
    """Return when each request was sent; lost ones lie evenly between their neighbours, of the same run if it has a stamp."""
    known: dict[int, float] = {}
    begin = 0
    for run in runs:
        if run.sent_s:
            numbers = np.arange(run.numbers.start, run.numbers.stop)
            known |= dict(enumerate(_spread(run.sent_s, numbers, interval_s).tolist(), begin))
        begin += len(run.numbers)
    return _spread(known, np.arange(begin), interval_s)


def _spread(known_s: Mapping[int, float], numbers: NDArray[np.int64], interval_s: float) -> Floats:
    """Return the times of requests, of which some are known, in even steps between and beyond these."""
    known = np.array(sorted(known_s))
    at_s = np.array([known_s[number] for number in known.tolist()])
    step_s = float(np.median(np.diff(at_s) / np.diff(known))) if len(known) > 1 else interval_s
    beyond = np.minimum(numbers - known[0], 0) + np.maximum(numbers - known[-1], 0)
    return np.asarray(np.interp(numbers, known, at_s) + beyond * step_s)
