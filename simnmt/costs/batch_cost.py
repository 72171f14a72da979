"""Costs of a batch over one length: a decode step by position (FNI-18), the encoder by source length; and their fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from simnmt.costs.profile_blocks import EncoderBlock, StepBlock


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds of one decode step of `batch` sentences when `position` tokens are out."""

    @classmethod
    def of(cls, block: StepBlock) -> StepCost:
        """What a profile's block says."""
        raise NotImplementedError

    def seconds(self, batch: ArrayLike, position: ArrayLike) -> NDArray[np.float64]:
        """Broadcasts over its arguments."""
        raise NotImplementedError

    def steps_s(self, batch: ArrayLike, first: ArrayLike, last: ArrayLike) -> NDArray[np.float64]:
        """Seconds of the steps at positions first..last, both included, at a constant batch; 0 where last < first."""
        raise NotImplementedError

    def at_batch(self, batch: int) -> Callable[[int, int], float]:
        """`steps_s` of one batch on plain numbers: what a simulated server holds per batch size."""
        raise NotImplementedError

    def outside(self, batch: ArrayLike, position: ArrayLike) -> NDArray[np.bool_]:
        """Which lie outside what was measured, and are extrapolated."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class EncoderCost:
    """Seconds of encoding `batch` sentences of `src_len` tokens each."""

    @classmethod
    def of(cls, block: EncoderBlock) -> EncoderCost:
        """What a profile's block says."""
        raise NotImplementedError

    def seconds(self, batch: ArrayLike, src_len: ArrayLike) -> NDArray[np.float64]:
        """Broadcasts over its arguments."""
        raise NotImplementedError

    def outside(self, batch: ArrayLike, src_len: ArrayLike) -> NDArray[np.bool_]:
        """Which lie outside what was measured, and are extrapolated."""
        raise NotImplementedError


def fit_step_cost(
    batch: ArrayLike, position: ArrayLike, time_s: ArrayLike, *, kind: str = "measured", quantile: float = 0.5, beam: int = 1
) -> StepBlock:
    """The profile's block of measured steps, repeats and all; three columns of shape (steps,).

    Fits both forms and keeps the one with the smaller error on batch sizes left out in turn. Raises `ValueError` for no or
    impossible measurements.
    """
    raise NotImplementedError


def fit_encoder_cost(
    batch: ArrayLike, src_len: ArrayLike, time_s: ArrayLike, *, kind: str = "measured", quantile: float = 0.5, beam: int = 1
) -> EncoderBlock:
    """As `fit_step_cost`, over source lengths."""
    raise NotImplementedError
