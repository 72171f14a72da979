"""Results as text for a terminal; milliseconds and percent, because a person reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simnmt.results.result import RunResult


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> str:
    """Columns under their heads: the first `texts` to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(width) if at < texts else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (header, ["-" * width for width in widths], *rows)
    )
    return "\n".join(line.rstrip() for line in lines)


def run_tables(result: RunResult) -> str:
    """The rows, and under them the verdicts."""
    named = {row["baseline"] for row in result.comparisons}
    baselines = [name for name in dict.fromkeys(row["policy"] for row in result.rows) if name in named]
    header = ["workload", "network", "policy", "total s", "mean ms", "p50 ms", "p95 ms", "p99 ms", "offloaded %", "misrouted %"]
    header += [f"vs {name} %" for name in baselines]
    changes = {(row["workload"], row["network"], row["policy"], row["baseline"]): row for row in result.comparisons}
    rows = []
    for row in result.rows:
        key = (row["workload"], row["network"], row["policy"])
        cells = [
            *key,
            f"{row['total_latency_s']:,.1f}",
            *(f"{1e3 * row[f'{name}_latency_s']:.1f}" for name in ("mean", "p50", "p95", "p99")),
        ]
        cells += [f"{100 * row['offloaded_share']:.1f}", f"{100 * row['misrouted_share']:.1f}"]
        rows.append(cells + [_change(changes.get((*key, name))) for name in baselines])
    one = result.rows[0]
    repeats = "one replication" if one["replications"] == 1 else f"means of {one['replications']} replications"
    lines = [f"{result.name}: {one['requests']:,} requests each, {repeats}", "", aligned(header, rows, 3), ""]
    if any(row["verdict"] == "not distinguishable" for row in result.comparisons):
        lines += ["~ not distinguishable: the 95 % interval of the paired difference contains 0", ""]
    lines += [row["sentence"] for row in result.verdicts]
    for table in result.tables:
        lines += ["", table.title, aligned(list(table.columns), [list(row) for row in table.rows], 3)]
    return "\n".join(lines)


def _change(comparison: dict[str, Any] | None) -> str:
    if comparison is None:
        return "-"
    mark = "~" if comparison["verdict"] == "not distinguishable" else ""
    return f"{mark}{comparison['change_percent']:+.2f}"
