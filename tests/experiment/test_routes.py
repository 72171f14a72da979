"""Ways over several links in a row, each end node's own among them: column by column and request by request the same."""

from __future__ import annotations

import numpy as np
import pytest

from simnmt.experiment.routes import HalfOverheads, Routes, half_overheads_s, routes
from simnmt.network.configuration import Network
from simnmt.network.link import Link, MovingRoute
from simnmt.network.series import RttSeries

DEVICES = ("gateway", "metro", "region", "cloud")
TOKEN_BYTES = (2, 2, 3, 2)
NODES, REQUESTS = 7, 400


def link(seed: int, mbps: float) -> Link:
    random = np.random.default_rng(seed)
    time_s = np.cumsum(random.uniform(0.5, 2.0, 30))
    series = RttSeries(f"series {seed}", "synthetic", "made up", time_s - time_s[0], random.uniform(0.01, 0.2, 30))
    return Link(series, 1e6 * mbps, 2e6 * mbps)


@pytest.fixture(params=[DEVICES, ("end_node", *DEVICES[1:])], ids=["gateways decide", "end nodes decide"])
def paths(request: pytest.FixtureRequest) -> Routes:
    """Own links to the first device and to the third, one for all to the others."""
    devices = request.param
    hops = {
        "gateway": (link(1, 1.0), link(2, 0.5)),
        "metro": (link(3, 5.0),),
        "region": (link(4, 0.2), link(5, 9.0), link(6, 1.0)),
    }
    attached = frozenset({"gateway", "region"})
    if devices[0] == "end_node":
        hops, attached = {name: links for name, links in hops.items() if name != "gateway"}, frozenset({"region"})
    return routes(Network(link(7, 3.0), hops, attached), devices, TOKEN_BYTES, NODES, 5, 1, "n")


@pytest.fixture
def requests() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Moments, end nodes, source and target lengths."""
    random = np.random.default_rng(8)
    return (
        random.uniform(0.0, 500.0, REQUESTS),
        random.integers(0, NODES, REQUESTS).astype(np.int32),
        random.integers(1, 80, REQUESTS),
        random.integers(1, 80, REQUESTS),
    )


OVERHEADS_MS = {"none": (None,) * 4, "first": (2.0, None, None, None), "some": (1.0, None, 0.7, 3.0), "beyond": (None, 1, 2, 3)}


def overheads(means_ms: tuple[float | None, ...]) -> HalfOverheads:
    """Return overheads up to twice these means, different for each request."""
    random = np.random.default_rng(9)
    return half_overheads_s([None if mean_ms is None else random.uniform(0.0, mean_ms / 500, REQUESTS) for mean_ms in means_ms])


@pytest.mark.parametrize("overhead", OVERHEADS_MS)
def test_request_by_request_is_column_by_column_to_the_bit(
    paths: Routes, requests: tuple[np.ndarray, ...], overhead: str
) -> None:
    at_s, node, src_len, tgt_len = requests
    halves_s = overheads(OVERHEADS_MS[overhead])
    ways = paths.ways(at_s, node, src_len, tgt_len, halves_s)
    one = MovingRoute(paths.access, paths.hops, paths.token_bytes, src_len, tgt_len, None, tuple(halves_s))
    for request in range(REQUESTS):
        up_s, down_s, there_s, back_s = one(request, int(node[request]), float(at_s[request]))
        assert up_s == tuple(column[request] for column in ways.uplink_s)
        assert down_s == tuple(column[request] for column in ways.downlink_s)
        assert (there_s, back_s) == tuple(column[request] for column in ways.access_s or ([0.0] * REQUESTS,) * 2)


def test_a_path_pays_half_of_each_overhead_on_it_one_way(paths: Routes, requests: tuple[np.ndarray, ...]) -> None:
    """Also those of devices that it passes; the first device's is paid on the access path alone."""
    own_s, metro_s, region_s, cloud_s = np.random.default_rng(9).uniform(0.0, 0.01, (4, REQUESTS))
    bare, ways = paths.ways(*requests), paths.ways(*requests, half_overheads_s([own_s, metro_s, region_s, cloud_s]))
    paths_s = (metro_s, metro_s + region_s, metro_s + region_s + cloud_s)
    for target, path_s in enumerate(paths_s):
        np.testing.assert_allclose(ways.uplink_s[target] - bare.uplink_s[target], path_s / 2, rtol=0, atol=1e-12)
        np.testing.assert_allclose(ways.downlink_s[target] - bare.downlink_s[target], path_s / 2, rtol=0, atol=1e-12)
    assert ways.access_s is not None
    for with_s, without_s in zip(ways.access_s, bare.access_s or (0.0, 0.0), strict=True):
        np.testing.assert_allclose(with_s - without_s, own_s / 2, rtol=0, atol=1e-12)
    for with_s, without_s, path_s in zip(ways.transfer_s, bare.transfer_s, (0.0, *paths_s), strict=True):
        np.testing.assert_allclose(with_s - without_s, own_s + path_s, rtol=0, atol=1e-12)


def test_every_hop_makes_the_way_longer_by_its_own_link(paths: Routes, requests: tuple[np.ndarray, ...]) -> None:
    """By half its RTT at the moment on that node's own stretch of it, and by the payload in the target's tokens."""
    at_s, node, src_len, tgt_len = requests
    ways = paths.ways(at_s, node, src_len, tgt_len)
    assert len(paths.hops) > 1
    for target, hop in enumerate(paths.hops, start=1):
        links, begins_s = hop.links, hop.begin_s
        assert len(begins_s) == (NODES if len(links) > 1 else 1)
        rtt_s = np.array(
            [links[n % len(links)].rtt.at_one(t + begins_s[n % len(begins_s)]) for t, n in zip(at_s, node, strict=True)]
        )
        bps = np.array([links[n % len(links)].uplink_bps for n in node])
        so_far_s = ways.uplink_s[target - 1]
        before_s = sum(
            (np.array([before.ways_one_s(t, n, s, m, TOKEN_BYTES[target])[0] for t, n, s, m in zip(*requests, strict=True)]))
            for before in paths.hops[: target - 1]
        )
        np.testing.assert_allclose(so_far_s - before_s, rtt_s / 2 + 8 * TOKEN_BYTES[target] * src_len / bps, rtol=0, atol=1e-12)


def test_replication_0_begins_where_shared_traces_begin_and_others_elsewhere() -> None:
    network = Network(link(7, 3.0), {"region": (link(4, 0.2),)}, frozenset())
    begins = [
        [hop.begin_s for hop in routes(network, ("gateway", "region", "cloud"), (2, 2, 2), 3, 5, replication, "n").hops]
        for replication in range(3)
    ]
    assert begins[0] == [(0.0,), (0.0,)]
    assert len({begin_s for hops in begins[1:] for (begin_s,) in hops}) == 4
