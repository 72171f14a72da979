"""A token bucket: when does a read end that may not be faster than a rate, save for a burst."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TokenBucket:
    """Holds bytes that may be read at once; fills at `rate_bytes_per_s` up to `burst_bytes`. Full at the start."""

    rate_bytes_per_s: float
    burst_bytes: float = 0.0

    def end_s(self, begin_s: float, size_bytes: float) -> float:
        """When a read of `size_bytes` that begins at `begin_s` may end; reads queue in the order of the calls.

        Never before `begin_s`. Raises `ValueError` for a negative size or a beginning before that of the read before.
        """
        raise NotImplementedError
