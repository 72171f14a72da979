"""RTT and bandwidth series as CSV: one reader for any file with a column of times and a column of values, one writer.

The first row that is neither blank nor begins with `#` names the columns. Comment lines above it are notes `# key: value`;
`# kind: measured|synthetic|constant|unstated`, `# source: ...` and `# lost: 3` (all lost samples, those with an empty cell
included) are understood. The writer adds `# simnmt rtt series, version 1`. Errors name line and column.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeVar, cast, get_args

import numpy as np
from numpy.typing import NDArray

from simnmt.base.errors import InputError, short_repr, shorten
from simnmt.base.text_tables import CsvTable, parse_number
from simnmt.network.errors import TraceError
from simnmt.network.series import BPS_PER, SECONDS_PER, BandwidthSeries, Kind, RttSeries, Series, like_seconds_read_as_ms
from simnmt.network.text_files import read_text, write_texts
from simnmt.network.traces.ping_text import is_ping_text

VERSION = 1
"""Version of the format in which series are written."""

_MARK = re.compile(r"simnmt (?:rtt|bandwidth) series, version (\d+)")
_COUNT = re.compile(r"\d{1,9}", re.ASCII)
_LONGEST_NOTE = 20_000
_NO_TIME = 1e20
_MEND = "`simnmt trace import` mends the file"
_Series = TypeVar("_Series", bound=Series)


class Rows(CsvTable):
    """Rows of a file with its notes and column names; errors name line and column.

    Raises `TraceError` for a file without rows, a version or kind that is unknown, and a `lost` that is no count.
    """

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        self.notes: dict[str, str] = {}
        self.ours = False
        """Whether simnmt wrote the file."""
        self._lines = (read_text(path) if text is None else text).split("\n")
        self._start = 0
        for line in self._lines:
            if line.strip() and not line.lstrip().startswith("#"):
                break
            self._start += 1
            self._note(line.strip().lstrip("#").strip())
        if self._start == len(self._lines):
            raise TraceError("empty file", path=path, remedy="give column names and one row per sample")
        self._line = self._start + 1
        self._begin(self._lines[self._start].rstrip("\r"))
        kind, lost = self.notes.get("kind", "unstated"), self.notes.get("lost", "")
        if kind not in get_args(Kind):
            what = f"kind {short_repr(kind)} in the header is none of {', '.join(get_args(Kind))}"
            raise TraceError(what, path=path, remedy="correct the line # kind:")
        if lost.isdecimal() and not _COUNT.fullmatch(lost):
            raise TraceError(f"lost: {shorten(lost)} is no count of samples", path=path, remedy="correct the line # lost:")
        self.kind = cast(Kind, kind)
        self.lost = int(lost) if lost.isdecimal() else 0

    def _note(self, text: str) -> None:
        mark = _MARK.fullmatch(text)
        self.ours = self.ours or mark is not None
        if mark and not (_COUNT.fullmatch(mark[1]) and int(mark[1]) <= VERSION):
            what = f"version {shorten(mark[1])} of the series format is newer than this simnmt knows ({VERSION})"
            raise TraceError(what, path=self.path, line=self._start, remedy="upgrade simnmt")
        key, colon, value = text.partition(":")
        if colon and key.strip().lower() not in self.notes:
            self.notes[key.strip().lower()] = value.strip()

    @property
    def source(self) -> str:
        """Origin that the header states, else the file's name."""
        return shorten(self.notes.get("source"), _LONGEST_NOTE) or f"file {shorten(self.path.name)}"

    @property
    def has_numbers(self) -> bool:
        """Whether a cell of the first rows below the names is a number."""
        cells = (cell for line in self._lines[self._start + 1 : self._start + 100] for cell in self._split(line.rstrip("\r")))
        return any(cell.strip() and parse_number(cell) is not None for cell in cells)

    @property
    def is_ping(self) -> bool:
        """Whether the file looks like output of ping."""
        return is_ping_text("\n".join(self._lines[:20]))

    def index(self, column: str) -> int:
        """Return the position of a column. Raises `TraceError` if no column, or more than one, has that name."""
        if self.names.count(column) > 1:
            raise self.wrong_column(f"two columns are named {shorten(column)}", self.names.index(column), "rename one")
        if column in self.names:
            return self.names.index(column)
        before, _, unit = column.rpartition(":")
        if before in self.names:
            what = f"column {shorten(before)}: {shorten(unit)} is no unit that is known"
            raise self.wrong_column(what, self.names.index(before), f"one of {', '.join([*SECONDS_PER, *BPS_PER])}")
        raise self.missing_column(column)

    def __iter__(self) -> Iterator[list[str]]:
        """Yield the cells of every row that is not blank."""
        for line, text in enumerate(self._lines[self._start + 1 :], self._start + 2):
            self._line = line
            if self._read_row(text.rstrip("\r")):
                yield self.cells

    def number(self, index: int, remedy: str = "write numbers with a decimal point") -> float:
        """Return a cell of the current row as a number, NaN and infinities included."""
        number = parse_number(self.cells[index])
        if number is None:
            what = f"{shorten(self.names[index])} is {short_repr(self.cells[index].strip())}, not a number"
            raise self.wrong(what, index, remedy)
        return number

    def fault(self, what: str, *, column: int, remedy: str) -> TraceError:
        """Return an error at a column of the current row."""
        return TraceError(what, path=self.path, line=self._line, column=column, remedy=remedy)

    def wrong_column(self, what: str, index: int, remedy: str) -> InputError:
        """Return an error at a column's name."""
        self._line = self._start + 1
        self.cells = self._split(self._lines[self._start].rstrip("\r"))
        return self.wrong(what, index, remedy)


def read_rtt_csv(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    time_column: str = "time_s",
    rtt_column: str = "rtt_ms",
    time_unit: Literal["s", "ms"] = "s",
    rtt_unit: Literal["ms", "s"] | None = None,
) -> RttSeries:
    """Read a series of RTTs whose first row names the columns; time 0 becomes the first sample that arrived.

    An empty or `nan` RTT is a lost sample: the value before it holds on, and the loss is counted; losses before the first
    sample that arrived are counted and dropped. A file of one sample is a series of one value. Commas, semicolons or tabs
    separate the cells.

    `rtt_unit` None means ms. Then a median below 0.5 ms, which no wide-area network has, is refused, unless simnmt wrote the
    file. Raises `TraceError` with line and column for a cell or a header that cannot be used.
    """
    rows, unit = Rows(Path(path)), rtt_unit or "ms"
    if time_column not in rows.names and rows.is_ping:
        remedy = f"make one of it: simnmt trace import {shorten(Path(path).name)} --out FILE.csv"
        raise TraceError("this is a log of ping, no series", path=path, remedy=remedy)
    series = _read_series(RttSeries, rows, name, (time_column, time_unit), (rtt_column, unit))
    if rtt_unit is None and not rows.ours and (why := like_seconds_read_as_ms(series.rtt_s)):
        remedy = f"state the unit: {{csv: {shorten(Path(path).name)}, rtt_unit: s}} if they are seconds, rtt_unit: ms if not"
        raise rows.wrong_column(f"{shorten(rtt_column)}: {why}", rows.index(rtt_column), remedy)
    return series


RateUnit = Literal["mbps", "kbps", "bps"]


def read_bandwidth_csv(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    time_column: str = "time_s",
    column: str = "mbps",
    time_unit: Literal["s", "ms"] = "s",
    unit: RateUnit | None = None,
) -> BandwidthSeries:
    """Read a series of bandwidths whose first row names the columns; time 0 becomes the first sample with any bandwidth.

    Without a `unit`, the column's name decides (`dl_kbps` is in kbit/s), else the column is in Mbit/s. An empty cell, `nan` or
    0 is a lost sample: the value before it holds on, and the loss is counted; losses before the first sample with a bandwidth
    are counted and dropped. Raises `TraceError` with line and column for a cell or a header that cannot be used.
    """
    named_unit = next((rate for rate in get_args(RateUnit) if column.lower().endswith(rate)), "mbps")
    return _read_series(BandwidthSeries, Rows(Path(path)), name, (time_column, time_unit), (column, unit or named_unit))


_REMEDIES = {
    "s": "set rtt_unit: ms",
    "ms": "convert the column to ms",
    "mbps": "set unit: kbps or unit: bps",
    "kbps": "set unit: bps",
    "bps": "set unit: kbps or unit: bps",
}
"""Remedy for an implausible median by the unit in which the values were read."""


def _read_series(kind: type[_Series], rows: Rows, name: str | None, time: tuple[str, str], value: tuple[str, str]) -> _Series:
    """Read the series of two columns, each given as (name, unit), with lost samples held and counted."""
    (time_column, time_unit), (value_column, unit) = time, value
    per_unit = (SECONDS_PER if kind is RttSeries else BPS_PER)[unit]
    times, values, lost, held = _read_samples(kind, rows, time_column, value_column, kind.most / per_unit)
    time_s, si_values = (np.array(times) - times[0]) * SECONDS_PER[time_unit], np.array(values) * per_unit
    kind.check_unit(si_values, unit, f"of {value_column}", rows.path, _REMEDIES[unit])
    return kind(name or rows.path.stem, rows.kind, rows.source, time_s, si_values, max(lost, rows.lost), np.array(held))


def _read_samples(
    kind: type[Series], rows: Rows, time_column: str, value_column: str, most: float
) -> tuple[list[float], list[float], int, list[bool]]:
    """Return the times and the values, in the units of the file, the number of lost samples, and which values replace one.

    `most`: the largest value.
    """
    time_at, value_at = rows.index(time_column), rows.index(value_column)
    noun = "an RTT" if kind is RttSeries else "a bandwidth"
    times: list[float] = []
    values: list[float] = []
    held: list[bool] = []
    before, lost = -math.inf, 0
    for cells in rows:
        time = rows.number(time_at)
        if not abs(time) < _NO_TIME:
            raise rows.wrong(f"{time_column} is {shorten(cells[time_at])}", time_at, "give every row a finite time")
        if time == before:
            raise rows.wrong(f"time {shorten(cells[time_at])} appears twice", time_at, f"keep one row per time; {_MEND}")
        if time < before:
            what = f"time {shorten(cells[time_at])} is earlier than the row before"
            raise rows.wrong(what, time_at, f"sort the rows by time; {_MEND}")
        before = time
        is_held = False
        number = math.nan if not cells[value_at].strip() else rows.number(value_at)
        if math.isnan(number) or (kind is BandwidthSeries and number == 0.0):
            lost += 1
            if not values:
                continue
            number, is_held = values[-1], True
        elif not 0.0 < number < math.inf:
            what = f"{value_column} is {shorten(cells[value_at])}, but {noun} is positive and finite"
            raise rows.wrong(what, value_at, "leave the cell empty where a sample was lost")
        elif number > most:
            what = f"{value_column} is {shorten(cells[value_at])}, but {noun} is at most {most:,.10g}"
            raise rows.wrong(what, value_at, "correct the cell, or leave it empty where a sample was lost")
        times.append(time)
        values.append(number)
        held.append(is_held)
    if not values:
        zero = "zero or " * (kind is BandwidthSeries)
        what = f"{value_column} is {zero}empty in every row" if lost else "no rows below the column names"
        raise TraceError(what, path=rows.path, remedy="give at least one sample")
    return times, values, lost, held


def read_notes(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the `# key: value` lines at the top of a file, by key in lower case."""
    return Rows(Path(path)).notes


def series_text(
    series: Series,
    *,
    notes: Mapping[str, str] | None = None,
    decimals: int | None = None,
    lost: NDArray[np.bool_] | None = None,
) -> str:
    """Return the text of a series file; `notes` become `# key: value` lines, `decimals` round the values.

    `lost`, shape (samples,), marks lost samples: their cells stay empty. The header counts all lost samples.
    """
    values = series.csv_values if decimals is None else np.round(series.csv_values, decimals)
    marked = np.zeros(len(values), dtype=bool) if lost is None else lost
    header_notes = {"kind": series.kind, "source": series.source, "lost": str(series.lost), **(notes or {})}
    rows = zip(series.time_s.tolist(), values.tolist(), marked.tolist(), strict=True)
    lines = [f"{time_s!r},\n" if was_lost else f"{time_s!r},{number!r}\n" for time_s, number, was_lost in rows]
    head = [f"# {key}: {shorten(text, _LONGEST_NOTE)}\n" for key, text in header_notes.items()]
    mark = f"# simnmt {series.quantity.lower()} series, version {VERSION}\n"
    return "".join([mark, *head, f"time_s,{series.csv_column}\n", *lines])


def write_series(
    path: str | os.PathLike[str],
    series: Series,
    *,
    notes: Mapping[str, str] | None = None,
    decimals: int | None = None,
    lost: NDArray[np.bool_] | None = None,
) -> None:
    """Write the text of `series_text`, whole or not at all; raises `TraceError` if the file cannot be written."""
    write_texts({Path(path): series_text(series, notes=notes, decimals=decimals, lost=lost)})
