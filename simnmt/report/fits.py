"""What was fitted beside what it is to stand for: M over N, and time over M, once per workload (CNMT-18, figures 3 and 2a)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.costs.plane import ExecutionPlane
from simnmt.report import thinning
from simnmt.report.typography import DASH, MINUS, is_number, number, significant
from simnmt.results import Cell
from simnmt.results.summary import Row
from simnmt.workload.length_means import means_by_source_length
from simnmt.workload.length_regression import LengthRegression
from simnmt.workload.length_table import LengthTable

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
    near = _nearly_all(src, pairs)
    return {
        "src": src.tolist(),
        "pairs": pairs.tolist(),
        "mean": thinning.numbers(mean, 4),
        "sd": thinning.numbers(sd, 3),
        "line": [line.slope, line.offset],
        "near": [near, _top(mean + np.nan_to_num(sd), src <= near)],
        "all": [float(src[-1]) * 1.03 + 1, _top(mean + np.nan_to_num(sd), src > 0)],
        "words": _of_line(cell, next((fit for fit in fits if "pairs_r2" in fit), None)),
    }


def execution_means(cell: Cell, fits: Sequence[Row]) -> list[dict[str, Any] | None]:
    """Mean execution time per target length on each device, its standard deviation, and the mean of the believed plane.

    The requests are those of the policy that sent most to the device; None where nobody sent any. The plane is taken at both
    lengths of the same requests, so that it lies on the means where it is right.
    """
    sent = {policy: np.bincount(log["target"], minlength=len(cell.devices)) for policy, log in cell.logs.items()}
    found: list[dict[str, Any] | None] = []
    for target, (device, coefficients) in enumerate(zip(cell.devices, cell.planes, strict=True)):
        policy = max(sent, key=lambda policy, target=target: int(sent[policy][target]))  # type: ignore[misc]
        log = cell.logs[policy]
        here = (log["target"] == target) & (log["outcome"] == 0)
        if not here.any():
            found.append(None)
            continue
        src_len, tgt_len, time_ms = log["src_len"][here], log["tgt_len"][here], 1e3 * log["t_exe_s"][here]
        width = -(-int(tgt_len.max()) // MOST_MEANS)
        at = (tgt_len - 1) // width
        count = np.bincount(at)
        filled = count > 0
        mean, middle = _means(at, time_ms, count), _means(at, tgt_len, count)
        sd = np.sqrt(np.bincount(at, (time_ms - mean[at]) ** 2) / np.where(count > 1, count - 1, np.nan))
        believed = _means(at, 1e3 * ExecutionPlane(*coefficients).seconds(src_len, tgt_len), count)
        near = _nearly_all(middle[filled], count[filled])
        fit = next((fit for fit in fits if fit["of"] == f"execution time on the {device.name}"), None)
        found.append(
            {
                "tgt": thinning.numbers(middle[filled], 4),
                "requests": count[filled].tolist(),
                "mean": thinning.numbers(mean[filled], 4),
                "sd": thinning.numbers(sd[filled], 3),
                "believed": thinning.numbers(believed[filled], 4),
                "near": [near, _top((mean + np.nan_to_num(sd))[filled], middle[filled] <= near)],
                "all": [float(tgt_len.max()) * 1.03 + 1, _top((mean + np.nan_to_num(sd))[filled], middle[filled] > 0)],
                "words": _of_plane(device.name, policy, int(here.sum()), here.size, width, fit),
            }
        )
    return found


def share_explained(r2: Any) -> str:
    """R² with three decimals, which never calls a fit perfect that is not."""
    if not is_number(r2):
        return DASH
    return ">\u202f0.999" if 0.9995 <= r2 < 1.0 else number(r2, 3)


def _means(at: NDArray[Any], values: NDArray[Any], count: NDArray[np.int64]) -> NDArray[np.float64]:
    sums = np.bincount(at, values)
    return np.divide(sums, count, out=np.zeros(count.size), where=count > 0)


def _nearly_all(lengths: NDArray[Any], count: NDArray[Any]) -> float:
    """An axis' end somewhat beyond the length that 99 % do not exceed."""
    longest = lengths[np.searchsorted(np.cumsum(count), 0.99 * count.sum())]
    return float(min(np.ceil(1.2 * longest), np.ceil(1.03 * lengths[-1] + 1)))


def _top(values: NDArray[np.float64], shown: NDArray[np.bool_]) -> float:
    return float(f"{1.06 * values[shown].max(initial=0.0):.3g}")


def _of_line(cell: Cell, fit: Row | None) -> str:
    sign = MINUS if cell.regression_offset < 0 else "+"
    line = f"Line: M = {significant(cell.regression_slope)} N {sign} {significant(abs(cell.regression_offset))}"
    if fit is None:
        return f"{line}."
    return (
        f"{line}, fitted on {number(fit['samples'], 0)} of the pairs; about the means of these per N it has R² "
        f"{share_explained(fit['means_r2'])} and a mean squared error of {significant(fit['means_mse'], 3)} tokens², about "
        f"single pairs {share_explained(fit['pairs_r2'])} and {significant(fit['pairs_mse'], 3)}."
    )


def _of_plane(device: str, policy: str, sent: int, requests: int, width: int, fit: Row | None) -> str:
    which = f"all {number(sent, 0)} requests" if sent == requests else f"the {number(sent, 0)} requests sent there"
    said = f"{device}: {which} under {policy}"
    if width > 1:
        said += f", {width} neighbouring M to a mean"
    if fit is not None and "r2" in fit:
        error = significant(fit["mse_ms2"], 3)
        said += f"; the plane was fitted with R² {share_explained(fit['r2'])} and a mean squared error of {error} ms²"
    elif fit is not None:
        said += "; the plane is the profile's own"
    return f"{said}."
