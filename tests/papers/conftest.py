"""Synthetic rows for the tests of this folder."""

from __future__ import annotations

from typing import Any

import pytest

from simnmt.papers.cnmt.table_one import CELLS, implied_ratios

Rows = list[dict[str, Any]]
Totals = dict[tuple[str, str, str], list[float]]
"""Total latencies by replication: workload, network, policy."""


@pytest.fixture
def published_rows() -> Rows:
    """Return totals over the gateway's 1000 s as Table I implies them: the mean of both derivations."""
    rows = []
    for workload, network in CELLS:
        for policy, pair in {"edge": (1.0, 1.0), **implied_ratios((workload, network))}.items():
            rows.append(
                {
                    "workload": workload,
                    "network": network,
                    "policy": policy,
                    "total_latency_s": 1000 * sum(pair) / 2,
                    "offloaded_share": {"edge": 0.0, "cloud": 1.0}.get(policy, 0.4),
                }
            )
    return rows


def replications_of(rows: Rows, half_width: float = 0.1, cells: dict[tuple[str, str], float] | None = None) -> Totals:
    """Return five replications with these mean totals, in which only C-NMT's total varies, in another order in each cell.

    Args:
        rows: with the mean totals.
        half_width: of the 95 % interval of C-NMT's total, percent, about.
        cells: half widths of single cells (workload, network) in place of it.
    """
    steps = [-2.0, -1.0, 0.0, 1.0, 2.0]
    totals_s = {}
    order = {cell: number for number, cell in enumerate(dict.fromkeys((row["workload"], row["network"]) for row in rows))}
    for row in rows:
        cell = row["workload"], row["network"]
        turn = order[cell] % len(steps)
        share = (cells or {}).get(cell, half_width) / 100.0 / 1.963 if row["policy"] == "cnmt" else 0.0
        factors = [1.0 + share * step for step in steps[turn:] + steps[:turn]]
        totals_s[(*cell, row["policy"])] = [row["total_latency_s"] * factor for factor in factors]
    return totals_s


@pytest.fixture
def published_gaps(published_rows: Rows) -> Rows:
    """Return a gap analysis in which lengths cause most of each gap, as in the paper."""
    total_s = {(row["workload"], row["network"], row["policy"]): row["total_latency_s"] for row in published_rows}
    gaps = []
    for workload, network in {key[:2]: None for key in total_s}:
        whole = 100.0 * (total_s[workload, network, "oracle"] / total_s[workload, network, "cnmt"] - 1.0)
        changes = {"nothing": 0.0, "length regression": 0.7 * whole, "stale transfer time": 0.2 * whole, "everything": whole}
        gaps += [
            {"workload": workload, "network": network, "removed": removed, "change_percent": change}
            | {"low_percent": None, "high_percent": None}
            for removed, change in changes.items()
        ]
    return gaps
