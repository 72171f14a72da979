"""Timeline of a pipeline with one disk and one processor: layers are loaded and computed in order (STI-12, STI-19)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from simnmt.base.arrays import Floats

ROUNDING = 1e-9
"""Relative difference below which two sums of decimal times count as equal."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Seconds of all computing of a model that is in memory."""

    comp_s: Sequence[float]
    """Seconds of each layer; of a decoder layer for its first step and for its computation once per request."""
    after_s: float = 0.0
    """Seconds after the last layer: the head, and the later steps of a decoder."""
    slowed: float = 1.0
    """Factor on all computing times while the disk reads."""
    before_s: float = 0.0
    """Before the first layer: the embedding."""

    @property
    def total_s(self) -> float:
        """Seconds of all computing if nothing is read."""
        return self.before_s + sum(self.comp_s) + self.after_s


MOMENTS = ("load_begin", "load_end", "compute_begin", "compute_end", "stall")


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Moments of one execution in seconds from its begin; each column has one value per executed layer."""

    load_begin: Floats
    load_end: Floats
    compute_begin: Floats
    compute_end: Floats
    stall: Floats
    """Seconds that the processor waited for the loads of the layer."""
    after_s: float = 0.0
    before_s: float = 0.0
    """Both as in `Work`; the latter slowed by reads."""

    @property
    def latency_s(self) -> float:
        return float(self.compute_end[-1]) + self.after_s

    @property
    def stall_s(self) -> float:
        return float(self.stall.sum())

    def as_json(self) -> dict[str, Any]:
        columns = {f"{name}_s": getattr(self, name).tolist() for name in MOMENTS}
        sums = {name: getattr(self, name) for name in ("before_s", "after_s", "latency_s")}
        return columns | sums | {"total_stall_s": self.stall_s}

    def rows(self) -> Iterator[tuple[float, ...]]:
        """Yield the `MOMENTS` of each layer."""
        yield from zip(*(getattr(self, name).tolist() for name in MOMENTS), strict=True)


TimelineFunction = Callable[[ArrayLike, Work], Timeline]


def timeline(load_s: ArrayLike, work: Work) -> Timeline:
    """Return the timeline of a pipeline: loads run one after the other, and computing overlaps them.

    A layer is computed once it is loaded and the layer before it has been computed. `load_s`: seconds that remain to load each
    layer, shape (layers,). Only computing during the loads is slowed.
    """
    load, compute, slowed = np.asarray(load_s, np.float64), np.asarray(work.comp_s, np.float64), work.slowed
    loaded = np.cumsum(load)
    # In seconds of undisturbed work, which pass more slowly than the clock's until all is loaded.
    ready = loaded if slowed == 1.0 else loaded / slowed
    # Each layer's end is the latest of all loads, each followed by the computations from its layer on: max-plus, no loop.
    before = np.concatenate([[0.0], np.cumsum(compute)]) + work.before_s
    begin = np.maximum.accumulate(ready - before[:-1]) + before[:-1]
    begin = np.maximum(begin, before[:-1])
    begin_s, end_s = (_clock_s(done, loaded[-1], slowed) for done in (begin, begin + compute))
    return _rows(load, loaded, begin_s, end_s, work.after_s, float(_clock_s(before[0], loaded[-1], slowed)))


def _clock_s(work_s: Floats, read_s: float, slowed: float) -> Floats:
    """Return when `work_s` seconds of undisturbed work are done; in the first `read_s` seconds the pace is 1 / `slowed`."""
    if slowed == 1.0:
        return work_s
    return np.where(work_s * slowed <= read_s, work_s * slowed, read_s + (work_s - read_s / slowed))


def load_then_run(load_s: ArrayLike, work: Work) -> Timeline:
    """Return the timeline without overlap: the first layer begins after the last load; only the embedding overlaps loads."""
    load, compute = np.asarray(load_s, np.float64), np.asarray(work.comp_s, np.float64)
    loaded = np.cumsum(load)
    embedded_s = float(_clock_s(np.asarray(work.before_s, np.float64), loaded[-1], work.slowed))
    begin = max(float(loaded[-1]), embedded_s) + np.concatenate([[0.0], np.cumsum(compute)[:-1]])
    return _rows(load, loaded, begin, begin + compute, work.after_s, embedded_s)


def _rows(load: Floats, loaded: Floats, begin: Floats, end: Floats, after_s: float, before_s: float) -> Timeline:
    stall = begin - np.concatenate([[before_s], end[:-1]])
    # Rounding errors of adding and subtracting the same computing times.
    stall[stall < ROUNDING * max(float(end[-1]), 0.0)] = 0.0
    return Timeline(loaded - load, loaded, begin, end, stall, after_s, before_s)
