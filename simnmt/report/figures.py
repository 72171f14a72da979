"""The data of the figures of one cell: latency and its parts, shares, RTT, backlog over time, causes of loss.

Milliseconds here, because a person reads them; the scripts beside `page.js` draw them. Everything is thinned first
(`thinning.py`), so that a page does not grow with the number of requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.report import thinning
from simnmt.report.devices import batch_figures
from simnmt.report.plane_figures import misrouted, plane
from simnmt.results import Cell
from simnmt.results.device_timeline import device_timeline
from simnmt.results.result import Series
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


RTT_POINTS = 2_000
ESTIMATE_OF = "cnmt"
"""The policy whose transfer estimate is drawn over the RTT series, where the scenario has it."""

Log = Mapping[str, NDArray[Any]]


def rtt(cell: Cell) -> dict[str, Any]:
    """The RTT series over one lap, the transfer estimate that one policy held while it met that lap, and the span used.

    The span is None where requests met at least half of the lap, or met its end and began anew.
    """
    series = cell.series
    used_s = _used_span_s(cell)
    kept = _kept_samples(series, used_s)
    time_s = np.append(series.time_s[kept], max(series.duration_s, float(series.time_s[-1])))
    unit, length_s = time_unit(float(time_s[-1]) if used_s is None else used_s[1] - used_s[0])
    drawn: dict[str, Any] = {
        "unit": unit,
        "time": thinning.numbers(time_s / length_s, 6),
        "ms": thinning.numbers(np.append(series.rtt_s[kept], series.rtt_s[-1]) * 1e3),
        "estimate": None,
        "used": None if used_s is None else thinning.numbers(np.array(used_s) / length_s, 6),
    }
    policy = estimating_policy(cell.logs)
    if policy is not None:
        held_s, estimate_s = _estimate_on_lap(cell.logs[policy], float(series.duration_s))
        drawn["estimate"] = {
            "policy": list(cell.logs).index(policy),
            "time": thinning.numbers(held_s / length_s, 6),
            "ms": thinning.numbers(estimate_s * 1e3),
        }
    return drawn


def estimating_policy(logs: Mapping[str, Log]) -> str | None:
    """C-NMT where it runs, else the first policy that predicts lengths and so needs an estimate; None without one."""

    def able(policy: str) -> bool:
        return _any_finite(logs[policy]["rtt_estimate_s"]) and _any_finite(logs[policy]["tgt_len_predicted"])

    ordered = sorted(logs, key=lambda policy: policy != ESTIMATE_OF)
    return next((policy for policy in ordered if able(policy)), None)


def time_unit(duration_s: float) -> tuple[str, float]:
    """The unit that suits a span of time, and its length in seconds."""
    if duration_s > 2 * 3600:
        return "h", 3600.0
    return ("min", 60.0) if duration_s > 120 else ("s", 1.0)


def _any_finite(values: NDArray[Any]) -> bool:
    return bool(np.isfinite(values).any())


def _estimate_on_lap(log: Log, duration_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times on the trace and the estimate held then, over the first lap, thinned to where the estimate changes."""
    time_s, estimate_s = log["rtt_time_s"], log["rtt_estimate_s"]
    lap = np.isfinite(estimate_s)
    if duration_s > 0:
        lap &= time_s < time_s[0] + duration_s
        time_s = time_s % duration_s
    order = np.argsort(time_s[lap], kind="stable")
    time_s, estimate_s = time_s[lap][order], estimate_s[lap][order]
    step = thinning.changes(estimate_s)
    time_s, estimate_s = time_s[step], estimate_s[step]
    kept = thinning.extremes(estimate_s, RTT_POINTS)
    return time_s[kept], estimate_s[kept]


def _used_span_s(cell: Cell) -> tuple[float, float] | None:
    """From when to when on the lap requests looked up RTTs, seconds; None where that is half of it or more."""
    spans_s = [(float(at_s.min()), float(at_s.max())) for log in cell.logs.values() if (at_s := log["rtt_time_s"]).size]
    begin_s = min((begin for begin, _ in spans_s), default=0.0)
    end_s = max((end for _, end in spans_s), default=0.0)
    return (begin_s, end_s) if 0.0 < end_s - begin_s < 0.5 * cell.series.duration_s else None


def _kept_samples(series: Series, used_s: tuple[float, float] | None) -> NDArray[np.int64]:
    """Indices of samples that draw the lap, half of them for the span in use, so that it is sharp when it fills the figure."""
    if used_s is None or series.rtt_s.size < RTT_POINTS:
        return thinning.extremes(series.rtt_s, RTT_POINTS - 1)
    begin, end = np.searchsorted(series.time_s, used_s)
    begin = max(int(begin) - 1, 0)
    close = begin + thinning.extremes(series.rtt_s[begin : int(end) + 1], RTT_POINTS // 2)
    return np.union1d(thinning.extremes(series.rtt_s, RTT_POINTS // 2 - 1), close)


SPANS, FEWEST_SPANS = 400, 50


def timeline(cell: Cell, numbers: int) -> dict[str, Any]:
    """Means over spans of time, at most 400 of them and fewer where all together would be more than so many `numbers`.

    `spans` holds, per policy, runs of equal spans as [first edge, last edge, spans], in `unit`; a device that a policy never
    used has None in place of its numbers.
    """
    span_budget = numbers // (2 * len(cell.logs) * len(cell.devices))
    timelines = [device_timeline(log, cell.devices, min(max(span_budget, FEWEST_SPANS), SPANS)) for log in cell.logs.values()]
    unit, length_s = time_unit(max(float(run.edges_s[-1]) for run in timelines))
    return {
        "unit": unit,
        "spans": [_equal_spans(run.edges_s / length_s) for run in timelines],
        "waiting": [_by_device(run.waiting) for run in timelines],
        "busy": [_by_device(100.0 * run.busy_share) for run in timelines],
    }


def _equal_spans(edges: NDArray[np.float64]) -> list[list[float]]:
    """Edges as runs of equal spans: there are at most two (see `device_timeline.edges`)."""
    length = np.diff(edges)
    turn = int(np.argmax(~np.isclose(length, length[0], rtol=1e-6))) or length.size
    runs = [(0, turn), *([(turn, length.size)] if turn < length.size else [])]
    return [[float(f"{edges[begin]:.8g}"), float(f"{edges[end]:.8g}"), end - begin] for begin, end in runs]


def _by_device(values: NDArray[np.float64]) -> list[list[float | None] | None]:
    return [thinning.numbers(row, 3) if row.any() else None for row in values]


LENGTH_BINS = 30
TIMELINE_NUMBERS = 60_000
"""Of all timelines of a page, so that neither many cells nor many devices make it heavy."""


def figures(cell: Cell, rows: Sequence[Row], gap_rows: Sequence[Row], cells: int = 1) -> dict[str, Any]:
    """The content of all figures of one cell, ready for JSON. `rows`, `gap_rows`: the cell's own; `cells`: on the page."""
    several = len(cell.devices) > 2
    formed = batch_figures(cell, cells)
    return {
        "policies": list(cell.logs),
        "devices": [device.name for device in cell.devices],
        "unstable": [next((row.get("unstable") for row in rows if row["policy"] == policy), None) for policy in cell.logs],
        "latency": latency(cell.logs),
        "parts": parts(rows, list(cell.logs)),
        "share": shares(cell.logs, len(cell.devices)) if several else shares(cell.logs),
        "rtt": rtt(cell),
        "timeline": timeline(cell, TIMELINE_NUMBERS // max(cells, 1)) if _queues(rows) else None,
        "plane": plane(cell),
        "misroutes": misrouted(cell),
        "gaps": gaps(gap_rows),
        **({"batches": formed} if formed else {}),
    }


def latency(logs: Mapping[str, Log]) -> dict[str, Any]:
    """Quantiles of each policy's latency over one common grid of shares; requests that never ended are left out."""
    done = {policy: log["latency_s"][log["outcome"] == 0] for policy, log in logs.items()}
    grid = thinning.shares(max((values.size for values in done.values()), default=1))
    return {
        "share": [round(share, 7) for share in grid.tolist()],
        "ms": [thinning.numbers(thinning.quantiles(values, grid) * 1e3) for values in done.values()],
    }


def shares(logs: Mapping[str, Log], devices: int = 0) -> dict[str, Any]:
    """Share of requests that each policy sent away, over source length, in bins of about equally many requests.

    `by_device`: by device and policy the share sent there, of so many devices; None if none are asked for.
    """
    src_len = next(iter(logs.values()))["src_len"]
    edges = np.unique(np.quantile(src_len, np.linspace(0, 1, LENGTH_BINS + 1)[1:-1], method="lower"))
    bins = np.searchsorted(edges, src_len, side="left")
    count = np.bincount(bins, minlength=edges.size + 1)
    filled = count > 0
    targets = max(devices, 2)
    per_policy = [
        # One count for all devices: a bin's number and a target's make one number.
        np.bincount(bins * targets + np.minimum(log["target"], targets - 1), minlength=count.size * targets)
        .reshape(-1, targets)[filled]
        .T
        * (100.0 / count[filled])
        for log in logs.values()
    ]
    return {
        "src_len": thinning.numbers(np.bincount(bins, src_len, edges.size + 1)[filled] / count[filled]),
        "percent": [thinning.numbers(percent[1:].sum(0)) for percent in per_policy],
        "by_device": [[thinning.numbers(percent[number], 4) for percent in per_policy] for number in range(devices)] or None,
    }


def _queues(rows: Sequence[Row]) -> bool:
    """Whether requests had to queue; back to back nothing ever waits, and time has no other meaning than their number."""
    return any(row.get("offered_rps") is not None for row in rows)
