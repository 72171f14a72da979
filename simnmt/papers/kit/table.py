"""Tables of a reproduction: rows and columns are declared once, and rendered as JSON, for a terminal and for the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from simnmt.base.text_tables import format_table
from simnmt.papers.kit.page import Figure, Line, Row, table
from simnmt.report.typography import DASH, number, significant

Value = float | str | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table, on the terminal and on the page.

    Example:
        >>> Column("share, %", "share", digits=1, scale=100).terminal_text({"share": 0.256})
        '25.6'
    """

    head: str
    value: str | Callable[[Row], Value]
    """A key of the row, or a function of the row; a value of None is an empty cell."""
    digits: int | None = None
    """Decimals of a number; None: `significant` digits."""
    significant: int = 4
    scale: float = 1.0
    """Multiplies a number before it is shown; a text stands as it is."""
    small: Callable[[Row], str] | None = None
    """Small print below the value, on the page alone."""
    cell: Callable[[Row], Figure] | None = None
    """The page's cell, where value and small print do not suffice."""
    on_terminal: bool = True

    def page_cell(self, row: Row) -> Figure:
        """Return the cell of the page."""
        if self.cell is not None:
            return self.cell(row)
        value = self._value(row)
        if value is None or isinstance(value, str):
            text = value or DASH
        else:
            text = significant(value, self.significant) if self.digits is None else number(value, self.digits)
        return Figure(text, "" if self.small is None else self.small(row))

    def terminal_text(self, row: Row) -> str:
        """Return the cell of the terminal, in ASCII digits."""
        value = self._value(row)
        if value is None or isinstance(value, str):
            return value or ""
        return f"{value:.{self.significant}g}" if self.digits is None else f"{value:,.{self.digits}f}"

    def _value(self, row: Row) -> Value:
        value = row[self.value] if isinstance(self.value, str) else self.value(row)
        return value if value is None or isinstance(value, str) else value * self.scale


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a reproduction. The first column names the row; a table without columns is in the JSON document alone."""

    id: str
    title: str
    rows: Sequence[Row]
    columns: Sequence[Column] = ()
    note: str = ""
    small: str | None = None
    """Key of a text that stands small below the row's name, on the page."""
    published: bool = False
    """Every row is the paper's: the page sets it apart."""
    on_terminal: bool = False

    def record(self) -> dict[str, Any]:
        """Return what the JSON document holds."""
        return {"id": self.id, "title": self.title, "rows": list(self.rows)}

    def section(self) -> dict[str, Any]:
        """Return the section of the page."""
        name, *columns = self.columns
        lines = [
            Line(
                name.terminal_text(row),
                [column.page_cell(row) for column in columns],
                small="" if self.small is None else row[self.small],
                published=self.published,
            )
            for row in self.rows
        ]
        return table(self.id, self.title, self.note, [column.head for column in self.columns], lines)

    def text(self) -> str:
        """Return title and rows for a terminal."""
        columns = [column for column in self.columns if column.on_terminal]
        rows = [[column.terminal_text(row) for column in columns] for row in self.rows]
        return f"{self.title}\n{format_table([column.head for column in columns], rows)}"
