"""Diagnostics of the length regression: means per source length beside the line (figure 3, CNMT-18), and growth of the error.

The fit of the line assumes equal errors of all pairs. On real text the error grows with the source length, so a policy gains
from the distribution of output lengths.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.workload.length_regression import LengthRegression
from simnmt.workload.length_table import IntArray, LengthTable

UPPER_EDGES = (*range(1, 11), 15, 20, 25, 30, 40, 50, 60, 80, 100, 150, 200, 300, 500, 1000)
"""Longest source length of each bin of a short table; all longer ones share one bin."""


@dataclass(frozen=True, slots=True)
class LengthMean:
    """Statistics of the target lengths of pairs in a range of source lengths."""

    src_len_from: int
    src_len_to: int
    """The range; both ends occur."""
    pairs: int
    mean_src_len: float
    mean_tgt_len: float
    sd_tgt_len: float | None
    """Standard deviation about the mean of each source length, tokens, by degrees of freedom; None with one pair each."""
    line_tgt_len: float
    """Value of the line at the mean source length; it may be below 1."""
    rmse_tgt_len: float
    """Root mean squared error about the line, tokens."""

    def as_json(self) -> dict[str, float | None]:
        """Return the statistics of one source length by the keys of `simnmt corpus fit --json`."""
        keys = ("pairs", "mean_tgt_len", "sd_tgt_len", "line_tgt_len", "rmse_tgt_len")
        return {"src_len": self.src_len_from, **{key: getattr(self, key) for key in keys}}


def means_by_source_length(table: LengthTable, line: LengthRegression) -> list[LengthMean]:
    """Return one entry per source length that occurs, shortest first."""
    return _means(table, line, np.unique(table.src_len))


def binned_means(table: LengthTable, line: LengthRegression) -> list[LengthMean]:
    """Return one entry per bin of source lengths: each length up to 10, longer ones together, no empty bins."""
    return _means(table, line, np.array([*UPPER_EDGES, max(table.src_len.max(), UPPER_EDGES[-1] + 1)]))


def _means(table: LengthTable, line: LengthRegression, upper_edges: IntArray) -> list[LengthMean]:
    """Return the entries of the ranges that end at `upper_edges`, sorted up to the longest source length."""
    weight, src, tgt = table.count.astype(np.float64), table.src_len, table.tgt_len.astype(np.float64)
    lengths, at = np.unique(src, return_inverse=True)
    mean_of_length = np.bincount(at, weight * tgt) / np.bincount(at, weight)
    about_mean = weight * (tgt - mean_of_length[at]) ** 2
    about_line = weight * (tgt - (line.slope * src + line.offset)) ** 2
    rows, ranges = np.searchsorted(upper_edges, src), np.searchsorted(upper_edges, lengths)
    means = []
    for row in np.unique(rows):
        here, inside = rows == row, lengths[ranges == row]
        pairs = int(weight[here].sum())
        mean_src = float(weight[here] @ src[here] / pairs)
        freedom = pairs - len(inside)
        means.append(
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
    return means


FloatArray = NDArray[np.float64]

_REACH = 8.0
"""Greatest distance of a deviation at either end from the overall one, in logarithms; needed if few pairs fit exactly."""


@dataclass(frozen=True, slots=True)
class PairErrorGrowth:
    """Two forms of the standard deviation of M about the line, as functions of N, each fitted to all pairs.

    The fits maximise the likelihood of normal errors, so that each pair has the same weight. Both forms have two parameters;
    the more likely one is better.
    """

    linear_sd_at_0: float
    """Deviation of the linear form at N = 0, tokens."""
    linear_sd_per_src_token: float
    power_sd_at_1: float
    """Deviation of the power form at N = 1, tokens."""
    power_exponent: float
    """0: no growth; 0.5: independent words; 1: in proportion."""
    better: str
    """`linear` or `power`."""
    log_likelihood_gain: float
    """Gain of the better form over a constant deviation; below about 2 there is no significant growth."""
    pairs: int
    src_lengths: int
    """Number of distinct source lengths."""

    def __str__(self) -> str:
        """Return both forms, the better one first, and whether the error grows; without a full stop."""
        slope = self.linear_sd_per_src_token
        forms = {
            "linear": f"{self.linear_sd_at_0:.2f} {'+-'[slope < 0]} {abs(slope):.4f} N",
            "power": f"{self.power_sd_at_1:.2f} N^{self.power_exponent:.2f}",
        }
        better = forms.pop(self.better)
        (other,) = forms.values()
        deviation = f"deviation of a pair from the line: {better} tokens (next best: {other}), N being the source length"
        grows = "" if self.log_likelihood_gain > 2.0 else "; no more likely than one deviation for all"
        return f"{deviation}; from {self.pairs:,} pairs of {self.src_lengths:,} source lengths{grows}"


def fit_pair_error(table: LengthTable, line: LengthRegression) -> PairErrorGrowth | None:
    """Fit both forms to the pairs' errors about the line; None if all sources have one length or no pair has an error."""
    weight = table.count.astype(np.float64)
    squared = (table.tgt_len - (line.slope * table.src_len + line.offset)) ** 2
    lengths, row = np.unique(table.src_len, return_inverse=True)
    pairs = np.bincount(row, weight).astype(np.float64)
    mean_square = np.bincount(row, weight * squared) / pairs
    overall = math.sqrt(float(pairs @ mean_square / pairs.sum()))
    # Errors of mere rounding have no growth.
    if len(lengths) < 2 or overall < 1e-9 * max(table.mean_tgt_len, 1.0):
        return None
    place = ((lengths - lengths[0]) / (lengths[-1] - lengths[0])).astype(np.float64)
    log_place = np.log(lengths / lengths[0]) / math.log(lengths[-1] / lengths[0])
    (lin_first, lin_last), linear = _fit(lambda ends: (1 - place) * ends[0] + place * ends[1], pairs, mean_square, overall)
    (pow_first, pow_last), power = _fit(
        lambda ends: ends[0] ** (1 - log_place) * ends[1] ** log_place, pairs, mean_square, overall
    )
    slope = (lin_last - lin_first) / float(lengths[-1] - lengths[0])
    exponent = math.log(pow_last / pow_first) / math.log(lengths[-1] / lengths[0])
    constant = -float(pairs.sum()) * (math.log(overall) + 0.5)
    return PairErrorGrowth(
        linear_sd_at_0=lin_first - slope * float(lengths[0]),
        linear_sd_per_src_token=slope,
        power_sd_at_1=pow_first * float(lengths[0]) ** -exponent,
        power_exponent=exponent,
        better="linear" if linear >= power else "power",
        log_likelihood_gain=max(linear, power) - constant,
        pairs=table.pairs,
        src_lengths=len(lengths),
    )


def _fit(
    form: Callable[[FloatArray], FloatArray], pairs: FloatArray, mean_square: FloatArray, overall: float
) -> tuple[tuple[float, float], float]:
    """Return ((deviation at the shortest, at the longest source length), log likelihood) of a form given by these two."""
    from scipy.optimize import minimize

    def cost(logs: FloatArray) -> float:
        sd = form(np.exp(logs))
        return float(pairs @ (np.log(sd) + 0.5 * mean_square / sd**2) / pairs.sum())

    middle = math.log(overall)
    bounds = [(middle - _REACH, middle + _REACH)] * 2
    optimum = minimize(cost, np.array([middle - 0.1, middle + 0.1]), method="L-BFGS-B", bounds=bounds)
    first, last = np.exp(optimum.x).tolist()
    return (first, last), -float(optimum.fun) * float(pairs.sum())
