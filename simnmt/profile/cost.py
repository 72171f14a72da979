"""The two forms of costs: a plane over both lengths (CNMT-05), and a table over batch and one length (FNI-18).

`DecodingCost` is built from two tables: decode steps by batch and position, and encoding by batch and source length. Sums over
a run of lengths are closed forms, never accumulated step by step: a simulation that skips ahead and one that takes each step
must agree (XP-01).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from pydantic import ConfigDict, Field

from simnmt.base.arrays import Floats

Seconds = Annotated[float, Field(strict=True, ge=0.0, le=10_000.0)]
"""Seconds of a token or of a request: at most three hours."""


@dataclass(frozen=True, slots=True)
class Plane:
    """Seconds of one sentence alone: linear in its source and target length (CNMT-05). Profiles check the ranges."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    s_per_src_token: Seconds
    s_per_tgt_token: Seconds
    s_fixed: Annotated[float, Field(strict=True, ge=-10_000.0, le=10_000.0)]

    def seconds(self, src_len: ArrayLike, tgt_len: ArrayLike) -> Floats:
        """Return the seconds, never negative; broadcasts over its arguments."""
        src, tgt = np.asarray(src_len, np.float64), np.asarray(tgt_len, np.float64)
        return np.maximum(self.s_per_src_token * src + self.s_per_tgt_token * tgt + self.s_fixed, 0.0)

    def __str__(self) -> str:
        tokens = f"{1e3 * self.s_per_src_token:.4g} x source + {1e3 * self.s_per_tgt_token:.4g} x target"
        return f"{tokens} {'-' if self.s_fixed < 0.0 else '+'} {1e3 * abs(self.s_fixed):.4g} ms"

    def times(self, factor: float, per_tgt_token: float = 1.0) -> Plane:
        """Return the plane of all times multiplied by `factor`, and the slope over target tokens by `per_tgt_token` too."""
        slopes = factor * self.s_per_src_token, factor * per_tgt_token * self.s_per_tgt_token
        return Plane(*slopes, factor * self.s_fixed)

    def recounted(self, times: tuple[float, float], tokens: tuple[float, float]) -> Plane:
        """Return the plane over other counts of (source, target) lengths, which are lengths = times x counts + tokens."""
        fixed = self.s_fixed + tokens[0] * self.s_per_src_token + tokens[1] * self.s_per_tgt_token
        return Plane(times[0] * self.s_per_src_token, times[1] * self.s_per_tgt_token, fixed)


@dataclass(frozen=True, slots=True)
class LognormalResidual:
    """A random factor of mean one on the plane's seconds: the spread grows with the time, and so with the lengths.

    Figure 2a of the C-NMT paper shows such growing bands; the lognormal form is a decision of this project.
    """

    relative_sd: float
    """Standard deviation of the factor; with 0 every execution lies on the plane."""

    def factor(self, standard_normal: Floats) -> Floats:
        """Return one positive factor per standard normal number; same shape."""
        sigma2 = math.log1p(self.relative_sd**2)
        return np.exp(math.sqrt(sigma2) * standard_normal - 0.5 * sigma2)


SHARES: Floats = np.array([*(0.05 * np.arange(20)).round(2), 0.975, 0.99, 1.0])
"""Shares at which the residual's quantiles are kept: every twentieth, and the tail."""


@dataclass(frozen=True, slots=True)
class ResidualQuantiles:
    """Distribution of single executions about the plane: quantiles of a factor of mean one, linear between them."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    shares: tuple[float, ...]
    """Shares of the executions, from 0 to 1."""
    factors: tuple[float, ...]
    """Factor on the plane that this share of the executions does not exceed."""

    def __post_init__(self) -> None:
        widths, factors = np.diff(self.shares), np.array(self.factors)
        has_ends = self.shares[:1] + self.shares[-1:] == (0.0, 1.0) and min(widths) > 0.0
        if not has_ends or len(factors) != len(self.shares) or abs(widths @ (factors[1:] + factors[:-1]) / 2.0 - 1.0) > 1e-6:
            raise ValueError("shares: rising from 0 to 1, with a factor for each, whose mean is 1")

    @classmethod
    def of(cls, factors: Floats, shares: Floats = SHARES) -> ResidualQuantiles:
        """Return the quantiles of measured factors, shape (executions,), at these shares, scaled to a mean of exactly one."""
        quantiles = np.quantile(factors, shares)
        quantiles /= float(np.diff(shares) @ (quantiles[1:] + quantiles[:-1])) / 2.0
        return cls(tuple(shares.tolist()), tuple(quantiles.tolist()))

    def factor(self, standard_normal: Floats) -> Floats:
        """Return one factor per standard normal number, at the same quantile; same shape."""
        from scipy.special import ndtr  # takes a tenth of a second to import, which most simulations do not need

        factor: Floats = np.interp(ndtr(standard_normal), self.shares, self.factors)
        return factor


class LengthCost(NamedTuple):
    """The cost of one batch size as a function of length: lines between knots, with their sums up to each knot."""

    start: Sequence[float]
    """Lengths of the knots, rising."""
    value: Sequence[float]
    """Seconds at each knot."""
    slopes: Sequence[float]
    """Seconds per token after each knot."""
    before: Sequence[float]
    """Sum over the lengths from the first knot up to, and without, each knot."""

    def sum_s(self, first: int, last: int) -> float:
        """Return the sum over the whole lengths first..last, both included; 0 if last < first."""
        return self._up_to(last + 1) - self._up_to(first) if last >= first else 0.0

    def _up_to(self, end: int) -> float:
        start, value, slopes, before = self
        at = bisect_right(start, end) - 1
        if at < 0:
            return float(value[0] * (end - start[0]))
        many = end - start[at]
        return float(before[at] + many * value[at] + slopes[at] * 0.5 * many * (many - 1))


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """Seconds over batch size and one length, bilinear between the cells of a grid.

    Below the least batch or length, the cost is that of the least. Beyond the greatest batch, the last segment is extended;
    beyond the greatest length, the trend over all lengths, because extending the noise of a single cell would have no bound.
    Neither ever falls: no batch becomes free by being too large. A step at position p is taken when p tokens are out.
    """

    batches: Floats
    """Rising, shape (batches,)."""
    lengths: Floats
    """Rising, shape (lengths,); whole numbers."""
    cells: Floats
    """Seconds, shape (batches, lengths)."""

    @classmethod
    def of(cls, batches: ArrayLike, lengths: ArrayLike, seconds: ArrayLike) -> CostTable:
        """Return a table of sequences; `seconds` may be one number for all cells."""
        rows, tokens = np.asarray(batches, np.float64), np.asarray(lengths, np.float64)
        return cls(rows, tokens, np.broadcast_to(np.asarray(seconds, np.float64), (rows.size, tokens.size)))

    @property
    def rows(self) -> tuple[tuple[float, ...], ...]:
        """The cells as a profile holds them."""
        return tuple(map(tuple, self.cells.tolist()))

    @property
    def batch_range(self) -> tuple[int, int]:
        """Measured batch sizes, both ends included."""
        return max(math.ceil(self.batches[0]), 1), int(self.batches[-1])

    @property
    def length_range(self) -> tuple[int, int]:
        """Measured lengths, both ends included."""
        return int(self.lengths[0]), int(self.lengths[-1])

    def seconds(self, batch: ArrayLike, length: ArrayLike) -> Floats:
        """Return the seconds of one step, or of encoding once; broadcasts over its arguments."""
        rows, tokens = np.broadcast_arrays(np.asarray(batch, np.float64), np.asarray(length, np.float64))
        knots = self._knots(rows)
        at = np.maximum(np.searchsorted(self.lengths, tokens, side="right") - 1, 0)
        value, slope = (np.take_along_axis(table, at[..., None], axis=-1)[..., 0] for table in (knots, self._slopes(knots)))
        seconds: Floats = value + slope * np.maximum(tokens - self.lengths[at], 0.0)
        return seconds

    def sum_s(self, batch: float, first: int, last: int) -> float:
        """Return the sum over the whole lengths first..last, both included, at a constant batch; 0 if last < first."""
        return self.at_batch(batch).sum_s(first, last)

    def at_batch(self, batch: float) -> LengthCost:
        """Return the cost of one batch size, which a simulated server keeps."""
        knots = self._knots(np.asarray(batch, np.float64))
        slopes, many = self._slopes(knots), np.diff(self.lengths)
        segments = many * knots[:-1] + slopes[:-1] * 0.5 * many * (many - 1.0)
        before = np.concatenate([[0.0], np.cumsum(segments)])
        return LengthCost(*(table.tolist() for table in (self.lengths, knots, slopes, before)))

    def _knots(self, rows: Floats) -> Floats:
        """Return the seconds at each length of the grid; shape (*rows.shape, lengths)."""
        if self.batches.size == 1:
            return np.broadcast_to(self.cells[0], (*rows.shape, self.lengths.size))
        segment = np.clip(np.searchsorted(self.batches, rows, side="right") - 1, 0, self.batches.size - 2)
        low, high = self.batches[segment], self.batches[segment + 1]
        begin, end, share = self.cells[segment], self.cells[segment + 1], ((rows - low) / (high - low))[..., None]
        inner = begin + np.clip(share, 0.0, 1.0) * (end - begin)
        knots: Floats = inner + np.maximum(share - 1.0, 0.0) * np.maximum(end - begin, 0.0)
        return knots

    def _slopes(self, knots: Floats) -> Floats:
        """Return the seconds per token after each length; after the last one the trend over all, never below 0."""
        if self.lengths.size == 1:
            return np.zeros_like(knots)
        aside = self.lengths - self.lengths.mean()
        trend = ((knots * aside).sum(axis=-1) / (aside * aside).sum())[..., None]
        return np.concatenate([np.diff(knots, axis=-1) / np.diff(self.lengths), np.maximum(trend, 0.0)], axis=-1)


@dataclass(frozen=True, slots=True)
class DecodingCost:
    """Seconds of the work of a batching server. A row of a batch is a sentence with all of its hypotheses.

    The step at position p is taken when p tokens are out; if the sentences of a batch joined at different times, the position
    is that of the sentence that has been active longest. Beyond the measured ranges, costs are extrapolated as in
    `CostTable`; `most_batch` is the greatest measured batch.
    """

    step: CostTable
    """Costs of the usual (median) step."""
    encoder: CostTable
    mean_over_usual: float = 1.0
    """Mean seconds of a step over those of the usual step: a few steps take much longer, and a server pays the sum."""
    gap_s_fixed: float = 0.0
    """Between two steps: choosing tokens, bookkeeping."""
    gap_s_per_sentence: float = 0.0
    refill_s_fixed: float = 0.0
    """Seconds to let sentences join a batch, whatever their number."""
    refill_s_per_sentence: float = 0.0
    """Seconds for each sentence that joins, and that is dropped once it is done."""
    leave_s: float = 0.0
    """Seconds added to a step that ends some sentence, whatever their number: the server drops them before anything else."""
    packs: bool = False
    """True if the encoder is given packed sequences (recurrent); else all sources are padded to the longest."""
    padding_share: float = 0.0
    """Share of the padding's cost that an encoder pays although it is given packed sequences."""
    beam: int = 1
    """Hypotheses of each sentence with which the steps were measured."""
    src_len: int | None = None
    """Source tokens under the measured steps, which decide attention's part of a step; None: unknown."""
    s_per_row_src_token: float = 0.0
    """Seconds that one more token of the longest source adds to a step for each sentence."""
    _encoders: dict[int, LengthCost] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Cached costs of the encoder by batch size."""

    @property
    def most_batch(self) -> int:
        """The largest batch with which both steps and encoder were measured."""
        return min(self.step.batch_range[1], self.encoder.batch_range[1])

    def source_s(self, batch: int, longest: int) -> float:
        """Return the seconds that a longest source of `longest` tokens adds to each step of `batch` sentences.

        Steps were measured under sources of `src_len` tokens, and the decoder attends to padding too: shorter sources give a
        negative result, which leaves at least half of the step. 0 if the effect was not measured.
        """
        if self.src_len is None or not self.s_per_row_src_token:
            return 0.0
        more_s = self.s_per_row_src_token * batch * (longest - self.src_len)
        return more_s if more_s >= 0.0 else max(more_s, -0.5 * self.steps_at(batch)(0, 0))

    def gap_s(self, batch: int) -> float:
        """Return the seconds between two steps of `batch` sentences."""
        return self.gap_s_fixed + self.gap_s_per_sentence * batch

    def steps_at(self, batch: int) -> Callable[[int, int], float]:
        """Return a closed form, which a server keeps: seconds of the steps first..last and their gaps, 0 if last < first."""
        usual, times, gap_s = self.step.at_batch(batch), self.mean_over_usual, self.gap_s(batch)

        def with_gaps(first: int, last: int) -> float:
            return times * usual.sum_s(first, last) + (last - first + 1) * gap_s if last >= first else 0.0

        return with_gaps

    def encode_s(self, src_lens: Sequence[int]) -> float:
        """Return the seconds of one call of the encoder for sentences of these source lengths; 0 for none.

        A packed batch shrinks as sentences end: the whole batch pays up to the shortest length, then the remaining batch pays
        for the tokens up to each next length. `padding_share` of the further cost of padding is added.
        """
        if not src_lens:
            return 0.0
        left, longest = len(src_lens), max(src_lens)
        padded_s = self._encode_s(left, longest)
        if not self.packs or left == 1:
            return padded_s
        total_s, before = 0.0, None
        for length, alike in groupby(sorted(src_lens)):
            at = self._encode_s(left, length)
            # Noise of neighbouring cells must not make a longer sentence cheaper.
            total_s += at if before is None else max(at - self._encode_s(left, before), 0.0)
            before, left = length, left - sum(1 for _ in alike)
        return total_s + self.padding_share * max(padded_s - total_s, 0.0)

    def _encode_s(self, batch: int, length: int) -> float:
        known = self._encoders.get(batch)
        if known is None:
            known = self._encoders[batch] = self.encoder.at_batch(batch)
        return known.sum_s(length, length)

    def refill_s(self, joining: int) -> float:
        """Return the seconds that `joining` encoded sentences take to join the batch; 0 for none."""
        return self.refill_s_fixed + self.refill_s_per_sentence * joining if joining > 0 else 0.0

    def solo_s(self, src_len: ArrayLike, tgt_len: ArrayLike) -> Floats:
        """Return the seconds of one sentence alone: encoded, joined, decoded at batch 1 and dropped; broadcasts."""
        src, tgt = np.asarray(src_len, np.float64), np.asarray(tgt_len, np.float64)
        sources_s: Floats = np.zeros_like(src)
        if self.src_len is not None:
            sources_s = np.maximum(self.s_per_row_src_token * (src - self.src_len), -0.5 * self.steps_at(1)(0, 0))
        usual, (lengths, where) = self.step.at_batch(1), np.unique(tgt, return_inverse=True)
        steps_s = np.array([usual.sum_s(0, int(length) - 1) for length in lengths])[where.reshape(tgt.shape)]
        besides_s = np.maximum(tgt, 0.0) * (self.gap_s(1) + sources_s) + np.where(tgt > 0.0, self.leave_s, 0.0)
        return self.encoder.seconds(1, src) + self.refill_s(1) + self.mean_over_usual * steps_s + besides_s
