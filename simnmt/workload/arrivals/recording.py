"""Recorded requests: read the traces that several services publish, and replay them as arrivals."""

from __future__ import annotations

import itertools
import json
import math
import os
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simnmt.base import random_streams
from simnmt.base.configuration import InputFile
from simnmt.workload.arrivals.process import ArrivalsConfiguration, OpenProcess, Times
from simnmt.workload.arrivals.trace_table import (
    MAX_TIME_S,
    TraceLines,
    TraceTable,
    cell_text,
    other_unit,
    row_clock,
)
from simnmt.workload.errors import ArrivalsError
from simnmt.workload.text_lines import json_object

Form = Literal["auto", "azure", "mooncake", "counts", "times"]

MAX_REQUESTS = 50_000_000
"""Most requests of a file, since each takes 16 bytes of memory."""
TIME_COLUMNS = ("t_s", "arrival_s", "time_s", "timestamp")
"""Names of a column of times, in seconds or as date-times like 2023-11-16 18:15:46.6805900."""
SIZE_COLUMNS = ("in_tokens", "ContextTokens", "input_tokens", "input_length")
"""Names of a column of input tokens; the generated tokens are not read."""
COUNT_COLUMNS = ("requests",)

_SHARED = 0.05
"""Least share of requests at the time of another one for which times are taken as rounded to a grid."""
_GRID_SLACK = 0.01
"""Tolerance of the distance of two times from a whole number of steps, in steps; Mooncake's times are off by a thousandth."""
_ROUNDING = 0.002
"""Tolerance of a window's width for rounded times, in widths: thirds of a second in milliseconds are off by a thousandth."""
_JSON_REMEDY = 'write {"timestamp": 0, "input_length": 12} on each line'


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A recorded trace: one row per request, in the order of the times."""

    form: str
    """Form in which the file was read."""
    kind: str
    """`measured` or `synthetic` as stated in the file; `unstated` without a statement."""
    source: str
    time_s: Times
    """From the trace's start, shape (requests,), ascending; at least two requests."""
    size_tokens: Times | None
    """Input tokens, shape (requests,), NaN if unknown; None if the file has none."""
    step_s: float
    """Step of the grid to which times were rounded down; 0 if they are exact."""
    duration_s: float
    """Length of a lap: it ends a step after the last time, or the mean gap if there is no grid."""


TimeUnit = Literal["s", "ms"]
_PER_S: Mapping[TimeUnit, float] = {"s": 1.0, "ms": 1e3}
_PLAUSIBLE_RPS: Mapping[TimeUnit, tuple[float, float]] = {"s": (1e-3, math.inf), "ms": (0.0, 1e3)}
"""Mean rates of requests, least and greatest, at which a unit that is not stated is believed."""
_KEYS_WITH_SECONDS = ("chat_id", "parent_chat_id")
"""Keys of the traces of Qwen at Bailian, whose timestamps are seconds."""


def read_recording(path: str | os.PathLike[str], form: Form = "auto", time_unit: TimeUnit | None = None) -> Recording:
    """Read a trace; `auto` detects its form at its start.

    `azure`: CSV with the time and the input tokens of each request. `mooncake`: JSONL with `timestamp` and
    `input_length`. `counts`: CSV with the number of `requests` in the window that begins at each time; the width of a window is
    the least distance of two rows, all distances are multiples of it, and windows without a row had no requests. `times`: CSV
    with the time of each request.

    `time_unit`: unit of the times that are numbers. None: seconds in CSV; in JSONL, seconds if a timestamp has a fraction or
    the rows have the keys of Qwen's traces, else milliseconds as in Mooncake's.

    Raises `ArrivalsError`, with line and column, for times that decrease and for a file of none of these forms, and for an
    implausible rate if no unit is stated, neither by `time_unit` nor by a column such as `t_s`.
    """
    lines = TraceLines(path)
    rows = iter(lines)
    first = next(rows, b"")
    if form == "mooncake" or (form == "auto" and first.lstrip().startswith(b"{")):
        times, sizes, unit = _json_columns(lines, itertools.chain([first], rows), time_unit)
        recording = _of_requests("mooncake", lines, {}, times, sizes)
        return recording if time_unit else _with_plausible_unit(recording, unit, lines)
    table = TraceTable(lines, rows, first, per_s=_PER_S[time_unit or "s"])
    if form == "auto":
        form = _detect_form(table)
    if form == "counts":
        recording = _of_counts(lines, table)
    else:
        recording = _of_requests(form, lines, table.notes, *_columns(table, with_sizes=form == "azure"))
    without_unit = table.index(*TIME_COLUMNS) == table.index("timestamp") and not table.has_dates
    return _with_plausible_unit(recording, "s", lines) if without_unit and not time_unit else recording


def _with_plausible_unit(recording: Recording, unit: TimeUnit, lines: TraceLines) -> Recording:
    rate_rps = len(recording.time_s) / recording.duration_s
    low, high = _PLAUSIBLE_RPS[unit]
    if low <= rate_rps <= high:
        return recording
    what = f"timestamp states no unit; in {unit} it gives {rate_rps:.3g} requests/s"
    raise ArrivalsError(what, path=lines.path, remedy="state the unit, in a scenario time_unit: s or time_unit: ms")


def granularity_s(time_s: Times) -> float:
    """Return the step of the grid to which ascending times were rounded; 0 without a grid.

    There is a grid if requests share their times, and all distances are multiples of one step.
    """
    apart = np.diff(time_s)
    apart = apart[apart > 0]
    if not len(apart) or (len(time_s) - 1 - len(apart)) / len(time_s) < _SHARED:
        return 0.0
    steps = np.round(apart / _least(apart))
    step = float(apart.sum() / steps.sum())
    strays = np.abs(apart / step - steps).max() > _GRID_SLACK
    return 0.0 if strays else float(f"{step:.4g}")


def _least(apart: Times) -> float:
    """Return the median of the least distances, which are rounded and so less exact one by one."""
    return float(np.median(apart[apart < 1.5 * apart.min()]))


def _detect_form(table: TraceTable) -> Literal["azure", "counts", "times"]:
    if table.index(*COUNT_COLUMNS) is not None:
        return "counts"
    if table.index(*SIZE_COLUMNS) is not None:
        return "azure"
    if (rate_at := table.index("rate_rps")) is not None:
        raise table.wrong("rates, not requests", rate_at, "use {kind: varying, series: {csv: ...}}")
    return "times"


def _of_requests(form: str, lines: TraceLines, notes: dict[str, str], times: array[float], sizes: array[float]) -> Recording:
    if len(times) < 2 or times[-1] == times[0]:
        remedy = "give two requests or more"
        raise ArrivalsError("no two requests at different times", path=lines.path, remedy=remedy)
    _check_duration(lines, times)
    time_s = np.frombuffer(times) - times[0]
    step_s = granularity_s(time_s)
    last_s = float(time_s[-1])
    duration_s = last_s + (step_s or last_s / (len(times) - 1))
    size_tokens = np.frombuffer(sizes) if len(sizes) else None
    return Recording(form, *_kind_and_source(lines, notes), time_s, size_tokens, step_s, duration_s)


def _of_counts(lines: TraceLines, table: TraceTable) -> Recording:
    time_at, count_at = table.require(*TIME_COLUMNS), table.require(*COUNT_COLUMNS)
    times, counts, rows = array("d"), array("q"), array("q")
    total = 0
    for time_s, cells in _ascending(table, time_at):
        if times and time_s == times[-1]:
            raise table.wrong(f"{table.names[time_at]} {cell_text(cells[time_at])} appears twice", time_at, "add the counts up")
        count = table.number(count_at)
        if not count.is_integer():
            raise table.wrong(f"requests is {cell_text(cells[count_at])}", count_at, "give a whole number")
        total += int(count)
        _check_number(lines, total)
        times.append(time_s)
        counts.append(int(count))
        rows.append(lines.line)
    if len(times) < 2 or total < 2:
        remedy = "give a row for each window, or use kind poisson"
        raise ArrivalsError("fewer than two windows or requests", path=lines.path, remedy=remedy)
    _check_duration(lines, times)
    begin_s = np.frombuffer(times) - times[0]
    window_s = _window_s(lines, begin_s, rows)
    request_s = np.repeat(begin_s, np.frombuffer(counts, dtype=np.int64))
    return Recording("counts", *_kind_and_source(lines, table.notes), request_s, None, window_s, float(begin_s[-1]) + window_s)


def _window_s(lines: TraceLines, begin_s: Times, rows: array[int]) -> float:
    """Return the width of a window: the least distance of two rows, of which all others must be multiples."""
    apart = np.diff(begin_s)
    least = _least(apart)
    steps = np.round(apart / least)
    strays = np.abs(apart / least - steps) > _GRID_SLACK + _ROUNDING * steps
    if strays.any():
        row = int(np.argmax(strays)) + 1
        what = f"this window begins {apart[row - 1]:g} s after the one before, no multiple of the least distance, {least:g} s"
        remedy = "begin all windows on one grid"
        raise ArrivalsError(what, path=lines.path, line=rows[row], remedy=remedy)
    return float(apart.sum() / steps.sum())


def _kind_and_source(lines: TraceLines, notes: dict[str, str]) -> tuple[str, str]:
    return notes.get("kind") or "unstated", notes.get("source") or f"file {lines.path.name}"


def _columns(table: TraceTable, *, with_sizes: bool) -> tuple[array[float], array[float]]:
    """Return the times of the requests and, `with_sizes`, their sizes."""
    time_at = table.require(*TIME_COLUMNS)
    size_at = table.require(*SIZE_COLUMNS) if with_sizes else 0
    times, sizes = array("d"), array("d")
    for time_s, _ in _ascending(table, time_at):
        times.append(time_s)
        if with_sizes:
            sizes.append(table.number(size_at))
    return times, sizes


def _ascending(table: TraceTable, time_at: int) -> Iterator[tuple[float, list[str]]]:
    """Yield the time and the cells of each row. Raises `ArrivalsError` for times that decrease."""
    rows = iter(table)
    first = next(rows, None)
    if first is None:
        return
    seconds = row_clock(table, time_at, first)
    before = -math.inf
    for row, cells in enumerate(itertools.chain([first], rows), 1):
        time_s = seconds(cells)
        if time_s < before:
            what = f"{table.names[time_at]} {cell_text(cells[time_at])} is earlier than the row before"
            raise table.wrong(what, time_at, "sort the rows by time")
        _check_number(table.lines, row)
        before = time_s
        yield time_s, cells


def _json_columns(
    lines: TraceLines, rows: Iterator[bytes], unit: TimeUnit | None
) -> tuple[array[float], array[float], TimeUnit]:
    """Return the times of the requests in seconds, their sizes, and the unit in which the times are read."""
    times, sizes = array("d"), array("d")
    before = -math.inf
    in_seconds = False
    for text in rows:
        if not text.strip():
            continue
        row = json_object(text, lines.fault, first=lines.line == 1, remedy=_JSON_REMEDY)
        time = _json_number(lines, row, "timestamp")
        in_seconds = in_seconds or not time.is_integer() or any(key in row for key in _KEYS_WITH_SECONDS)
        if time / _PER_S[unit or "ms"] > MAX_TIME_S:
            remedy = other_unit(time, "seconds" if unit == "s" else "milliseconds")
            raise lines.fault(f"timestamp is {cell_text(repr(time))}", remedy=remedy)
        if time < before:
            raise lines.fault("timestamp is earlier than in the row before", remedy="sort the rows by time")
        before = time
        times.append(time)
        sizes.append(_json_number(lines, row, "input_length"))
        _check_number(lines, len(times))
    unit = unit or ("s" if in_seconds else "ms")
    if unit == "ms" and times:
        times = array("d", np.frombuffer(times) / _PER_S[unit])
    return times, sizes, unit


def _json_number(lines: TraceLines, row: dict[str, object], key: str) -> float:
    number = row.get(key)
    if isinstance(number, (int, float)) and not isinstance(number, bool) and 0 <= number < 1e300:
        return float(number)
    what = f"{key} is {cell_text(json.dumps(number))}" if key in row else f"no {key}"
    raise lines.fault(what, remedy="give a number, 0 or above")


def _check_duration(lines: TraceLines, times: array[float]) -> None:
    if times[-1] - times[0] < 1e-6:
        raise ArrivalsError("all of it lasts less than a microsecond", path=lines.path, remedy="give seconds")


def _check_number(lines: TraceLines, requests: int) -> None:
    if requests > MAX_REQUESTS:
        raise lines.fault(f"more than {MAX_REQUESTS:,} requests", remedy="give a part of the trace")


class Recorded(ArrivalsConfiguration):
    """The requests of a recorded trace, repeated for ever; each further replication starts elsewhere on the trace."""

    kind: Literal["recorded"]
    file: Annotated[str, InputFile(), Field(min_length=1)]
    """Path, relative to the scenario file; plain or gzip."""
    form: Form = "auto"
    """Content of the file: requests with their tokens (`azure`: CSV, `mooncake`: JSONL), `counts` per window, or `times`."""
    time_unit: TimeUnit | None = None
    """Unit of times that are numbers. Left out: seconds in CSV; in JSONL, seconds if there are fractions or `chat_id`, else
    milliseconds."""
    lengths: Literal["independent", "rank"] = "independent"
    """Lengths drawn from the corpus `independent` of the trace, or those at the `rank` of the request's input tokens."""
    speed: float | None = Field(default=None, ge=1e-6, le=1e6)
    """Factor of speed over the recorded one; 1 when left out."""
    rate_rps: float | None = Field(default=None, ge=1e-6, le=1e9)
    """Mean rate over the trace, requests per second, in place of `speed`."""
    spread_s: float | None = Field(default=None, ge=0, le=1e9)
    """Recorded seconds over which requests of one time are spread evenly, at most to the next time; left out: the width of a
    window of counts, or the step of the grid to which the times are rounded."""

    @model_validator(mode="after")
    def _one_speed(self) -> Recorded:
        if self.rate_rps is not None and self.speed is not None:
            raise PydanticCustomError("speed_or_rate", "give speed or rate_rps, not both")
        return self

    def process(self, base: Path) -> RecordedProcess:
        """Return the process after reading its trace. Raises `ArrivalsError`."""
        recording = read_recording(base / self.file, self.form, self.time_unit)
        if self.lengths == "rank" and recording.size_tokens is None:
            what = f"lengths: rank needs the tokens of each request, the trace ({recording.form}) has none"
            remedy = f"give a column {SIZE_COLUMNS[0]}, or lengths: independent"
            raise ArrivalsError(what, path=base / self.file, remedy=remedy)
        speed = self.speed or 1.0
        if self.rate_rps is not None:
            speed = self.rate_rps / (len(recording.time_s) / recording.duration_s)
        step_s = recording.step_s if self.spread_s is None else self.spread_s
        return RecordedProcess(
            recording.time_s / speed,
            None if step_s == 0 else _widths(recording, step_s) / speed,
            recording.duration_s / speed,
            _ranks(recording.size_tokens) if self.lengths == "rank" and recording.size_tokens is not None else None,
            _describe_recording(recording, speed, step_s, self.lengths),
        )

    def with_rate(self, rate_rps: float, present_rps: float) -> Recorded:
        """Return the configuration with this rate, which takes the place of a speed."""
        return self.model_copy(update={"rate_rps": rate_rps, "speed": None})


@dataclass(frozen=True, slots=True, eq=False)
class RecordedProcess(OpenProcess):
    """A trace at the speed at which it is replayed."""

    time_s: Times
    """Shape (requests,), ascending."""
    width_s: Times | None
    """Longest delay of each request after its time, equal for all requests of one time; None if times are exact."""
    duration_s: float
    """Length of a lap."""
    rank: tuple[Times, Times] | None
    """(share of the trace's requests that are shorter, share that are as long) for each; None for independent lengths."""
    account: str
    """Description of the process in one sentence."""

    def __post_init__(self) -> None:
        for column in (self.time_s, self.width_s, *(self.rank or ())):
            if column is not None:
                column.setflags(write=False)

    @property
    def mean_rate_rps(self) -> float:
        """Mean rate over a lap."""
        return len(self.time_s) / self.duration_s

    def at_rate(self, rate_rps: float) -> RecordedProcess:
        """Return the trace played so much faster or slower."""
        shrink = self.mean_rate_rps / rate_rps
        width_s = None if self.width_s is None else self.width_s * shrink
        return replace(self, time_s=self.time_s * shrink, width_s=width_s, duration_s=self.duration_s * shrink)

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Return arrival times in seconds, shape (size,), sorted."""
        first, begin_s = self._start(seed, replication, stream_name)
        if self.width_s is None:
            return self._laid(np.zeros(size), first, begin_s)
        # All requests of the last time are drawn, since requests of one time are sorted: else a longer run would differ.
        drawn = self._whole_times(first + size) - first if size else 0
        within = random_streams.uniform(seed, replication, stream_name, drawn)
        return self._laid(within, first, begin_s)[:size]

    def size_ranks(self, size: int, seed: int, replication: int, stream_name: str) -> Times | None:
        """Return the rank in [0, 1) of each request's input tokens within the trace, ties broken at random, shape (size,).

        The ranks of a lap are uniform, so a lap has the lengths of the corpus, in the trace's order of sizes.
        """
        if self.rank is None:
            return None
        below, equal = self.rank
        first, _ = self._start(seed, replication, stream_name)
        rank = random_streams.uniform(seed, replication, f"{stream_name}/size ties", size)
        for start in range(0, size, random_streams.BLOCK):
            block = rank[start : start + random_streams.BLOCK]
            request = np.arange(first + start, first + start + len(block)) % len(self.time_s)
            block *= equal[request]
            block += below[request]
        return np.minimum(rank, np.nextafter(1.0, 0.0), out=rank)

    def _start(self, seed: int, replication: int, stream_name: str) -> tuple[int, float]:
        """Draw (first request of a run, moment of the trace that is its time 0); all moments are equally likely.

        A run that would begin within a window begins with the window, since the order of the window's requests is unknown.
        """
        if replication == 0:
            return 0, 0.0
        moment_s = float(random_streams.stream(seed, replication, f"{stream_name}/trace start").random()) * self.duration_s
        after = int(np.searchsorted(self.time_s, moment_s, side="right"))
        if after and self.width_s is not None and moment_s < self.time_s[after - 1] + self.width_s[after - 1]:
            begin_s = float(self.time_s[after - 1])
            return int(np.searchsorted(self.time_s, begin_s)), begin_s
        return after, moment_s

    def _whole_times(self, end: int) -> int:
        """Return the least number of requests from the trace's start, at least `end`, that divides no time."""
        laps, last = divmod(end - 1, len(self.time_s))
        return laps * len(self.time_s) + int(np.searchsorted(self.time_s, self.time_s[last], side="right"))

    def _laid(self, within: Times, first: int, begin_s: float) -> Times:
        """Return the times of the requests from `first` on, each at the share `within` of its width; overwrites `within`."""
        for start in range(0, len(within), random_streams.BLOCK):
            block = within[start : start + random_streams.BLOCK]
            lap, request = np.divmod(np.arange(first + start, first + start + len(block)), len(self.time_s))
            if self.width_s is not None:
                block *= self.width_s[request]
            block += self.time_s[request] + (lap * self.duration_s - begin_s)
        if self.width_s is not None:
            within.sort(kind="stable")  # nearly sorted, so five times faster than the default
        return within


def _widths(recording: Recording, step_s: float) -> Times:
    """Return each request's width: a step, at most to the next time of the trace."""
    time_s, of_request = np.unique(recording.time_s, return_inverse=True)
    to_next = np.diff(time_s, append=recording.duration_s)
    widths: Times = np.minimum(to_next, step_s)[of_request]
    return widths


def _ranks(size_tokens: Times) -> tuple[Times, Times]:
    """Return the shares of requests that are shorter and as long; a request of unknown size may have any rank."""
    known = ~np.isnan(size_tokens)
    _, of_request, count = np.unique(size_tokens[known], return_inverse=True, return_counts=True)
    below, equal = np.zeros(len(size_tokens)), np.ones(len(size_tokens))
    below[known] = (np.cumsum(count) - count)[of_request] / len(of_request)
    equal[known] = count[of_request] / len(of_request)
    return below, equal


def _describe_recording(recording: Recording, speed: float, step_s: float, lengths: str) -> str:
    requests = len(recording.time_s)
    clauses = [
        f"arrivals of a recorded trace ({recording.kind}), {recording.source}: {requests:,} requests in "
        f"{recording.duration_s:,.0f} s, {requests / recording.duration_s * speed:.4g} requests/s",
        _burstiness(recording),
    ]
    if speed != 1:
        clauses.append(f"played {speed:.4g} times as fast")
    if step_s:
        clauses.append(f"requests of one time spread evenly over {step_s:g} s")
    ranked = "lengths by the rank of the input tokens" if lengths == "rank" else "lengths drawn independently"
    return "; ".join([*clauses, ranked, "after its end it begins anew"])


def _burstiness(recording: Recording) -> str:
    if recording.step_s:
        count = np.unique(recording.time_s, return_counts=True)[1]
        windows = recording.duration_s / recording.step_s
        mean = len(recording.time_s) / windows
        variance = float(count @ count) / windows - mean**2
        return f"variance over mean of the counts per {recording.step_s:g} s {variance / mean:.3g}, where Poisson has 1"
    gap_s = np.diff(recording.time_s)
    return f"coefficient of variation of the gaps {gap_s.std() / gap_s.mean():.3g}"
