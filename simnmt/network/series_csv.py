"""RTT and bandwidth series as CSV: one table for any file with named columns, the reader of two of them, and the writer.

The first row that is neither blank nor begins with `#` names the columns. Comment lines above it are notes `# key: value`;
`# kind: measured|synthetic|constant|unstated`, `# source: ...` and `# lost: 3` (all lost samples, those with an empty cell
included) are understood. The writer adds `# simnmt rtt series, version 1`. Errors name line and column.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.base.errors import InputError, short_repr, shorten
from simnmt.base.files import MOST_TEXT_BYTES, read_bounded, written_whole
from simnmt.base.suggestions import format_list
from simnmt.base.text_tables import CsvTable, parse_number
from simnmt.network.series import BPS_PER, SECONDS_PER, BandwidthSeries, Kind, RttSeries, Series, TraceError

VERSION = 1
"""Version of the format in which series are written."""

_MARK = re.compile(r"simnmt (?:rtt|bandwidth) series, version (\d{1,9})")
_COUNT = re.compile(r"\d{1,9}", re.ASCII)
_LONGEST_NOTE = 20_000
_NO_TIME = 1e20
_Series = TypeVar("_Series", bound=Series)


def read_text(path: Path, decode_other: Callable[[bytes], str | None] = lambda raw: None) -> str:
    """Return the text of a file or pipe, with newlines at the ends of its lines.

    `decode_other` may return the text of bytes that are not Unicode. Raises `TraceError` if the file cannot be read, is a
    device, is packed, has more than `MOST_TEXT_BYTES`, or is neither UTF-8 nor marked as UTF-16.
    """
    try:
        raw = read_bounded(path, MOST_TEXT_BYTES, pipes=True)
    except OSError as error:
        remedy = "cut it into several files" if error.errno == errno.EOVERFLOW else "check the path"
        raise TraceError(f"cannot be read: {error.strerror}", path=path, remedy=remedy) from None
    if raw.startswith(b"\x1f\x8b"):
        raise TraceError("is packed by gzip", path=path, remedy="unpack it")
    try:
        # A Windows shell redirects output into a file as UTF-16.
        text = raw.decode("utf-16" if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig")
    except UnicodeDecodeError as error:
        if (other := decode_other(raw)) is not None:
            return other.replace("\r\n", "\n")
        line, column = raw.count(b"\n", 0, error.start) + 1, error.start - raw.rfind(b"\n", 0, error.start)
        what = f"byte 0x{raw[error.start]:02x} is not UTF-8 text"
        raise TraceError(what, path=path, line=line, column=column, remedy="save the file as UTF-8 CSV") from None
    return text.replace("\r\n", "\n") if "\n" in text else text.replace("\r", "\n")


class SeriesTable(CsvTable):
    """The notes and the columns of a file; errors name line and column.

    Raises `TraceError` for a file without column names, rows of other widths, a version or kind that is unknown, and a `lost`
    that is no count.
    """

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        self.notes: dict[str, str] = {}
        """The `# key: value` lines at the top, by key in lower case."""
        self.version = 0
        """0 for a file that simnmt did not write."""
        lines = (read_text(path) if text is None else text).split("\n")
        head = next((at for at, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), len(lines))
        for self._line, line in enumerate(lines[:head], 1):
            self._note(line.strip().lstrip("#").strip())
        if head == len(lines):
            raise TraceError("empty file", path=path, remedy="give column names and one row per sample")
        self._line = head + 1
        self._begin(lines[head])
        self._lines, self._head = lines, (self._line, self.cells)
        kind, lost = self.notes.get("kind", "unstated"), self.notes.get("lost", "")
        if kind not in get_args(Kind):
            what = f"kind {short_repr(kind)} in the header is none of {', '.join(get_args(Kind))}"
            raise TraceError(what, path=path, remedy="correct the line # kind:")
        if lost.isdecimal() and not _COUNT.fullmatch(lost):
            raise TraceError(f"lost: {shorten(lost)} is no count of samples", path=path, remedy="correct the line # lost:")
        self.kind = cast(Kind, kind)
        self.lost = int(lost) if lost.isdecimal() else 0
        self.source = shorten(self.notes.get("source"), _LONGEST_NOTE) or f"file {shorten(path.name)}"

    def _note(self, text: str) -> None:
        if mark := _MARK.match(text):
            self.version = int(mark[1])
            if self.version > VERSION:
                what = f"version {self.version} of the series format is newer than this simnmt knows ({VERSION})"
                raise self.fault(what, column=1, remedy="upgrade simnmt")
        key, colon, value = text.partition(":")
        if colon:
            self.notes.setdefault(key.strip().lower(), value.strip())

    @cached_property
    def _rows(self) -> list[tuple[int, list[str]]]:
        """The number of the line and the cells of each row that is not blank."""
        rows = [self._head]
        for line in self._lines[self._line :]:
            self._line += 1
            if self._read_row(line):
                rows.append((self._line, self.cells))
        return rows

    def cells_of(self, column: str) -> list[str]:
        """Return the cells of a column. Raises `TraceError` if no column, or more than one, has that name."""
        if column not in self.names:
            self._line, self.cells = self._head
            raise self.missing_column(column)
        if self.names.count(column) > 1:
            raise self.wrong_cell(f"two columns are named {shorten(column)}", -1, column, "rename one")
        at = self.names.index(column)
        return [cells[at].strip() for _, cells in self._rows[1:]]

    def numbers(self, column: str, lost: Collection[str] = ("",), remedy: str = "write numbers with a decimal point") -> Floats:
        """Return the numbers of a column, NaN and infinities included; NaN for the cells of `lost`, in small letters."""
        numbers: list[float] = []
        for row, cell in enumerate(self.cells_of(column)):
            number = float("nan") if cell.lower() in lost else parse_number(cell)
            if number is None:
                raise self.wrong_cell(f"{shorten(column)} is {short_repr(cell)}, not a number", row, column, remedy)
            numbers.append(number)
        return np.array(numbers, dtype=np.float64)

    def wrong_cell(self, what: str, row: int, column: str, remedy: str) -> InputError:
        """Return an error about a cell; row -1 holds the names of the columns."""
        self._line, self.cells = self._rows[row + 1] if row >= 0 else self._head
        return self.wrong(what, self.names.index(column), remedy)

    def check(self, is_good: NDArray[np.bool_], column: str, fault: str, remedy: str) -> None:
        """Raise `TraceError` at the first cell of a column that is not good; `fault` follows the column's name and the cell."""
        if not is_good.all():
            row = int(np.argmin(is_good))
            raise self.wrong_cell(f"{shorten(column)} {shorten(self.cells_of(column)[row])} {fault}", row, column, remedy)

    def fault(self, what: str, *, column: int, remedy: str) -> TraceError:
        """Return an error at a column of the current row."""
        return TraceError(what, path=self.path, line=self._line, column=column, remedy=remedy)


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
    time, value = (time_column, SECONDS_PER[time_unit]), (rtt_column, rtt_unit or "ms")
    remedy = "state rtt_unit: s if they are seconds, rtt_unit: ms if not"
    return _read_series(RttSeries, Path(path), name, time, value, rtt_unit is not None, remedy)


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
    time, value = (time_column, SECONDS_PER[time_unit]), (column, unit or named_unit)
    return _read_series(BandwidthSeries, Path(path), name, time, value, unit is not None, "state unit: bps, kbps or mbps")


def _read_series(
    kind: type[_Series],
    path: Path,
    name: str | None,
    time: tuple[str, float],
    value: tuple[str, str],
    is_stated: bool,
    remedy: str,
) -> _Series:
    """Read the series of a column of times, given with the seconds of its unit, and one of values, given with its unit."""
    table, (time_column, s_per_unit), (column, unit) = SeriesTable(path), time, value
    if time_column not in table.names:
        table.refuse_numbers(f"{time_column},{column}")
        remedy = f"name it by time_column, or make a series of a log: simnmt trace import {shorten(path.name)} --out FILE.csv"
        what = f"no column {shorten(time_column)} among {format_list(map(shorten, table.names))}"
        raise TraceError(what, path=path, remedy=remedy)
    times, values = table.numbers(time_column), table.numbers(column)
    table.check(np.abs(times) < _NO_TIME, time_column, "is no finite time", "give every row a time")
    mend = "`simnmt trace import` sorts the rows and keeps one per time"
    table.check(np.diff(times, prepend=-np.inf) > 0.0, time_column, "is not later than the row before", mend)
    values = values * (SECONDS_PER if kind is RttSeries else BPS_PER)[unit]
    if kind is BandwidthSeries:
        values[values == 0.0] = np.nan
    possible = np.isnan(values) | ((values > 0.0) & (values <= kind.most))
    table.check(possible, column, f"is no {kind.quantity}", "correct the cell, or leave it empty where a sample was lost")
    if np.isnan(values).all():
        raise TraceError(f"no row has a {kind.quantity} in {column}", path=path, remedy="give at least one sample")
    if doubt := kind.doubt_unit(values, unit, is_stated or table.version > 0):
        raise table.wrong_cell(f"{shorten(column)}: {doubt}", -1, column, remedy)
    return kind.of_samples(name or path.stem, table.kind, table.source, times * s_per_unit, values, table.lost)


def series_text(
    series: Series,
    *,
    notes: Mapping[str, Any] | None = None,
    decimals: int | None = None,
    lost: NDArray[np.bool_] | None = None,
) -> str:
    """Return the text of a series file; `notes` become `# key: value` lines, `decimals` round the values.

    `lost`, shape (samples,), marks lost samples: their cells stay empty. The header counts all lost samples.
    """
    values = series.value * 1e3 if isinstance(series, RttSeries) else series.value / 1e6
    values = values if decimals is None else np.round(values, decimals)
    marked = np.zeros(len(values), dtype=bool) if lost is None else lost
    header = {"kind": series.kind, "source": series.source, "lost": str(series.lost), **(notes or {})}
    rows = zip(series.time_s.tolist(), values.tolist(), marked.tolist(), strict=True)
    lines = [f"{time_s!r},\n" if was_lost else f"{time_s!r},{number!r}\n" for time_s, number, was_lost in rows]
    head = [f"# {key}: {shorten(text, _LONGEST_NOTE)}\n" for key, text in header.items()]
    mark = f"# simnmt {series.quantity.lower()} series, version {VERSION}\n"
    return "".join([mark, *head, f"time_s,{series.csv_column}\n", *lines])


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write several files, all of them or none. Raises `TraceError` naming the one that cannot be written."""
    path = Path()
    try:
        with ExitStack() as stack:
            for path, text in texts.items():
                stack.enter_context(written_whole(path)).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise TraceError(f"cannot be written: {error.strerror}", path=path, remedy="choose another folder") from None
