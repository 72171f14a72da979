"""Raw repeats, summed up for a profile: by cell, or of many single inferences by target length."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.costs.cells import by_cell

_QUANTILES = {"min": 0.0, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}


def cell_samples(
    src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike, *, batch: int = 1, beam: int = 1
) -> list[dict[str, Any]]:
    """`execution.samples` of raw repeats, by cell in rising order."""
    cells = by_cell(src_len, tgt_len, time_s)
    return [
        {"src_len": int(src), "tgt_len": int(tgt), "batch": batch, "beam": beam} | _summed_up(repeats)
        for src, tgt, repeats in zip(cells.first, cells.second, cells.repeats, strict=True)
    ]


def samples_by_tgt_len(
    src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike, *, batch: int = 1, beam: int = 1
) -> list[dict[str, Any]]:
    """`execution.samples` of many single inferences, one entry a target length: what C-NMT's figure 2a shows.

    Their source lengths differ: `src_len_mean` is their mean, `src_len` the nearest whole number.
    """
    src = np.asarray(src_len, np.float64)
    cells = by_cell(np.zeros_like(src), tgt_len, time_s)
    mean = np.bincount(cells.cell_of, weights=src) / np.bincount(cells.cell_of)
    return [
        {"src_len": round(middle), "src_len_mean": middle, "tgt_len": int(tgt), "batch": batch, "beam": beam}
        | _summed_up(repeats)
        for middle, tgt, repeats in zip(mean.tolist(), cells.second, cells.repeats, strict=True)
    ]


def _summed_up(repeats: NDArray[np.float64]) -> dict[str, Any]:
    return (
        {"repeats": repeats.size}
        | {f"{name}_s": float(np.quantile(repeats, share)) for name, share in _QUANTILES.items()}
        | {"mean_s": float(repeats.mean()), "sd_s": float(repeats.std(ddof=1)) if repeats.size > 1 else None}
    )
