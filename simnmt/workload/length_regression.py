"""Target length given the source length: the line of C-NMT with its goodness of fit (CNMT-07), and a full distribution.

Policies predict with `LengthRegression`, or with `LengthDistribution` if they use the spread of target lengths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.workload.length_table import IntArray, LengthTable

FloatArray = NDArray[np.float64]

LEAST_TGT_LEN = 1.0
"""Least predicted target length, tokens."""


@dataclass(frozen=True, slots=True)
class LengthRegression:
    """Expected target length as a line over the source length."""

    slope: float
    """Target tokens per source token."""
    offset: float
    """Target tokens of an empty source."""

    def predict(self, src_len: IntArray) -> FloatArray:
        """Return the expected target tokens, at least 1; same shape as `src_len`."""
        tgt_len: FloatArray = np.maximum(self.slope * src_len + self.offset, LEAST_TGT_LEN)
        return tgt_len


@dataclass(frozen=True, slots=True)
class LengthFit:
    """The least-squares line through a table's pairs, with its errors for pairs and for means of the target length.

    There is one mean per source length, weighted by its pairs. The paper does not state the kind of its R2 of 0.99 and MSE of
    0.15 to 0.73 (CNMT-18); those of the means compare with it. An R2 is None if the explained values do not vary.
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
    pairs: int
    remark: str | None
    """Remark for readers of the line; None for an ordinary fit."""

    @property
    def regression(self) -> LengthRegression:
        """The line for predictions."""
        return LengthRegression(slope=self.len_slope, offset=self.len_offset)


def fit_lengths(table: LengthTable) -> LengthFit:
    """Fit a line to the pairs of a table, each distinct pair weighted by its count.

    With a single source length, which determines no slope, the slope is 0, the offset the mean, and R2 None.
    """
    weight = table.count.astype(np.float64)
    mean_src, mean_tgt = table.mean_src_len, table.mean_tgt_len
    src, tgt = table.src_len - mean_src, table.tgt_len - mean_tgt
    src_lengths, row = np.unique(table.src_len, return_inverse=True)
    varied = len(src_lengths) > 1
    # Sums of products, not matrix products: BLAS adds in an order that depends on the processor.
    slope = float((weight * src * tgt).sum() / (weight * src * src).sum()) if varied else 0.0
    offset = mean_tgt - slope * mean_src

    def goodness(src_len: IntArray, tgt_len: FloatArray, weight: FloatArray) -> tuple[float | None, float]:
        mse = float(np.average((tgt_len - (slope * src_len + offset)) ** 2, weights=weight))
        variance = float(np.average((tgt_len - np.average(tgt_len, weights=weight)) ** 2, weights=weight))
        return (None if not varied or bool(np.all(tgt_len == tgt_len[0])) else 1.0 - mse / variance), mse

    pairs = np.bincount(row, weights=weight)
    means = np.bincount(row, weights=weight * table.tgt_len) / pairs
    pairs_r2, pairs_mse = goodness(table.src_len, table.tgt_len.astype(np.float64), weight)
    means_r2, means_mse = goodness(src_lengths, means, pairs.astype(np.float64))
    remark = None if varied else "all sources have one length: the slope is 0 by decision, the offset the mean target length"
    return LengthFit(slope, offset, pairs_r2, pairs_mse, means_r2, means_mse, table.pairs, remark)


def means_by_source_length(table: LengthTable, line: LengthRegression) -> list[dict[str, Any]]:
    """Return the rows of figure 3 (CNMT-18): statistics of the target lengths by source length, shortest first.

    `sd_tgt_len` is by degrees of freedom, None with one pair; `rmse_tgt_len` is about the line, which is at `line_tgt_len`.
    """
    rows = []
    for src_len in np.unique(table.src_len):
        here = slice(*np.searchsorted(table.src_len, [src_len, src_len + 1]))
        tgt_len, count = table.tgt_len[here], table.count[here]
        pairs, mean, expected = int(count.sum()), float(np.average(tgt_len, weights=count)), line.slope * src_len + line.offset
        sd = math.sqrt(count @ (tgt_len - mean) ** 2 / (pairs - 1)) if pairs > 1 else None
        rmse = math.sqrt(count @ (tgt_len - expected) ** 2 / pairs)
        row = {"src_len": int(src_len), "pairs": pairs, "mean_tgt_len": mean, "sd_tgt_len": sd}
        rows.append(row | {"line_tgt_len": float(expected), "rmse_tgt_len": rmse})
    return rows


LEVELS: FloatArray = np.arange(201) / 200
"""Levels of the stored quantiles; others are interpolated linearly."""
POOLED = 200
"""Least pairs in the distribution of a source length, if the table has as many.

On the shipped tables, a tenth of the pairs to fit on: 50 pairs make the mean's error up to 1 % larger than the line's, 1,000
blur the tails of long sources (FLORES, FR-EN news); 200 to 400 had the least pinball loss at 0.05 and 0.95.
"""


@dataclass(frozen=True, slots=True, eq=False)
class LengthDistribution:
    """Distributions of the target length for each source length, in tokens.

    A source length that the table lacks has the distribution of the nearest one, scaled by the ratio of the line's values.
    """

    line: LengthRegression
    """The regression by which lengths are scaled."""
    src_len: IntArray
    """Source lengths of the table, ascending; shape (lengths,)."""
    means: FloatArray
    """Mean target lengths, shape (lengths,)."""
    quantiles: FloatArray
    """Shape (lengths, len(LEVELS)), ascending along the levels."""

    @classmethod
    def of(cls, table: LengthTable, pooled: int = POOLED) -> LengthDistribution:
        """Fit a table: the distribution of a source length uses at least `pooled` pairs of it and its neighbours.

        A neighbour's target lengths are scaled by the line's ratio. Unscaled, the slope within the window would count as
        spread: on the shipped tables the mean's squared error is then 1.08 to 5 times the line's, scaled 0.994 to 1.003.
        """
        line = fit_lengths(table).regression
        src_lengths, at = np.unique(table.src_len, return_inverse=True)
        pairs = np.bincount(at, weights=table.count)
        relative = table.tgt_len / line.predict(table.src_len)
        means, quantiles = np.empty(len(src_lengths)), np.empty((len(src_lengths), len(LEVELS)))
        for row, src_len in enumerate(src_lengths):
            # The narrowest window about the length with enough pairs.
            distance = np.abs(src_lengths - src_len)
            nearest = np.argsort(distance, kind="stable")
            enough = min(int(np.searchsorted(np.cumsum(pairs[nearest]), pooled)), len(nearest) - 1)
            inside = np.flatnonzero((distance <= distance[nearest[enough]])[at])
            inside = inside[np.argsort(relative[inside], kind="stable")]
            value, weight = relative[inside], table.count[inside].astype(np.float64)
            # A pair lies in the middle of its share.
            position = (np.cumsum(weight) - 0.5 * weight) / weight.sum()
            expected = line.predict(src_len)
            means[row] = expected * np.average(value, weights=weight)
            quantiles[row] = expected * np.interp(LEVELS, position, value)
        return cls(line, src_lengths, means, quantiles)

    def mean(self, src_len: IntArray) -> FloatArray:
        """Return the expected target tokens, at least 1; same shape as `src_len`."""
        row, ratio = self._nearest(src_len)
        expected: FloatArray = np.maximum(self.means[row] * ratio, LEAST_TGT_LEN)
        return expected

    def quantile(self, src_len: IntArray, q: float) -> FloatArray:
        """Return the target tokens that a share `q` of the translations does not exceed, at least 1; shape of `src_len`.

        The result need not be whole, since the share of a length is spread evenly about it.
        """
        row, ratio = self._nearest(src_len)
        level = q * (len(LEVELS) - 1)
        below = min(int(level), len(LEVELS) - 2)
        low, high = self.quantiles[row, below], self.quantiles[row, below + 1]
        tokens: FloatArray = np.maximum((low + (level - below) * (high - low)) * ratio, LEAST_TGT_LEN)
        return tokens

    def _nearest(self, src_len: IntArray) -> tuple[NDArray[np.intp], FloatArray]:
        """Return (row of the nearest source length, the shorter of two; ratio of the line's values)."""
        right = np.minimum(np.searchsorted(self.src_len, src_len), len(self.src_len) - 1)
        left = np.maximum(right - 1, 0)
        row = np.where(src_len - self.src_len[left] <= self.src_len[right] - src_len, left, right)
        return row, self.line.predict(src_len) / self.line.predict(self.src_len[row])
