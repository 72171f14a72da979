"""The target length as a line over the source length, and how well that line holds (CNMT-07)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.workload.length_table import LengthTable

LEAST_TGT_LEN = 1.0
"""Predicted target lengths are never below this, tokens."""


@dataclass(frozen=True, slots=True)
class LengthRegression:
    """Expected target length as a line over the source length."""

    slope: float
    """Target tokens per source token."""
    offset: float
    """Target tokens of an empty source."""

    def predict(self, src_len: NDArray[np.int64]) -> NDArray[np.float64]:
        """Expected target tokens, never below one; same shape as `src_len`."""
        tgt_len: NDArray[np.float64] = np.maximum(self.slope * src_len + self.offset, LEAST_TGT_LEN)
        return tgt_len


@dataclass(frozen=True, slots=True)
class LengthFit:
    """The line through a table's pairs, by least squares, and its errors about pairs and about means.

    The means are those of the target length, one per source length, about the same line. They come twice:
    weighted by their pairs, and one vote each, where the noisy means of a few long sentences decide. The
    paper does not say which kind its R2 of 0.99 and MSE of 0.15 to 0.73 (CNMT-18) are; on the shipped tables
    of long sentences the weighted MSE is 0.2 to 0.5 (2.9 on FLORES), the unweighted one 8 to 54, so the
    weighted one is what to set beside the paper's. An R2 is None where what it explains does not vary.
    """

    len_slope: float
    """Target tokens per source token (g)."""
    len_offset: float
    """Target tokens (d)."""
    pairs_r2: float | None
    pairs_mse: float
    """Tokens squared, per pair."""
    means_r2: float | None
    means_mse: float
    """Tokens squared, each mean weighted by its pairs."""
    means_r2_unweighted: float | None
    means_mse_unweighted: float
    """Tokens squared, each mean counted once."""
    pairs: int
    src_lengths: int
    """Distinct source lengths, so also the number of means."""

    @property
    def regression(self) -> LengthRegression:
        """The line, to predict with."""
        return LengthRegression(slope=self.len_slope, offset=self.len_offset)

    def as_json(self) -> dict[str, Any]:
        """By the keys that `simnmt corpus fit --json` prints."""
        return {
            "len_slope": self.len_slope,
            "len_offset": self.len_offset,
            "pairs_r2": self.pairs_r2,
            "pairs_mse_tokens2": self.pairs_mse,
            "means_r2": self.means_r2,
            "means_mse_tokens2": self.means_mse,
            "means_r2_unweighted": self.means_r2_unweighted,
            "means_mse_unweighted_tokens2": self.means_mse_unweighted,
        }

    @property
    def remark(self) -> str | None:
        """What a reader of the line must know; None for an ordinary fit."""
        if self.src_lengths > 1:
            return None
        return "all sources have one length: the slope is 0 by decision, the offset the mean target length"


def fit_lengths(table: LengthTable) -> LengthFit:
    """Fit a line to the pairs of a table, each distinct pair weighted by its count.

    With a single source length no slope can be known: it is set to 0, the offset to the mean, R2 to None.
    """
    weight = table.count.astype(np.float64)
    mean_src, mean_tgt = table.mean_src_len, table.mean_tgt_len
    src, tgt = table.src_len - mean_src, table.tgt_len - mean_tgt
    src_lengths, row = np.unique(table.src_len, return_inverse=True)
    varied = len(src_lengths) > 1
    slope = float((weight * src) @ tgt / ((weight * src) @ src)) if varied else 0.0
    offset = mean_tgt - slope * mean_src

    mean_weight = np.bincount(row, weights=weight).astype(np.float64)
    means = np.bincount(row, weights=weight * table.tgt_len) / mean_weight
    pairs_r2, pairs_mse = _goodness(table.tgt_len - (slope * table.src_len + offset), table.tgt_len, weight, varied)
    residual = means - (slope * src_lengths + offset)
    means_r2, means_mse = _goodness(residual, means, mean_weight, varied)
    unweighted_r2, unweighted_mse = _goodness(residual, means, np.ones(len(means)), varied)
    return LengthFit(
        len_slope=slope,
        len_offset=offset,
        pairs_r2=pairs_r2,
        pairs_mse=pairs_mse,
        means_r2=means_r2,
        means_mse=means_mse,
        means_r2_unweighted=unweighted_r2,
        means_mse_unweighted=unweighted_mse,
        pairs=table.pairs,
        src_lengths=len(src_lengths),
    )


def _goodness(
    residual: NDArray[np.float64],
    value: NDArray[np.float64] | NDArray[np.int64],
    weight: NDArray[np.float64],
    varied: bool,
) -> tuple[float | None, float]:
    """(R2, MSE) of residuals about a line; R2 None where the values or the sources do not vary."""
    mse = float(np.average(residual**2, weights=weight))
    variance = float(np.average((value - np.average(value, weights=weight)) ** 2, weights=weight))
    constant = bool(np.all(value == value[0]))
    return (None if constant or not varied else 1.0 - mse / variance), mse
