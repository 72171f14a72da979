"""The network as requests met it: the RTT series, and what a policy believed of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.report import thinning
from simnmt.results import Cell
from simnmt.results.result import Series

RTT_POINTS = 2_000
ESTIMATE_OF = "cnmt"
"""The policy whose transfer estimate is drawn over the RTT series, where the scenario has it."""

Log = Mapping[str, NDArray[Any]]


def rtt(cell: Cell) -> dict[str, Any]:
    """The RTT series over one lap, the transfer estimate that one policy held while it met that lap, and the span used.

    The span is None where requests met at least half of the lap, or met its end and began anew.
    """
    series = cell.series
    used_s = _used(cell)
    kept = _kept(series, used_s)
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


def _used(cell: Cell) -> tuple[float, float] | None:
    """From when to when on the lap requests looked up RTTs, seconds; None where that is half of it or more."""
    spans_s = [(float(at_s.min()), float(at_s.max())) for log in cell.logs.values() if (at_s := log["rtt_time_s"]).size]
    begin_s = min((begin for begin, _ in spans_s), default=0.0)
    end_s = max((end for _, end in spans_s), default=0.0)
    return (begin_s, end_s) if 0.0 < end_s - begin_s < 0.5 * cell.series.duration_s else None


def _kept(series: Series, used_s: tuple[float, float] | None) -> NDArray[np.int64]:
    """Indices of samples that draw the lap, half of them for the span in use, so that it is sharp when it fills the figure."""
    if used_s is None or series.rtt_s.size < RTT_POINTS:
        return thinning.extremes(series.rtt_s, RTT_POINTS - 1)
    begin, end = np.searchsorted(series.time_s, used_s)
    begin = max(int(begin) - 1, 0)
    close = begin + thinning.extremes(series.rtt_s[begin : int(end) + 1], RTT_POINTS // 2)
    return np.union1d(thinning.extremes(series.rtt_s, RTT_POINTS // 2 - 1), close)
