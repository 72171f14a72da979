"""A link: transfer time of a request to the cloud and of its translation back (CNMT-03)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.network.errors import TraceError
from simnmt.network.series import BandwidthSeries, RttSeries

Seconds = NDArray[np.float64]
Tokens = NDArray[np.integer]

_TWO_BYTES = 1 << 16


def bytes_per_token(vocab: int) -> int:
    """Return the bytes of one token id: two for up to 65,536 words, else the fewest whole bytes that hold the largest id.

    Source: CNMT-03; the paper's two bytes do not hold the 85,000 and 250,000 words of other papers. Raises `TraceError` for
    fewer than one word.
    """
    if vocab < 1:
        raise TraceError(f"a vocabulary of {vocab} words", remedy="give at least 1")
    # Bits of the largest id instead of log2: no rounding at powers of two.
    return 2 if vocab <= _TWO_BYTES else ((vocab - 1).bit_length() + 7) // 8


@dataclass(frozen=True, slots=True)
class Link:
    """The connection of two tiers: an RTT that changes with time, and a bandwidth in each direction that may change too.

    Each direction takes half the RTT. Both directions of a request use the values at the moment `at_s` at which it meets the
    network. Each series repeats after its own lap. Raises `TraceError` for a bandwidth that is not positive.
    """

    rtt: RttSeries
    uplink_bps: float | BandwidthSeries
    """Bandwidth towards the cloud, bit/s."""
    downlink_bps: float | BandwidthSeries
    """Bandwidth from the cloud, bit/s."""

    def __post_init__(self) -> None:
        for key, rate_bps in (("uplink_bps", self.uplink_bps), ("downlink_bps", self.downlink_bps)):
            if not isinstance(rate_bps, BandwidthSeries) and not (math.isfinite(rate_bps) and rate_bps > 0.0):
                raise TraceError(f"{key} is {rate_bps}", remedy="give a positive bandwidth")

    def ways_s(self, at_s: Seconds, src_len: Tokens, tgt_len: Tokens, token_bytes: int) -> tuple[Seconds, Seconds]:
        """Return the seconds to the cloud for `src_len` tokens and back for `tgt_len`; all arrays have one shape.

        Their sum is T_tx. Raises `TraceError` for a time that is not finite.
        """
        half_s = self.rtt.at(at_s) / 2
        up_bps = self.uplink_bps.at(at_s) if isinstance(self.uplink_bps, BandwidthSeries) else self.uplink_bps
        down_bps = self.downlink_bps.at(at_s) if isinstance(self.downlink_bps, BandwidthSeries) else self.downlink_bps
        return half_s + 8 * token_bytes * src_len / up_bps, half_s + 8 * token_bytes * tgt_len / down_bps

    def ways_one_s(self, at_s: float, src_len: int, tgt_len: int, token_bytes: int) -> tuple[float, float]:
        """Return the times of one request as `ways_s` does, to the last bit, on plain numbers for a moving clock."""
        half_s = self.rtt.at_one(at_s) / 2
        up_bps = self.uplink_bps.at_one(at_s) if isinstance(self.uplink_bps, BandwidthSeries) else self.uplink_bps
        down_bps = self.downlink_bps.at_one(at_s) if isinstance(self.downlink_bps, BandwidthSeries) else self.downlink_bps
        return half_s + 8 * token_bytes * src_len / up_bps, half_s + 8 * token_bytes * tgt_len / down_bps

    def rtt_one_s(self, at_s: float) -> float:
        """Return the seconds of an empty probe to the cloud and back."""
        return self.rtt.at_one(at_s)
