"""RTT and bandwidth series as CSV: one reader for any file with a column of times and a column of values, one writer.

The first row that is neither blank nor begins with `#` names the columns. Comment lines above it are notes `# key: value`;
`# kind: measured|synthetic|constant|unstated`, `# source: ...` and `# lost: 3` (all lost samples, including those with an empty
cell) are understood. The writer adds `# simnmt rtt series, version 1`. Errors name line and column.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from simnmt.base.csv_table import CsvTable, parse_number
from simnmt.base.errors import InputError, short_repr, shorten
from simnmt.base.suggestions import did_you_mean, format_list
from simnmt.network.errors import TraceError
from simnmt.network.series import (
    MOST_BANDWIDTH_BPS,
    MOST_RTT_S,
    BandwidthSeries,
    Kind,
    RttSeries,
    Series,
    check_rate_unit,
    check_rtt_unit,
    like_seconds_read_as_ms,
)
from simnmt.network.text_files import read_text, write_texts

VERSION = 1
"""Of the form in which series are written."""

SECONDS_PER = {"s": 1.0, "ms": 1e-3}

_MARK = re.compile(r"simnmt (?:rtt|bandwidth) series, version (\d+)")
_COUNT = re.compile(r"\d{1,9}", re.ASCII)
_LONGEST_NOTE = 20_000
_NO_TIME = 1e20
_MEND = "`simnmt trace import` mends the file"


@dataclass(frozen=True, slots=True)
class Samples:
    """Two columns as they stand in a file, lost samples held; at least one sample."""

    time: list[float]
    """In the file's unit and from its own zero; strictly increasing."""
    value: list[float]
    """In the file's unit; positive."""
    lost: int
    """Samples that were lost: those without a value, or as many as the header counts where these are more."""


class Rows(CsvTable):
    """The rows of a file with its notes and column names, and complaints that know line and column."""

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        self.notes: dict[str, str] = {}
        self.ours = False  # whether simnmt wrote it
        self._lines = (read_text(path) if text is None else text).split("\n")
        self._start = 0
        for line in self._lines:
            if line.strip() and not line.lstrip().startswith("#"):
                break
            self._start += 1
            self._note(line.strip().lstrip("#").strip())
        if self._start == len(self._lines):
            raise TraceError("empty file", path=path, remedy="give column names and one row per sample")
        header = self._lines[self._start].rstrip("\r")
        self._line = self._start + 1
        self._begin(header)
        self.kind: Kind = self._kind()
        self.lost = self._lost()

    def _note(self, text: str) -> None:
        mark = _MARK.fullmatch(text)
        self.ours = self.ours or mark is not None
        if mark and not (_COUNT.fullmatch(mark[1]) and int(mark[1]) <= VERSION):
            what = f"version {shorten(mark[1])} of the series format is newer than this simnmt knows ({VERSION})"
            raise TraceError(what, path=self.path, line=self._start, remedy="upgrade simnmt")
        key, colon, value = text.partition(":")
        if colon and key.strip().lower() not in self.notes:
            self.notes[key.strip().lower()] = value.strip()

    def _lost(self) -> int:
        lost = self.notes.get("lost", "")
        if _COUNT.fullmatch(lost):
            return int(lost)
        if lost.isdecimal():
            raise TraceError(f"lost: {shorten(lost)} is no count of samples", path=self.path, remedy="correct the line # lost:")
        return 0

    def _kind(self) -> Kind:
        stated_kind = self.notes.get("kind", "unstated")
        for kind in get_args(Kind):
            if stated_kind == kind:
                return kind  # type: ignore[no-any-return]
        what = f"kind {short_repr(stated_kind)} in the header is none of {', '.join(get_args(Kind))}"
        raise TraceError(what, path=self.path, remedy="correct the line # kind:")

    @property
    def source(self) -> str:
        """Where the file says that it came from, else the file's name."""
        return shorten(self.notes.get("source"), _LONGEST_NOTE) or f"file {shorten(self.path.name)}"

    def index(self, column: str) -> int:
        """Where the column stands."""
        if self.names.count(column) > 1:
            raise self.wrong_column(f"two columns are named {shorten(column)}", self.names.index(column), "rename one")
        if column in self.names:
            return self.names.index(column)
        self.refuse_numbers(column)
        hint = did_you_mean(column, self.names, f"columns: {format_list(map(shorten, self.names), ',')}", shown=shorten)
        raise self.wrong_column(f"no column {shorten(column)}", 0, hint)

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


def read_samples(
    rows: Rows, time_column: str, value_column: str, *, means: str, most: float, zero_is_lost: bool = False
) -> Samples:
    """The samples of two columns; `means` says what a value is when a complaint must.
    `most`: the largest value, in the column's unit.

    A cell that is empty or `nan` is a lost sample: the value before it holds on, and it is counted; those before the first that
    arrived are counted and dropped. `# lost:` in the header counts these among all that were lost.

    Raises `TraceError` where a cell says anything else.
    """
    time_at, value_at = rows.index(time_column), rows.index(value_column)
    times: list[float] = []
    values: list[float] = []
    before = -math.inf
    lost = 0
    for cells in rows:
        time = rows.number(time_at)
        if not abs(time) < _NO_TIME:
            raise rows.wrong(f"{time_column} is {shorten(cells[time_at])}", time_at, "give every row a finite time")
        if time == before:
            raise rows.wrong(f"time {shorten(cells[time_at])} stands twice", time_at, f"keep one row per time; {_MEND}")
        if time < before:
            what = f"time {shorten(cells[time_at])} is earlier than the row before"
            raise rows.wrong(what, time_at, f"sort the rows by time; {_MEND}")
        before = time
        value = math.nan if not cells[value_at].strip() else rows.number(value_at)
        if math.isnan(value) or (zero_is_lost and value == 0.0):
            lost += 1
            if not values:
                continue
            value = values[-1]
        elif not 0.0 < value < math.inf:
            what = f"{value_column} is {shorten(cells[value_at])}, but {means} is positive and finite"
            raise rows.wrong(what, value_at, "leave the cell empty where a sample was lost")
        elif value > most:
            what = f"{value_column} is {shorten(cells[value_at])}, but {means} is at most {most:,.10g}"
            raise rows.wrong(what, value_at, "correct the cell, or leave it empty where a sample was lost")
        times.append(time)
        values.append(value)
    if not values:
        what = f"{value_column} is {'zero or ' * zero_is_lost}empty in every row" if lost else "no rows below the column names"
        raise TraceError(what, path=rows.path, remedy="give at least one sample")
    return Samples(times, values, max(lost, rows.lost))


def series_text(
    series: Series,
    *,
    notes: Mapping[str, str] | None = None,
    decimals: int | None = None,
    lost: NDArray[np.bool_] | None = None,
) -> str:
    """Return the text of a series file; `notes` become `# key: value` lines, `decimals` round the values.

    `lost`, shape (samples,), marks samples that were lost: their cells stay empty, and the header counts them with all others.
    """
    values = series.csv_values if decimals is None else np.round(series.csv_values, decimals)
    marked = np.zeros(len(values), dtype=bool) if lost is None else lost
    header_notes = {"kind": series.kind, "source": series.source, "lost": str(series.lost), **(notes or {})}
    header = [f"# simnmt {series.quantity.lower()} series, version {VERSION}"]
    header += [f"# {key}: {shorten(text, _LONGEST_NOTE)}" for key, text in header_notes.items()]
    rows = zip(series.time_s.tolist(), values.tolist(), marked.tolist(), strict=True)
    lines = [f"{time_s!r}," if was_lost else f"{time_s!r},{number!r}" for time_s, number, was_lost in rows]
    return "\n".join([*header, f"time_s,{series.csv_column}", *lines]) + "\n"


def write_series(
    path: str | os.PathLike[str],
    series: Series,
    *,
    notes: Mapping[str, str] | None = None,
    decimals: int | None = None,
    lost: NDArray[np.bool_] | None = None,
) -> None:
    """Write the text of `series_text`, whole or not at all; raises `TraceError` where the file cannot be written."""
    write_texts({Path(path): series_text(series, notes=notes, decimals=decimals, lost=lost)})


def read_rtt_csv(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    time_column: str = "time_s",
    rtt_column: str = "rtt_ms",
    time_unit: Literal["s", "ms"] = "s",
    rtt_unit: Literal["ms", "s"] | None = None,
) -> RttSeries:
    """Read a series whose first row names the columns; time 0 becomes the first sample that arrived.

    An empty or `nan` RTT is a lost sample: the value before it holds on, and it is counted; those before the
    first that arrived are counted and dropped. A file of one sample is a series of one value. Commas,
    semicolons or tabs separate the cells.

    `rtt_unit` None means ms. Then a median below 0.5 ms, which no wide-area network has, asks for the unit: it raises, unless
    simnmt wrote the file. Raises `TraceError` with line and column where the file says anything else, too.
    """
    rows = Rows(Path(path))
    unit = rtt_unit or "ms"
    samples = read_samples(rows, time_column, rtt_column, means="an RTT", most=MOST_RTT_S / SECONDS_PER[unit])
    time_s = (np.array(samples.time) - samples.time[0]) * SECONDS_PER[time_unit]
    rtt_s = np.array(samples.value) * SECONDS_PER[unit]
    remedy = "set rtt_unit: ms" if unit == "s" else "convert the column to ms"
    check_rtt_unit(rtt_s, unit, f"of {rtt_column}", path, remedy)
    if rtt_unit is None and not rows.ours and (why := like_seconds_read_as_ms(rtt_s)):
        asked = f"state the unit: {{csv: {shorten(Path(path).name)}, rtt_unit: s}} if they are seconds, rtt_unit: ms if not"
        raise rows.wrong_column(f"{shorten(rtt_column)}: {why}", rows.index(rtt_column), asked)
    return RttSeries(name or Path(path).stem, rows.kind, rows.source, time_s, rtt_s, samples.lost)


def read_notes(path: str | os.PathLike[str]) -> dict[str, str]:
    """The `# key: value` lines at the top of a file, by key in lower case."""
    return dict(Rows(Path(path)).notes)


RateUnit = Literal["mbps", "kbps", "bps"]

BPS_PER: Mapping[str, float] = {"mbps": 1e6, "kbps": 1e3, "bps": 1.0}


def read_bandwidth_csv(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    time_column: str = "time_s",
    column: str = "mbps",
    time_unit: Literal["s", "ms"] = "s",
    unit: RateUnit | None = None,
) -> BandwidthSeries:
    """Read a series whose first row names the columns; time 0 becomes the first sample with any bandwidth.

    Without a `unit`, a column called `dl_kbps` is in kbit/s, and one that names no unit in Mbit/s. An empty cell, `nan`
    or 0 is a lost sample: the value before it holds on, and it is counted; those before the first that is none are
    counted and dropped.

    Raises `TraceError` with line and column where the file says anything else.
    """
    rows = Rows(Path(path))
    taken = unit or unit_of(column) or "mbps"
    most = MOST_BANDWIDTH_BPS / BPS_PER[taken]
    samples = read_samples(rows, time_column, column, means="a bandwidth", most=most, zero_is_lost=True)
    time_s = (np.array(samples.time) - samples.time[0]) * SECONDS_PER[time_unit]
    rate_bps = np.array(samples.value) * BPS_PER[taken]
    remedy = "set unit: bps" if taken == "kbps" else "set unit: kbps or unit: bps"
    check_rate_unit(rate_bps, taken, f"of {column}", path, remedy)
    return BandwidthSeries(name or Path(path).stem, rows.kind, rows.source, time_s, rate_bps, samples.lost)


def unit_of(column: str) -> str | None:
    """The unit that a column's name ends with; None where it names none."""
    return next((unit for unit in BPS_PER if column.lower().endswith(unit)), None)
