"""Tables and facts as aligned lines: as wide as they need to be in a file or pipe, fitted to the width of a terminal."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Container, Iterable, Iterator, Sequence

from simnmt.base.errors import shorten

_GAP = 2
"""Spaces between two columns."""


def format_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    texts: int = 1,
    *,
    bold: Container[int] = (),
    indent: str = "",
    width: int | None = None,
) -> str:
    """Return a table with a line of dashes below its heads; the first `texts` columns are aligned left, the others right.

    On a terminal, cells wrap at spaces where the table would be too wide; if that does not suffice, the columns that are left
    follow below, beside the text columns again, or beside as many of them as leave room. Numbers are never cut.

    Args:
        header: the heads of the columns.
        rows: the cells of each row.
        texts: number of columns that hold texts.
        bold: numbers of the rows, from 0, that a terminal shows in bold.
        indent: spaces before each line.
        width: characters of a line; None: those of the terminal on standard output, without a limit elsewhere.

    Example:
        >>> print(format_table(["policy", "mean, ms"], [["edge", "210"], ["cloud", "95"]]))
        policy  mean, ms
        ------  --------
        edge         210
        cloud         95
    """
    from rich.cells import cell_len

    lines = [list(header), *map(list, rows)]
    natural = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    # A number's unit may stand on a line of its own, but no word is broken.
    least = [max(cell_len(word) for cell in column for word in cell.split(" ")) for column in zip(*lines, strict=True)]
    if width is None and (width := _terminal_width()) is not None:
        width -= len(indent)
    blocks = [
        _render([[line[at] for at in columns] for line in lines], widths, sum(at < texts for at in columns), bold)
        for columns, widths in _blocks(natural, least, texts, width)
    ]
    return "\n\n".join("\n".join(f"{indent}{line}" for line in block.split("\n")) for block in blocks)


def shorten_on_terminal(text: str, most: int) -> str:
    """Return a cell on one line; on a terminal of at most `most` characters, as a file or pipe has room for all."""
    return shorten(text, most if sys.stdout.isatty() else len(text))


def _terminal_width() -> int | None:
    """Return the columns of the terminal on standard output, COLUMNS first; None if it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _styled() -> bool:
    """Return whether standard output shows bold text."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _blocks(
    natural: Sequence[int], least: Sequence[int], texts: int, width: int | None
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the columns of each part of a table and their widths; one part if the table fits."""
    columns = list(range(len(natural)))
    if width is None or _total(natural) <= width:
        yield columns, list(natural)
        return
    repeated = columns[:texts]
    # Text columns that leave no room for any other one are not repeated beside each part.
    while len(repeated) > 1 and any(
        _total([least[at] for at in [*repeated, other]]) > width for other in columns[len(repeated) :]
    ):
        repeated = repeated[:-1]
    block = repeated
    for at in columns[len(repeated) :]:
        if len(block) > len(repeated) and _total([least[column] for column in [*block, at]]) > width:
            yield block, _narrowed(block, natural, least, width)
            block = repeated
        block = [*block, at]
    yield block, _narrowed(block, natural, least, width)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _narrowed(block: Sequence[int], natural: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Return the widths of the columns of a part, the widest made narrower until the part fits or no column can wrap."""
    widths = {column: natural[column] for column in block}
    while _total(list(widths.values())) > width:
        wrapping = [column for column in block if widths[column] > least[column]]
        if not wrapping:
            break
        widths[max(wrapping, key=widths.__getitem__)] -= 1
    return list(widths.values())


def _render(lines: Sequence[Sequence[str]], widths: Sequence[int], texts: int, bold: Container[int]) -> str:
    """Return heads and rows as aligned lines in columns of these widths."""
    from rich.align import Align, AlignMethod
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, _GAP, 0, 0), pad_edge=False)
    sides: list[AlignMethod] = ["left" if at < texts else "right" for at in range(len(widths))]
    for width, side in zip(widths, sides, strict=True):
        table.add_column(width=width, justify=side, overflow="fold")
    heads = (Text(head, justify=side) for head, side in zip(lines[0], sides, strict=True))
    table.add_row(*(Align(head, side, vertical="bottom") for head, side in zip(heads, sides, strict=True)))
    table.add_row(*("-" * width for width in widths))
    styled = _styled()
    for number, row in enumerate(lines[1:]):
        table.add_row(*map(Text, row), style="bold" if styled and number in bold else None)
    out = io.StringIO()
    console = Console(
        file=out, width=_total(widths) + _GAP, color_system="standard", force_terminal=styled, legacy_windows=False
    )
    console.print(table, crop=False)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def format_pairs(pairs: Sequence[tuple[str, str]], indent: str = "") -> str:
    """Return a line for each pair of name and value, at least one, with aligned values."""
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{indent}{name.ljust(width)}  {value}" for name, value in pairs)
