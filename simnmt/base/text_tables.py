"""Tables and facts as aligned lines: as wide as they need to be in a file or pipe, fitted to the width of a terminal."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Container, Iterable, Sequence

from simnmt.base.errors import shorten

_GAP = 2
"""Spaces between two columns."""


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1, *, bold: Container[int] = ()) -> str:
    """Return a table with a line of dashes below its heads; the first `texts` columns are aligned left, the others right.

    On a terminal, cells wrap at spaces where the table would be too wide. Words and numbers are never cut.

    Args:
        header: the heads of the columns.
        rows: the cells of each row.
        texts: number of columns that hold texts.
        bold: numbers of the rows, from 0, that a terminal shows in bold.

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
    width = shutil.get_terminal_size().columns if on_terminal else sys.maxsize
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
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def shorten_on_terminal(text: str, most: int) -> str:
    """Return a cell on one line; on a terminal of at most `most` characters, as a file or pipe has room for all."""
    return shorten(text, most if sys.stdout.isatty() else len(text))


def format_pairs(pairs: Sequence[tuple[str, str]], indent: str = "") -> str:
    """Return a line for each pair of name and value, at least one, with aligned values."""
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{indent}{name.ljust(width)}  {value}" for name, value in pairs)
