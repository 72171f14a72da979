"""What the world needs to know of its requests, as columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]

BLOCK = 4_096
"""Requests made into Python numbers at a time: few enough to stay in the processor's cache, so that the cost per request does
not grow with their number (65,536 at a time cost 14 % more)."""


@dataclass(frozen=True, slots=True)
class Requests:
    """The true times of every request on every target; all columns of shape (requests,), seconds unless said otherwise."""

    src_len: NDArray[np.int64]
    """Tokens."""
    gateway_s: Column
    """Execution at the gateway."""
    cloud_s: Column
    """Execution at the cloud server."""
    uplink_s: Column
    """From the gateway to the server; without the RTT's half where an own clock looks that up later."""
    downlink_s: Column
    """Back again."""
    arrival_s: Column | None = None
    """Sorted arrival times at the gateway; None back to back, where a request is issued when the one before is answered."""

    def __len__(self) -> int:
        return len(self.src_len)

    def blocks(self) -> Iterator[Requests]:
        """The same requests, a block of `BLOCK` at a time."""
        for start in range(0, len(self), BLOCK):
            part = slice(start, start + BLOCK)
            yield Requests(
                self.src_len[part],
                self.gateway_s[part],
                self.cloud_s[part],
                self.uplink_s[part],
                self.downlink_s[part],
                None if self.arrival_s is None else self.arrival_s[part],
            )
