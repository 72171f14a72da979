"""The network between a client and its service, slept in the client: no proxy, no rights of an administrator (CNMT-03).

A message takes half of the round trip of the moment and its body's bits over the bandwidth, as in the simulation. Messages do
not wait for each other; headers, handshakes and losses take no time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import aiohttp

from simnmt.network.link import Hop


class DelayedTransport:
    """A middleware of an `aiohttp.ClientSession` that sleeps as long as messages travel over some hops.

    Example:
        >>> from simnmt.network.link import Link
        >>> from simnmt.network.series import constant_rtt
        >>> transport = DelayedTransport([Hop((Link(constant_rtt(0.05), 1e6, 1e6),), (0.0,))])
        >>> transport.uplink_s(500), transport.downlink_s(1_000)
        (0.029, 0.033)
    """

    def __init__(self, hops: Sequence[Hop], node: int = 0) -> None:
        """`hops`: from the client to the service; their series begin now. `node`: the end node whose links they are."""
        self._hops, self._node = hops, node
        self.begin_s = time.monotonic()
        """Moment of the monotonic clock at which the series begin."""

    def uplink_s(self, size: int) -> float:
        """Return the seconds that a message of so many bytes takes to the service if it is sent now."""
        return sum(hop.ways_one_s(self._now_s(), self._node, size, 0, 1)[0] for hop in self._hops)

    def downlink_s(self, size: int) -> float:
        """Return the seconds that a message takes from the service."""
        return sum(hop.ways_one_s(self._now_s(), self._node, 0, size, 1)[1] for hop in self._hops)

    async def __call__(self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Send a request and return its answer, each after its delay."""
        await asyncio.sleep(self.uplink_s(int(request.headers.get("Content-Length", 0))))
        response = await handler(request)
        try:
            await asyncio.sleep(self.downlink_s(response.content_length or 0))
        except asyncio.CancelledError:
            response.close()
            raise
        return response

    def _now_s(self) -> float:
        return max(time.monotonic() - self.begin_s, 0.0)
