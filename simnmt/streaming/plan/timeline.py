"""Timeline of a pipeline with one disk and one processor: layers are loaded and computed in order (STI-12, STI-19)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

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
    """What follows the last layer and reads nothing: a head, and a decoder's later steps."""
    before_s: float = 0.0
    """What is computed ahead of the first layer while its loads are under way: the embedding, as long as it took."""

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


class TimelineFunction(Protocol):
    """`timeline` or `load_then_run`: how loads and computations follow each other."""

    def __call__(
        self, load_s: ArrayLike, comp_s: ArrayLike, after_s: float = 0.0, slowed: float = 1.0, *, before_s: float = 0.0
    ) -> Timeline:
        """See there."""
        ...


def timeline(
    load_s: ArrayLike, comp_s: ArrayLike, after_s: float = 0.0, slowed: float = 1.0, *, before_s: float = 0.0
) -> Timeline:
    """Each layer computes once it is loaded and the layer before has been computed; loads follow each other from time 0.

    `load_s`: what remains to be loaded of each layer; `comp_s`: its computation; both of shape (layers,). `before_s` and
    `after_s`: computed ahead of the first layer and behind the last. `slowed`: times as long that all computing takes while
    loads are under way; what is done after the last of them takes its own time.
    """
    load, compute = np.asarray(load_s, np.float64), np.asarray(comp_s, np.float64)
    loaded = np.cumsum(load)
    # In seconds of undisturbed work, which pass more slowly than the clock's until all is loaded.
    work = loaded if slowed == 1.0 else loaded / slowed
    # Each layer's end is the latest of all loads, each followed by the computations from its layer on: max-plus, no loop.
    before = np.concatenate([[0.0], np.cumsum(compute)]) + before_s
    begin = np.maximum.accumulate(work - before[:-1]) + before[:-1]
    begin = np.maximum(begin, before[:-1])
    begin_s, end_s = (_clock_s(done, loaded[-1], slowed) for done in (begin, begin + compute))
    return _rows(load, loaded, begin_s, end_s, after_s, float(_clock_s(before[0], loaded[-1], slowed)))


def _clock_s(work_s: Column, read_s: float, slowed: float) -> Column:
    """When so much undisturbed work is done, of which 1 / slowed gets done in each of the first `read_s` seconds."""
    if slowed == 1.0:
        return work_s
    return np.where(work_s * slowed <= read_s, work_s * slowed, read_s + (work_s - read_s / slowed))


def load_then_run(
    load_s: ArrayLike, comp_s: ArrayLike, after_s: float = 0.0, slowed: float = 1.0, *, before_s: float = 0.0
) -> Timeline:
    """The same work without overlap: layers begin once everything is loaded; what is ahead of them needs no load."""
    load, compute = np.asarray(load_s, np.float64), np.asarray(comp_s, np.float64)
    loaded = np.cumsum(load)
    embedded_s = float(_clock_s(np.asarray(before_s, np.float64), loaded[-1], slowed))
    begin = max(float(loaded[-1]), embedded_s) + np.concatenate([[0.0], np.cumsum(compute)[:-1]])
    return _rows(load, loaded, begin, begin + compute, after_s, embedded_s)


def _rows(load: Column, loaded: Column, begin: Column, end: Column, after_s: float, before_s: float) -> Timeline:
    free = np.concatenate([[before_s], end[:-1]])
    stall = begin - free
    # What is left of adding and taking away the same computations.
    stall[stall < ROUNDING * max(float(end[-1]), 0.0)] = 0.0
    return Timeline(loaded - load, loaded, begin, end, stall, after_s, before_s)
