"""What every reproduction tells a terminal in the same way: tables, and a line per claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simnmt.reproduce.verdicts import counted


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table: the first column to the left, the others to the right."""
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if at == 0 else text.rjust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    )


def claim_lines(records: Sequence[Mapping[str, Any]]) -> str:
    """A line per claim, and how many hold."""
    lines = [
        f"{str(each['verdict']).capitalize()}: {each['id']}. {each['claim']} ({each['ours'] or each['why']})."
        for each in records
    ]
    return "\n".join([*lines, f"{counted(records)}."])
