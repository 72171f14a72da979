"""RTT and bandwidth series as CSV: one table for any file with named columns, the reader of two of them, and the writer.

The first row that is neither blank nor begins with `#` names the columns. Comment lines above it are notes `# key: value`;
`# kind: measured|synthetic|constant|unstated`, `# source: ...` and `# lost: 3` (all lost samples, those with an empty cell
included) are understood. The writer adds `# simnmt rtt series, version 1`. Errors name line and column.
"""

from __future__ import annotations

import codecs
import csv
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
from simnmt.base.errors import short_repr, shorten
from simnmt.base.files import MOST_TEXT_BYTES, read_bounded, written_whole
from simnmt.base.suggestions import did_you_mean, format_list
from simnmt.network.series import BPS_PER, SECONDS_PER, Kind, RttSeries, Series, TraceError

_MARK = re.compile(r"# simnmt (?:rtt|bandwidth) series, version 1")
_LONGEST_NOTE = 20_000
SeriesKind = TypeVar("SeriesKind", bound=Series)


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
        if raw.startswith((b"%PDF", b"PAR1")) or re.search(rb"[\0-\x08\x0e-\x1a]", raw[:4000]):
            remedy = "export it as CSV, or give what the tool printed"
            raise TraceError("is binary, not text", path=path, remedy=remedy) from None
        raise TraceError(what, path=path, line=line, column=column, remedy="save the file as UTF-8 CSV") from None
    return text.replace("\r\n", "\n") if "\n" in text else text.replace("\r", "\n")


def parse_number(cell: str) -> float | None:
    """Return the number in a cell, NaN and infinities included; None for any other text."""
    try:
        # float() takes 1_000, which no measuring tool writes.
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


class SeriesTable:
    """The notes and columns of a file with commas, semicolons or tabs. Raises `TraceError` without columns or a known kind."""

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        self.notes: dict[str, str] = {}
        """The `# key: value` lines at the top, by key in lower case."""
        self.by_simnmt = False
        """Whether simnmt wrote the file."""
        self._lines = (read_text(path) if text is None else text).split("\n")
        head = 0
        while head < len(self._lines) and (not (line := self._lines[head].strip()) or line.startswith("#")):
            key, _, value = line.lstrip("#").partition(":")
            self.notes.setdefault(key.strip().lower(), value.strip())
            self.by_simnmt = self.by_simnmt or _MARK.fullmatch(line) is not None
            head += 1
        if head == len(self._lines):
            raise TraceError("empty file", path=path, remedy="give column names and one row per sample")
        self._separator = max(",;\t", key=self._lines[head].count)
        self._head = head + 1, self._split(self._lines[head])
        self.names = [cell.strip() for cell in self._head[1]]
        kind, lost = self.notes.get("kind", "unstated"), self.notes.get("lost", "")
        if kind not in get_args(Kind):
            what = f"kind {short_repr(kind)} in the header is none of {', '.join(get_args(Kind))}"
            raise TraceError(what, path=path, remedy="correct the line # kind:")
        self.kind = cast(Kind, kind)
        self.lost = int(lost) if re.fullmatch("[0-9]{1,9}", lost) else 0
        self.source = shorten(self.notes.get("source"), _LONGEST_NOTE) or f"file {shorten(path.name)}"

    def _split(self, line: str) -> list[str]:
        if '"' not in line:
            return line.split(self._separator)
        try:
            return next(csv.reader([line], delimiter=self._separator))
        except csv.Error:
            return [line]

    @cached_property
    def _rows(self) -> list[tuple[int, list[str]]]:
        """The number of the line and the cells of each row that is not blank."""
        rows, width = [], len(self.names)
        for number, line in enumerate(self._lines[self._head[0] :], self._head[0] + 1):
            cells = self._split(line)
            if (len(cells) != width or width == 1) and not line.strip():
                continue  # a blank line, and no row of empty cells between tabs
            if len(cells) != width:
                what = f"{len(cells)} cell{'s' * (len(cells) != 1)}, but the first row names {width} columns"
                raise TraceError(what, path=self.path, line=number, column=1, remedy="complete the row or remove it")
            rows.append((number, cells))
        return rows

    def missing(self, column: str, remedy: str, with_place: bool = True) -> TraceError:
        """Return the error about a column that the first row does not name."""
        what = f"no column {column} among {format_list(map(shorten, self.names))}"
        if any(parse_number(name) is not None for name in self.names):
            what, remedy = "the first row holds numbers, not column names", "name the columns above it, e.g. time_s,rtt_ms"
        line, place = (self._head[0], 1) if with_place else (None, None)
        return TraceError(what, path=self.path, line=line, column=place, remedy=remedy)

    def cells_of(self, column: str) -> list[str]:
        """Return the cells of a column. Raises `TraceError` for a row of another width, and unless one column has that name."""
        if column not in self.names:
            raise self.missing(shorten(column), did_you_mean(column, self.names, "name one of these", shown=shorten))
        if self.names.count(column) > 1:
            raise self.wrong(f"two columns are named {shorten(column)}", column, "rename one")
        at = self.names.index(column)
        return [cells[at] for _, cells in self._rows]

    def numbers(self, column: str, lost: Collection[str] = ("",), remedy: str = "write numbers with a decimal point") -> Floats:
        """Return the numbers of a column, NaN and infinities included; NaN for the cells of `lost`, in small letters."""
        numbers: list[float] = []
        for row, cell in enumerate(self.cells_of(column)):
            number = parse_number(cell)
            if number is None and cell.strip().lower() not in lost:
                raise self.wrong(f"{shorten(column)} is {short_repr(cell.strip())}, not a number", column, remedy, row)
            numbers.append(np.nan if number is None else number)
        return np.array(numbers, dtype=np.float64)

    def wrong(self, what: str, column: str, remedy: str, row: int | None = None) -> TraceError:
        """Return an error about a cell, or without a `row` about the name of the column."""
        line, cells = self._head if row is None else self._rows[row]
        place = 1 + sum(len(cell) + 1 for cell in cells[: self.names.index(column)])
        return TraceError(what, path=self.path, line=line, column=place, remedy=remedy)

    def check(self, is_good: NDArray[np.bool_], column: str, fault: str, remedy: str) -> None:
        """Raise `TraceError` at the first cell of a column that is not good; `fault` follows the column's name and the cell."""
        if not is_good.all():
            row = int(np.argmin(is_good))
            raise self.wrong(f"{shorten(column)} {shorten(self.cells_of(column)[row])} {fault}", column, remedy, row)


RateUnit = Literal["mbps", "kbps", "bps"]


def read_series(
    kind: type[SeriesKind],
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    time_column: str = "time_s",
    time_unit: str = "s",
    column: str | None = None,
    unit: str | None = None,
) -> SeriesKind:
    """Read a series from two columns of a file; time 0 becomes the first sample that arrived.

    An empty or `nan` cell is a lost sample, and so is a bandwidth of 0: the value before it holds on, and the loss is counted;
    losses before the first sample that arrived are counted and dropped. A file of one sample is a series of one value.

    The name of None is that of the file; the `column` of the values is then `rtt_ms` or `mbps`, their `unit` ms, or the rate
    that the column's name ends with (`dl_kbps`), else mbps.

    Raises `TraceError` with line and column for a cell or a header that cannot be used, and for values that show another unit:
    a median RTT below 0.5 ms, which no wide-area network has, is believed if the unit is stated or simnmt wrote the file.
    """
    path, column = Path(path), column or kind.csv_column
    table, is_rtt = SeriesTable(path), kind is RttSeries
    if time_column not in table.names:
        remedy = f"name it by time_column, or make a series of a log: simnmt trace import {shorten(path.name)} --out FILE.csv"
        raise table.missing(shorten(time_column), remedy, with_place=False)  # so that a scenario names its key
    times, values = table.numbers(time_column), table.numbers(column)
    table.check(np.abs(times) < 1e20, time_column, "is no finite time", "give every row a time")
    mend = "`simnmt trace import` sorts the rows and keeps one per time"
    table.check(np.diff(times, prepend=-np.inf) > 0.0, time_column, "is not later than the row before", mend)
    named_unit = next((rate for rate in get_args(RateUnit) if column.lower().endswith(rate)), "mbps")
    read_unit = unit or ("ms" if is_rtt else named_unit)
    values = values * (SECONDS_PER if is_rtt else BPS_PER)[read_unit]
    if not is_rtt:
        values[values == 0.0] = np.nan
    possible = np.isnan(values) | ((values > 0.0) & (values <= kind.most))
    table.check(possible, column, f"is no {kind.quantity}", "correct the cell, or leave it empty where a sample was lost")
    if np.isnan(values).all():
        what = f"no {kind.quantity} in column {shorten(column)}" if len(values) else "no rows below the column names"
        raise TraceError(what, path=path, remedy="give at least one sample")
    if doubt := kind.doubt_unit(values, read_unit, unit is not None or table.by_simnmt):
        what, likely = doubt
        remedy = f"state {'rtt_unit' if is_rtt else 'unit'}: {likely}"
        if likely == "s":
            remedy += ", or rtt_unit: ms if it is right"
        elif likely not in ("ms", *get_args(RateUnit)):
            remedy = f"convert the column to {'ms' if is_rtt else 'mbps'}"
        raise table.wrong(f"{shorten(column)}: {what}", column, remedy)
    # Differences first: a float holds a Unix time to a quarter of a microsecond.
    time_s = (times - times[np.argmin(np.isnan(values))]) * SECONDS_PER[time_unit]
    return kind.of_samples(name or path.stem, table.kind, table.source, time_s, values, table.lost)


def series_text(
    series: Series,
    *,
    notes: Mapping[str, Any] | None = None,
    decimals: int | None = None,
    lost: NDArray[np.bool_] | None = None,
) -> str:
    """Return the text of a series file; `notes` become `# key: value` lines, `decimals` round the values.

    The cells of `lost` samples, shape (samples,), stay empty. The header counts all lost samples.
    """
    values = series.value * 1e3 if isinstance(series, RttSeries) else series.value / 1e6
    values = values if decimals is None else np.round(values, decimals)
    marked = np.zeros(len(values), dtype=bool) if lost is None else lost
    header = {"kind": series.kind, "source": series.source, "lost": str(series.lost), **(notes or {})}
    rows = zip(series.time_s.tolist(), values.tolist(), marked.tolist(), strict=True)
    lines = [f"{time_s!r},\n" if was_lost else f"{time_s!r},{number!r}\n" for time_s, number, was_lost in rows]
    head = [f"# {key}: {shorten(text, _LONGEST_NOTE)}\n" for key, text in header.items()]
    mark = f"# simnmt {series.quantity.lower()} series, version 1\n"
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
