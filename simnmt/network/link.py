"""Times on the way of a request: a link between two tiers (CNMT-03), hops over several, and the overhead of a device.

The overhead of a service varies from request to request and has a tail, so it is a distribution with a mean in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import exp, log1p, sqrt
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator

from simnmt.base.configuration import Configuration, form_by_key, misfit
from simnmt.network.outages import Outages
from simnmt.network.series import BandwidthSeries, RttSeries

Seconds = NDArray[np.float64]
Tokens = NDArray[np.integer]


def bytes_per_token(vocab: int) -> int:
    """Return the bytes of one token id: two for up to 65,536 words, else the fewest whole bytes that hold the largest id.

    Source: CNMT-03; the paper's two bytes do not hold the 85,000 and 250,000 words of other papers.
    """
    # Bits of the largest id instead of log2: no rounding at powers of two.
    return max(2, ((vocab - 1).bit_length() + 7) // 8)


@dataclass(frozen=True, slots=True)
class Link:
    """The connection of two tiers: an RTT that changes with time, and a bandwidth in each direction that may change too.

    Each direction takes half the RTT. Both directions of a request use the values at the moment at which it meets the network.
    """

    rtt: RttSeries
    uplink_bps: float | BandwidthSeries
    """Bandwidth towards the cloud, bit/s."""
    downlink_bps: float | BandwidthSeries
    """Bandwidth from the cloud, bit/s."""
    outages: Outages | None = None
    """Outages, of which the times of `ways_s` know nothing; None without any."""
    j_per_byte: float = 0.0
    """Energy that each byte takes, in either direction."""
    price_per_gb: float = 0.0
    """Money for 10**9 bytes, in either direction."""

    def ways_s(self, at_s: Seconds, src_len: Tokens, tgt_len: Tokens, token_bytes: int) -> tuple[Seconds, Seconds]:
        """Return the seconds to the cloud for `src_len` tokens and back for `tgt_len`; their sum is T_tx."""
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
        """Return the round-trip seconds of an empty probe."""
        return self.links[node % len(self.links)].rtt.at_one(at_s + self.begin_s[node % len(self.begin_s)])


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
        half_s = [0.0 if column is None else float(column[request]) for column in self.half_overhead_s]
        ups: list[float] = []
        downs: list[float] = []
        for target, token_bytes in enumerate(self.token_bytes[1:], start=1):
            up_s, down_s = self.hops[0].ways_one_s(at_s, node, *lengths, token_bytes)
            for hop in self.hops[1:target]:
                further_up_s, further_down_s = hop.ways_one_s(at_s, node, *lengths, token_bytes)
                up_s, down_s = up_s + further_up_s, down_s + further_down_s
            ups.append(up_s + half_s[target])
            downs.append(down_s + half_s[target])
        there_s, back_s = 0.0, 0.0
        if self.access is not None:
            there_s, back_s = self.access.ways_one_s(at_s, node, *lengths, self.token_bytes[0])
        return tuple(ups), tuple(downs), there_s + half_s[0], back_s + half_s[0]


Milliseconds = Annotated[float, Field(ge=0.0, le=1e6)]


class ConstantOverhead(Configuration):
    """The same overhead for every request; in a scenario also a plain number of milliseconds."""

    constant_ms: Milliseconds
    """The overhead, ms."""

    @property
    def mean_s(self) -> float:
        return self.constant_ms / 1e3

    def draw_s(self, generator: np.random.Generator, count: int) -> Seconds:
        return np.full(count, self.mean_s)

    def describe(self) -> str:
        return f"{self.constant_ms:.4g} ms a request"


class LognormalOverhead(Configuration):
    """A lognormal overhead: positive and skewed to the right."""

    mean_ms: Annotated[float, Field(ge=1e-6, le=1e6)]
    """Mean, ms."""
    sd_ms: Milliseconds
    """Standard deviation, ms."""

    @property
    def mean_s(self) -> float:
        return self.mean_ms / 1e3

    def draw_s(self, generator: np.random.Generator, count: int) -> Seconds:
        variance = log1p((self.sd_ms / self.mean_ms) ** 2)
        median_s = self.mean_s * exp(-variance / 2.0)
        drawn_s: Seconds = median_s * np.exp(sqrt(variance) * generator.standard_normal(count))
        return drawn_s

    def describe(self) -> str:
        return f"lognormal with mean {self.mean_ms:.4g} ms and standard deviation {self.sd_ms:.4g} ms"


class EmpiricalOverhead(Configuration):
    """A measured overhead, as its quantiles at evenly spaced shares from 0 to 1; linear in between.

    Such are `numpy.quantile(measured_ms, numpy.linspace(0, 1, 101))`, and the sorted measurements themselves.
    """

    quantiles_ms: Annotated[list[Milliseconds], Field(min_length=2, max_length=100_000)]
    """The least, the greatest, and those between them in steps of the same share; never decreasing. Few quantiles make the
    tail too heavy; 101 or more keep the mean of a heavy tail."""

    @field_validator("quantiles_ms")
    @classmethod
    def _do_not_decrease(cls, quantiles_ms: list[float]) -> list[float]:
        if any(after < before for before, after in pairwise(quantiles_ms)):
            raise misfit("", "quantiles must not decrease (sort them)")
        return quantiles_ms

    @property
    def mean_s(self) -> float:
        first, *between, last = self.quantiles_ms
        return (first / 2.0 + sum(between) + last / 2.0) / (len(between) + 1) / 1e3

    def draw_s(self, generator: np.random.Generator, count: int) -> Seconds:
        shares = np.linspace(0.0, 1.0, len(self.quantiles_ms))
        drawn_s: Seconds = np.interp(generator.random(count), shares, np.array(self.quantiles_ms) / 1e3)
        return drawn_s

    def describe(self) -> str:
        least, *_, most = self.quantiles_ms
        ends = f"{least:.4g} to {most:.4g} ms with mean {self.mean_s * 1e3:.4g} ms"
        return f"drawn from {len(self.quantiles_ms):,} quantiles of a measurement, {ends}"


def _constant(value: Any) -> Any:
    return {"constant_ms": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


Overhead = ConstantOverhead | LognormalOverhead | EmpiricalOverhead
OverheadConfiguration = Annotated[
    Annotated[ConstantOverhead, Tag("ConstantOverhead")]
    | Annotated[LognormalOverhead, Tag("LognormalOverhead")]
    | Annotated[EmpiricalOverhead, Tag("EmpiricalOverhead")],
    Discriminator(
        form_by_key(LognormalOverhead, constant_ms=ConstantOverhead, quantiles_ms=EmpiricalOverhead),
        custom_error_type="no_overhead",
        custom_error_message="give a number of ms without a unit, {mean_ms: 0.8, sd_ms: 0.2} or {quantiles_ms: [0.5, 0.7]}",
    ),
    BeforeValidator(_constant, json_schema_input_type=Milliseconds | Overhead),
]
"""`0.8` (ms), `{constant_ms: 0.8}`, `{mean_ms: 0.8, sd_ms: 0.2}` or `{quantiles_ms: [0.5, 0.7, 1.9]}`."""
