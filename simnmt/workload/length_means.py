"""Mean and deviation of the target length per source length, beside the line: the paper's figure 3 (CNMT-18)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from simnmt.workload.length_regression import LengthRegression
from simnmt.workload.length_table import IntArray, LengthTable

UPPER_EDGES = (*range(1, 11), 15, 20, 25, 30, 40, 50, 60, 80, 100, 150, 200, 300, 500, 1000)
"""Longest source lengths of the bins of a short table; what is longer yet shares one bin."""


@dataclass(frozen=True, slots=True)
class LengthMean:
    """The target lengths of the pairs whose source length lies in a range."""

    src_len_from: int
    src_len_to: int
    """Both ends occur."""
    pairs: int
    mean_src_len: float
    mean_tgt_len: float
    sd_tgt_len: float | None
    """Tokens, about the mean of each source length, by degrees of freedom; None where every source length has one pair."""
    line_tgt_len: float
    """What the line gives at the mean source length; below 1 where the line is."""
    rmse_tgt_len: float
    """Tokens, about the line."""

    def as_json(self) -> dict[str, float | None]:
        """Of one source length, by the keys that `simnmt corpus fit --json` prints."""
        return {
            "src_len": self.src_len_from,
            "pairs": self.pairs,
            "mean_tgt_len": self.mean_tgt_len,
            "sd_tgt_len": self.sd_tgt_len,
            "line_tgt_len": self.line_tgt_len,
            "rmse_tgt_len": self.rmse_tgt_len,
        }


def means_by_source_length(table: LengthTable, line: LengthRegression) -> list[LengthMean]:
    """One entry per source length that occurs, shortest first."""
    return _means(table, line, np.unique(table.src_len))


def binned_means(table: LengthTable, line: LengthRegression) -> list[LengthMean]:
    """Fewer entries: each source length by itself up to 10, longer ones together, bins without pairs left out."""
    return _means(table, line, np.array([*UPPER_EDGES, max(table.src_len.max(), UPPER_EDGES[-1] + 1)]))


def _means(table: LengthTable, line: LengthRegression, upper_edges: IntArray) -> list[LengthMean]:
    """Entries of the ranges that end at `upper_edges`, which are sorted and reach the longest source length."""
    weight, src, tgt = table.count.astype(np.float64), table.src_len, table.tgt_len.astype(np.float64)
    lengths, at = np.unique(src, return_inverse=True)
    mean_of_length = np.bincount(at, weight * tgt) / np.bincount(at, weight)
    about_mean = weight * (tgt - mean_of_length[at]) ** 2
    about_line = weight * (tgt - (line.slope * src + line.offset)) ** 2
    rows, ranges = np.searchsorted(upper_edges, src), np.searchsorted(upper_edges, lengths)
    found = []
    for row in np.unique(rows):
        here, inside = rows == row, lengths[ranges == row]
        pairs = int(weight[here].sum())
        mean_src = float(weight[here] @ src[here] / pairs)
        freedom = pairs - len(inside)
        found.append(
            LengthMean(
                src_len_from=int(inside[0]),
                src_len_to=int(inside[-1]),
                pairs=pairs,
                mean_src_len=mean_src,
                mean_tgt_len=float(weight[here] @ tgt[here] / pairs),
                sd_tgt_len=math.sqrt(about_mean[here].sum() / freedom) if freedom else None,
                line_tgt_len=line.slope * mean_src + line.offset,
                rmse_tgt_len=math.sqrt(about_line[here].sum() / pairs),
            )
        )
    return found
