"""Recorded requests: read the traces that several services publish, and replay them as arrivals."""

from __future__ import annotations

import itertools
import json
import math
import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simnmt.base import random_streams
from simnmt.workload.arrivals.process import ArrivalsConfiguration, OpenProcess, Times
from simnmt.workload.arrivals.trace_table import (
    MAX_TIME_S,
    TraceLines,
    TraceTable,
    cell_text,
    other_unit,
    row_clock,
    trace_lines,
)
from simnmt.workload.errors import ArrivalsError
from simnmt.workload.text_lines import json_object

Form = Literal["auto", "azure", "mooncake", "counts", "times"]

MAX_REQUESTS = 50_000_000
"""So that no file fills the memory; a request takes 16 bytes."""
TIME_COLUMNS = ("t_s", "arrival_s", "time_s", "timestamp")
"""In seconds, or as date-times like 2023-11-16 18:15:46.6805900."""
SIZE_COLUMNS = ("in_tokens", "ContextTokens", "input_tokens", "input_length")
"""Tokens of the request; what was generated is not read."""
COUNT_COLUMNS = ("requests",)

_SHARED = 0.05
"""Share of the requests that must come at the very time of another before times are taken as rounded to a grid."""
_GRID_SLACK = 0.01
"""How far two times may lie from a whole number of steps, in steps: Mooncake's stray by a thousandth."""
_ROUNDING = 0.002
"""How far off a window's width may be for rounded times, in widths: thirds of a second in milliseconds are by a thousandth."""
_JSON_REMEDY = 'write {"timestamp": 0, "input_length": 12} on each line'


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """One request a row, in the order of their times."""

    form: str
    """As what the file was read."""
    kind: str
    """`measured` or `synthetic` as the file says; `unstated` where it says nothing."""
    source: str
    time_s: Times
    """From the trace's start, shape (requests,), ascending; at least two requests."""
    size_tokens: Times | None
    """Input tokens, shape (requests,); None where the file does not tell."""
    step_s: float
    """The grid that times were rounded down to, 0 where they are exact: a request came at most so long after its time."""
    duration_s: float
    """After which the trace begins anew: a step after the last time, or the mean gap where there is no grid."""


def read_recording(path: str | os.PathLike[str], form: Form = "auto") -> Recording:
    """Read a trace; `auto` tells its form by the first line.

    `azure`: CSV with the time and the input tokens of each request. `mooncake`: JSONL with `timestamp` (ms) and
    `input_length`. `counts`: CSV with the number of `requests` in the window that begins at each time; a window is as long
    as two rows are apart at least, all others being multiples of that, and those without a row had none. `times`: CSV with
    the time of each request.

    Raises `ArrivalsError`, with line and column, for times that run backwards and for whatever else is none of these.
    """
    lines = trace_lines(path)
    rows = iter(lines)
    first = next(rows, b"")
    if form == "mooncake" or (form == "auto" and first.lstrip().startswith(b"{")):
        return _of_requests("mooncake", lines, {}, *_json_columns(lines, itertools.chain([first], rows)))
    table = TraceTable(lines, rows, first)
    if form == "auto":
        form = _detect_form(table)
    if form == "counts":
        return _of_counts(lines, table)
    return _of_requests(form, lines, table.notes, *_columns(table, with_sizes=form == "azure"))


def granularity_s(time_s: Times) -> float:
    """The step of the grid that ascending times were rounded to; 0 where they show none.

    They show one if requests share their times, and all times lie a whole number of equal steps apart.
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
    """The least distance; the median of those like it, since one alone would stray with the two times it is of."""
    return float(np.median(apart[apart < 1.5 * apart.min()]))


def _detect_form(table: TraceTable) -> Literal["azure", "counts", "times"]:
    """The form of a table by its columns."""
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
            raise table.wrong(f"{table.names[time_at]} {cell_text(cells[time_at])} stands twice", time_at, "add the counts up")
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
    """The width of a window: the least distance of two; all others must be multiples of it."""
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
    """Time and size of each request; no sizes where they are not asked for."""
    time_at = table.require(*TIME_COLUMNS)
    size_at = table.require(*SIZE_COLUMNS) if with_sizes else 0
    times, sizes = array("d"), array("d")
    for time_s, _ in _ascending(table, time_at):
        times.append(time_s)
        if with_sizes:
            sizes.append(table.number(size_at))
    return times, sizes


def _ascending(table: TraceTable, time_at: int) -> Iterator[tuple[float, list[str]]]:
    """Time and cells of each row, no time before the last."""
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


def _json_columns(lines: TraceLines, rows: Iterator[bytes]) -> tuple[array[float], array[float]]:
    times, sizes = array("d"), array("d")
    before = -math.inf
    for text in rows:
        if not text.strip():
            continue
        row = json_object(text, lines.fault, first=lines.line == 1, remedy=_JSON_REMEDY)
        time_ms = _json_number(lines, row, "timestamp")
        time_s = time_ms / 1e3
        if time_s > MAX_TIME_S:
            raise lines.fault(f"timestamp is {cell_text(repr(time_ms))}", remedy=other_unit(time_ms, "milliseconds"))
        if time_s < before:
            raise lines.fault("timestamp is earlier than in the row before", remedy="sort the rows by time")
        before = time_s
        times.append(time_s)
        sizes.append(_json_number(lines, row, "input_length"))
        _check_number(lines, len(times))
    return times, sizes


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
    """The requests of a recorded trace, which begins anew after its last; each further replication starts elsewhere on it."""

    kind: Literal["recorded"]
    file: str = Field(min_length=1)
    """Path, relative to the scenario file; plain or gzip."""
    form: Form = "auto"
    """What the file holds: requests with their tokens (`azure`: CSV, `mooncake`: JSONL), `counts` per window, `times` alone."""
    lengths: Literal["independent", "rank"] = "independent"
    """Lengths drawn from the corpus whatever the trace says, or the corpus's at the `rank` of the request's input tokens."""
    speed: float | None = Field(default=None, ge=1e-6, le=1e6)
    """How many times faster than recorded; 1 when left out."""
    rate_rps: float | None = Field(default=None, ge=1e-6, le=1e9)
    """Instead of `speed`: as fast as makes this the mean rate over the trace."""
    spread_s: float | None = Field(default=None, ge=0, le=1e9)
    """Recorded seconds over which requests of one time are spread evenly, at most to the next time; left out: the width of a
    window of counts, or of the grid that the times are rounded to."""

    @model_validator(mode="after")
    def _one_speed(self) -> Recorded:
        if self.rate_rps is not None and self.speed is not None:
            raise PydanticCustomError("speed_or_rate", "give speed or rate_rps, not both")
        return self

    def process(self, base: Path) -> RecordedProcess:
        """The process, its trace read. Raises `ArrivalsError`."""
        recording = read_recording(base / self.file, self.form)
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

    def input_paths(self, base: Path) -> list[Path]:
        """The trace."""
        return [base / self.file]

    def resolved(self, base: Path) -> Recorded:
        """The same with an absolute path."""
        return self.model_copy(update={"file": str((base / self.file).absolute())})


@dataclass(frozen=True, slots=True, eq=False)
class RecordedProcess(OpenProcess):
    """The trace as it is played."""

    time_s: Times
    """Shape (requests,), ascending."""
    width_s: Times | None
    """Over how long after its time each request may have come, the same for all of one time; None where times are exact."""
    duration_s: float
    """After which the trace begins anew."""
    rank: tuple[Times, Times] | None
    """Share of the trace's requests that are shorter than each, and of those as long as it; None for independent lengths."""
    account: str
    """One sentence for a reader."""

    def __post_init__(self) -> None:
        for column in (self.time_s, self.width_s, *(self.rank or ())):
            if column is not None:
                column.setflags(write=False)

    @property
    def mean_rate_rps(self) -> float:
        """Over a whole lap."""
        return len(self.time_s) / self.duration_s

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Arrival times in seconds, shape (size,), sorted."""
        first, begin_s = self._start(seed, replication, stream_name)
        if self.width_s is None:
            return self._laid(np.zeros(size), first, begin_s)
        # Requests of one time are sorted among each other, so all of the last time are drawn: else a longer run would differ.
        drawn = self._whole_times(first + size) - first if size else 0
        within = random_streams.draw(seed, replication, stream_name, drawn, lambda generator, count: generator.random(count))
        return self._laid(within, first, begin_s)[:size]

    def size_ranks(self, size: int, seed: int, replication: int, stream_name: str) -> Times | None:
        """The rank in [0, 1) of each request's input tokens within the trace, ties broken at random, shape (size,).

        Over a lap the ranks are spread evenly, so that the corpus's own lengths come out, in the trace's order of sizes.
        """
        if self.rank is None:
            return None
        below, equal = self.rank
        first, _ = self._start(seed, replication, stream_name)
        name = f"{stream_name}/size ties"
        rank = random_streams.draw(seed, replication, name, size, lambda generator, count: generator.random(count))
        for start in range(0, size, random_streams.BLOCK):
            block = rank[start : start + random_streams.BLOCK]
            request = np.arange(first + start, first + start + len(block)) % len(self.time_s)
            block *= equal[request]
            block += below[request]
        return np.minimum(rank, np.nextafter(1.0, 0.0), out=rank)

    def _start(self, seed: int, replication: int, stream_name: str) -> tuple[int, float]:
        """The first request of a run and the moment on the trace that is its time 0: any moment of the trace alike.

        A run that would begin within a window begins with it, since nobody knows which of its requests are over.
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
        """The least number of requests, from the trace's start, that is at least `end` and cuts no time apart."""
        laps, last = divmod(end - 1, len(self.time_s))
        return laps * len(self.time_s) + int(np.searchsorted(self.time_s, self.time_s[last], side="right"))

    def _laid(self, within: Times, first: int, begin_s: float) -> Times:
        """When requests `first` and on come, each at its share `within` of its width; written over `within`."""
        for start in range(0, len(within), random_streams.BLOCK):
            block = within[start : start + random_streams.BLOCK]
            lap, request = np.divmod(np.arange(first + start, first + start + len(block)), len(self.time_s))
            if self.width_s is not None:
                block *= self.width_s[request]
            block += self.time_s[request] + (lap * self.duration_s - begin_s)
        if self.width_s is not None:
            within.sort(kind="stable")  # nearly sorted, which it takes five times faster than the default
        return within


def _widths(recording: Recording, step_s: float) -> Times:
    """Each request's width: a step, at most to the next time of the trace."""
    time_s, of_request = np.unique(recording.time_s, return_inverse=True)
    to_next = np.diff(time_s, append=recording.duration_s)
    widths: Times = np.minimum(to_next, step_s)[of_request]
    return widths


def _ranks(size_tokens: Times) -> tuple[Times, Times]:
    _, of_request, count = np.unique(size_tokens, return_inverse=True, return_counts=True)
    below = np.cumsum(count) - count
    return below[of_request] / len(size_tokens), count[of_request] / len(size_tokens)


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
    return "; ".join([*clauses, ranked, "after its end it begins anew, and each further replication starts elsewhere on it"])


def _burstiness(recording: Recording) -> str:
    if recording.step_s:
        count = np.unique(recording.time_s, return_counts=True)[1]
        windows = recording.duration_s / recording.step_s
        mean = len(recording.time_s) / windows
        variance = float(count @ count) / windows - mean**2
        return f"variance over mean of the counts per {recording.step_s:g} s {variance / mean:.3g}, where Poisson has 1"
    gap_s = np.diff(recording.time_s)
    return f"coefficient of variation of the gaps {gap_s.std() / gap_s.mean():.3g}"
