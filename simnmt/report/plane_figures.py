"""The data of the figures over lengths: regions and misrouted requests on the plane, and fits beside what was measured.

The fits are target over source length and time over target length, once per workload (CNMT-18, figures 3 and 2a).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.profile.execution_plane import ExecutionPlane
from simnmt.report import thinning
from simnmt.report.typography import DASH, MINUS, is_number, number, significant
from simnmt.results import Cell
from simnmt.results.summary import Row
from simnmt.workload.length_diagnostics import means_by_source_length
from simnmt.workload.length_regression import LengthRegression
from simnmt.workload.length_table import LengthTable

PLANE_REQUESTS = 1_500
REGION_CELLS = 60
"""Of the map of regions, each way."""

Log = Mapping[str, NDArray[Any]]


def plane(cell: Cell) -> dict[str, Any]:
    """The same sampled requests under every policy, who is believed faster where, and each policy's assumed lengths.

    Between two devices the border is where the believed planes make both equally fast at the mean RTT of the trace; the band is
    the same between the 10th and the 90th percentile of RTT. With more devices each point of the plane has the device that is
    believed fastest at the mean transfer times: a map over the axes near and all. A policy that predicts lengths chooses by
    where its own curve lies.
    """
    first = next(iter(cell.logs.values()))
    all_src_len = first["src_len"]
    requests = all_src_len.size
    sampled = np.unique(np.linspace(0, max(requests - 1, 0), min(PLANE_REQUESTS, requests)).astype(np.int64))
    src_len: thinning.Column = all_src_len[sampled]
    tgt_len: thinning.Column = first["tgt_len"][sampled]
    src_end, tgt_end = _axis_end(src_len.max(initial=1)), _axis_end(tgt_len.max(initial=1))
    near = [_axis_end(1.2 * np.quantile(lengths, 0.99, method="lower")) if requests else 1.0 for lengths in (src_len, tgt_len)]
    near = [min(near[0], src_end), min(near[1], tgt_end)]
    mean_s = float(cell.series.mean_s)
    two = len(cell.planes) == 2
    low_s, high_s = np.quantile(cell.series.rtt_s, [0.1, 0.9]).tolist() if two else (mean_s, mean_s)
    return {
        "src_len": src_len.tolist(),
        "tgt_len": tgt_len.tolist(),
        "src_end": src_end,
        "tgt_end": tgt_end,
        "near": near,
        "targets": [codes(log["target"][sampled]) for log in cell.logs.values()],
        "regions": None if two else _regions(cell, {"near": (near[0], near[1]), "all": (src_end, tgt_end)}),
        "border": _border(cell, mean_s, src_end, tgt_end) if two else None,
        "border_low": _border(cell, low_s, src_end, tgt_end) if two else None,
        "border_high": _border(cell, high_s, src_end, tgt_end) if two else None,
        "mean_ms": round(mean_s * 1e3, 3),
        "low_ms": round(low_s * 1e3, 3),
        "high_ms": round(high_s * 1e3, 3),
        "assumed": [_assumed(cell, log, all_src_len) for log in cell.logs.values()],
    }


def misrouted(cell: Cell) -> list[dict[str, Any]] | None:
    """What each policy misrouted: a sample, and how much there was in all; None where the truth is not known."""
    if not cell.misroutes:
        return None
    return [
        {
            "count": misroutes.count,
            "judged": misroutes.judged,
            "lost_s": thinning.numbers(np.array([misroutes.lost_s]))[0],
            "src_len": misroutes.src_len.tolist(),
            "tgt_len": misroutes.tgt_len.tolist(),
            "lost_ms": thinning.numbers(misroutes.request_lost_s * 1e3, 3),
            "targets": codes(misroutes.target),
            "best": codes(misroutes.best_target),
        }
        for misroutes in (cell.misroutes[policy] for policy in cell.logs)
    ]


def codes(targets: NDArray[Any]) -> str:
    """A character per request: that of code 48 for target 0, which is `0`, and so on."""
    return (targets.astype(np.uint8) + 48).tobytes().decode("latin-1")


def _axis_end(length: float) -> float:
    return float(np.ceil(1.04 * length + 0.5))


def _transfers_s(cell: Cell) -> Sequence[float] | None:
    """The mean way to each device beyond that to the first; None where it is not known."""
    if len(cell.planes) == 2:
        return 0.0, float(cell.series.mean_s)
    return [transfer.mean_s - cell.transfers[0].mean_s for transfer in cell.transfers] or None


def _believed_s(cell: Cell, src: Any, tgt: Any) -> NDArray[np.float64] | None:
    """Seconds that each device is believed to take at the mean transfer times; shape (devices, ...)."""
    transfers_s = _transfers_s(cell)
    if transfers_s is None:
        return None
    return np.stack([a * src + b * tgt + c + way_s for (a, b, c), way_s in zip(cell.planes, transfers_s, strict=True)])


def _regions(cell: Cell, ends: Mapping[str, tuple[float, float]]) -> dict[str, Any] | None:
    """Per pair of axes, the device believed fastest in the middle of each of `REGION_CELLS` squared cells, row by row."""
    regions: dict[str, Any] = {"cells": REGION_CELLS}
    for name, (src_end, tgt_end) in ends.items():
        middle = (np.arange(REGION_CELLS) + 0.5) / REGION_CELLS
        seconds = _believed_s(cell, middle[None, :] * src_end, middle[:, None] * tgt_end)
        if seconds is None:
            return None
        regions[name] = codes(seconds.argmin(0).ravel())
    return regions


def _border(cell: Cell, transfer_s: float, src_end: float, tgt_end: float) -> dict[str, list[float | None]] | None:
    """Two points of the line where both devices are believed equally fast; None where no line divides the plane."""
    gateway, cloud = cell.planes
    per_src, per_tgt, fixed = (a - b for a, b in zip(gateway, cloud, strict=True))
    rest = transfer_s - fixed
    if abs(per_tgt) * tgt_end > 1e-6 * abs(per_src) * src_end:
        src = np.array([0.0, src_end])
        return {"src": thinning.numbers(src), "tgt": thinning.numbers((rest - per_src * src) / per_tgt)}
    if per_src != 0:
        return {"src": thinning.numbers(np.full(2, rest / per_src)), "tgt": [0.0, tgt_end]}
    return None


def _assumed(cell: Cell, log: Log, src_len: NDArray[Any]) -> dict[str, Any] | None:
    """The target length a policy assumed for each source length, and the source lengths at which its choice turns."""
    predicted = log["tgt_len_predicted"]
    known = np.isfinite(predicted)
    if not known.any():
        return None
    # One entry per source length; the policy assumes the same for all requests of a length.
    by_length = np.full(int(src_len.max()) + 1, np.nan)
    by_length[src_len[known]] = predicted[known]
    src = np.flatnonzero(np.isfinite(by_length))
    tgt = by_length[src]
    return {"src": src.tolist(), "tgt": thinning.numbers(tgt, 4), "turns_at": _turns(cell, src, tgt)}


def _turns(cell: Cell, src: NDArray[Any], tgt: NDArray[Any]) -> list[float | None]:
    """Source lengths at which another device becomes the fastest along a curve of assumed target lengths."""
    seconds = _believed_s(cell, src, tgt)
    if seconds is None:
        return []
    best = seconds.argmin(0)
    turn = np.flatnonzero(best[1:] != best[:-1])
    before, after = best[turn], best[turn + 1]
    ahead_s = seconds[after, turn] - seconds[before, turn]
    behind_s = seconds[before, turn + 1] - seconds[after, turn + 1]
    return thinning.numbers(src[turn] + (src[turn + 1] - src[turn]) * ahead_s / (ahead_s + behind_s), 4)


MOST_MEANS = 200
"""Over target lengths on a device; where there are more of them, neighbours share a mean."""


def length_means(cell: Cell, fits: Sequence[Row]) -> dict[str, Any] | None:
    """Mean target length per source length of the whole corpus, its standard deviation, and the line that policies go by.

    `fits`: the workload's. None where the corpus is not at hand.
    """
    table = cell.lengths
    if not isinstance(table, LengthTable):
        return None
    line = LengthRegression(cell.regression_slope, cell.regression_offset)
    means = means_by_source_length(table, line)
    src, pairs = (np.array([getattr(mean, name) for mean in means]) for name in ("src_len_from", "pairs"))
    mean = np.array([mean.mean_tgt_len for mean in means])
    sd = np.array([np.nan if mean.sd_tgt_len is None else mean.sd_tgt_len for mean in means])
    near = _near_end(src, pairs)
    return {
        "src": src.tolist(),
        "pairs": pairs.tolist(),
        "mean": thinning.numbers(mean, 4),
        "sd": thinning.numbers(sd, 3),
        "line": [line.slope, line.offset],
        "near": [near, _highest_shown(mean + np.nan_to_num(sd), src <= near)],
        "all": [float(src[-1]) * 1.03 + 1, _highest_shown(mean + np.nan_to_num(sd), src > 0)],
        "words": _describe_line(cell, next((fit for fit in fits if "pairs_r2" in fit), None)),
    }


def execution_means(cell: Cell, fits: Sequence[Row]) -> list[dict[str, Any] | None]:
    """Mean execution time per target length on each device, its standard deviation, and the mean of the believed plane.

    The requests are those of the policy that sent most to the device; None where nobody sent any. The plane is taken at both
    lengths of the same requests, so that it lies on the means where it is right.
    """
    sent = {policy: np.bincount(log["target"], minlength=len(cell.devices)) for policy, log in cell.logs.items()}
    means: list[dict[str, Any] | None] = []
    for target, (device, coefficients) in enumerate(zip(cell.devices, cell.planes, strict=True)):
        policy = max(sent, key=lambda policy, target=target: int(sent[policy][target]))  # type: ignore[misc]
        log = cell.logs[policy]
        here = (log["target"] == target) & (log["outcome"] == 0)
        if not here.any():
            means.append(None)
            continue
        src_len, tgt_len, time_ms = log["src_len"][here], log["tgt_len"][here], 1e3 * log["t_exe_s"][here]
        width = -(-int(tgt_len.max()) // MOST_MEANS)
        at = (tgt_len - 1) // width
        count = np.bincount(at)
        filled = count > 0
        mean, middle = _means(at, time_ms, count), _means(at, tgt_len, count)
        sd = np.sqrt(np.bincount(at, (time_ms - mean[at]) ** 2) / np.where(count > 1, count - 1, np.nan))
        believed = _means(at, 1e3 * ExecutionPlane(*coefficients).seconds(src_len, tgt_len), count)
        near = _near_end(middle[filled], count[filled])
        fit = next((fit for fit in fits if fit["of"] == f"execution time on the {device.name}"), None)
        means.append(
            {
                "tgt": thinning.numbers(middle[filled], 4),
                "requests": count[filled].tolist(),
                "mean": thinning.numbers(mean[filled], 4),
                "sd": thinning.numbers(sd[filled], 3),
                "believed": thinning.numbers(believed[filled], 4),
                "near": [near, _highest_shown((mean + np.nan_to_num(sd))[filled], middle[filled] <= near)],
                "all": [
                    float(tgt_len.max()) * 1.03 + 1,
                    _highest_shown((mean + np.nan_to_num(sd))[filled], middle[filled] > 0),
                ],
                "words": _describe_plane(device.name, policy, int(here.sum()), here.size, width, fit),
            }
        )
    return means


def share_explained(r2: Any) -> str:
    """R² with three decimals, which never calls a fit perfect that is not."""
    if not is_number(r2):
        return DASH
    return ">\u202f0.999" if 0.9995 <= r2 < 1.0 else number(r2, 3)


def _means(at: NDArray[Any], values: NDArray[Any], count: NDArray[np.int64]) -> NDArray[np.float64]:
    sums = np.bincount(at, values)
    return np.divide(sums, count, out=np.zeros(count.size), where=count > 0)


def _near_end(lengths: NDArray[Any], count: NDArray[Any]) -> float:
    """An axis' end somewhat beyond the length that 99 % do not exceed."""
    longest = lengths[np.searchsorted(np.cumsum(count), 0.99 * count.sum())]
    return float(min(np.ceil(1.2 * longest), np.ceil(1.03 * lengths[-1] + 1)))


def _highest_shown(values: NDArray[np.float64], shown: NDArray[np.bool_]) -> float:
    return float(f"{1.06 * values[shown].max(initial=0.0):.3g}")


def _describe_line(cell: Cell, fit: Row | None) -> str:
    sign = MINUS if cell.regression_offset < 0 else "+"
    line = f"Line: M = {significant(cell.regression_slope)} N {sign} {significant(abs(cell.regression_offset))}"
    if fit is None:
        return f"{line}."
    return (
        f"{line}, fitted on {number(fit['samples'], 0)} of the pairs; about the means of these per N it has R² "
        f"{share_explained(fit['means_r2'])} and a mean squared error of {significant(fit['means_mse'], 3)} tokens², about "
        f"single pairs {share_explained(fit['pairs_r2'])} and {significant(fit['pairs_mse'], 3)}."
    )


def _describe_plane(device: str, policy: str, sent: int, requests: int, width: int, fit: Row | None) -> str:
    which = f"all {number(sent, 0)} requests" if sent == requests else f"the {number(sent, 0)} requests sent there"
    description = f"{device}: {which} under {policy}"
    if width > 1:
        description += f", {width} neighbouring M to a mean"
    if fit is not None and "r2" in fit:
        error = significant(fit["mse_ms2"], 3)
        description += f"; the plane was fitted with R² {share_explained(fit['r2'])} and a mean squared error of {error} ms²"
    elif fit is not None:
        description += "; the plane is the profile's own"
    return f"{description}."
