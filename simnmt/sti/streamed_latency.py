"""What a request takes at a device that streams its model from the disk: max-plus, in columns (STI-12, XP-04).

A layer is computed once it has been read and the layer before has been computed, so a request ends at the latest of two: what
it computes after its turn has come, and, of each layer, its read followed by all that is computed from that layer on. Both are
known beforehand: of a box only two moments count, when its disk and when its processor come free. A decoder reads its
layers in the first step; later steps compute alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PlannedCompute:
    """What a plan's submodel computes, whatever has to be read. Raises `ValueError` where layers take no time.

    Encoder layers take their time for the next greater padded length; beyond the greatest, in proportion to the tokens.
    """

    layers: int
    """Of the encoder."""
    lengths: tuple[int, ...]
    """Padded source tokens, rising."""
    layer_s: tuple[float, ...]
    """Seconds of one encoder layer, by padded length."""
    decoder_layers: int = 0
    step_s: float = 0.0
    """Of one decoder layer for one token."""
    fixed_s: float = 0.0
    """Before the first layer: the embedding and the like."""
    step_fixed_s: float = 0.0
    """After the last layer of each step: the projection and the like; of an encoder alone, after its last layer."""

    def __post_init__(self) -> None:
        if self.layers < 1 or self.decoder_layers < 0:
            raise ValueError(f"{self.layers} encoder and {self.decoder_layers} decoder layers")
        if not self.lengths or len(self.lengths) != len(self.layer_s) or any(a >= b for a, b in pairwise((0, *self.lengths))):
            raise ValueError("lengths have to rise, with a time each")
        times_s = (*self.layer_s, *([self.step_s] if self.decoder_layers else []))
        if not all(0.0 < each < inf for each in times_s) or not (0.0 <= self.fixed_s < inf and 0.0 <= self.step_fixed_s < inf):
            raise ValueError("layers have to take a time, and the rest no less than none")

    @property
    def whole_step_s(self) -> float:
        """Seconds of a decoder step that reads nothing; 0 without a decoder."""
        return self.decoder_layers * self.step_s + self.step_fixed_s if self.decoder_layers else 0.0

    def encoder_layer_s(self, src_len: ArrayLike) -> Column:
        """Seconds of one encoder layer by source tokens; shape kept."""
        length = np.asarray(src_len, np.float64)
        padded = np.asarray(self.lengths, np.float64)
        at = np.minimum(np.searchsorted(padded, length), len(padded) - 1)
        seconds: Column = np.asarray(self.layer_s)[at] * np.maximum(length / padded[at], 1.0)
        return seconds

    def first_pass_s(self, src_len: ArrayLike) -> Column:
        """Seconds of the encoder and the first step of the decoder, with nothing to be read."""
        step_s = self.decoder_layers * self.step_s + self.step_fixed_s
        return self.fixed_s + self.layers * self.encoder_layer_s(src_len) + step_s

    def after_step_s(self, tgt_len: ArrayLike | None, step: float = 1.0) -> Column:
        """Seconds of the decoder's steps after so many; an output takes one at least, and without a decoder there are none."""
        if tgt_len is None or not self.decoder_layers:
            return np.zeros(())
        later: Column = self.whole_step_s * np.maximum(np.asarray(tgt_len, np.float64) - step, 0.0)
        return later

    def in_memory_s(self, src_len: ArrayLike, tgt_len: ArrayLike | None = None) -> Column:
        """Seconds of a request with nothing to be read: what a plane that knows of no disk stands for."""
        return self.first_pass_s(src_len) + self.after_step_s(tgt_len)


@dataclass(frozen=True, slots=True)
class StreamedState:
    """What a box has to read for a request, by what its memory holds when the request's turn comes."""

    name: str
    load_s: tuple[float, ...]
    """Seconds to read each layer's share that is not held: the encoder's layers, then the decoder's."""
    held_bytes: int = 0
    """In the preload buffer when it begins."""
    kept_bytes: int = 0
    """In the buffer after it, while the engagement lasts."""
    streamed_bytes: int = 0
    """Read for it."""

    @property
    def read_s(self) -> float:
        """For which the disk is busy."""
        return sum(self.load_s)

    def from_read_s(
        self, compute: PlannedCompute, src_len: ArrayLike, tgt_len: ArrayLike | None = None, factor: ArrayLike = 1.0
    ) -> Column:
        """Seconds from the begin of its reads until it would end if only these held it up; 0 where nothing is read.

        `factor`: on all computing, of each request. Raises `ValueError` where loads and layers do not fit.
        """
        if len(self.load_s) != compute.layers + compute.decoder_layers:
            raise ValueError(f"{len(self.load_s)} loads of {compute.layers} + {compute.decoder_layers} layers")
        scale = np.asarray(factor, np.float64)
        layer_s = compute.encoder_layer_s(src_len) * scale
        step_s = (compute.decoder_layers * compute.step_s + compute.step_fixed_s) * scale
        latest_s: Column = np.zeros(np.broadcast_shapes(layer_s.shape, scale.shape))
        for layer, (load_s, read_s) in enumerate(zip(self.load_s, accumulate(self.load_s), strict=True)):
            if load_s == 0.0:
                continue  # no later than the layer before, and less is computed after it
            if layer < compute.layers:
                after_s = (compute.layers - layer) * layer_s + step_s
            else:
                after_s = step_s - (layer - compute.layers) * compute.step_s * scale
            latest_s = np.maximum(latest_s, read_s + after_s)
        return np.where(latest_s > 0.0, latest_s + compute.after_step_s(tgt_len) * scale, 0.0)

    def alone_s(self, compute: PlannedCompute, src_len: ArrayLike, tgt_len: ArrayLike | None = None) -> Column:
        """Seconds of a request at a box that has nothing else to do: reads and computing begin together."""
        return np.maximum(self.from_read_s(compute, src_len, tgt_len), compute.in_memory_s(src_len, tgt_len))
