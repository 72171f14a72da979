"""The paths of messages: the legs that a request crosses to a target, one after another, and its answer back.

A leg is one direction of one hop. On a link of its own a message takes half of the RTT and its bytes over the bandwidth, which
is one delay. On a shared line its bits are sent first, at whatever bandwidth the other messages leave, and then take half of
the RTT. `simnmt.world.shared_line` shares a line out; here is only what each message asks of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simnmt.network.link import Hop
from simnmt.network.series import BandwidthSeries

Array = NDArray[Any]
NO_LINE = -1


class Leg(NamedTuple):
    """One direction of one hop, as one message crosses it: first the line, then the delay."""

    line: int
    """Number of the shared line; `NO_LINE` on a link of the message's own."""
    bits: float
    """Bits to be sent on the line."""
    delay_s: float
    """Seconds after the line, or without one, that depend on no other message."""


class Capacity(Protocol):
    """The bandwidth of a line as time goes by."""

    def bits_between(self, begin_s: float, end_s: float) -> float:
        """Return the bits that the line can carry from one moment of the run to another."""
        ...

    def end_of(self, begin_s: float, bits: float) -> float:
        """Return when the line has carried so many bits since a moment of the run."""
        ...


@dataclass(frozen=True, slots=True)
class ConstantCapacity:
    """A bandwidth that never changes, bit/s."""

    bps: float

    def bits_between(self, begin_s: float, end_s: float) -> float:
        """Return the bits that the line can carry from one moment to another."""
        return (end_s - begin_s) * self.bps

    def end_of(self, begin_s: float, bits: float) -> float:
        """Return when the line has carried so many bits since a moment."""
        return begin_s + bits / self.bps


class SeriesCapacity:
    """A bandwidth that follows a series, lap after lap."""

    __slots__ = ("_rates", "_times", "begin_s", "carried", "lap_bits", "series")

    _times: list[float]
    _rates: list[float]
    carried: list[float]
    """Bits of a lap before each sample."""

    def __init__(self, series: BandwidthSeries, begin_s: float) -> None:
        """`begin_s`: moment on the series at which the run begins."""
        spans_s = np.diff(series.time_s, append=series.duration_s)
        carried = np.concatenate(([0.0], np.cumsum(series.value * spans_s)))
        self.series, self.begin_s, self.lap_bits = series, begin_s, float(carried[-1])
        self._times, self._rates = series.time_s.tolist(), series.value.tolist()
        self.carried = carried[:-1].tolist()

    def bits_between(self, begin_s: float, end_s: float) -> float:
        """Return the bits that the line can carry from one moment to another."""
        return self._bits_until(end_s) - self._bits_until(begin_s)

    def _bits_until(self, at_s: float) -> float:
        laps, in_lap_s = divmod(at_s + self.begin_s, self.series.duration_s)
        sample = bisect_right(self._times, in_lap_s) - 1
        return laps * self.lap_bits + self.carried[sample] + (in_lap_s - self._times[sample]) * self._rates[sample]

    def end_of(self, begin_s: float, bits: float) -> float:
        """Return when the line has carried so many bits since a moment."""
        laps, in_lap = divmod(self._bits_until(begin_s) + bits, self.lap_bits)
        sample = bisect_right(self.carried, in_lap) - 1
        in_lap_s = self._times[sample] + (in_lap - self.carried[sample]) / self._rates[sample]
        return max(laps * self.series.duration_s + in_lap_s - self.begin_s, begin_s)


@dataclass(frozen=True, slots=True, eq=False)
class MessagePaths:
    """The legs of every message of a run, which is sent from the decider or back to it."""

    hops: tuple[Hop, ...]
    """Into each target but the first."""
    token_bytes: tuple[int, ...]
    """Bytes of a token that each target reads and writes, the first target included."""
    src_len: Array
    tgt_len: Array
    moments_s: Array | None
    """When each request meets the links; None: when it is issued."""
    half_overhead_s: tuple[Array | None, ...]
    """By target, half of the overhead of each request on its path; None without one."""
    capacities: tuple[Capacity, ...] = field(init=False)
    """The bandwidth of each shared line. Either direction of a shared link is a line."""
    uplinks: tuple[tuple[int, ...], ...] = field(init=False)
    """By hop and link, the number of the line of its uplink, which that of the downlink follows; `NO_LINE` if not shared."""

    def __post_init__(self) -> None:
        capacities: list[Capacity] = []
        uplinks: list[list[int]] = []
        for hop in self.hops:
            uplinks.append([])
            for number, link in enumerate(hop.links):
                uplinks[-1].append(len(capacities) if link.shared else NO_LINE)
                if link.shared:
                    # The end nodes of one line meet it at one moment of its series, that of the first of them.
                    begin_s = hop.begin_s[number % len(hop.begin_s)]
                    capacities += [_capacity(link.uplink_bps, begin_s), _capacity(link.downlink_bps, begin_s)]
        object.__setattr__(self, "capacities", tuple(capacities))
        object.__setattr__(self, "uplinks", tuple(map(tuple, uplinks)))

    def legs(self, request: int, node: int, issued_s: float, target: int, *, back: bool) -> list[Leg]:
        """Return the legs of a request to a target, or those of its answer `back` from there."""
        at_s = issued_s if self.moments_s is None else float(self.moments_s[request])
        token_bytes = self.token_bytes[target]
        bits = 8.0 * token_bytes * int((self.tgt_len if back else self.src_len)[request])
        legs = [self._leg(number, node, at_s, bits, back) for number in range(target)]
        beyond_s = self.half_overhead_s[target]
        if beyond_s is not None:
            legs.append(Leg(NO_LINE, 0.0, float(beyond_s[request])))
        return _merged(legs[::-1] if back else legs)

    def _leg(self, number: int, node: int, at_s: float, bits: float, back: bool) -> Leg:
        hop = self.hops[number]
        which = node % len(hop.links)
        link = hop.links[which]
        moment_s = at_s + hop.begin_s[node % len(hop.begin_s)]
        half_s = link.rtt.at_one(moment_s) / 2
        if link.shared:
            return Leg(self.uplinks[number][which] + back, bits, half_s)
        bps = link.downlink_bps if back else link.uplink_bps
        sent_s = bits / (bps.at_one(moment_s) if isinstance(bps, BandwidthSeries) else bps)
        return Leg(NO_LINE, 0.0, half_s + sent_s)


def _merged(legs: Sequence[Leg]) -> list[Leg]:
    """Return the legs with each mere delay added to the leg before it."""
    merged: list[Leg] = []
    for leg in legs:
        if merged and leg.line == NO_LINE:
            merged[-1] = merged[-1]._replace(delay_s=merged[-1].delay_s + leg.delay_s)
        else:
            merged.append(leg)
    return merged


def _capacity(bps: float | BandwidthSeries, begin_s: float) -> Capacity:
    return SeriesCapacity(bps, begin_s) if isinstance(bps, BandwidthSeries) else ConstantCapacity(bps)
