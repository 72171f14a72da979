"""A token bucket: when does a read end that may not be faster than a rate, save for a burst."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite


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
