"""What the figures of one cell show, as plain numbers; `page.js` draws them.

Milliseconds here, because a person reads them. Everything is thinned first (`thinning.py`), so that a page does not grow with
the number of requests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.report import thinning
from simnmt.results import Cell
from simnmt.results.result import Series

RTT_POINTS = 2_000
PLANE_REQUESTS = 1_500
LENGTH_BINS = 30
ESTIMATE_OF = "cnmt"
"""The policy whose transfer estimate is drawn over the RTT series, where the scenario has it."""

Log = Mapping[str, NDArray[Any]]


def figures(cell: Cell) -> dict[str, Any]:
    """The content of all figures of one cell, ready for JSON."""
    return {
        "policies": list(cell.logs),
        "latency": latency(cell.logs),
        "rtt": rtt(cell),
        "plane": plane(cell),
        "share": offloaded_share(cell.logs),
    }


def embedded(content: dict[str, Any]) -> str:
    """JSON that may stand inside a script element: no character of it can end the element or begin another."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def latency(logs: Mapping[str, Log]) -> dict[str, Any]:
    """Quantiles of each policy's latency over one common grid of shares; requests that never ended are left out."""
    done = {policy: log["latency_s"][log["outcome"] == 0] for policy, log in logs.items()}
    grid = thinning.shares(max((values.size for values in done.values()), default=1))
    return {
        "share": [round(share, 7) for share in grid.tolist()],
        "ms": [thinning.numbers(thinning.quantiles(values, grid) * 1e3) for values in done.values()],
    }


def rtt(cell: Cell) -> dict[str, Any]:
    """The RTT series over one lap, the transfer estimate that one policy held while it met that lap, and the span used.

    The span is None where requests met at least half of the lap, or met its end and began anew.
    """
    series = cell.series
    used_s = _used(cell)
    kept = _kept(series, used_s)
    time_s = np.append(series.time_s[kept], max(series.duration_s, float(series.time_s[-1])))
    unit, length_s = _time_unit(float(time_s[-1]) if used_s is None else used_s[1] - used_s[0])
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
    able = [name for name, log in logs.items() if _any_finite(log["rtt_estimate_s"]) and _any_finite(log["tgt_len_predicted"])]
    return ESTIMATE_OF if ESTIMATE_OF in able else next(iter(able), None)


def plane(cell: Cell) -> dict[str, Any]:
    """The same sampled requests under every policy, the border between the devices, and each policy's assumed lengths.

    The border is where the believed planes make both devices equally fast at the mean RTT of the trace; the band is the
    same between the 10th and the 90th percentile of RTT. A policy that predicts lengths chooses by where its own curve lies.
    """
    first = next(iter(cell.logs.values()))
    requests = first["src_len"].size
    sampled = np.unique(np.linspace(0, max(requests - 1, 0), min(PLANE_REQUESTS, requests)).astype(np.int64))
    src_len: thinning.Column = first["src_len"][sampled]
    tgt_len: thinning.Column = first["tgt_len"][sampled]
    src_end, tgt_end = _axis_end(src_len.max(initial=1)), _axis_end(tgt_len.max(initial=1))
    near = [_axis_end(1.2 * np.quantile(lengths, 0.99, method="lower")) if requests else 1.0 for lengths in (src_len, tgt_len)]
    mean_s = float(cell.series.mean_s)
    low_s, high_s = np.quantile(cell.series.rtt_s, [0.1, 0.9]).tolist()
    return {
        "src_len": src_len.tolist(),
        "tgt_len": tgt_len.tolist(),
        "src_end": src_end,
        "tgt_end": tgt_end,
        "near": [min(near[0], src_end), min(near[1], tgt_end)],
        "targets": ["".join(map(str, log["target"][sampled].tolist())) for log in cell.logs.values()],
        "border": _border(cell, mean_s, src_end, tgt_end),
        "border_low": _border(cell, low_s, src_end, tgt_end),
        "border_high": _border(cell, high_s, src_end, tgt_end),
        "mean_ms": round(mean_s * 1e3, 3),
        "low_ms": round(low_s * 1e3, 3),
        "high_ms": round(high_s * 1e3, 3),
        "assumed": [_assumed(cell, log, mean_s) for log in cell.logs.values()],
    }


def offloaded_share(logs: Mapping[str, Log]) -> dict[str, Any]:
    """Share of requests each policy sent to the cloud, over source length, in bins of about equally many requests."""
    src_len = next(iter(logs.values()))["src_len"]
    edges = np.unique(np.quantile(src_len, np.linspace(0, 1, LENGTH_BINS + 1)[1:-1], method="lower"))
    bins = np.searchsorted(edges, src_len, side="left")
    count = np.bincount(bins, minlength=edges.size + 1)
    filled = count > 0
    centre = np.bincount(bins, src_len, edges.size + 1)[filled] / count[filled]
    return {
        "src_len": thinning.numbers(centre),
        "percent": [
            thinning.numbers(np.bincount(bins, log["target"] != 0, edges.size + 1)[filled] / count[filled] * 100)
            for log in logs.values()
        ],
    }


def _any_finite(values: NDArray[Any]) -> bool:
    return bool(np.isfinite(values).any())


def _time_unit(duration_s: float) -> tuple[str, float]:
    if duration_s > 2 * 3600:
        return "h", 3600.0
    return ("min", 60.0) if duration_s > 120 else ("s", 1.0)


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
    begin_s = min((float(log["rtt_time_s"].min()) for log in cell.logs.values() if log["rtt_time_s"].size), default=0.0)
    end_s = max((float(log["rtt_time_s"].max()) for log in cell.logs.values() if log["rtt_time_s"].size), default=0.0)
    return (begin_s, end_s) if 0.0 < end_s - begin_s < 0.5 * cell.series.duration_s else None


def _kept(series: Series, used_s: tuple[float, float] | None) -> NDArray[np.int64]:
    """Indices of samples that draw the lap, half of them for the span in use, so that it is sharp when it fills the figure."""
    if used_s is None or series.rtt_s.size < RTT_POINTS:
        return thinning.extremes(series.rtt_s, RTT_POINTS - 1)
    begin, end = np.searchsorted(series.time_s, used_s)
    begin = max(int(begin) - 1, 0)
    close = begin + thinning.extremes(series.rtt_s[begin : int(end) + 1], RTT_POINTS // 2)
    return np.union1d(thinning.extremes(series.rtt_s, RTT_POINTS // 2 - 1), close)


def _axis_end(length: float) -> float:
    return float(np.ceil(1.04 * length + 0.5))


def _gain(cell: Cell) -> tuple[float, float, float]:
    """What the cloud saves per source token, per target token and per request (believed), seconds."""
    gateway, cloud = cell.planes
    return gateway[0] - cloud[0], gateway[1] - cloud[1], gateway[2] - cloud[2]


def _border(cell: Cell, transfer_s: float, src_end: float, tgt_end: float) -> dict[str, list[float | None]] | None:
    """Two points of the line where both devices are believed equally fast; None where no line divides the plane."""
    per_src, per_tgt, fixed = _gain(cell)
    rest = transfer_s - fixed
    if abs(per_tgt) * tgt_end > 1e-6 * abs(per_src) * src_end:
        src = np.array([0.0, src_end])
        return {"src": thinning.numbers(src), "tgt": thinning.numbers((rest - per_src * src) / per_tgt)}
    if per_src != 0:
        return {"src": thinning.numbers(np.full(2, rest / per_src)), "tgt": [0.0, tgt_end]}
    return None


def _assumed(cell: Cell, log: Log, transfer_s: float) -> dict[str, Any] | None:
    """The target length a policy assumed for each source length, and the source length at which its choice turns."""
    known = np.isfinite(log["tgt_len_predicted"])
    if not known.any():
        return None
    src, at = np.unique(log["src_len"][known], return_index=True)
    tgt = log["tgt_len_predicted"][known][at]
    per_src, per_tgt, fixed = _gain(cell)
    gain_s = per_src * src + per_tgt * tgt + fixed - transfer_s
    turn = np.flatnonzero((gain_s[1:] > 0) != (gain_s[:-1] > 0))
    turns_at = src[turn] + (src[turn + 1] - src[turn]) * gain_s[turn] / (gain_s[turn] - gain_s[turn + 1])
    return {"src": src.tolist(), "tgt": thinning.numbers(tgt, 4), "turns_at": thinning.numbers(turns_at, 4)}
