"""Costs of a device beside its processor time: reads from the disk, paced or not (STI-07), and energy of executions."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(slots=True)
class TokenBucket:
    """Holds bytes that may be read at once; fills at `rate_bytes_per_s` up to `burst_bytes`. Full at the start.

    Between any two moments no more is read than the rate times the time between them, plus one burst. It asks no clock: a
    simulated disk and a real one that is slowed down use it alike.
    """

    rate_bytes_per_s: float
    burst_bytes: float = 0.0
    _empty_s: float = field(default=-inf, init=False, repr=False)
    """When the bucket was, or will be, empty: between full and empty it holds the rate times the time since."""
    _begin_s: float = field(default=-inf, init=False, repr=False)

    def __post_init__(self) -> None:
        if not (isfinite(self.rate_bytes_per_s) and self.rate_bytes_per_s > 0.0):
            raise ValueError("the rate must be a positive number of bytes a second")
        if not (isfinite(self.burst_bytes) and self.burst_bytes >= 0.0):
            raise ValueError("the burst must be a number of bytes, 0 or more")

    def end_s(self, begin_s: float, size_bytes: float) -> float:
        """When a read of `size_bytes` that begins at `begin_s` may end; reads queue in the order of the calls.

        Never before `begin_s`. Raises `ValueError` for a negative size or a beginning before that of the read before.
        """
        if not size_bytes >= 0.0:
            raise ValueError("a read has 0 bytes or more")
        if not begin_s >= self._begin_s:
            raise ValueError("reads must be asked for in the order in which they begin")
        self._begin_s = begin_s
        full_since_s = begin_s - self.burst_bytes / self.rate_bytes_per_s
        self._empty_s = max(self._empty_s, full_since_s) + size_bytes / self.rate_bytes_per_s
        return max(begin_s, self._empty_s)


Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ReadTable:
    """Seconds by size, read off between the sizes on logarithmic scales; never less for more bytes.

    Below the least size its time holds, beyond the greatest its rate.
    """

    size_bytes: Column
    """Rising."""
    time_s: Column
    """Positive; where a larger size took less, the time of the smaller one counts."""

    def seconds(self, size_bytes: Column) -> Column:
        """Same shape."""
        within = np.clip(size_bytes, self.size_bytes[0], self.size_bytes[-1])
        never_less = np.maximum.accumulate(self.time_s)
        inside = np.exp(np.interp(np.log(within), np.log(self.size_bytes), np.log(never_less)))
        beyond: Column = inside * np.maximum(size_bytes / self.size_bytes[-1], 1.0)
        return beyond


@dataclass(frozen=True, slots=True)
class DiskCost:
    """Never faster for more bytes; no faster than the pace where one is set."""

    s_fixed: float
    bytes_per_s: float
    paced_bytes_per_s: float | None = None
    table: ReadTable | None = None
    """Computes in the line's place where there is one."""

    def seconds(self, size_bytes: ArrayLike) -> NDArray[np.float64]:
        """Seconds of one read of that many bytes; same shape."""
        size = np.asarray(size_bytes, np.float64)
        unpaced: Column = self.s_fixed + size / self.bytes_per_s if self.table is None else self.table.seconds(size)
        return unpaced if self.paced_bytes_per_s is None else np.maximum(unpaced, size / self.paced_bytes_per_s)


@dataclass(frozen=True, slots=True)
class EnergyCost:
    """A plane in joules where energy was measured per cell; else the active power times the execution time."""

    idle_w: float | None = None
    active_w: float | None = None
    """While executing, the idle power included."""
    j_per_src_token: float | None = None
    j_per_tgt_token: float | None = None
    j_fixed: float | None = None

    def joules(self, src_len: ArrayLike, tgt_len: ArrayLike, execution_s: ArrayLike) -> NDArray[np.float64] | None:
        """Energy of each execution; broadcasts over its arguments; None where nothing is known."""
        if self.j_per_src_token is not None and self.j_per_tgt_token is not None and self.j_fixed is not None:
            src, tgt = np.asarray(src_len, np.float64), np.asarray(tgt_len, np.float64)
            return np.maximum(self.j_per_src_token * src + self.j_per_tgt_token * tgt + self.j_fixed, 0.0)
        if self.active_w is not None:
            return self.active_w * np.asarray(execution_s, np.float64)
        return None
