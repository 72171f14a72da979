"""Tables of cells under a row of column names, separated by commas, semicolons or tabs; errors name the column."""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod

from simnmt.base.errors import InputError, shorten
from simnmt.base.suggestions import did_you_mean, format_list


class CsvTable(ABC):
    """Column names, and cells of the current row; a subclass in each room reads the lines and makes the errors."""

    names: list[str]
    cells: list[str]

    @abstractmethod
    def fault(self, what: str, *, column: int, remedy: str) -> InputError:
        """Return the room's error at a column of the current row."""

    def wrong(self, what: str, index: int, remedy: str) -> InputError:
        """Return the error about cell `index` of the current row."""
        return self.fault(what, column=1 + sum(len(cell) + 1 for cell in self.cells[:index]), remedy=remedy)

    def missing_column(self, name: str) -> InputError:
        """Return the error about a column that the first row does not name. Raises as `refuse_numbers`."""
        self.refuse_numbers(name)
        others = f"columns: {format_list(map(shorten, self.names), ',')}"
        return self.wrong(f"no column {shorten(name)}", 0, did_you_mean(name, self.names, others, shown=shorten))

    def refuse_numbers(self, columns: str) -> None:
        """Raise the room's error if the first row holds numbers where `columns` should be named."""
        if any(parse_number(name) is not None for name in self.names):
            raise self.wrong("the first row holds numbers, not column names", 0, f"name the columns above it, e.g. {columns}")

    def _begin(self, header: str) -> None:
        self._separator = max(",;\t", key=header.count)
        self.cells = self._split(header)
        self.names = [cell.strip() for cell in self.cells]

    def _read_row(self, line: str) -> bool:
        """Make a line the current row and return True, or False for a blank line. Raises the room's error for another width."""
        cells, width = self._split(line), len(self.names)
        if (width == 1 or len(cells) != width) and not line.strip():
            return False
        self.cells = cells
        if len(cells) != width:
            what = f"{len(cells)} cell{'s' * (len(cells) != 1)}, but the first row names {width} columns"
            raise self.wrong(what, 0, "complete the row or remove it")
        return True

    def _split(self, line: str) -> list[str]:
        if '"' not in line:
            return line.split(self._separator)
        try:
            return next(csv.reader([line], delimiter=self._separator))
        except csv.Error:
            return [line]


def parse_number(cell: str) -> float | None:
    """Return the number in a cell, NaN and infinities included; None for any other text."""
    try:
        # float() takes 1_000, which no measuring tool writes.
        return None if "_" in cell else float(cell)
    except ValueError:
        return None
