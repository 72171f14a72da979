"""What a paper prints, read from `papers/data/<paper>.toml`: its tables, single figures, setting and slips.

Example:
    >>> paper = read_paper("sharp")
    >>> paper["speed_up"], paper.table("table-1")["merge", "words_per_s"]
    (4.4, 418)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from simnmt.base.configuration import Configuration, describe_validation_error
from simnmt.base.errors import InputError
from simnmt.report.table import Column, Table, read_value

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).resolve().parent.parent / "data"
ABSENT = "-"
"""A cell that the paper leaves empty; None in the row."""

Cell = str | bool | int | float
Row = Mapping[str, Any]


class PrintedColumn(Configuration):
    """A column of a printed table."""

    name: str
    head: str = ""
    """Head on page and terminal; a column without one is not shown."""
    digits: int | None = None
    beside: str = ""
    """Its JSON key where it stands beside ours; empty: `published_` and the name."""

    @property
    def key(self) -> str:
        """The JSON key beside our figures."""
        return self.beside or f"published_{self.name}"


class PrintedTable(Configuration):
    """A table of a paper, row by row as printed; its first columns name the row."""

    id: str
    title: str = ""
    note: str = ""
    columns: tuple[PrintedColumn, ...]
    cells: tuple[tuple[Cell, ...], ...] = Field(alias="rows")

    @cached_property
    def rows(self) -> list[Row]:
        """The rows by column."""
        names = [column.name for column in self.columns]
        return [
            {name: None if cell == ABSENT else cell for name, cell in zip(names, cells, strict=True)} for cells in self.cells
        ]

    def row(self, *names: Any) -> Row:
        """Return the row with these values in its first columns; an empty one if there is none."""
        return next((row for row in self.rows if [*row.values()][: len(names)] == [*names]), {})

    def __getitem__(self, place: tuple[Any, ...]) -> Any:
        """Return a cell by the values of the row's first columns and the name of a column."""
        *names, column = place
        return self.row(*names)[column]

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows]

    def beside(self, *names: Any) -> dict[str, Any]:
        """Return the shown cells of a row by the keys that they have in rows of ours; None if there is no such row."""
        return {column.key: self.row(*names).get(column.name) for column in self.columns if column.head}

    @property
    def columns_beside(self) -> list[Column]:
        """The shown columns, for a table of rows of ours that hold `beside`."""
        return [Column(column.head, column.key, column.digits) for column in self.columns if column.head]

    def shown(self) -> Table:
        """Return the table by itself, marked as published."""
        columns = [Column(column.head, column.name, column.digits) for column in self.columns if column.head]
        return Table(self.title, columns, self.rows, self.note, id=self.id, published=lambda row: True)


class ShownTable(Configuration):
    """The layout of a table of ours; the rows are the code's."""

    title: str
    note: str = ""
    small: str | None = None
    """Key of the small print below a row's name."""
    published: str | None = None
    """Key of the rows that is `published` in those of the paper, which are set apart; `all` if all rows are."""
    columns: tuple[dict[str, Any] | Literal["published"], ...]
    """Each the fields of `report.table.Column`, whose readers are keys of the rows; `published`: the shown columns of the
    printed table of the same id, if rows of ours hold `PrintedTable.beside`."""


class Unmeasured(Configuration):
    """A claim that nothing here can decide, and the reason."""

    id: str
    claim: str
    published: str = "so in the text"
    why: str


class ClaimWords(NamedTuple):
    """The words of a claim, a list of two to four texts in the file."""

    claim: str
    published: str
    """The printed result."""
    why: str = ""
    """The reason of our verdict, with `{name}` for a value that the code gives (`Result.facts`)."""
    ours: str = ""
    """The same for our figures."""


class Paper(Configuration):
    """What a paper prints, and the words that frame its reproduction."""

    heading: str
    reference: str
    summary: tuple[str, ...]
    """The paper's claims and our results, in two to four plain sentences."""
    main_claims: tuple[str, ...]
    """Ids of the three to six claims that carry the paper."""
    main_figures: tuple[str, ...] = ()
    """Ids of the figures that a reader should see first."""
    terminal: tuple[str, ...] = ()
    """Ids of the tables that the terminal shows, too."""
    setting_title: str = "The paper's setting"
    setting: dict[str, str]
    slips: tuple[str, ...]
    """Contradictions within the paper, one sentence each."""
    matrix_note: str = ""
    """Text above the verdicts by device."""
    notes: tuple[str, ...] = ()
    """Origins and limits of our numbers, one sentence each; `{name}` stands for a value of the run."""
    values: dict[str, int | float | list[float] | dict[str, Any]] = Field(default_factory=dict)
    """Single printed figures, and a few of them together."""
    names: dict[str, str] = Field(default_factory=dict)
    """Single printed words."""
    tables: dict[str, PrintedTable] = Field(default_factory=dict)
    shown: dict[str, ShownTable] = Field(default_factory=dict)
    """Tables of ours, by id."""
    claims: dict[str, ClaimWords] = Field(default_factory=dict)
    """By identifier: the requirement and a letter."""
    unmeasured: tuple[Unmeasured, ...] = ()

    def __getitem__(self, name: str) -> Any:
        """Return a single printed figure or word."""
        return self.names.get(name) or self.values[name]

    def table(self, name: str) -> PrintedTable:
        return self.tables[name]

    def shown_table(self, name: str, rows: Sequence[Any], /, *more: Column, **readers: Callable[[Any], Any]) -> Table:
        """Return a table of ours by its id, with these rows.

        `more`: further columns. `readers`: functions of a row, by the names that columns use in place of a key.
        """
        layout = self.shown[name]
        columns: list[Column] = []
        for column in layout.columns:
            if isinstance(column, str):
                columns += self.tables[name].columns_beside
            else:
                texts = {field: readers.get(column[field], column[field]) for field in ("value", "small") if field in column}
                columns.append(Column(**(column | texts)))

        def is_published(row: Any) -> bool:
            key = layout.published
            return key == "all" or (key is not None and read_value(row, key) == "published")

        small = readers.get(layout.small, layout.small) if layout.small else None
        return Table(layout.title, [*columns, *more], rows, layout.note, id=name, small=small, published=is_published)


@cache
def read_paper(name: str, folder: Path = FOLDER) -> Paper:
    """Read what a paper prints. Raises `InputError` with the file and the key of a fault."""
    path = folder / f"{name}.toml"
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    for key, table in content.get("tables", {}).items():
        table["id"] = key
    try:
        return Paper.model_validate_json(json.dumps(content))
    except ValidationError as error:
        raise InputError(describe_validation_error(error), path=path) from None
