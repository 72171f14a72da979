"""A link: how long a request takes to the cloud and its translation back (CNMT-03)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from simnmt.network.errors import TraceError
from simnmt.network.rtt_series import RttSeries

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
    """The way between two tiers: an RTT that changes with time, and a bandwidth each way that does not.

    Half the RTT counts for each way. Methods take plain numbers or columns of one shape, and give seconds
    of that shape.
    """

    rtt: RttSeries
    uplink_bps: float
    """Bits per second towards the cloud."""
    downlink_bps: float
    """Bits per second from the cloud."""

    def __post_init__(self) -> None:
        for key, rate_bps in (("uplink_bps", self.uplink_bps), ("downlink_bps", self.downlink_bps)):
            if not (math.isfinite(rate_bps) and rate_bps > 0.0):
                raise TraceError(f"{key} is {rate_bps}", remedy="give a positive bandwidth")

    @overload
    def uplink_s(self, rtt_s: float, src_len: int, token_bytes: int) -> float: ...
    @overload
    def uplink_s(self, rtt_s: Seconds, src_len: Tokens, token_bytes: int) -> Seconds: ...
    def uplink_s(self, rtt_s: float | Seconds, src_len: int | Tokens, token_bytes: int) -> float | Seconds:
        """Seconds from the gateway to the cloud for `src_len` tokens."""
        return rtt_s / 2 + 8 * token_bytes * src_len / self.uplink_bps

    @overload
    def downlink_s(self, rtt_s: float, tgt_len: int, token_bytes: int) -> float: ...
    @overload
    def downlink_s(self, rtt_s: Seconds, tgt_len: Tokens, token_bytes: int) -> Seconds: ...
    def downlink_s(self, rtt_s: float | Seconds, tgt_len: int | Tokens, token_bytes: int) -> float | Seconds:
        """Seconds from the cloud back to the gateway for `tgt_len` tokens."""
        return rtt_s / 2 + 8 * token_bytes * tgt_len / self.downlink_bps

    @overload
    def transfer_s(self, rtt_s: float, src_len: int, tgt_len: int, token_bytes: int) -> float: ...
    @overload
    def transfer_s(self, rtt_s: Seconds, src_len: Tokens, tgt_len: Tokens, token_bytes: int) -> Seconds: ...
    def transfer_s(
        self, rtt_s: float | Seconds, src_len: int | Tokens, tgt_len: int | Tokens, token_bytes: int
    ) -> float | Seconds:
        """T_tx: seconds on the way there and back."""
        up_s = rtt_s / 2 + 8 * token_bytes * src_len / self.uplink_bps
        return up_s + (rtt_s / 2 + 8 * token_bytes * tgt_len / self.downlink_bps)
