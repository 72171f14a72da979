"""What is to be recorded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from simnmt.network.errors import TraceError

Method = Literal["tcp", "icmp"]

SHORTEST_INTERVAL_S = 0.01
MOST_PROBES = 10_000_000
TRANSFER_BYTES = (10_000, 1_000_000_000)
"""Fewer hardly leave the start of TCP, more are no short transfer; the responder has a bound of its own."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where to, how long, how often. Raises `TraceError` for what makes no sense."""

    host: str
    port: int | None
    """Of the responder; None for ICMP alone."""
    duration_s: float
    interval_s: float = 1.0
    """Probe i goes out this many seconds times i after the start."""
    timeout_s: float = 2.0
    """An echo later than this is lost."""
    bandwidth_every_s: float = 60.0
    """Between the starts of transfers; 0 for none."""
    transfer_bytes: int = 256_000
    """Of one transfer, of which there is one each way."""
    method: Method = "tcp"

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise TraceError(f"--method {self.method}: no such method", remedy=f"one of {', '.join(get_args(Method))}")
        if self.port is not None and not 0 < self.port < 65_536:
            raise TraceError(f"--port {self.port}: is no port", remedy="give 1 to 65535, as the responder printed it")
        if self.port is None and self.method == "tcp":
            raise TraceError("--port is missing", remedy="give the one that `simnmt trace respond` printed")
        if not self.duration_s > 0.0:
            raise TraceError("--duration 0: records nothing", remedy="give 60s, 10m or 2h")
        if not SHORTEST_INTERVAL_S <= self.interval_s <= 240.0:
            raise TraceError(f"--interval {self.interval_s:g} s", remedy=f"give {1e3 * SHORTEST_INTERVAL_S:g} ms to 240 s")
        if self.probes > MOST_PROBES:
            what = f"{self.probes:,} probes in one recording, more than {MOST_PROBES:,}"
            raise TraceError(what, remedy="give a shorter --duration or a longer --interval")
        if not 0.0 < self.timeout_s <= 60.0:
            raise TraceError(f"--timeout {self.timeout_s:g} s", remedy="give more than 0 and at most 60 s")
        least, most = TRANSFER_BYTES
        if not least <= self.transfer_bytes <= most:
            what = f"--transfer {self.transfer_bytes:,} bytes"
            raise TraceError(what, remedy=f"give {least // 1000} kB to {most // 1_000_000} MB")

    @property
    def probes(self) -> int:
        """How many go out if none is held back."""
        return max(1, math.ceil(round(self.duration_s / self.interval_s, 9)))

    @property
    def transfers(self) -> bool:
        """Whether bandwidth is measured, too."""
        return self.bandwidth_every_s > 0.0 and self.port is not None
