"""The table of a run as text: what stands in which cell, in which unit, with how many digits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

Row = Mapping[str, Any]

ROLES = {"edge": "gateway only", "cloud": "cloud only", "oracle": "knows the truth"}
"""What the shipped policy names mean to somebody who meets them here first."""

BASELINES = ("edge", "cloud", "oracle")
"""The order in which changes are shown; others follow as they come."""

MINUS, THIN, DASH = "\u2212", "\u202f", "\u2013"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of figures: where it comes from and how it is shown."""

    key: str
    """Key of the row it shows."""
    group: str
    """What the column belongs to, with its unit: the upper line of the header."""
    head: str
    """The lower line of the header."""
    factor: float = 1.0
    """What the value is multiplied by before it is shown: 1000 for milliseconds."""
    plain: bool = False
    """Shown without its interval: the mean's is the total's, divided by the requests."""


COLUMNS = (
    Column("total_latency_s", "total time, s", "sum"),
    Column("mean_latency_s", "latency of a request, ms", "mean", 1e3, plain=True),
    Column("p50_latency_s", "latency of a request, ms", "p50", 1e3),
    Column("p95_latency_s", "latency of a request, ms", "p95", 1e3),
    Column("p99_latency_s", "latency of a request, ms", "p99", 1e3),
    Column("offloaded_share", "requests, %", "offloaded", 100.0),
    Column("misrouted_share", "requests, %", "misrouted", 100.0),
)
QUEUE = Column("mean_queue_s", "latency of a request, ms", "of it waiting", 1e3)
"""Shown only where some policy's requests waited."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One cell of the table."""

    key: str
    value: float | None
    """The unrounded number in the row's own unit, for whoever reads the page with a program."""
    text: str
    interval: str = ""
    verdict: str = ""
    """For a change: faster, slower, not distinguishable or one replication."""


@dataclass(frozen=True, slots=True)
class Line:
    """One policy in one cell of the scenario."""

    policy: str
    role: str
    colour: int
    """Index of the policy's colour, the same on the whole page."""
    bar_percent: float
    """Mean latency as a share of the slowest policy's beside it."""
    figures: list[Figure]
    changes: list[Figure]
    """One per baseline."""


@dataclass(frozen=True, slots=True)
class Table:
    """All lines, grouped by (workload, network), and the header over them."""

    columns: list[Column]
    groups: list[tuple[str, int]]
    """Upper header: text and how many columns it spans."""
    baselines: list[tuple[str, str]]
    """Policy name and what the header calls it."""
    lines: dict[tuple[str, str], list[Line]]
    unclear: bool
    """Whether some difference cannot be told from none."""
    bare: bool
    """Whether nothing has an interval, as after one replication."""


def table(rows: Sequence[Row], comparisons: Sequence[Row], colours: Mapping[str, int]) -> Table:
    """The table of a run; lines stand in the order of `rows`, the paper's baselines first."""
    columns = [*COLUMNS]
    if any(is_number(row.get(QUEUE.key)) and row[QUEUE.key] > 0 for row in rows):
        columns.insert(columns.index(COLUMNS[4]) + 1, QUEUE)
    decimals = {column.key: _decimals([row.get(column.key) for row in rows], column) for column in columns}
    present = dict.fromkeys(comparison["baseline"] for comparison in comparisons)
    baselines = sorted(present, key=lambda name: BASELINES.index(name) if name in BASELINES else len(BASELINES))
    change = {(c["workload"], c["network"], c["policy"], c["baseline"]): c for c in comparisons}
    slowest: dict[tuple[str, str], float] = {}
    for row in rows:
        mean_s = row.get("mean_latency_s")
        slowest[cell_of(row)] = max(slowest.get(cell_of(row), 0.0), mean_s if is_number(mean_s) else 0.0)
    lines: dict[tuple[str, str], list[Line]] = {}
    for row in rows:
        policy, most = row["policy"], slowest[cell_of(row)]
        mean_s = row.get("mean_latency_s")
        line = Line(
            policy=policy,
            role=ROLES.get(policy, ""),
            colour=colours[policy],
            bar_percent=round(100 * mean_s / most, 1) if is_number(mean_s) and most > 0 else 0.0,
            figures=[_figure(row, column, decimals[column.key]) for column in columns],
            changes=[_change(change.get((*cell_of(row), policy, baseline)), baseline) for baseline in baselines],
        )
        lines.setdefault(cell_of(row), []).append(line)
    return Table(
        columns,
        _spans(columns),
        [(baseline, ROLES[baseline] if baseline in ("edge", "cloud") else baseline) for baseline in baselines],
        lines,
        unclear=any(comparison["verdict"] == "not distinguishable" for comparison in comparisons),
        bare=not any(is_number(comparison.get("low_percent")) for comparison in comparisons),
    )


def cell_of(row: Row) -> tuple[str, str]:
    """The cell of the scenario a row belongs to."""
    return row["workload"], row["network"]


def is_number(value: object) -> TypeGuard[float]:
    """Whether there is a finite number to show."""
    return isinstance(value, (int, float)) and math.isfinite(value)


def number(value: float, decimals: int) -> str:
    """Fixed decimals, thousands set apart, a true minus sign; never a negative zero."""
    text = f"{value:,.{decimals}f}".replace(",", THIN)
    return MINUS + text[1:] if text.startswith("-") and text.strip("-0." + THIN) else text.lstrip("-")


def signed(value: float, decimals: int = 2) -> str:
    """Like `number`, with a plus sign where it is positive."""
    text = number(value, decimals)
    return text if text.startswith(MINUS) or not text.strip("0." + THIN) else f"+{text}"


def _figure(row: Row, column: Column, decimals: int) -> Figure:
    value = row.get(column.key)
    if not is_number(value):
        return Figure(column.key, None, DASH)
    low, high = row.get(f"{column.key}_low"), row.get(f"{column.key}_high")
    interval = ""
    if not column.plain and is_number(low) and is_number(high):
        interval = f"[{number(low * column.factor, decimals)}, {number(high * column.factor, decimals)}]"
    return Figure(column.key, value, number(value * column.factor, decimals), interval)


def _change(comparison: Row | None, baseline: str) -> Figure:
    key = f"change_vs_{baseline}"
    if comparison is None or not is_number(comparison["change_percent"]):
        return Figure(key, None, DASH)
    interval = ""
    if is_number(comparison["low_percent"]) and is_number(comparison["high_percent"]):
        interval = f"[{signed(comparison['low_percent'])}, {signed(comparison['high_percent'])}]"
    percent = comparison["change_percent"]
    return Figure(key, percent, signed(percent), interval, comparison["verdict"])


def _decimals(values: Iterable[object], column: Column) -> int:
    """So many that the least value of a column shows three digits, at most three; shares always show two."""
    if column.factor == 100.0:
        return 2
    sizes = [abs(value) * column.factor for value in values if is_number(value)]
    least = min((size for size in sizes if size > 0), default=1.0)
    return min(max(2 - math.floor(math.log10(least)), 0), 3)


def _spans(columns: Sequence[Column]) -> list[tuple[str, int]]:
    spans: list[tuple[str, int]] = []
    for column in columns:
        if spans and spans[-1][0] == column.group:
            spans[-1] = (column.group, spans[-1][1] + 1)
        else:
            spans.append((column.group, 1))
    return spans
