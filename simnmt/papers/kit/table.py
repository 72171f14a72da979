"""Tables of a reproduction: rows and columns are declared once, and rendered as JSON, for a terminal and for the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from simnmt.base.text_tables import format_table
from simnmt.report.typography import DASH, number, signed, significant

Value = float | str | None
"""Content of a cell; None and an empty text are an empty cell."""
SHOWN_DIGITS = 16
"""Digits of a SHA-256 sum that tables show; the JSON document has all 64."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One cell of a table on the page."""

    text: str
    small: str = ""
    """Small print below the text."""
    kind: str = ""
    """Instead of a text, a kind such as `measured`."""
    words: bool = False
    """Text, set to the left."""


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a table on the page."""

    name: str
    cells: Sequence[Figure | str]
    small: str = ""
    published: bool = False
    """Set apart from what is ours."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table, on the terminal and on the page.

    Example:
        >>> Column("share, %", "share", digits=1, scale=100).terminal_text({"share": 0.256})
        '25.6'
    """

    head: str
    value: str | Callable[[Any], Value]
    """An attribute of the row (a key if the row is a mapping), a path of them such as `gain.mean`, or a function of the row."""
    digits: int | None = None
    """Decimals of a number; None: `significant` digits."""
    significant: int = 4
    scale: float = 1.0
    """Multiplies a number before it is shown; a text stands as it is."""
    signed: bool = False
    """Show a plus sign; needs `digits`."""
    interval: tuple[str, str] | None = None
    """Attributes of the least and the greatest value, in square brackets below the value, on the page."""
    interval_on_terminal: bool = False
    """The terminal shows the interval too, behind the value."""
    small: str | Callable[[Any], str] | None = None
    """Small print below the value, on the page alone."""
    words: bool = False
    """Running text: the page sets it to the left."""
    kind: bool = False
    """The value is a kind such as `measured`, which the page shows as a badge."""
    cell: Callable[[Any], Figure] | None = None
    """The page's cell, where value and small print do not suffice."""
    on_terminal: bool = True

    def page_cell(self, row: Any) -> Figure:
        """Return the cell of the page."""
        if self.cell is not None:
            return self.cell(row)
        value = self._value(row)
        if self.kind and value:
            return Figure("", kind=str(value))
        small = read_value(row, self.small) or ""
        if ends := self._interval(row):
            small = f"[{self._page_text(ends[0])}, {self._page_text(ends[1])}]"
        return Figure(self._page_text(value), small, words=self.words)

    def terminal_text(self, row: Any) -> str:
        """Return the cell of the terminal, in ASCII digits."""
        value = self._value(row)
        if value is None or isinstance(value, str):
            return value or ""
        form = f"{'+' if self.signed else ''}" + (f".{self.significant}g" if self.digits is None else f",.{self.digits}f")
        ends = self._interval(row) if self.interval_on_terminal else None
        return format(value, form) + (f" [{format(ends[0], form)}, {format(ends[1], form)}]" if ends else "")

    def _interval(self, row: Any) -> tuple[float, float] | None:
        if self.interval is None:
            return None
        low, high = (read_value(row, end) for end in self.interval)
        return None if low is None or high is None else (self.scale * low, self.scale * high)

    def _value(self, row: Any) -> Value:
        value: Value = read_value(row, self.value)
        return value if value is None or isinstance(value, str) else value * self.scale

    def _page_text(self, value: Value) -> str:
        if value is None or isinstance(value, str):
            return value or DASH
        if self.digits is None:
            return significant(value, self.significant)
        return signed(value, self.digits) if self.signed else number(value, self.digits)


KIND = Column("kind", "kind", kind=True)
"""The kind of a row's numbers, such as `measured`."""


def percent(
    head: str, value: str, digits: int, *, signed: bool = False, small: str | Callable[[Any], str] | None = None
) -> Column:
    """Return a column of percentages of a share from 0 to 1."""
    return Column(head, value, digits, scale=100.0, signed=signed, small=small)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a reproduction. The first column names the row; a table without columns is in the JSON document alone."""

    id: str
    title: str
    rows: Sequence[Any]
    """Dataclass instances, whose fields are the JSON document's keys (or those of their method `record`), or mappings."""
    columns: Sequence[Column] = ()
    note: str = ""
    small: str | Callable[[Any], str] | None = None
    """Small print below the row's name, on the page."""
    published: bool | str = False
    """Rows of the paper, set apart on the page: all rows, or those whose attribute of this name is `published`."""
    on_terminal: bool = False
    in_document: bool = True
    """False: the JSON document has the rows under a key of its own."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the JSON document."""
    keys: str = ""
    """The rows' JSON keys, see `record`. Empty: all attributes."""
    shown: Sequence[Any] | None = None
    """Rows of the terminal and the page, if they differ from those of the JSON document: one for several of them."""

    def record(self) -> dict[str, Any]:
        """Return the table as the JSON document holds it."""
        return {"id": self.id, "title": self.title, "rows": self.records(), **self.more}

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as the JSON document holds them."""
        return [record(row, self.keys) if self.keys else row_record(row) for row in self.rows]

    @property
    def shown_rows(self) -> Sequence[Any]:
        """The rows of the terminal and the page."""
        return self.rows if self.shown is None else self.shown

    @property
    def heads(self) -> list[str]:
        """The heads of the columns."""
        return [column.head for column in self.columns]

    @property
    def lines(self) -> list[Line]:
        """The rows as the page shows them."""
        name, *columns = self.columns
        return [
            Line(
                name.terminal_text(row),
                [column.page_cell(row) for column in columns],
                small=read_value(row, self.small) or "",
                published=self.published is True or read_value(row, self.published or None) == "published",
            )
            for row in self.shown_rows
        ]

    def text(self) -> str:
        """Return title and rows for a terminal; the small print follows the row's name."""
        columns = [column for column in self.columns if column.on_terminal]
        rows = [[column.terminal_text(row) for column in columns] for row in self.shown_rows]
        for cells, row in zip(rows, self.shown_rows, strict=True):
            cells[0] += f", {small}" if (small := read_value(row, self.small)) else ""
        return f"{self.title}\n{format_table([column.head for column in columns], rows)}"


@dataclass(frozen=True, slots=True)
class Derived:
    """A figure that follows from printed ones."""

    what: str
    value: float
    unit: str
    meaning: str
    """The quantity that the figure is compared with, or its basis."""


def derived_table(rows: Sequence[Derived]) -> Table:
    """Return the table of figures that follow from printed ones."""
    columns = [Column("figure", "what"), Column("value", "value"), Column("unit", "unit")]
    columns.append(Column("beside it", "meaning", words=True))
    return Table("derived", "What follows from the printed figures", rows, columns, published=True)


def row_record(row: Any) -> dict[str, Any]:
    """Return the row's JSON: its method `record`, a mapping's items, or a dataclass's fields."""
    if isinstance(row, Mapping):
        return dict(row)
    return row.record() if hasattr(row, "record") else asdict(row)


def read_value(row: Any, value: str | Callable[[Any], Any] | None) -> Any:
    """Return an attribute or key of a row, a path of them (None if it leads through None), or a function of the row."""
    if value is None or callable(value):
        return None if value is None else value(row)
    for name in value.split("."):
        row = None if row is None else row[name] if isinstance(row, Mapping) else getattr(row, name)
    return row


def record(row: Any, keys: str) -> dict[str, Any]:
    """Return values of a row by key.

    Args:
        row: an object with attributes, or a mapping.
        keys: separated by spaces; `key=path` if the value is another attribute or lies deeper, `key=path*1e3` if it is scaled.

    Example:
        >>> record(complex(3, 4), "real mm=imag*1e3")
        {'real': 3.0, 'mm': 4000.0}
    """
    values = {}
    for entry in keys.split():
        key, _, path = entry.partition("=")
        path, _, scale = (path or key).partition("*")
        value = read_value(row, path)
        if scale and value is not None:
            value = float(scale) * value
        values[key] = list(value) if isinstance(value, tuple) else value
    return values
