"""Seconds over a batch and one length, as a bilinear form or as an interpolated table, and their sums over a run of lengths.

Sums are closed forms, never accumulated step by step: a simulation that skips ahead and one that takes each step must agree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinearSurface:
    """s_fixed + s_per_row batch + s_per_token length + s_per_row_token batch length."""

    s_fixed: float
    s_per_row: float
    s_per_token: float
    s_per_row_token: float

    def seconds(self, batch: ArrayLike, length: ArrayLike) -> Floats:
        """Broadcasts over its arguments."""
        rows, tokens = np.asarray(batch, np.float64), np.asarray(length, np.float64)
        value: Floats = self.s_fixed + self.s_per_row * rows + (self.s_per_token + self.s_per_row_token * rows) * tokens
        return value

    def sum_s(self, batch: ArrayLike, first: ArrayLike, last: ArrayLike) -> Floats:
        """Over the whole lengths first..last, both included; 0 where last < first."""
        rows, low, high = (np.asarray(each, np.float64) for each in (batch, first, last))
        count = np.maximum(high - low + 1.0, 0.0)
        value: Floats = count * self.seconds(rows, 0.5 * (low + high))
        return value

    def at_batch(self, batch: float) -> Callable[[int, int], float]:
        """`sum_s` of one batch on plain numbers."""
        level, slope = self.s_fixed + self.s_per_row * batch, self.s_per_token + self.s_per_row_token * batch

        def sum_s(first: int, last: int) -> float:
            return (last - first + 1) * (level + slope * 0.5 * (first + last)) if last >= first else 0.0

        return sum_s


@dataclass(frozen=True, slots=True, eq=False)
class TableSurface:
    """Bilinear between the cells of a grid.

    Outside of it: below the least batch or length the cost of the least holds on; beyond the greatest batch the last segment
    is prolonged, beyond the greatest length the trend over all lengths, since the noise of a single cell, prolonged, would
    grow without bound. Neither falls, so that no batch becomes free by being too large.
    """

    batches: Floats
    """Rising, shape (batches,)."""
    lengths: Floats
    """Rising, shape (lengths,); whole numbers."""
    cells: Floats
    """Seconds, shape (batches, lengths)."""

    def seconds(self, batch: ArrayLike, length: ArrayLike) -> Floats:
        """Broadcasts over its arguments."""
        rows, tokens = np.broadcast_arrays(np.asarray(batch, np.float64), np.asarray(length, np.float64))
        knots = self._knots(rows)
        segment = np.clip(np.searchsorted(self.lengths, tokens, side="right") - 1, 0, max(self.lengths.size - 2, 0))
        begin = np.take_along_axis(knots, segment[..., None], axis=-1)[..., 0]
        if self.lengths.size == 1:
            return begin
        end = np.take_along_axis(knots, segment[..., None] + 1, axis=-1)[..., 0]
        low, high = self.lengths[segment], self.lengths[segment + 1]
        beyond_s: Floats = np.maximum(tokens - self.lengths[-1], 0.0) * self._trend(knots)[..., 0]
        return _between(begin, end, np.minimum((tokens - low) / (high - low), 1.0)) + beyond_s

    def sum_s(self, batch: ArrayLike, first: ArrayLike, last: ArrayLike) -> Floats:
        """Over the whole lengths first..last, both included; 0 where last < first."""
        rows, low, high = np.broadcast_arrays(*(np.asarray(each, np.float64) for each in (batch, first, last)))
        knots = self._knots(rows)
        total: Floats = self._up_to(knots, np.maximum(high + 1.0, low)) - self._up_to(knots, low)
        return total

    def at_batch(self, batch: float) -> Callable[[int, int], float]:
        """`sum_s` of one batch on plain numbers."""
        knots = self._knots(np.asarray(batch, np.float64))
        slopes, before = self._slopes(knots).tolist(), self._before(knots).tolist()
        start, value = self.lengths.tolist(), knots.tolist()

        def up_to(end: int) -> float:
            at = bisect_right(start, end) - 1
            if at < 0:
                return float(value[0] * (end - start[0]))
            many = end - start[at]
            return float(before[at] + many * value[at] + slopes[at] * 0.5 * many * (many - 1))

        def sum_s(first: int, last: int) -> float:
            return up_to(last + 1) - up_to(first) if last >= first else 0.0

        return sum_s

    def _knots(self, rows: Floats) -> Floats:
        """Seconds at each length of the grid; shape (*rows.shape, lengths)."""
        if self.batches.size == 1:
            return np.broadcast_to(self.cells[0], (*rows.shape, self.lengths.size))
        segment = np.clip(np.searchsorted(self.batches, rows, side="right") - 1, 0, self.batches.size - 2)
        low, high = self.batches[segment], self.batches[segment + 1]
        return _between(self.cells[segment], self.cells[segment + 1], ((rows - low) / (high - low))[..., None])

    def _slopes(self, knots: Floats) -> Floats:
        """Seconds per token from each length of the grid on; from the last on, those of the trend."""
        if self.lengths.size == 1:
            return np.zeros_like(knots)
        inner = np.diff(knots, axis=-1) / np.diff(self.lengths)
        return np.concatenate([inner, self._trend(knots)], axis=-1)

    def _trend(self, knots: Floats) -> Floats:
        """Seconds per token by least squares over all lengths, at least 0; shape (*rows.shape, 1)."""
        aside = self.lengths - self.lengths.mean()
        slope: Floats = (knots @ aside / (aside @ aside))[..., None]
        return np.maximum(slope, 0.0)

    def _before(self, knots: Floats) -> Floats:
        """Sum over the lengths from the grid's first up to, and without, each length of the grid."""
        many = np.diff(self.lengths)
        slopes = self._slopes(knots)[..., :-1]
        segments = many * knots[..., :-1] + slopes * 0.5 * many * (many - 1.0)
        return np.concatenate([np.zeros_like(knots[..., :1]), np.cumsum(segments, axis=-1)], axis=-1)

    def _up_to(self, knots: Floats, end: Floats) -> Floats:
        """Sum over the lengths from the grid's first up to, and without, `end`; below the first length it is negative."""
        at = np.searchsorted(self.lengths, end, side="right") - 1
        inside = np.maximum(at, 0)[..., None]
        value, slope, before = (
            np.take_along_axis(each, inside, axis=-1)[..., 0] for each in (knots, self._slopes(knots), self._before(knots))
        )
        many = end - self.lengths[inside[..., 0]]
        rising = np.where(at < 0, 0.0, slope * 0.5 * many * (many - 1.0))
        total: Floats = before + many * value + rising
        return total


@dataclass(frozen=True, slots=True)
class SurfaceWithAlone:
    """A surface whose batch of one has costs of its own: those that agree with whole executions of single sentences.

    A sentence alone is what most requests of an idle server are, and a library may change its kernel from one row to two, so
    a form that is good over all batch sizes may be several per cent off at 1.
    """

    alone: TableSurface
    """A single row, of batch 1."""
    batched: LinearSurface | TableSurface
    """From batch 2 on."""

    def seconds(self, batch: ArrayLike, length: ArrayLike) -> Floats:
        """Broadcasts over its arguments."""
        rows, tokens = np.broadcast_arrays(np.asarray(batch, np.float64), np.asarray(length, np.float64))
        return np.where(rows == 1.0, self.alone.seconds(1, tokens), self.batched.seconds(rows, tokens))

    def sum_s(self, batch: ArrayLike, first: ArrayLike, last: ArrayLike) -> Floats:
        """Over the whole lengths first..last, both included; 0 where last < first."""
        alone = np.asarray(batch, np.float64) == 1.0
        return np.where(alone, self.alone.sum_s(1, first, last), self.batched.sum_s(batch, first, last))

    def at_batch(self, batch: float) -> Callable[[int, int], float]:
        """`sum_s` of one batch on plain numbers."""
        return self.alone.at_batch(1) if batch == 1 else self.batched.at_batch(batch)


Surface = LinearSurface | TableSurface | SurfaceWithAlone


def _between(begin: Floats, end: Floats, share: Floats) -> Floats:
    """From begin (share 0) to end (share 1); held before begin, prolonged beyond end without falling."""
    inner = begin + np.clip(share, 0.0, 1.0) * (end - begin)
    value: Floats = inner + np.maximum(share - 1.0, 0.0) * np.maximum(end - begin, 0.0)
    return value
