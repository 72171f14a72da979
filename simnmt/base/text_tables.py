"""Tables as text: aligned lines, fitted to the width of a terminal; and cells under a row of column names, read from a file."""

from __future__ import annotations

import csv
import io
import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Sequence

from simnmt.base.errors import InputError, shorten
from simnmt.base.suggestions import did_you_mean, format_list

_GAP = 2
"""Spaces between two columns."""


def format_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1, *, bold: Container[int] = (), indent: str = ""
) -> str:
    """Return a table with a line of dashes below its heads; the first `texts` columns are aligned left, the others right.

    On a terminal, cells wrap at spaces where the table would be too wide. Words and numbers are never cut.

    Args:
        header: the heads of the columns.
        rows: the cells of each row.
        texts: number of columns that hold texts.
        bold: numbers of the rows, from 0, that a terminal shows in bold.
        indent: spaces before each line.

    Example:
        >>> print(format_table(["policy", "mean, ms"], [["edge", "210"], ["cloud", "95"]]))
        policy  mean, ms
        ------  --------
        edge         210
        cloud         95
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.rule import Rule
    from rich.table import Table
    from rich.text import Text

    on_terminal = sys.stdout.isatty()
    styled = on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    table = Table(box=None, show_header=False, padding=(0, _GAP, 0, 0), pad_edge=False)
    width = shutil.get_terminal_size().columns - len(indent) if on_terminal else sys.maxsize
    least, full = -_GAP, -_GAP
    rows = list(rows)
    for at, cells in enumerate(zip(header, *rows, strict=True)):
        longest_word = max(cell_len(word) for cell in cells for word in cell.split(" "))
        table.add_column(justify="left" if at < texts else "right", min_width=longest_word)
        least, full = least + longest_word + _GAP, full + max(map(cell_len, cells)) + _GAP
    table.add_row(*map(Text, header))
    table.add_row(*(Rule(characters="-", style="") for _ in header))
    for number, row in enumerate(rows):
        table.add_row(*map(Text, row), style="bold" if styled and number in bold else None)
    out = io.StringIO()
    # A blank column more, since the last one is padded too.
    fitted = max(least, min(full, width)) + _GAP
    console = Console(file=out, width=fitted, color_system="standard", force_terminal=styled, legacy_windows=False)
    console.print(table, crop=False)
    return "\n".join(f"{indent}{line}".rstrip() for line in out.getvalue().splitlines())


def shorten_on_terminal(text: str, most: int) -> str:
    """Return a cell on one line; on a terminal of at most `most` characters, as a file or pipe has room for all."""
    return shorten(text, most if sys.stdout.isatty() else len(text))


def format_pairs(pairs: Sequence[tuple[str, str]], indent: str = "") -> str:
    """Return a line for each pair of name and value, at least one, with aligned values."""
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{indent}{name.ljust(width)}  {value}" for name, value in pairs)


class CsvTable(ABC):
    """Column names, and cells of the current row, separated by commas, semicolons or tabs; errors name the column.

    A subclass in each room reads the lines and makes the errors.
    """

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
