"""A link: how long a request takes to the cloud and its translation back (CNMT-03)."""

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
    """Bytes that carry one token id: two up to 65,536 words, then as few whole bytes as hold the largest id.

    Source: CNMT-03; the paper's two bytes do not hold the 85,000 and 250,000 words of other papers.
    """
    if vocab < 1:
        raise TraceError(f"a vocabulary of {vocab} words", remedy="give at least 1")
    # Bits of the largest id instead of log2: no rounding at powers of two.
    return 2 if vocab <= _TWO_BYTES else ((vocab - 1).bit_length() + 7) // 8


@dataclass(frozen=True, slots=True)
class Link:
    """The way between two tiers: an RTT that changes with time, and a bandwidth each way that may.

    Half the RTT counts for each way. Both ways of a request go by the moment `at_s` on the link, at which it meets the
    network; each series repeats on a lap of its own.
    """

    rtt: RttSeries
    uplink_bps: float | BandwidthSeries
    """Bits per second towards the cloud."""
    downlink_bps: float | BandwidthSeries
    """Bits per second from the cloud."""

    def __post_init__(self) -> None:
        for key, rate_bps in (("uplink_bps", self.uplink_bps), ("downlink_bps", self.downlink_bps)):
            if not isinstance(rate_bps, BandwidthSeries) and not (math.isfinite(rate_bps) and rate_bps > 0.0):
                raise TraceError(f"{key} is {rate_bps}", remedy="give a positive bandwidth")

    def ways_s(self, at_s: Seconds, src_len: Tokens, tgt_len: Tokens, token_bytes: int) -> tuple[Seconds, Seconds]:
        """Seconds there for `src_len` tokens and seconds back for `tgt_len`; all of one shape. T_tx is their sum.

        Raises `TraceError` on a time that is not finite.
        """
        half_s = self.rtt.at(at_s) / 2
        up_bps = self.uplink_bps.at(at_s) if isinstance(self.uplink_bps, BandwidthSeries) else self.uplink_bps
        down_bps = self.downlink_bps.at(at_s) if isinstance(self.downlink_bps, BandwidthSeries) else self.downlink_bps
        return half_s + 8 * token_bytes * src_len / up_bps, half_s + 8 * token_bytes * tgt_len / down_bps

    def ways_one_s(self, at_s: float, src_len: int, tgt_len: int, token_bytes: int) -> tuple[float, float]:
        """What `ways_s` says of one request, to the last bit, on plain numbers for a moving clock."""
        half_s = self.rtt.at_one(at_s) / 2
        up_bps = self.uplink_bps.at_one(at_s) if isinstance(self.uplink_bps, BandwidthSeries) else self.uplink_bps
        down_bps = self.downlink_bps.at_one(at_s) if isinstance(self.downlink_bps, BandwidthSeries) else self.downlink_bps
        return half_s + 8 * token_bytes * src_len / up_bps, half_s + 8 * token_bytes * tgt_len / down_bps

    def rtt_one_s(self, at_s: float) -> float:
        """Seconds that an empty probe takes there and back."""
        return self.rtt.at_one(at_s)
