"""RTT series as CSV: one reader for any file with a time and an RTT column, one writer.

A file may open with `#` lines. `# kind: measured|synthetic|constant|unstated`, `# source: ...` and `# lost: 3` are
understood, other comments are kept as notes; the writer adds `# simnmt rtt series, version 1`.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from simnmt.files import written_whole
from simnmt.names import nearest
from simnmt.network.errors import TraceError
from simnmt.network.rtt_series import Kind, RttSeries

VERSION = 1

PLAUSIBLE_MEDIAN_S = 10.0
"""A median RTT above this is a wrong unit, not a network."""

_SECONDS_PER = {"s": 1.0, "ms": 1e-3}
_MARK = re.compile(r"simnmt rtt series, version (\d+)")
_NO_TIME = 1e20


def read_rtt_csv(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    time_column: str = "time_s",
    rtt_column: str = "rtt_ms",
    time_unit: Literal["s", "ms"] = "s",
    rtt_unit: Literal["ms", "s"] = "ms",
) -> RttSeries:
    """Read a series whose first row names the columns; time 0 becomes the first sample that arrived.

    An empty or `nan` RTT is a lost sample: the value before it holds on, and it is counted; those before the
    first that arrived are counted and dropped. A file of one sample is a series of one value. Commas,
    semicolons or tabs separate the cells.

    Raises `TraceError` with line and column where the file says anything else.
    """
    rows = _Rows(Path(path))
    time_at, rtt_at = rows.index(time_column), rows.index(rtt_column)
    times: list[float] = []
    rtts: list[float] = []
    before = -math.inf
    lost = rows.lost
    for line, cells in rows:
        time = rows.number(line, cells, time_at)
        said = cells[time_at].strip()
        if not abs(time) < _NO_TIME:
            raise rows.wrong(f"{time_column} is {said}", line, time_at, "give every row a finite time")
        if time == before:
            raise rows.wrong(f"time {said} stands twice", line, time_at, "keep one row per time")
        if time < before:
            raise rows.wrong(f"time {said} is earlier than the row before", line, time_at, "sort the rows by time")
        before = time
        rtt = math.nan if not cells[rtt_at].strip() else rows.number(line, cells, rtt_at)
        if math.isnan(rtt):
            lost += 1
            if not rtts:
                continue
            rtt = rtts[-1]
        elif not 0.0 < rtt < math.inf:
            what = f"{rtt_column} is {cells[rtt_at].strip()}, but an RTT is positive and finite"
            raise rows.wrong(what, line, rtt_at, "leave the cell empty where a sample was lost")
        times.append(time)
        rtts.append(rtt)
    if not rtts:
        what = f"{rtt_column} is empty in every row" if lost else "no rows below the column names"
        raise TraceError(what, path=path, remedy="give at least one sample")
    time_s = (np.array(times) - times[0]) * _SECONDS_PER[time_unit]
    rtt_s = np.array(rtts) * _SECONDS_PER[rtt_unit]
    _check_unit(rtt_s, rtt_column, rtt_unit, path)
    source = rows.notes.get("source") or f"file {Path(path).name}"
    return RttSeries(name or Path(path).stem, rows.kind, source, time_s, rtt_s, lost)


def read_notes(path: str | os.PathLike[str]) -> dict[str, str]:
    """The `# key: value` lines at the top of a file, by key in lower case."""
    return dict(_Rows(Path(path)).notes)


def write_rtt_csv(
    path: str | os.PathLike[str],
    series: RttSeries,
    *,
    notes: Mapping[str, str] | None = None,
    decimals: int | None = None,
) -> None:
    """Write a series whole or not at all; `notes` become `# key: value` lines, `decimals` round milliseconds.

    Raises `TraceError` where the file cannot be written.
    """
    said = {"kind": series.kind, "source": series.source, "lost": str(series.lost), **(notes or {})}
    header = [f"# simnmt rtt series, version {VERSION}"]
    header += [f"# {key}: {' '.join(value.split())}" for key, value in said.items()]
    rtt_ms = series.rtt_s * 1e3 if decimals is None else np.round(series.rtt_s * 1e3, decimals)
    columns = zip(series.time_s.tolist(), rtt_ms.tolist(), strict=True)
    rows = [f"{time_s!r},{rtt!r}" for time_s, rtt in columns]
    try:
        with written_whole(path) as partial:
            partial.write_text("\n".join([*header, "time_s,rtt_ms", *rows]) + "\n", encoding="utf-8", newline="\n")
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise TraceError(what, path=path, remedy="choose another folder") from None


def _check_unit(rtt_s: NDArray[np.float64], column: str, unit: str, path: str | os.PathLike[str]) -> None:
    median_s = float(np.median(rtt_s))
    if median_s <= PLAUSIBLE_MEDIAN_S:
        return
    cause, remedy = "these look like milliseconds read as seconds", "set rtt_unit: ms"
    if unit == "ms":
        cause, remedy = "these look like microseconds read as milliseconds", "convert the column to ms"
    raise TraceError(f"the median of {column} would be {median_s:.4g} s; {cause}", path=path, remedy=remedy)


class _Rows:
    """The rows of a file with its notes and column names, and complaints that know line and column."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: dict[str, str] = {}
        self._lines = _text(path).split("\n")
        self._start = 0
        for line in self._lines:
            if line.strip() and not line.lstrip().startswith("#"):
                break
            self._start += 1
            self._note(line.strip().lstrip("#").strip())
        if self._start == len(self._lines):
            raise TraceError("empty file", path=path, remedy="give column names and one row per sample")
        header = self._lines[self._start].rstrip("\r")
        self._separator = max(",;\t", key=header.count)
        self.names = [cell.strip() for cell in self._cells(header)]
        self.kind: Kind = self._kind()
        self.lost = int(self.notes["lost"]) if self.notes.get("lost", "").isdecimal() else 0

    def _note(self, text: str) -> None:
        if (mark := _MARK.fullmatch(text)) and int(mark[1]) > VERSION:
            what = f"version {mark[1]} of the series format is newer than this simnmt knows ({VERSION})"
            raise TraceError(what, path=self.path, line=self._start, remedy="upgrade simnmt")
        key, colon, value = text.partition(":")
        if colon and key.strip().lower() not in self.notes:
            self.notes[key.strip().lower()] = value.strip()

    def _kind(self) -> Kind:
        said = self.notes.get("kind", "unstated")
        for kind in get_args(Kind):
            if said == kind:
                return kind  # type: ignore[no-any-return]
        what = f"kind {said!r} in the header is none of {', '.join(get_args(Kind))}"
        raise TraceError(what, path=self.path, remedy="correct the line # kind:")

    def _cells(self, line: str) -> list[str]:
        if '"' not in line:
            return line.split(self._separator)
        try:
            return next(csv.reader([line], delimiter=self._separator))
        except csv.Error:
            return [line]

    def index(self, column: str) -> int:
        """Where the column stands."""
        here = self._start + 1
        if self.names.count(column) > 1:
            raise self.wrong(f"two columns are named {column}", here, self.names.index(column), "rename one")
        if column in self.names:
            return self.names.index(column)
        if all(_is_number(name) for name in self.names):
            what = "the first row holds numbers, not column names"
            raise self.wrong(what, here, 0, f"name the columns above it: {column}, ...")
        near = nearest(column, self.names)
        hint = f"did you mean {near}?" if near else "columns: " + ", ".join(self.names[:8])
        raise self.wrong(f"no column {column}", here, 0, hint)

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        """Line number and cells of every row that is not blank."""
        width = len(self.names)
        for line, text in enumerate(self._lines[self._start + 1 :], self._start + 2):
            cells = self._cells(text.rstrip("\r"))
            if len(cells) != width:
                if not text.strip():
                    continue
                what = f"{len(cells)} cell{'s' * (len(cells) != 1)}, but the first row names {width} columns"
                raise self.wrong(what, line, 0, "complete the row or remove it")
            if width == 1 and not text.strip():
                continue
            yield line, cells

    def number(self, line: int, cells: list[str], index: int) -> float:
        """The cell as a number, NaN and infinities included."""
        cell = cells[index]
        try:
            # float() takes 1_000; no measuring tool writes that.
            if "_" not in cell:
                return float(cell)
        except ValueError:
            pass
        what = f"{self.names[index]} is {cell.strip()!r}, not a number"
        raise self.wrong(what, line, index, "write numbers with a decimal point")

    def wrong(self, what: str, line: int, index: int, remedy: str) -> TraceError:
        """The complaint about cell `index` of that line."""
        before = self._cells(self._lines[line - 1])[:index]
        column = 1 + sum(len(cell) + 1 for cell in before)
        return TraceError(what, path=self.path, line=line, column=column, remedy=remedy)


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no such name can exist"
        raise TraceError(f"cannot be read: {why}", path=path, remedy="check the path") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        what = f"byte 0x{raw[error.start]:02x} is not UTF-8 text"
        raise TraceError(what, path=path, line=line, column=column, remedy="save the file as UTF-8 CSV") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
