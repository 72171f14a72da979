"""Sections of a paper's page with one figure of lines: made of a table's rows, set before the table of their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Rows = Sequence[Row]


def line(name: str, rows: Rows, x: str, value: Callable[[Row], float]) -> dict[str, Any]:
    """A line through the rows in the order of their key `x`, at `value` of each."""
    own = sorted(rows, key=lambda row: row[x])
    return {"name": name, "x": [round(row[x], 6) for row in own], "y": [value(row) for row in own]}


def grouped(rows: Iterable[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows that are alike in `keys`, in the order in which they come."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def named(rows: Rows, whole: str, part: str) -> list[tuple[str, Rows]]:
    """Rows of each part of each whole, which is named as well where there are several."""
    several = len({row[whole] for row in rows}) > 1
    return [(f"{first}, {second}" if several else second, own) for (first, second), own in grouped(rows, whole, part).items()]


def section(
    identifier: str,
    title: str,
    note: str,
    choices: Sequence[tuple[str, Row]],
    heading: str,
    *,
    before: str = "",
    shown: int = 0,
) -> dict[str, Any]:
    """A figure of lines, with a choice where there are several contents, `shown` at first.

    It stands before the table that is named like it without `-drawn`, or `before` another one.
    """
    figure = {
        "name": "lines",
        "heading": heading,
        "choices": [(place, name) for place, (name, _) in enumerate(choices)] if len(choices) > 1 else [],
        "shown": shown,
        "says": f"{title}: {heading}, one line each",
    }
    return {
        "id": identifier,
        "title": title,
        "note": note,
        "content": {"of": [own for _, own in choices]},
        "figures": [figure],
        "before": before or identifier.removesuffix("-drawn"),
    }
