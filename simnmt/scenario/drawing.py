"""The requests of one unit: lengths, arrivals, true execution times and ways, drawn the same for every policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt import streams
from simnmt.network.configuration import Network
from simnmt.network.link import bytes_per_token
from simnmt.results.request_log import Truth
from simnmt.scenario.build import Case
from simnmt.scenario.learning import Learnt, standard_normal
from simnmt.scenario.model import Scenario
from simnmt.scenario.routes import Routes, Ways, routes
from simnmt.world.closed_loop import Clients
from simnmt.world.requests import Requests, Route

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a unit's policies meet: the truth for the log, the columns for the world."""

    truth: Truth
    """Where requests meet the network at moments of the policies' own, it stands for the network as such."""
    requests: Requests
    """In the order in which they are decided on."""
    decided_order: NDArray[np.int64] | None
    """Which request is decided on first, second and so on; None where that is the order in which they are issued."""
    issued_s: Column | None
    """When they are issued; None where the world sets the pace."""
    routes: Routes
    route: Route | None
    """For a world that looks links up as time goes by."""
    moments_s: Column | None
    """Where on the run's time requests meet the links whatever the policy; None where that is when they are issued."""
    clients: Clients | None

    def own_truth(self, arrival_s: Column, node: NDArray[np.int32]) -> Truth | None:
        """The truth of requests that a policy issued at these moments; None where all policies share one."""
        if self.route is None:
            return None
        truth, at_s = self.truth, arrival_s if self.moments_s is None else self.moments_s
        ways = self.routes.ways(at_s, node, truth.src_len, truth.tgt_len)
        trace_s = np.mod(self.routes.begin_s + at_s, self.routes.lap_s)
        return Truth(node, truth.src_len, truth.tgt_len, truth.execution_s, ways.transfer_s, trace_s)


def draw(scenario: Scenario, case: Case, network: str, links: Network, learnt: Learnt, replication: int) -> Drawn:
    """Draw the requests of one workload on one network in one replication."""
    seed, size, nodes = scenario.seed, scenario.requests, scenario.workloads[case.name].end_nodes
    arrivals = case.arrivals
    ranks = arrivals.size_ranks(size, seed, replication, f"{case.name}/arrivals")
    if ranks is None:
        src_len, tgt_len = learnt.evaluated_pairs.sample(seed, replication, f"{case.name}/lengths", size)
    else:
        src_len, tgt_len = learnt.evaluated_pairs.at_quantiles(ranks)
    issued_s = arrivals.times(size, seed, replication, f"{case.name}/arrivals") if arrivals.discipline == "open" else None
    execution_s = tuple(
        profile.execution_s(src_len, tgt_len, standard_normal(seed, replication, f"{case.name}/execution {device}", size))
        for device, profile in zip(scenario.devices, case.profiles, strict=True)
    )
    node = streams.draw(seed, replication, f"{case.name}/nodes", size, lambda generator, count: generator.random(count))
    node_of = (node * nodes).astype(np.int32)
    token_bytes = tuple(bytes_per_token(profile.model.vocab) for profile in case.profiles)
    way = routes(links, tuple(scenario.devices), token_bytes, nodes, seed, replication, network)
    spread = _is_spread(scenario, network, arrivals.discipline)
    moments_s = (np.arange(size) + 0.5) / size * way.lap_s if spread or issued_s is None else issued_s
    ways = way.ways(moments_s, node_of, src_len, tgt_len)
    truth = Truth(node_of, src_len, tgt_len, execution_s, ways.transfer_s, np.mod(way.begin_s + moments_s, way.lap_s))
    looked_up = issued_s is None and (not spread or arrivals.discipline == "closed")
    requests, order = _for_the_world(truth, ways, issued_s)
    return Drawn(
        truth=truth,
        requests=requests,
        decided_order=order,
        issued_s=issued_s,
        routes=way,
        route=way.route(src_len, tgt_len, moments_s if spread else None) if looked_up else None,
        moments_s=moments_s if spread else None,
        clients=_clients(case, nodes, size, seed, replication),
    )


def _for_the_world(truth: Truth, ways: Ways, issued_s: Column | None) -> tuple[Requests, NDArray[np.int64] | None]:
    """The columns as the deciders see them: a request is theirs once it has come over the access link."""
    access_s = None
    if ways.access_up_s is not None and ways.access_down_s is not None:
        access_s = ways.access_up_s + ways.access_down_s
    requests = Requests(
        src_len=truth.src_len,
        execution_s=truth.execution_s,
        uplink_s=ways.uplink_s,
        downlink_s=ways.downlink_s,
        arrival_s=issued_s,
        node=truth.node,
        access_s=access_s if issued_s is None else None,
    )
    if issued_s is None or ways.access_up_s is None:
        return requests, None
    decided_s = issued_s + ways.access_up_s
    order = np.argsort(decided_s, kind="stable")
    return requests.in_order(order, decided_s), order


def _is_spread(scenario: Scenario, network: str, discipline: str) -> bool:
    """Whether requests meet the network evenly over one lap of its trace, whatever the time."""
    clock = scenario.networks[network].clock
    return clock == "spread" or (clock is None and discipline == "back_to_back")


def _clients(case: Case, nodes: int, size: int, seed: int, replication: int) -> Clients | None:
    if case.arrivals.discipline != "closed":
        return None
    count = case.arrivals.clients
    return Clients(count, nodes, case.arrivals.think_times(size + count, seed, replication, f"{case.name}/thinking"))
