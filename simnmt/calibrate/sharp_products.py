"""Products and activations of the sharp decoder timed on this box, beside the libraries' (SHARP-05, SHARP-08, SHARP-18)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from simnmt.kernels.activations import activate
from simnmt.kernels.interleaved import interleaved
from simnmt.kernels.product_ways import INT16, LIBRARY_WAYS, PACKED, ProductWays, drawn
from simnmt.streams import stream

Activations = Literal["library", "table", "polynomial"]

PRODUCT_SIZE = 1024
PRODUCT_BATCHES = (1, 2, 4, 6, 8, 16, 32, 64)
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
    """`int16`, `float32` (packed the same way), `torch` and `numpy`, with weights stored in whichever order is faster."""

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


def product_times(rounds: int, batches: Sequence[int] = PRODUCT_BATCHES, size: int = PRODUCT_SIZE) -> list[ProductTime]:
    """Time all ways in turn, on as many threads as the libraries are held to; hot and cold of each batch in turn."""
    found = dict[tuple[int, bool], ProductTime]()
    for cold in (False, True):
        ways = ProductWays.of(size, cold)
        for batch in batches:
            times = interleaved(ways.runs(drawn(batch, size)), rounds, warm=True, least_s=0.05)
            seconds = {"int16": times.of[INT16], "float32": times.of[PACKED]}
            for library in ("torch", "numpy"):
                own = [way for way in LIBRARY_WAYS if way.startswith(library)]
                seconds[library] = times.of[min(own, key=times.median_s)]
            found[batch, cold] = ProductTime(batch, size, cold, seconds)
    return [found[batch, cold] for batch in batches for cold in (False, True)]


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
