"""Table I from a run of ours, beside the published one (CNMT-15). `simnmt run` loads it, so it imports no scipy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simnmt.base.text_tables import format_records
from simnmt.papers.cnmt import published


def total_times(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], float]:
    """(workload, network, policy) -> total time in seconds, for those rows of a run that Table I knows."""
    policies = (*published.BASELINES, *published.POLICIES)
    return {
        (row["workload"], row["network"], row["policy"]): float(row["total_latency_s"])
        for row in rows
        if row["workload"] in published.WORKLOADS and row["network"] in published.NETWORKS and row["policy"] in policies
    }


def compare(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The cells of Table I, in its order: published and ours in per cent, their difference in points.

    `rows`: a run's rows (`RunResult.rows`). Cells whose policy or baseline the run lacks are left out, so a
    run of DE-EN alone gives 12 of the 36; an empty list means that the run has nothing to do with Table I.
    """
    total_s = total_times(rows)
    cells = []
    for workload, policy in published.TABLE_ONE:
        for network in published.NETWORKS:
            for baseline in published.BASELINES:
                policy_s, baseline_s = (
                    total_s.get((workload, network, policy)),
                    total_s.get((workload, network, baseline)),
                )
                if policy_s is None or not baseline_s:
                    continue
                theirs = published.variation_percent(workload, network, policy, baseline)
                ours = 100 * (policy_s / baseline_s - 1)
                cells.append(
                    {
                        "workload": workload,
                        "policy": policy,
                        "network": network,
                        "baseline": baseline,
                        "published_percent": theirs,
                        "ours_percent": ours,
                        "difference_points": ours - theirs,
                    }
                )
    return cells


def mean_absolute_difference(cells: Iterable[Mapping[str, Any]]) -> float | None:
    """Return the mean over the cells of |ours - published| in percentage points; None without cells."""
    differences = [abs(cell["difference_points"]) for cell in cells]
    return sum(differences) / len(differences) if differences else None


def wide(cells: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return one row per data set, policy and origin (published, ours); two decimals, `-` for an absent cell."""
    cells_by_key = {(c["workload"], c["policy"], c["network"], c["baseline"]): c for c in cells}
    rows = []
    for workload, policy in published.TABLE_ONE:
        if not any(key[:2] == (workload, policy) for key in cells_by_key):
            continue
        for origin in ("published", "ours"):
            row = {"data": workload.upper(), "policy": published.LABELS[policy], "": origin}
            for network in published.NETWORKS:
                for baseline in published.BASELINES:
                    cell = cells_by_key.get((workload, policy, network, baseline))
                    text = "-" if cell is None else f"{cell[f'{origin}_percent']:+.2f}"
                    row[f"{network.upper()} {published.LABELS[baseline]}"] = text
            rows.append(row)
    return rows


def as_text(cells: Iterable[Mapping[str, Any]]) -> str:
    """Format the table for a terminal, with the mean absolute difference under it; an empty string without cells."""
    cells = list(cells)
    rows = wide(cells)
    if not rows:
        return ""
    mean = mean_absolute_difference(cells)
    return "\n".join(
        [
            "Variation of total time in %, negative is faster (Table I of Chen et al., ISCAS 2022, and ours)",
            format_records(rows, 3),
            f"mean absolute difference over {len(cells)} cells: {mean:.2f} points",
        ]
    )
