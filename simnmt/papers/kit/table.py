"""Tables of a reproduction: rows and columns are declared once, and rendered as JSON, for a terminal and for the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from simnmt.report import table as report_table
from simnmt.report.table import Column, read_value

SHOWN_DIGITS = 16
"""Digits of a SHA-256 sum that tables show; the JSON document has all 64."""


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
    def shown_table(self) -> report_table.Table:
        """The table of the terminal and the page."""
        return report_table.Table(
            self.title, self.columns, self.shown_rows, id=self.id, small=self.small, published=self._is_published
        )

    def _is_published(self, row: Any) -> bool:
        return self.published is True or read_value(row, self.published or None) == "published"

    def text(self) -> str:
        """Return title and rows for a terminal; the small print follows the row's name."""
        return self.shown_table.to_text()


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
