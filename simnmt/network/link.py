"""A link: transfer time of a request to the cloud and of its translation back (CNMT-03)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.network.errors import TraceError
from simnmt.network.outages import DrawnOutages, ListedOutages, TraceOutages
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
    outages: ListedOutages | DrawnOutages | TraceOutages | None = None
    """Outages, of which the times of `ways_s` know nothing; None without any."""
    j_per_byte: float = 0.0
    """Energy that each byte takes, in either direction."""
    price_per_gb: float = 0.0
    """Money for 10**9 bytes, in either direction."""

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


@dataclass(frozen=True, slots=True)
class Hop:
    """The links into one device from the one before it: one link for all end nodes, or several that are dealt to them."""

    links: tuple[Link, ...]
    """Links, dealt to the end nodes in turn."""
    begin_s: tuple[float, ...]
    """Moment on its link's traces at which the run begins: one number for all, or one per end node."""

    def ways_s(
        self, at_s: Seconds, node: NDArray[np.int32], src_len: Tokens, tgt_len: Tokens, token_bytes: int
    ) -> tuple[Seconds, Seconds]:
        """Return the seconds there and back, for requests at moments of the run."""
        moments = at_s + (self.begin_s[0] if len(self.begin_s) == 1 else np.array(self.begin_s)[node])
        if len(self.links) == 1:
            return self.links[0].ways_s(moments, src_len, tgt_len, token_bytes)
        up_s, down_s = np.empty_like(moments), np.empty_like(moments)
        for number, link in enumerate(self.links):
            on_link = node % len(self.links) == number
            up_s[on_link], down_s[on_link] = link.ways_s(moments[on_link], src_len[on_link], tgt_len[on_link], token_bytes)
        return up_s, down_s

    def ways_one_s(self, at_s: float, node: int, src_len: int, tgt_len: int, token_bytes: int) -> tuple[float, float]:
        """Return the seconds there and back of one request."""
        link = self.links[node % len(self.links)]
        return link.ways_one_s(at_s + self.begin_s[node % len(self.begin_s)], src_len, tgt_len, token_bytes)

    def rtt_s(self, at_s: float, node: int) -> float:
        """Return the round-trip seconds of a probe."""
        return self.links[node % len(self.links)].rtt_one_s(at_s + self.begin_s[node % len(self.begin_s)])


@dataclass(frozen=True, slots=True, eq=False)
class MovingRoute:
    """A function that looks up the links of one request, for a world in which the moment depends on the answers before."""

    access: Hop | None
    """From the end nodes to their deciders, unless those are their own."""
    hops: tuple[Hop, ...]
    """Into each device but the first."""
    token_bytes: tuple[int, ...]
    """Bytes of a token that each device reads and writes, the first device included."""
    src_len: Tokens
    tgt_len: Tokens
    moments_s: Seconds | None
    """When each request meets the links, whatever the time; None: when it is issued."""
    half_overhead_s: tuple[Seconds | None, ...]
    """By target, half of the overhead of each request on its path; None without one."""

    def __call__(self, request: int, node: int, now_s: float) -> tuple[tuple[float, ...], tuple[float, ...], float, float]:
        """Return the seconds up and down per target but the first, and from the end node to its decider and back."""
        at_s = now_s if self.moments_s is None else float(self.moments_s[request])
        lengths = int(self.src_len[request]), int(self.tgt_len[request])
        ups: list[float] = []
        downs: list[float] = []
        for target, token_bytes in enumerate(self.token_bytes[1:], start=1):
            up_s, down_s = self.hops[0].ways_one_s(at_s, node, *lengths, token_bytes)
            for hop in self.hops[1:target]:
                further_up_s, further_down_s = hop.ways_one_s(at_s, node, *lengths, token_bytes)
                up_s, down_s = up_s + further_up_s, down_s + further_down_s
            if (beyond_s := self.half_overhead_s[target]) is not None:
                half_s = float(beyond_s[request])
                up_s, down_s = up_s + half_s, down_s + half_s
            ups.append(up_s)
            downs.append(down_s)
        there_s, back_s = 0.0, 0.0
        if self.access is not None:
            there_s, back_s = self.access.ways_one_s(at_s, node, *lengths, self.token_bytes[0])
        if (own_s := self.half_overhead_s[0]) is not None:
            half_s = float(own_s[request])
            there_s, back_s = there_s + half_s, back_s + half_s
        return tuple(ups), tuple(downs), there_s, back_s
