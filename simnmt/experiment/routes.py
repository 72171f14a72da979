"""Compute transfer times over the links between an end node and every device, and the moments at which requests meet a network.

A transfer time contains the overheads of the devices on the path (`simnmt.network.link`): half of each on the way there,
half on the way back. The first device's overhead is part of the access path, since every request passes that device; those of
the other devices are part of what a decider measures as its transfer time (CNMT-11).

Back to back, those moments must not depend on the policy, or a slow choice could sit out a peak of the RTT and beat the oracle
(CNMT-02). On the clock `pace` they lie one constant pace apart, so that a transfer estimate ages between two requests as it
does in reality. On `spread` they divide one lap of the trace evenly, so that the pace depends on the number of requests: that
is for the C-NMT paper's Table I. In the open loop, in the closed loop and on the clock `own`, requests meet the traces when
they are issued.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.base.arrays import Floats
from simnmt.experiment.cases import Case, Unit
from simnmt.network.configuration import Network
from simnmt.network.link import Hop, Link, bytes_per_token
from simnmt.scenario.configuration import END_NODE, ScenarioConfiguration

HalfOverheads = Sequence[Floats | None]
"""By target, half of the overhead that each request pays on its path, as it is paid one way; None where there is none. Of the
first target the decider's own overhead, of target k the sum of the overheads of devices 1 to k."""


def half_overheads_s(overhead_s: Sequence[Floats | None]) -> HalfOverheads:
    """Return the part of the overheads that is paid one way; `overhead_s`: by device, of each request, None without one."""
    first, *others = overhead_s
    halves: list[Floats | None] = [None if first is None else first / 2.0]
    total_s: Floats | None = None
    for column in others:
        if column is not None:
            total_s = column if total_s is None else total_s + column
        halves.append(None if total_s is None else total_s / 2.0)
    return halves


@dataclass(frozen=True, slots=True)
class TransferTimes:
    """Transfer times of requests over the links of `Routes`, seconds."""

    uplink_s: tuple[Floats, ...]
    """From the decider to each target but the first, with half of the overheads of the devices beyond the decider."""
    downlink_s: tuple[Floats, ...]
    access_s: tuple[Floats, Floats] | None
    """From the end node to its decider, and back, with the decider's overhead; None if that costs nothing."""
    transfer_s: tuple[Floats, ...]
    """From the end node to each target and back, the first target included."""


@dataclass(frozen=True, slots=True)
class Routes:
    """The hops of a network in their order."""

    access: Hop | None
    """From the end nodes to the first device, unless that is their own."""
    hops: tuple[Hop, ...]
    """Hops into each device but the first."""
    last: Hop
    """Hop into the last device; with a single device the access hop, unused if that is the end nodes' own."""
    token_bytes: tuple[int, ...]
    """Bytes of a token that each device reads and writes, the first device included."""

    @property
    def begin_s(self) -> float:
        """Moment on the trace of the link to the last device at which the run begins."""
        return self.last.begin_s[0]

    @property
    def lap_s(self) -> float:
        """Length of one lap of that trace."""
        return self.last.links[0].rtt.duration_s

    def ways(
        self,
        at_s: Floats,
        node: NDArray[np.int32],
        src_len: NDArray[np.int64],
        tgt_len: NDArray[np.int64],
        half_overhead_s: HalfOverheads = (),
    ) -> TransferTimes:
        """Return the transfer times of requests at moments of the run; `half_overhead_s`: empty without overheads."""
        halves_s = half_overhead_s or (None,) * len(self.token_bytes)
        uplink_s: list[Floats] = []
        downlink_s: list[Floats] = []
        for target, token_bytes in enumerate(self.token_bytes[1:], start=1):
            # A path's times add up from its near end, as in `route`, so that both give the same bits.
            up_s, down_s = self.hops[0].ways_s(at_s, node, src_len, tgt_len, token_bytes)
            for hop in self.hops[1:target]:
                further_up_s, further_down_s = hop.ways_s(at_s, node, src_len, tgt_len, token_bytes)
                up_s, down_s = up_s + further_up_s, down_s + further_down_s
            if (beyond_s := halves_s[target]) is not None:
                up_s, down_s = up_s + beyond_s, down_s + beyond_s
            uplink_s.append(up_s)
            downlink_s.append(down_s)
        access_s = None if self.access is None else self.access.ways_s(at_s, node, src_len, tgt_len, self.token_bytes[0])
        if (own_s := halves_s[0]) is not None:
            there_s, back_s = access_s or (0.0, 0.0)
            access_s = there_s + own_s, back_s + own_s
        first_s = np.zeros(len(src_len)) if access_s is None else access_s[0] + access_s[1]
        transfer_s = (up_s + down_s + first_s for up_s, down_s in zip(uplink_s, downlink_s, strict=True))
        return TransferTimes(tuple(uplink_s), tuple(downlink_s), access_s, (first_s, *transfer_s))

    def rtt_s(self, node: int, target: int, at_s: float) -> float:
        """Return the round-trip seconds from an end node's decider to a target, at a moment of the run."""
        return sum(hop.rtt_s(at_s, node) for hop in self.hops[:target])


def routes(
    network: Network,
    devices: tuple[str, ...],
    token_bytes: tuple[int, ...],
    nodes: int,
    seed: int,
    replication: int,
    name: str,
    is_first: bool = True,
) -> Routes:
    """Draw the routes of one replication: traces begin anywhere, but for the shared ones of the first line in the first one.

    `name`: the line's; it keys what is drawn. `is_first`: among the lines of all sites.
    """

    def hop(device: str, links: tuple[Link, ...]) -> Hop:
        if device in network.per_node_devices:
            uniform = random_streams.uniform(seed, replication, f"{name}/{device} starts", nodes)
            return Hop(links, tuple((uniform * [links[node % len(links)].rtt.duration_s for node in range(nodes)]).tolist()))
        if replication == 0 and is_first:
            return Hop(links, (0.0,))
        stream = f"{name}/trace start" if device == devices[-1] else f"{name}/{device} trace start"
        return Hop(links, (float(random_streams.stream(seed, replication, stream).random()) * links[0].rtt.duration_s,))

    by_device = {device: hop(device, links) for device, links in network.hops.items()}
    by_device[devices[-1]] = hop(devices[-1], (network.link,))
    return Routes(
        access=None if devices[0] == END_NODE else by_device.get(devices[0]),
        hops=tuple(by_device[device] for device in devices[1:]),
        last=by_device[devices[-1]],
        token_bytes=token_bytes,
    )


@dataclass(frozen=True, slots=True)
class Line:
    """A copy of a site, as the end nodes of one workload there: their links to all devices, and who decides for them."""

    part: int
    """Number of the workload at the site among the parts of the unit."""
    name: str
    """Keys what is drawn of its links."""
    routes: Routes
    share: float
    """Weight of its part of the workload's requests."""
    nodes: int
    first_node: int
    """Number of its first end node among those of all lines."""
    deciders: int
    first_decider: int
    """Number of its first decider among those of all sites."""


def routes_of(unit: Unit, copy: int = 0) -> Routes:
    """Draw the routes of a copy of a unit's site."""
    token_bytes = tuple(bytes_per_token(profile.model.vocab) for profile in unit.case.profiles)
    key, is_first = (unit.scenario.seed, unit.replication, unit.line_name(copy)), unit.site is None or unit.site.is_first
    return routes(unit.lines[copy], tuple(unit.scenario.devices), token_bytes, unit.nodes, *key, is_first and not copy)


def lines_of(unit: Unit) -> list[Line]:
    """Return the lines of a unit, workload by workload, in the order of the sites and their copies."""
    lines, first_node = list[Line](), 0
    by_part = {number: deciders for deciders in unit.deciders for number in deciders.parts}
    workloads = list(dict.fromkeys(part.case.name for part in unit.parts))
    for number, part in sorted(enumerate(unit.parts), key=lambda item: workloads.index(item[1].case.name)):
        share, deciders = 1.0 if part.site is None else part.site.share, by_part[number]
        for copy in range(len(part.lines)):
            first_decider = deciders.first + copy * deciders.boxes_per_copy
            at = part.nodes, first_node, deciders.boxes_per_copy, first_decider
            lines.append(Line(number, part.line_name(copy), routes_of(part, copy), share, *at))
            first_node += part.nodes
    return lines


_ACCESS_SAMPLES = 1_000
"""Moments of a lap at which an access link is looked up."""


def clock_pace_s(scenario: ScenarioConfiguration, case: Case, network: str, network_routes: Routes) -> float | None:
    """Return the seconds of the traces that pass from one request to the next; None on the run's own time.

    On the clock `pace` that is what the scenario states, else the mean latency of the fixed policy that sends everything to the
    first target, over all pairs that requests are drawn from and one lap of the access links, with the mean overhead: the same
    in every replication, however many requests there are.
    """
    clock = scenario.clock_of(case.name, network)
    if clock == "time":
        return None
    if clock == "spread":
        return network_routes.lap_s / scenario.requests
    if (stated_s := scenario.networks[network].pace_s) is not None:
        return stated_s
    overhead, table = next(iter(scenario.devices.values())).overhead, case.table
    src_len, tgt_len = (
        np.full(_ACCESS_SAMPLES, round(float(np.average(lengths, weights=table.count))))
        for lengths in (table.src_len, table.tgt_len)
    )
    access_s = []
    for link in () if network_routes.access is None else network_routes.access.links:
        at_s = (np.arange(_ACCESS_SAMPLES) + 0.5) / _ACCESS_SAMPLES * link.rtt.duration_s
        up_s, down_s = link.ways_s(at_s, src_len, tgt_len, network_routes.token_bytes[0])
        access_s.append(float((up_s + down_s).mean()))
    mean_access_s = sum(access_s) / len(access_s) if access_s else 0.0
    return case.targets[0].mean_alone_s(table) + mean_access_s + (0.0 if overhead is None else overhead.mean_s)


def estimate_age_s(arrival_s: Floats, decided_s: Floats, measured_at_s: Floats, moments_s: Floats | None) -> Floats:
    """Return the age of the transfer estimate at each decision, seconds on the clock by which RTT is looked up.

    Args:
        arrival_s: when each request is issued, in the order of the decisions; ascending.
        decided_s: when each decision is made, on the time of the run.
        measured_at_s: when the measurement behind the estimate was received, on the time of the run; 0 for the initial belief.
        moments_s: when each request meets the traces; None if it does so on the time of the run.

    A clock that depends on no policy shows the moment of the last request issued: the age counts from the moment at which that
    request met the traces when the measurement was received.
    """
    if moments_s is None:
        age_s: Floats = decided_s - measured_at_s
        return age_s
    last = np.searchsorted(arrival_s, measured_at_s, side="left") - 1
    age_s = moments_s - np.where(last < 0, 0.0, moments_s[last])
    # Over access links of different lengths requests are decided on in another order than they met the traces.
    return np.maximum(age_s, 0.0)
