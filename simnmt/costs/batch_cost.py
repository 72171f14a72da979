"""Costs of a batch over one length: a decode step by position (FNI-18), the encoder by source length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.costs.profile_blocks import EncoderBlock, StepBlock
from simnmt.costs.surfaces import LinearSurface, Surface, SurfaceWithAlone, TableSurface

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds of one decode step of `batch` sentences when `position` tokens are out."""

    surface: Surface
    batch_range: Range
    """Measured, both ends included."""
    position_range: Range

    @classmethod
    def of(cls, block: StepBlock) -> StepCost:
        """What a profile's block says."""
        own = block.coefficients
        linear = own and LinearSurface(own.s_fixed, own.s_per_row, own.s_per_position, own.s_per_row_position)
        surface = linear if block.form == "linear" and linear else _table(block.batch, block.position, block.seconds)
        return cls(_with_alone(surface, block.position, block.alone_s), _ends(block.batch), _ends(block.position))

    def seconds(self, batch: ArrayLike, position: ArrayLike) -> NDArray[np.float64]:
        """Broadcasts over its arguments."""
        return self.surface.seconds(batch, position)

    def steps_s(self, batch: ArrayLike, first: ArrayLike, last: ArrayLike) -> NDArray[np.float64]:
        """Seconds of the steps at positions first..last, both included, at a constant batch; 0 where last < first."""
        return self.surface.sum_s(batch, first, last)

    def at_batch(self, batch: int) -> Callable[[int, int], float]:
        """`steps_s` of one batch on plain numbers: what a simulated server holds per batch size."""
        return self.surface.at_batch(batch)

    def outside(self, batch: ArrayLike, position: ArrayLike) -> NDArray[np.bool_]:
        """Which lie outside what was measured, and are extrapolated."""
        return _outside(batch, self.batch_range) | _outside(position, self.position_range)


@dataclass(frozen=True, slots=True)
class EncoderCost:
    """Seconds of encoding `batch` sentences of `src_len` tokens each."""

    surface: Surface
    batch_range: Range
    """Measured, both ends included."""
    src_len_range: Range

    @classmethod
    def of(cls, block: EncoderBlock) -> EncoderCost:
        """What a profile's block says."""
        own = block.coefficients
        linear = own and LinearSurface(own.s_fixed, own.s_per_row, own.s_per_src_token, own.s_per_row_src_token)
        surface = linear if block.form == "linear" and linear else _table(block.batch, block.src_len, block.seconds)
        return cls(_with_alone(surface, block.src_len, block.alone_s), _ends(block.batch), _ends(block.src_len))

    def seconds(self, batch: ArrayLike, src_len: ArrayLike) -> NDArray[np.float64]:
        """Broadcasts over its arguments."""
        return self.surface.seconds(batch, src_len)

    def outside(self, batch: ArrayLike, src_len: ArrayLike) -> NDArray[np.bool_]:
        """Which lie outside what was measured, and are extrapolated."""
        return _outside(batch, self.batch_range) | _outside(src_len, self.src_len_range)


def _table(batch: tuple[int, ...], length: tuple[int, ...], seconds: tuple[tuple[float, ...], ...] | None) -> TableSurface:
    return TableSurface(*(np.asarray(each, np.float64) for each in (batch, length, seconds)))


def _with_alone(surface: LinearSurface | TableSurface, length: tuple[int, ...], alone_s: tuple[float, ...] | None) -> Surface:
    return surface if alone_s is None else SurfaceWithAlone(_table((1,), length, (alone_s,)), surface)


def _ends(values: tuple[int, ...]) -> Range:
    return values[0], values[-1]


def _outside(values: ArrayLike, ends: Range) -> NDArray[np.bool_]:
    given = np.asarray(values)
    outside: NDArray[np.bool_] = (given < ends[0]) | (given > ends[1])
    return outside
