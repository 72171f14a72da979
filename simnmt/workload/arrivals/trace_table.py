"""CSV tables of arrivals: rows read one after another with their place known, times in seconds or as date-times."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from datetime import date

from simnmt.base.text_tables import CsvTable, parse_number
from simnmt.workload.errors import ArrivalsError
from simnmt.workload.text_lines import Lines

KINDS = ("measured", "synthetic", "unstated")
"""Values of `# kind:` in the header of a file."""
MAX_TIME_S = 1e11
"""Seconds since 1970 reach it in the year 5138; milliseconds did in 1973."""
_MAX_SHOWN = 40


class TraceLines(Lines[ArrivalsError, bytes]):
    """A single pass over the lines of a file of arrivals."""

    error = ArrivalsError
    content = "one row"

    def _decode(self, raw: bytes) -> bytes:
        return raw


class TraceTable(CsvTable):
    """A CSV file whose first row names its columns; commas, semicolons or tabs separate the cells.

    It may begin with `#` lines, of which `# kind: ...` and `# source: ...` are kept in `notes`. Raises `ArrivalsError` for a
    file without such a row, a row of another width, and a kind that is none of `KINDS`.
    """

    has_dates = False
    """Whether the times are date-times, not numbers; set by `row_clock`."""

    def __init__(self, lines: TraceLines, rows: Iterator[bytes], first: bytes, per_s: float = 1.0) -> None:
        """Read the header; `first`: the line that `rows` yielded last; `per_s`: ticks of numeric times in a second."""
        self.lines = lines
        self.per_s = per_s
        self.notes: dict[str, str] = {}
        self._rows = rows
        self._begin(self._header(first))

    def _header(self, text: bytes) -> str:
        while text.startswith(b"#") or not text.strip():
            key, colon, value = text.lstrip(b"# ").decode("utf-8", "replace").partition(":")
            if colon:
                self._note(key.strip().lower(), " ".join(value.split()))
            following = next(self._rows, None)
            if following is None:
                raise self.lines.fault("no rows", remedy="give column names, and one row below them for each time")
            text = following
        return text.decode("utf-8", "replace")

    def _note(self, key: str, value: str) -> None:
        if key == "kind" and (value := value.lower()) not in KINDS:
            what = f"kind {cell_text(value)} is none"
            raise self.lines.fault(what, remedy="write # kind: measured or synthetic, or leave it out")
        if key in ("kind", "source"):  # others could fill the memory
            self.notes.setdefault(key, value)

    def index(self, *wanted: str) -> int | None:
        """Return the position of the first of these columns that the table has, in any case; None if it has none."""
        folded = [name.lower() for name in self.names]
        for name in wanted:
            if name.lower() in folded:
                return folded.index(name.lower())
        return None

    def require(self, *wanted: str) -> int:
        """Return the position as `index` does, or raise `ArrivalsError`; call it before reading the first row."""
        position = self.index(*wanted)
        if position is None:
            raise self.missing_column(wanted[0])
        return position

    def __iter__(self) -> Iterator[list[str]]:
        """Yield the cells of every row that is not blank."""
        for text in self._rows:
            if self._read_row(text.decode("utf-8", "replace")):
                yield self.cells

    def number(self, index: int) -> float:
        """Return a cell of the current row as a finite number of at least 0."""
        cell = self.cells[index]
        number = parse_number(cell)
        if number is not None and 0.0 <= number < math.inf:
            return number
        raise self.wrong(f"{self.names[index]} is {cell_text(cell)}", index, "give a number, 0 or above, with a decimal point")

    def seconds(self, index: int) -> float:
        """Return a cell of the current row as a time in seconds."""
        time_s = self.number(index) / self.per_s
        if time_s > MAX_TIME_S:
            raise self.wrong(f"{self.names[index]} is {cell_text(self.cells[index])}", index, other_unit(time_s, "seconds"))
        return time_s

    def fault(self, what: str, *, column: int, remedy: str) -> ArrivalsError:
        """Return an error at a column of the current row."""
        return self.lines.fault(what, column=column, remedy=remedy)


def cell_text(cell: str) -> str:
    """Return a cell for a message, shortened."""
    text = ascii(cell.strip())
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 4] + "...'"


def other_unit(time: float, unit: str) -> str:
    """Return the remedy for a time that is too great for its unit."""
    for end, looks_like in ((1e14, "milliseconds"), (1e17, "microseconds"), (1e20, "nanoseconds")):
        if time < end:
            return f"give {unit}, these look like {looks_like}"
    return f"give {unit}: no epoch has so many"


Clock = Callable[[list[str]], float]
"""Function from the cells of a row to seconds."""

_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T]([01]\d|2[0-3]):([0-5]\d):([0-5]\d(?:\.\d*)?)(?:Z|([+-])(0\d|1[0-4]):?([0-5]\d))?", re.ASCII
)


def row_clock(table: TraceTable, time_at: int, first: list[str]) -> Clock:
    """Return the clock of the column `time_at`, chosen by the first row; it raises `ArrivalsError` for unreadable times."""
    if _MOMENT.match(first[time_at].strip(' "')):
        table.has_dates = True
        return _calendar(table, time_at)
    return lambda cells: table.seconds(time_at)


def _calendar(table: TraceTable, time_at: int) -> Clock:
    """Return a clock of the seconds since the day before the first: a float Unix time would lose tenths of microseconds."""
    days: dict[str, float] = {}
    eve = 0

    def seconds(cells: list[str]) -> float:
        nonlocal eve
        match = _MOMENT.fullmatch(cells[time_at].strip(' "'))
        if match is None:
            what = f"{table.names[time_at]} is {cell_text(cells[time_at])}, among date-times"
            raise table.wrong(what, time_at, "give all times as 2023-11-16 18:15:46.68, a zone as +02:00")
        day, hour, minute, second, sign, zone_hour, zone_minute = match.groups()
        if day not in days:
            try:
                ordinal = date.fromisoformat(day).toordinal()
            except ValueError:
                raise table.wrong(f"there is no day {day}", time_at, "correct the date") from None
            eve = eve or ordinal - 1
            days[day] = (ordinal - eve) * 86_400.0
        time_s = days[day] + int(hour) * 3600 + int(minute) * 60 + float(second)
        if sign:
            offset_s = int(zone_hour) * 3600 + int(zone_minute) * 60
            time_s += offset_s if sign == "-" else -offset_s
        return time_s

    return seconds
