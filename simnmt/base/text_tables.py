"""Tables and facts as aligned lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Return a table with a line of dashes below its heads; the first `texts` columns are aligned left, the others right.

    Example:
        >>> print(format_table(["policy", "mean, ms"], [["edge", "210"], ["cloud", "95"]]))
        policy  mean, ms
        ------  --------
        edge         210
        cloud         95
    """
    body = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *body, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(width) if at < texts else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (header, ["-" * width for width in widths], *body)
    )
    return "\n".join(line.rstrip() for line in lines)


def format_pairs(pairs: Sequence[tuple[str, str]], indent: str = "") -> str:
    """Return a line for each pair of name and value, at least one, with aligned values."""
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{indent}{name.ljust(width)}  {value}" for name, value in pairs)
