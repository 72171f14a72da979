"""Products and activations of the sharp decoder timed on this box, beside the libraries' (SHARP-05, SHARP-08, SHARP-18)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch

from simnmt.kernels.activations import activate
from simnmt.kernels.interleaved import interleaved
from simnmt.kernels.products import PackedFloat32, PackedInt16
from simnmt.kernels.roofline import last_cache_bytes
from simnmt.streams import stream

Activations = Literal["library", "table", "polynomial"]

PRODUCT_SIZE = 1024
PRODUCT_BATCHES = (1, 2, 4, 6, 8, 16, 32, 64)
MOST_COLD_BYTES = 2**28
"""Of weights that take turns, so that none is found in the cache."""
SEQUENCE = 65_536
"""Elements whose activations are timed: they stay in the second cache."""


@dataclass(frozen=True, slots=True)
class ProductTime:
    """Products of one batch of rows with square weights, seconds of one, by round."""

    batch: int
    size: int
    """Of the weights, which are square."""
    cold: bool
    """Weights come from memory; else from the cache, as in the paper's repeated products."""
    seconds: Mapping[str, tuple[float, ...]]
    """`int16`, `float32` (packed the same way), `torch` and `numpy`."""

    def median_s(self, name: str) -> float:
        """Of one product."""
        return statistics.median(self.seconds[name])

    def ratios(self, name: str) -> tuple[float, ...]:
        """int16 over another, by round; of `library` over the faster of torch and numpy."""
        own = self.best_library if name == "library" else name
        return tuple(theirs / ours for ours, theirs in zip(self.seconds["int16"], self.seconds[own], strict=True))

    def ratio(self, name: str) -> float:
        """The median round's."""
        return statistics.median(self.ratios(name))

    @property
    def best_library(self) -> str:
        """`torch` or `numpy`, whichever is faster."""
        return min(("torch", "numpy"), key=self.median_s)


def product_time(batch: int, cold: bool, rounds: int) -> ProductTime:
    """Time the four products in turn, on as many threads as the libraries are held to."""
    size, generator = PRODUCT_SIZE, stream(1, batch, "sharp products")
    x = generator.standard_normal((batch, size)).astype(np.float32)
    out = np.empty((batch, size), np.float32)
    count = max(1, min(MOST_COLD_BYTES, 2 * last_cache_bytes()) // (2 * size * size)) if cold else 1
    weight = (generator.random((size, size), np.float32) - np.float32(0.5)) * np.float32(0.1)
    int16 = [PackedInt16.of(weight, input_limit=10.0) for _ in range(count)]
    float32 = [PackedFloat32.of(weight) for _ in range(count)]
    plain = [weight.copy() for _ in range(count)]
    tensors, x_tensor, out_tensor = [torch.from_numpy(each) for each in plain], torch.from_numpy(x), torch.from_numpy(out)
    # Of one that is hot, many are timed as one, as a clock cannot tell a single product.
    repeats = 1 if cold else max(1, 512 // batch)

    def by_int16() -> None:
        for own in int16 * repeats:
            own.multiply(x, out)

    def by_float32() -> None:
        for own in float32 * repeats:
            own.multiply(x, out)

    def by_torch() -> None:
        for own in tensors * repeats:
            torch.mm(x_tensor, own.t(), out=out_tensor)

    def by_numpy() -> None:
        for own in plain * repeats:
            np.matmul(x, own.T, out=out)

    times = interleaved({"int16": by_int16, "float32": by_float32, "torch": by_torch, "numpy": by_numpy}, rounds, least_s=0.05)
    done = count * repeats
    return ProductTime(batch, size, cold, {name: tuple(each / done for each in own) for name, own in times.of.items()})


def activation_times(rounds: int) -> dict[Activations, float]:
    """Seconds of an activation of one element, each way: the mean of tanh and sigmoid."""
    x = stream(1, 0, "sharp activations").standard_normal(SEQUENCE).astype(np.float32)
    out = np.empty_like(x)

    def both(way: Activations) -> None:
        activate("tanh", x, way, out)
        activate("sigmoid", x, way, out)

    ways: tuple[Activations, ...] = ("library", "table", "polynomial")
    times = interleaved({way: partial(both, way) for way in ways}, rounds, least_s=0.05)
    return {way: times.median_s(way) / (2 * SEQUENCE) for way in ways}
