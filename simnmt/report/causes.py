"""What latencies are made of, what wrong beliefs cost, and what load does: figures that stand on the rows of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simnmt.results.summary import OBJECTIVES, PARTS, Row

OVER_LOAD: dict[str, str] = {name: OBJECTIVES[name] for name in ("mean", "p95")}
"""What is shown over the load, and the keys of the rows that hold it."""


def parts(rows: Sequence[Row], policies: Sequence[str]) -> dict[str, Any]:
    """Milliseconds of queue, execution and transfer per policy: of all requests, and of those beyond p95 and p99."""
    by_policy = {row["policy"]: row for row in rows}

    def means(prefix: str) -> list[list[float | None]]:
        return [[_ms(by_policy.get(policy, {}).get(f"{prefix}_{part}_s")) for part in PARTS] for policy in policies]

    return {"names": list(PARTS), "all": means("mean"), "p95": means("beyond_p95"), "p99": means("beyond_p99")}


def gaps(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Change of the total time by source of loss removed, percent with its interval; None where none was analysed."""
    shown = [row for row in rows if row["removed"] != "nothing"]
    if not shown:
        return None
    keys = ("change_percent", "low_percent", "high_percent")
    return {
        "policy": shown[0]["policy"],
        "removed": [row["removed"] for row in shown],
        **{key: [row[key] for row in shown] for key in keys},
    }


def over_load(rows: Sequence[Row], sweeps: Sequence[Row], colours: Mapping[str, int]) -> list[dict[str, Any]]:
    """Latency of every policy over the load, one entry for each network and plain policy whose load it is.

    A policy has no number at a load at which it is unstable, for there is no mean to be shown there.
    """
    figures: dict[tuple[str, str, tuple[str, ...]], dict[str, Any]] = {}
    by_place = {(row["workload"], row["network"], row["policy"]): row for row in rows}
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    for sweep in sweeps:
        network, plain = sweep["network"], sweep["baseline"]
        workloads = tuple(point["workload"] for point in sweep["points"])
        entry = figures.setdefault(
            (network, plain, workloads), {"network": network, "plain": plain, "workloads": list(workloads), "changes": []}
        )
        keys = ("change_percent", "low_percent", "high_percent")
        change = {key: [point[key] for point in sweep["points"]] for key in keys}
        entry["changes"].append({"policy": policies.index(sweep["policy"]), **change})
        entry["load"] = [round(point["load"], 4) for point in sweep["points"]]
        lines = [[by_place[workload, network, policy] for workload in workloads] for policy in policies]
        entry["policies"] = policies
        entry["colours"] = [colours[policy] for policy in policies]
        entry["unstable"] = [[row.get("unstable") for row in line] for line in lines]
        for name, key in OVER_LOAD.items():
            entry[name] = {
                end or "ms": [[None if row.get("unstable") else _ms(row.get(f"{key}{end}")) for row in line] for line in lines]
                for end in ("", "_low", "_high")
            }
    return list(figures.values())


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else float(f"{1e3 * seconds:.5g}")
