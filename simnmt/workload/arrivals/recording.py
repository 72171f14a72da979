"""Recorded requests: read the logs that services publish, in any of the `FORMATS`, and replay them as arrivals."""

from __future__ import annotations

import csv
import itertools
import math
import os
import re
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import Self

from simnmt.base.configuration import InputFile
from simnmt.base.errors import shorten
from simnmt.base.suggestions import format_list
from simnmt.workload import ArrivalsError
from simnmt.workload.arrivals.process import ArrivalProcess, RandomStream, RatedArrivals, Times
from simnmt.workload.arrivals.varying import VaryingProcess
from simnmt.workload.text_lines import TextLines

Format = Literal["counts", "rates", "tokens", "times"]
TimeUnit = Literal["s", "ms"]
Clock = Literal["UTC", "as written", "relative"]
"""Clock of a log's times: date-times with a zone or seconds since 1970, date-times without a zone, or any other seconds."""

FORMATS: Mapping[Format, Sequence[str]] = {
    "counts": ("requests",),
    "rates": ("rate_rps",),
    "tokens": ("in_tokens", "contexttokens", "input_tokens", "input_length"),
    "times": (),
}
"""Names, in any case, of the column that stands beside the times. A log has the first format of which it has a column.

`counts`: the number of requests in the window that begins at each time; the width of a window is the least distance of two
rows, all distances are multiples of it, and windows without a row had no requests. `rates`: requests per second until the next
row; an empty cell repeats the rate before it. `tokens`: the input tokens of each request (traces of Azure, Mooncake and Qwen).
`times`: the time of each request alone.
"""
INGRESS = "ingress_s"
"""Column of times in the log of a live gateway or a web server, which writes a line when a request ends: rows are sorted."""
TIME_COLUMNS = ("t_s", "arrival_s", "time_s", "timestamp", INGRESS)
"""Names, in any case, of a column of times: numbers, or date-times such as 2023-11-16 18:15:46.6805900."""

_COLUMNS = (*TIME_COLUMNS, *itertools.chain(*FORMATS.values()))
_AGGREGATE_NAME = re.compile(
    r"(?:total_)?counts?|hits|reqs|invocations|throughput|(?:request_|arrival_)?rate|(?:\w+_)?(?:rps|qps|tps|rpm)(?:_\w+)?"
    r"|(?:num|number_of|n|total)_(?:requests?|reqs?|queries|hits|calls)"
    r"|(?:\w+_)?(?:requests?|reqs?|queries|hits|calls)_(?:count|total|(?:per_)?(?:s|sec|second|min|minute|h|hour))"
)
"""Name of a column of counts or rates, whose rows are no requests, with `_` for all but small letters and digits."""
_ACCESS_LINE = re.compile(r"\S+ [^\[\]]*\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] ")
"""Line of an access log of nginx or Apache (common or combined): address, user, [time], request."""
_RECIPES = "docs/reference/arrivals.md, Logs of load tools"
_MOST: Mapping[Format, float] = {"counts": 50_000_000, "rates": 1e9}
"""Greatest value of a row, and of requests of a log of counts, each of which takes 16 bytes of memory."""
_PLAUSIBLE_RPS: Mapping[TimeUnit, tuple[float, float]] = {"s": (1e-3, math.inf), "ms": (0.0, 1e3)}
"""Mean rates of requests, least and greatest, at which a unit that is not stated is believed."""
_LEAST_DATE_S = 1e9
"""Seconds since 1970 reached it in 2001; no other clock has run for 31 years."""
_MAX_TIME_S = 1e11
"""Seconds since 1970 reach it in the year 5138; milliseconds did in 1973."""
_SHARED = 0.05
"""Least share of requests at the time of another one for which times are taken as rounded to a grid."""
_GRID_SLACK = 0.01
"""Tolerance of the distance of two times from a whole number of steps, in steps; Mooncake's times are off by a thousandth."""
_ROUNDING = 0.002
"""Tolerance of a window's width for rounded times, in widths: thirds of a second in milliseconds are off by a thousandth."""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A log: a row for each request (of `counts`, at the begin of its window) or, of `rates`, for each window."""

    format: Format
    kind: str
    """`measured` or `synthetic` as stated in the file; `unstated` without a statement."""
    source: str
    time_s: Times
    """From the start, shape (rows,), ascending; at least two differ."""
    value: Times
    """Input tokens or rate of each row, shape (rows,); empty for the other formats."""
    step_s: float
    """Step of the grid to which times were rounded down; 0 if they are exact."""
    duration_s: float
    """Length of a lap: it ends a step after the last time, or the mean gap if there is no grid."""
    begin_s: float
    """Time of the first row on the log's clock; since 1970 if that has dates."""
    clock: Clock
    cells: Any
    """Table of the further columns that were asked for and that the log has, as texts, empty where there is none."""

    def moment(self, seconds: float) -> str:
        """Return the text of a moment so many seconds after the first row: a date and a time, or seconds without dates."""
        at_s = self.begin_s + seconds
        if self.clock == "relative":
            return f"{round(at_s, 3):,.10g} s"
        return datetime.fromtimestamp(at_s, timezone.utc).strftime("%Y-%m-%d %H:%M:%S") + " UTC" * (self.clock == "UTC")


class _LogLines(TextLines):
    error, content, decoding = ArrivalsError, "one row", "replace"


class _Log:
    """The columns that are read of a log, as texts."""

    def __init__(self, path: str | os.PathLike[str], others: Collection[str]) -> None:
        import pandas as pd  # only recordings need it, and it takes a third of a second

        lines, self.notes = _LogLines(path, kept=True), {"kind": "unstated", "source": f"file {Path(path).name}"}
        rows = _rows(lines, self.notes)
        self.first, self.path = next(rows, {}), lines.path
        if not self.first:
            raise lines.fault("no rows", remedy="give column names, and one row below them for each time")
        self.time = self._column(TIME_COLUMNS)
        self.format, self.value = next(
            (form, self._column(names)) for form, names in FORMATS.items() if names == () or self._column(names)
        )
        self.others = [name for name in self.first if name in others]
        names = list({self.time, self.value, *self.others} - {""})
        unread = [shorten(name, 40) for name in self.first if name not in names]
        if unread and self.time != INGRESS:
            self.notes["source"] += f" (not read: column{'s' * (len(unread) > 1)} {format_list(unread)})"
        numbers, cells = array("q"), {name: list[str]() for name in names}
        for row in itertools.chain([self.first], rows):
            numbers.append(lines.line)
            for name, column in cells.items():
                column.append("" if (cell := row.get(name)) is None else str(cell))
        self.cells = pd.DataFrame(cells, index=numbers, dtype=object)
        """By the numbers of the lines."""
        if self.time == INGRESS:
            self.cells = self.cells.iloc[np.argsort(self.numbers(INGRESS), kind="stable")]

    def _column(self, names: Sequence[str]) -> str:
        return next((name for name in names if name in self.first), "")

    def numbers(self, column: str) -> Times:
        """Return the cells of a column as numbers, NaN for any other text."""
        import pandas as pd  # as above

        return np.asarray(pd.to_numeric(self.cells[column], errors="coerce"), np.float64)

    def refuse(self, wrong: NDArray[np.bool_], column: str, remedy: str, fault: str = "") -> None:
        """Raise `ArrivalsError` for the first row with a wrong cell, if any; `fault` says what is wrong with it."""
        if wrong.any():
            row = int(np.argmax(wrong))
            cell = self.cells[column].iloc[row]
            what = f"{column} is {shorten(cell, 40)}" if cell else f"no {column}"
            what += f", {fault}" if fault else ""
            raise ArrivalsError(what, path=self.path, line=int(self.cells.index[row]), remedy=remedy)


def _check_names(lines: _LogLines, names: Sequence[str], text: str) -> None:
    """Raise `ArrivalsError` for columns without a time, and for counts or rates under a name that is none of `FORMATS`.

    `names`: in lower case; `text`: the first line of CSV, or the first JSON object.
    """
    if not set(names).intersection(TIME_COLUMNS):
        if "\ufffd" in "".join(names):
            raise lines.fault("bytes that are no UTF-8 text", remedy="give a log as CSV or JSON Lines")
        what = f"no column of times among {format_list(map(shorten, names), ',')}"
        if re.match(r"[^{]*?(?:\d:\d\d|\d\.\d+\.\d)|[\d.\s]+$", text):  # a time, an address, or a number alone
            what = "neither JSON Lines nor CSV under a line of column names"
        raise lines.fault(what, column=1, remedy=f"name the times {TIME_COLUMNS[0]}; for logs of other tools see {_RECIPES}")
    if not set(names).intersection((*FORMATS["counts"], *FORMATS["rates"])):
        for name in names:
            if _AGGREGATE_NAME.fullmatch(re.sub(r"[^a-z0-9]+", "_", name).strip("_")):
                what = f"{shorten(name, 40)} seems to hold counts or rates, but each row would be one request"
                remedy = f"name it requests (in each window) or rate_rps, or remove it: {_RECIPES}"
                raise lines.fault(what, column=text.lower().find(name) + 1 or None, remedy=remedy)


def _rows(lines: _LogLines, notes: dict[str, str]) -> Iterator[Mapping[str, Any]]:
    """Yield the cells of each row by the names of the columns in lower case; put the file's statements into `notes`."""
    for text in lines:
        if text.startswith("#"):
            key, colon, value = text.strip("# ").partition(":")
            if colon and (name := key.strip().lower()) in notes:
                notes[name] = " ".join(value.lower().split() if name == "kind" else value.split())
                if notes["kind"] not in ("measured", "synthetic", "unstated"):
                    remedy = "write # kind: measured or synthetic, or leave it out"
                    raise lines.fault(f"kind {shorten(notes['kind'], 40)}", remedy=remedy)
        elif text.strip():
            break
    else:
        return
    if text.lstrip().startswith(("{", "[")):
        is_live: bool | None = None
        is_checked = False
        for line in itertools.chain([text], lines):
            if line.strip():
                is_cut = line[0] == "{" and line.rstrip()[-1] != "}"
                remedy = "it ends within the object: remove it" if is_cut else 'write {"timestamp": 0, "input_length": 12}'
                row = lines.json_object(line, remedy=remedy)
                if is_live is None:  # the first line of the log of a live gateway
                    is_live = row.get("event") == "begin" and {"policy", "devices"} <= row.keys()
                if not is_live or row.get("event") == "request":
                    row = {name.lower(): value for name, value in row.items()}
                    if not is_checked:
                        _check_names(lines, [*row], line)
                        is_checked = True
                    yield row
        return
    if _ACCESS_LINE.match(text):
        notes["source"] += " (an access log: each line is a request, and only its time is read)"
        for line in filter(str.strip, itertools.chain([text], lines)):
            if not (match := _ACCESS_LINE.match(line)):
                raise lines.fault("no line of an access log", column=1, remedy="remove it")
            try:
                ended = datetime.strptime(match[1], "%d/%b/%Y:%H:%M:%S %z")
            except ValueError:
                raise lines.fault(f"no date {match[1]}", column=match.start(1) + 1, remedy="correct it") from None
            yield {INGRESS: ended.timestamp()}
        return
    reader = csv.reader(itertools.chain([text], lines), delimiter=max(",;\t", key=text.count), strict=True)
    try:
        names = [name.strip().lower() for name in next(reader)]
        _check_names(lines, names, text)
        if repeated := next((name for name in _COLUMNS if names.count(name) > 1), ""):
            raise lines.fault(f"two columns are named {repeated}", remedy="rename one")
        for cells in reader:
            if not "".join(cells).strip():
                continue
            if len(cells) != len(names):
                what = f"{len(cells)} cell{'s' if len(cells) != 1 else ''}, but the first row names {len(names)} columns"
                raise lines.fault(what, column=1, remedy="complete the row or remove it")
            yield dict(zip(names, cells, strict=True))
    except csv.Error as error:
        raise lines.fault(f"no CSV: {error}", remedy="close the quotation mark") from None


def read_recording(path: str | os.PathLike[str], time_unit: TimeUnit | None = None, others: Collection[str] = ()) -> Recording:
    """Read a log: CSV under a line of column names (before it, `# kind:` and `# source:`) or JSON Lines, plain or gzip.

    `time_unit`: unit of the times that are numbers. None: seconds, but milliseconds, as in Mooncake's traces, if a `timestamp`
    stands in JSON Lines, none has a fraction, and the rows have no `chat_id`, as Qwen's traces do. `others`: further columns to
    read, by their names in lower case. Of the log of a live gateway, the lines of requests are read.

    Raises `ArrivalsError`, with the line, for what is no such log, for times that decrease, and for a mean rate that is not
    plausible if the unit is stated neither by `time_unit` nor by a column such as `t_s`.
    """
    log = _Log(path, others)
    time_s, begin_s, clock, unit, is_stated = _times(log, time_unit)
    apart_s = np.diff(time_s, prepend=-np.inf)
    log.refuse(apart_s < 0.0, log.time, "sort the rows by time", "which is before the row above it")
    if log.format in ("counts", "rates"):
        log.refuse(apart_s == 0.0, log.time, "give one row for each time", "as in the row above it")
    last_s, apart_s = float(time_s[-1]), apart_s[1:]
    if last_s < 1e-6:
        raise ArrivalsError("no two rows at different times", path=log.path, remedy="give two requests or more, in seconds")
    value = _values(log)
    step_s = 0.0
    if log.format == "counts":
        step_s, time_s, value = _window_s(log, apart_s), np.repeat(time_s, value.astype(np.int64)), np.empty(0)
        duration_s = last_s + step_s
    elif log.format == "rates":
        duration_s = last_s + float(apart_s[-1])
    else:
        step_s = granularity_s(time_s)
        duration_s = last_s + (step_s or last_s / len(apart_s))
    low, high = _PLAUSIBLE_RPS[unit]
    rate_rps = len(time_s) / duration_s
    if log.format != "rates" and not is_stated and not low <= rate_rps <= high:
        what = f"timestamp states no unit; in {unit} it gives {rate_rps:.3g} requests/s"
        raise ArrivalsError(what, path=log.path, remedy="state the unit, in a scenario time_unit: s or time_unit: ms")
    origin, cells = (log.notes["kind"], log.notes["source"]), log.cells[log.others]
    return Recording(log.format, *origin, time_s, value, step_s, duration_s, begin_s, clock, cells)


def read_column(path: str | os.PathLike[str], names: Sequence[str]) -> tuple[str, Any]:
    """Return the first of some columns, named in lower case, that a log of requests has: its name and its texts, by line.

    Raises `ArrivalsError` for what is no such log, a log without any of the columns, and a row without a text.
    """
    log = _Log(path, names)
    if log.format in ("counts", "rates"):
        raise ArrivalsError(f"a log of {log.format}, whose rows are no requests", path=path, remedy="give a log of requests")
    if (column := next((name for name in names if name in log.others), None)) is None:
        what = f"no column {format_list(names, 'or')} among {format_list(map(shorten, log.first))}"
        raise ArrivalsError(what, path=path, line=1, remedy="name one that the log has")
    texts = log.cells[column]
    log.refuse((texts == "").to_numpy(), column, "remove the row, or fill it in")
    return column, texts


def _times(log: _Log, time_unit: TimeUnit | None) -> tuple[Times, float, Clock, TimeUnit, bool]:
    """Return the times from the first row on in seconds, that of the first row, its clock, the unit, whether that is stated."""
    import pandas as pd  # only recordings need it, and it takes a third of a second

    ticks = log.numbers(log.time)
    if np.isnan(ticks[0]):
        texts = log.cells[log.time].str.strip()
        moments = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
        # Differences of centuries overflow, as of dates with a wrong digit.
        is_wrong = ~moments.dt.year.between(1970, 2200).to_numpy()
        log.refuse(is_wrong, log.time, "give numbers, or date-times as 2023-11-16 18:15:46.68+02:00")
        is_zoned = texts.str.contains(r"[zZ]$|:.*[+-]\d\d(?::?\d\d)?$").to_numpy()
        fault = f"with{'out' * bool(is_zoned[0])} a zone, unlike the first row"
        log.refuse(is_zoned != is_zoned[0], log.time, "give all rows a zone, or none", fault)
        time_s = np.asarray((moments - moments.iloc[0]).dt.total_seconds(), np.float64)
        return time_s, moments.iloc[0].timestamp(), "UTC" if is_zoned[0] else "as written", "s", True
    log.refuse(~np.isfinite(ticks), log.time, "give a number, with a decimal point")
    is_stated, unit = time_unit is not None or log.time != "timestamp", time_unit or "s"
    is_json = not isinstance(log.first[log.time], str)
    if not is_stated and is_json and "chat_id" not in log.first and (ticks == np.floor(ticks)).all():
        unit = "ms"
    time_s = ticks / (1e3 if unit == "ms" else 1.0)
    is_ms = unit == "s" and np.abs(ticks).max() <= 1e3 * _MAX_TIME_S
    remedy = "give seconds, or time_unit: ms" if is_ms else "correct the time"
    log.refuse(np.abs(time_s) > _MAX_TIME_S, log.time, remedy, f"which in {unit} is after the year 5000")
    begin_s = float(time_s[0])
    return time_s - begin_s, begin_s, "UTC" if begin_s >= _LEAST_DATE_S else "relative", unit, is_stated


def _values(log: _Log) -> Times:
    """Return the tokens, counts or rates of the rows; empty for times alone."""
    import pandas as pd  # only recordings need it, and it takes a third of a second

    if not log.value:
        return np.empty(0)
    value, most = log.numbers(log.value), _MOST.get(log.format, 1e300)
    is_wrong = ~((value >= 0.0) & (value <= most))
    if log.format == "rates":
        is_empty = (log.cells[log.value].str.strip() == "").to_numpy()
        is_wrong &= ~is_empty
        if is_empty.any():
            log.notes["source"] += f" ({is_empty.sum():,} empty cells, for which the rate before them is held)"
        value = np.asarray(pd.Series(value).ffill().bfill(), np.float64)
    if log.format == "counts":
        is_wrong |= value != np.floor(value)
    kind = "a whole number" if log.format == "counts" else "a number"
    log.refuse(is_wrong, log.value, f"give {kind} from 0{f' to {most:,.0f}' if log.format in _MOST else ''}")
    if log.format == "rates" and not (value > 1e-9).any():
        raise ArrivalsError(f"{log.value} is nowhere above 0", path=log.path, remedy="give a series in which something arrives")
    if log.format == "counts" and not 2 <= value.sum() <= most:
        what = f"the windows count {value.sum():,.0f} in all"
        raise ArrivalsError(what, path=log.path, remedy=f"give a log of 2 to {most:,} requests")
    return value


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


def _window_s(log: _Log, apart_s: Times) -> float:
    """Return the width of a window: the least distance of two rows, of which all others must be multiples."""
    least = _least(apart_s)
    steps = np.round(apart_s / least)
    strays = np.abs(apart_s / least - steps) > _GRID_SLACK + _ROUNDING * steps
    fault = f"which is no multiple of {least:g} s, the least distance of two windows, after the row above it"
    log.refuse(np.append(False, strays), log.time, "begin all windows on one grid", fault)
    return float(apart_s.sum() / steps.sum())


def _least(apart: Times) -> float:
    """Return the median of the least distances, which are rounded and so less exact one by one."""
    return float(np.median(apart[apart < 1.02 * apart.min()]))


class Recorded(RatedArrivals):
    """The requests of a recorded log, repeated for ever; each further replication starts elsewhere on the log.

    A stated rate plays the log faster or slower, or scales its rates.
    """

    kind: Literal["recorded"]
    file: Annotated[str, InputFile(), Field(min_length=1)]
    """Path, relative to the scenario file; plain or gzip."""
    time_unit: TimeUnit | None = None
    """Unit of times that are numbers. Left out: seconds; of whole timestamps in JSON Lines without `chat_id`, milliseconds."""
    lengths: Literal["independent", "rank"] = "independent"
    """Lengths drawn from the corpus `independent` of the log, or those at the `rank` of the request's input tokens."""

    def process(self, base: Path) -> ArrivalProcess:
        """Return the process after reading its log. Raises `ArrivalsError`."""
        recording = read_recording(base / self.file, self.time_unit)
        if self.lengths == "rank" and recording.format != "tokens":
            what = f"lengths: rank needs the tokens of each request, the log (of {recording.format}) has none"
            remedy = f"give a column {FORMATS['tokens'][0]}, or lengths: independent"
            raise ArrivalsError(what, path=base / self.file, remedy=remedy)
        process = self._of_rates(recording) if recording.format == "rates" else self._places(recording)
        return process if self.rate_rps is None else process.at_rate(self.rate_rps)

    def _of_rates(self, recording: Recording) -> VaryingProcess:
        silent = int((recording.value == 0.0).sum())
        windows = f"{len(recording.value):,} windows, {silent:,} of them without arrivals"
        what = f"rates ({recording.kind}) of {recording.source}, {windows}; each further replication begins elsewhere on them"
        return VaryingProcess(np.append(recording.time_s, recording.duration_s), recording.value, what, moves=True)

    def _places(self, recording: Recording) -> RecordedProcess:
        time_s, place = np.unique(recording.time_s, return_inverse=True)
        width_s = np.minimum(np.diff(time_s, append=recording.duration_s), recording.step_s)[place]
        rank = None
        if self.lengths == "rank":
            _, place, count = np.unique(recording.value, return_inverse=True, return_counts=True)
            requests = len(recording.value)
            rank = (np.cumsum(count) - count)[place] / requests, count[place] / requests
        return RecordedProcess(recording, recording.time_s, width_s, recording.duration_s, rank)


@dataclass(frozen=True, slots=True, eq=False)
class RecordedProcess(ArrivalProcess):
    """A log of requests at the speed at which it is replayed."""

    recording: Recording
    time_s: Times
    """Shape (requests,), ascending."""
    width_s: Times
    """Longest delay of each request after its time, equal for all requests of one time."""
    duration_s: float
    """Length of a lap."""
    rank: tuple[Times, Times] | None
    """(share of the log's requests that are shorter, share that are as long) for each; None for independent lengths."""

    @property
    def mean_rate_rps(self) -> float:
        return len(self.time_s) / self.duration_s

    @property
    def account(self) -> str:
        recording, speed = self.recording, self.recording.duration_s / self.duration_s
        clauses = [
            f"arrivals of a recorded trace ({recording.kind}), {recording.source}: {len(self.time_s):,} requests in "
            f"{recording.duration_s:,.0f} s, {self.mean_rate_rps:.4g} requests/s",
            f"played {speed:.4g} times as fast" if speed != 1.0 else "",
            f"requests of one time spread evenly over {recording.step_s:g} s" if recording.step_s else "",
            "lengths drawn independently" if self.rank is None else "lengths by the rank of the input tokens",
            "after its end it begins anew",
        ]
        return "; ".join(filter(None, clauses))

    def at_rate(self, rate_rps: float) -> Self:
        """Return the log played so much faster or slower."""
        shrink = self.mean_rate_rps / rate_rps
        return replace(self, time_s=self.time_s * shrink, width_s=self.width_s * shrink, duration_s=self.duration_s * shrink)

    def times(self, n: int, rng: RandomStream) -> Times:
        first, begin_s = self._start(rng)
        # All requests of the last time are drawn, since requests of one time are sorted: else a longer run would differ.
        laps, last = divmod(first + n - 1, len(self.time_s))
        end = laps * len(self.time_s) + int(np.searchsorted(self.time_s, self.time_s[last], side="right"))
        lap, request = np.divmod(np.arange(first, end), len(self.time_s))
        within = rng.by_block(end - first, lambda generator, count: generator.random(count))
        moments_s = within * self.width_s[request] + (self.time_s[request] + (lap * self.duration_s - begin_s))
        return np.sort(moments_s, kind="stable")[:n]  # nearly sorted, so five times faster than the default

    def size_ranks(self, n: int, rng: RandomStream) -> Times | None:
        """Return the rank in [0, 1) of each request's input tokens within the log, ties broken at random, shape (n,).

        The ranks of a lap are uniform, so a lap has the lengths of the corpus, in the log's order of sizes.
        """
        if self.rank is None:
            return None
        below, equal = self.rank
        request = (self._start(rng)[0] + np.arange(n)) % len(self.time_s)
        ties = rng.part("size ties").by_block(n, lambda generator, count: generator.random(count))
        return np.minimum(below[request] + ties * equal[request], np.nextafter(1.0, 0.0))

    def first_row(self, rng: RandomStream) -> int:
        return self._start(rng)[0]

    def _start(self, rng: RandomStream) -> tuple[int, float]:
        """Draw (first request of a run, moment of the log that is its time 0); all moments are equally likely.

        A run that would begin within a window begins with the window, since the order of the window's requests is unknown.
        """
        if rng.replication == 0:
            return 0, 0.0
        moment_s = float(rng.part("trace start").random()) * self.duration_s
        after = int(np.searchsorted(self.time_s, moment_s, side="right"))
        if after and moment_s < self.time_s[after - 1] + self.width_s[after - 1]:
            begin_s = float(self.time_s[after - 1])
            return int(np.searchsorted(self.time_s, begin_s)), begin_s
        return after, moment_s
