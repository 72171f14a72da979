"""What a pipeline of loads and computations takes: one disk, one processor, layers in order (STI-12, STI-19)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Column = NDArray[np.float64]
ROUNDING = 1e-9
"""Relative: what sums of decimal times may be off by and still count as equal."""


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Seconds from the beginning, a row per layer that is executed."""

    load_begin: Column
    load_end: Column
    compute_begin: Column
    compute_end: Column
    stall: Column
    """How long the processor waited for the layer's loads."""
    after_s: float = 0.0
    """What follows the last layer and reads nothing: a decoder's later steps."""

    @property
    def latency_s(self) -> float:
        """To the end of all computing."""
        return float(self.compute_end[-1]) + self.after_s

    @property
    def stall_s(self) -> float:
        """Of all layers together."""
        return float(self.stall.sum())

    @property
    def stalls(self) -> bool:
        """By more than rounding."""
        return self.stall_s > ROUNDING * self.latency_s


def timeline(load_s: ArrayLike, comp_s: ArrayLike, after_s: float = 0.0) -> Timeline:
    """Each layer computes once it is loaded and the layer before has been computed; loads follow each other from time 0.

    `load_s`: what remains to be loaded of each layer; `comp_s`: its computation; both of shape (layers,).
    """
    load, compute = np.asarray(load_s, np.float64), np.asarray(comp_s, np.float64)
    loaded = np.cumsum(load)
    # Each layer's end is the latest of all loads, each followed by the computations from its layer on: max-plus, no loop.
    before = np.concatenate([[0.0], np.cumsum(compute)])
    begin = np.maximum.accumulate(loaded - before[:-1]) + before[:-1]
    begin = np.maximum(begin, before[:-1])
    return _rows(load, loaded, begin, compute, after_s)


def load_then_run(load_s: ArrayLike, comp_s: ArrayLike, after_s: float = 0.0) -> Timeline:
    """The same work without overlap: computing begins once everything is loaded."""
    load, compute = np.asarray(load_s, np.float64), np.asarray(comp_s, np.float64)
    loaded = np.cumsum(load)
    begin = loaded[-1] + np.concatenate([[0.0], np.cumsum(compute)[:-1]])
    return _rows(load, loaded, begin, compute, after_s)


def _rows(load: Column, loaded: Column, begin: Column, compute: Column, after_s: float) -> Timeline:
    end = begin + compute
    free = np.concatenate([[0.0], end[:-1]])
    stall = begin - free
    # What is left of adding and taking away the same computations.
    stall[stall < ROUNDING * max(float(end[-1]), 0.0)] = 0.0
    return Timeline(loaded - load, loaded, begin, end, stall, after_s)
