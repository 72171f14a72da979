"""The ways from an end node to every device: the links of a network in a row, each end node's own among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt import streams
from simnmt.network.configuration import Network
from simnmt.network.link import Link
from simnmt.scenario.model import END_NODE

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Hop:
    """The way into one device from the one before it: one link for all, or links of which each end node has one."""

    links: tuple[Link, ...]
    """Dealt to the end nodes in turn."""
    begin_s: tuple[float, ...]
    """Where on its link's traces the run begins: one number for all, or one per end node."""

    def ways_s(
        self, at_s: Column, node: NDArray[np.int32], src_len: NDArray[np.int64], tgt_len: NDArray[np.int64], token_bytes: int
    ) -> tuple[Column, Column]:
        """Seconds there and back, for requests at moments of the run."""
        moments = at_s + (self.begin_s[0] if len(self.begin_s) == 1 else np.array(self.begin_s)[node])
        if len(self.links) == 1:
            return self.links[0].ways_s(moments, src_len, tgt_len, token_bytes)
        up_s, down_s = np.empty_like(moments), np.empty_like(moments)
        for number, link in enumerate(self.links):
            own = node % len(self.links) == number
            up_s[own], down_s[own] = link.ways_s(moments[own], src_len[own], tgt_len[own], token_bytes)
        return up_s, down_s

    def ways_one_s(self, at_s: float, node: int, src_len: int, tgt_len: int, token_bytes: int) -> tuple[float, float]:
        """The same for one request."""
        link = self.links[node % len(self.links)]
        return link.ways_one_s(at_s + self.begin_s[node % len(self.begin_s)], src_len, tgt_len, token_bytes)

    def rtt_s(self, at_s: float, node: int) -> float:
        """Seconds that a probe takes there and back."""
        return self.links[node % len(self.links)].rtt_one_s(at_s + self.begin_s[node % len(self.begin_s)])


@dataclass(frozen=True, slots=True)
class Ways:
    """What `Routes` says of requests: seconds."""

    uplink_s: tuple[Column, ...]
    """From the decider to each target but the first."""
    downlink_s: tuple[Column, ...]
    access_up_s: Column | None
    """From the end node to its decider; None where that is the end node itself, or the way costs nothing."""
    access_down_s: Column | None

    @property
    def transfer_s(self) -> tuple[Column, ...]:
        """From the end node to each target and back, the first included."""
        access_s: Column | float = 0.0
        if self.access_up_s is not None and self.access_down_s is not None:
            access_s = self.access_up_s + self.access_down_s
        first = access_s if isinstance(access_s, np.ndarray) else np.broadcast_to(0.0, self.uplink_s[0].shape)
        beyond = (up_s + down_s for up_s, down_s in zip(self.uplink_s, self.downlink_s, strict=True))
        return (first, *(way_s if isinstance(access_s, float) else way_s + access_s for way_s in beyond))


@dataclass(frozen=True, slots=True)
class Routes:
    """The hops of a network in their order."""

    access: Hop | None
    """From the end nodes to the first device, where that is not their own."""
    hops: tuple[Hop, ...]
    """Into each device but the first."""
    last: Hop
    """Into the last device; of a single device the access, or unused if that is the end nodes' own."""
    token_bytes: tuple[int, ...]
    """Bytes of a token on the way to each device, the first included: what it reads and writes."""

    @property
    def begin_s(self) -> float:
        """Where on the trace of the link to the last device the run begins."""
        return self.last.begin_s[0]

    @property
    def lap_s(self) -> float:
        """One lap of that trace."""
        return self.last.links[0].rtt.duration_s

    def ways(self, at_s: Column, node: NDArray[np.int32], src_len: NDArray[np.int64], tgt_len: NDArray[np.int64]) -> Ways:
        """The links as requests find them at moments of the run."""
        uplink_s: list[Column] = []
        downlink_s: list[Column] = []
        for target, token_bytes in enumerate(self.token_bytes[1:], start=1):
            # A path's times add up from its near end, as in `route`, so that both give the same bits.
            up_s, down_s = self.hops[0].ways_s(at_s, node, src_len, tgt_len, token_bytes)
            for hop in self.hops[1:target]:
                further_up_s, further_down_s = hop.ways_s(at_s, node, src_len, tgt_len, token_bytes)
                up_s, down_s = up_s + further_up_s, down_s + further_down_s
            uplink_s.append(up_s)
            downlink_s.append(down_s)
        access = (None, None)
        if self.access is None and not uplink_s:
            nothing_s = np.zeros(len(src_len))
            access = (nothing_s, nothing_s)  # type: ignore[assignment]
        elif self.access is not None:
            access = self.access.ways_s(at_s, node, src_len, tgt_len, self.token_bytes[0])  # type: ignore[assignment]
        return Ways(tuple(uplink_s), tuple(downlink_s), *access)

    def route(
        self, src_len: NDArray[np.int64], tgt_len: NDArray[np.int64], moments_s: Column | None = None
    ) -> Callable[[int, int, float], tuple[tuple[float, ...], tuple[float, ...], float, float]]:
        """The same request by request, for a world in which the moment depends on the answers before.

        `moments_s`: where each request meets the links whatever the time; None: when it is issued.
        """

        def one(request: int, node: int, now_s: float) -> tuple[tuple[float, ...], tuple[float, ...], float, float]:
            at_s = now_s if moments_s is None else float(moments_s[request])
            lengths = int(src_len[request]), int(tgt_len[request])
            ups: list[float] = []
            downs: list[float] = []
            for target, token_bytes in enumerate(self.token_bytes[1:], start=1):
                up_s, down_s = self.hops[0].ways_one_s(at_s, node, *lengths, token_bytes)
                for hop in self.hops[1:target]:
                    further_up_s, further_down_s = hop.ways_one_s(at_s, node, *lengths, token_bytes)
                    up_s, down_s = up_s + further_up_s, down_s + further_down_s
                ups.append(up_s)
                downs.append(down_s)
            there_s, back_s = 0.0, 0.0
            if self.access is not None:
                there_s, back_s = self.access.ways_one_s(at_s, node, *lengths, self.token_bytes[0])
            return tuple(ups), tuple(downs), there_s, back_s

        return one

    def rtt_s(self, node: int, target: int, at_s: float) -> float:
        """What a probe from an end node's decider to a target takes, sent at a moment of the run."""
        return sum(hop.rtt_s(at_s, node) for hop in self.hops[:target])


def routes(
    network: Network, devices: tuple[str, ...], token_bytes: tuple[int, ...], nodes: int, seed: int, replication: int, name: str
) -> Routes:
    """The routes of one replication: the traces' starts are shifted in each but the first; own links begin anywhere.

    `name`: the network's; it keys what is drawn.
    """

    def hop(device: str, links: tuple[Link, ...], own: bool) -> Hop:
        if own:
            uniform = streams.draw(
                seed, replication, f"{name}/{device} starts", nodes, lambda generator, k: generator.random(k)
            )
            return Hop(links, tuple((uniform * [links[node % len(links)].rtt.duration_s for node in range(nodes)]).tolist()))
        if replication == 0:
            return Hop(links, (0.0,))
        stream = f"{name}/trace start" if device == devices[-1] else f"{name}/{device} trace start"
        return Hop(links, (float(streams.stream(seed, replication, stream).random()) * links[0].rtt.duration_s,))

    by_device = {device: hop(device, links, own=device in network.own) for device, links in network.hops.items()}
    by_device[devices[-1]] = hop(devices[-1], (network.link,), own=False)
    return Routes(
        access=None if devices[0] == END_NODE else by_device.get(devices[0]),
        hops=tuple(by_device[device] for device in devices[1:]),
        last=by_device[devices[-1]],
        token_bytes=token_bytes,
    )
