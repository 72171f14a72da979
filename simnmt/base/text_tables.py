"""Tables and facts as aligned lines: as wide as they need to be in a file or pipe, fitted to the width of a terminal."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Collection, Container, Iterable, Sequence

from simnmt.base.errors import shorten

_GAP = 2
"""Spaces between two columns."""


def format_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1, *, bold: Container[int] = (), indent: str = ""
) -> str:
    """Return a table with a line of dashes below its heads; the first `texts` columns are aligned left, the others right.

    On a terminal, cells wrap at spaces where the table would be too wide; if that does not suffice, the columns that are left
    follow below, beside the text columns again. Words and numbers are never cut.

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

    columns = list(zip(header, *rows, strict=True))
    width = shutil.get_terminal_size().columns - len(indent) if sys.stdout.isatty() else None
    widths = [max(map(cell_len, column)) for column in columns]
    least = [max(cell_len(word) for cell in column for word in cell.split(" ")) for column in columns]
    blocks = []
    for part in [range(len(columns))] if width is None else _parts(least, texts, width):
        fitted = {at: widths[at] for at in part}
        while width is not None and _total(fitted.values()) > width:
            widest = max(part, key=lambda at: fitted[at] if fitted[at] > least[at] else 0)
            if fitted[widest] == least[widest]:
                break
            fitted[widest] -= 1
        lines = _render([columns[at] for at in part], list(fitted.values()), sum(at < texts for at in part), bold)
        blocks.append("\n".join(f"{indent}{line}".rstrip() for line in lines))
    return "\n\n".join(blocks)


def _parts(least: Sequence[int], texts: int, width: int) -> list[list[int]]:
    """Return the columns of each part of a table, which begins with the text columns, or the first if they leave no room."""
    repeated = list(range(texts))
    if len(least) > texts and _total([*least[:texts], max(least[texts:])]) > width:
        repeated = [0]
    parts = [repeated]
    for at in range(len(repeated), len(least)):
        if len(parts[-1]) > len(repeated) and _total([*(least[column] for column in parts[-1]), least[at]]) > width:
            parts.append(repeated)
        parts[-1] = [*parts[-1], at]
    return parts


def _total(widths: Collection[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _render(columns: Sequence[Sequence[str]], widths: Sequence[int], texts: int, bold: Container[int]) -> list[str]:
    from rich.align import Align, AlignMethod
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    styled = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    table = Table(box=None, show_header=False, padding=(0, _GAP, 0, 0), pad_edge=False)
    sides: list[AlignMethod] = ["left" if at < texts else "right" for at in range(len(columns))]
    for side, width in zip(sides, widths, strict=True):
        table.add_column(justify=side, width=width)
    heads, *rows = zip(*columns, strict=True)
    table.add_row(*(Align(Text(head, justify=side), side, vertical="bottom") for head, side in zip(heads, sides, strict=True)))
    table.add_row(*("-" * width for width in widths))
    for number, row in enumerate(rows):
        table.add_row(*map(Text, row), style="bold" if styled and number in bold else None)
    out, width = io.StringIO(), _total(widths) + _GAP
    console = Console(file=out, width=width, color_system="standard", force_terminal=styled, legacy_windows=False)
    console.print(table, crop=False)
    return out.getvalue().splitlines()


def shorten_on_terminal(text: str, most: int) -> str:
    """Return a cell on one line; on a terminal of at most `most` characters, as a file or pipe has room for all."""
    return shorten(text, most if sys.stdout.isatty() else len(text))


def format_pairs(pairs: Sequence[tuple[str, str]], indent: str = "") -> str:
    """Return a line for each pair of name and value, at least one, with aligned values."""
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{indent}{name.ljust(width)}  {value}" for name, value in pairs)
