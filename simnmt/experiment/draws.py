"""Draw the requests of one replication, the same for every policy, and what policies learn beforehand (CNMT-05, CNMT-07).

Every replication splits the corpus's pairs and calibrates again, so that an interval over replications also contains the
variation of the fit. (With one fit for all, Naive's intervals came out several times too narrow.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.experiment.accounts import request_costs
from simnmt.experiment.cases import Case, Unit
from simnmt.experiment.routes import Routes, clock_pace_s, half_overheads_s, routes
from simnmt.network.configuration import Network
from simnmt.network.link import MovingRoute, bytes_per_token
from simnmt.policies.decision import Knowledge, Resource
from simnmt.profile.cost import Plane
from simnmt.profile.execution_fit import PlaneFit, fit_plane
from simnmt.profile.power import RequestCost
from simnmt.results.columns import Array
from simnmt.results.requests import Requests, Truth
from simnmt.workload.arrivals import RandomStream
from simnmt.workload.length_regression import LengthFit, LengthRegression, fit_lengths
from simnmt.workload.length_table import LengthTable
from simnmt.world.inputs import Clients, Route

ACTIVE_SHARE_STREAM = "active share"
"""Name of the draws of active shares. A sentence has one active share of the vocabulary, so one draw serves all devices."""
Seconds = NDArray[np.float64]


def more_s_per_tgt_token(case: Case, requests: int, uniform: Callable[[int], Seconds]) -> list[Seconds | None]:
    """Return, for each target, the seconds of requests above the mean per target token; None if requests do not differ.

    `uniform(requests)` draws numbers in [0, 1); it is called only if some device needs them. On a device that batches,
    requests do not differ: a step takes the mean over all sentences that share it (XP-01).
    """
    varying = [
        target.decoder if target.decoder is not None and target.decoder.varies and target.decoding is None else None
        for target in case.targets
    ]
    drawn = uniform(requests) if any(varying) else np.empty(0)
    return [None if decoder is None else decoder.more_s_per_tgt_token(drawn) for decoder in varying]


@dataclass(frozen=True, slots=True)
class Learnt:
    """What the policies of one replication know of a workload, and the pairs that they do not know."""

    fit_pairs: LengthTable
    evaluated_pairs: LengthTable
    """The other pairs, from which the requests of the run are drawn."""
    lengths: LengthFit
    plane_fits: tuple[PlaneFit | None, ...]
    """Fit of each target's plane; None if the policies use the profile's plane."""
    planes: tuple[Plane, ...]
    costs: dict[Resource, tuple[RequestCost, ...]] = field(default_factory=dict)
    """Joules and money of a request alone on each target; without what is unknown on some target."""

    def knowledge(self, devices: Sequence[str]) -> Knowledge:
        """Return the knowledge from which policies are made."""
        line = LengthRegression(self.lengths.len_slope, self.lengths.len_offset)
        return Knowledge(devices, self.planes, self.fit_pairs, line, self.costs)


def learn(unit: Unit) -> Learnt:
    """Split the pairs, and on one part fit the regression and, by simulated inferences, the devices' planes."""
    case, fit, seed = unit.case, unit.scenario.fit, unit.scenario.seed
    fit_pairs, evaluated_pairs = case.table.split(fit.share, seed, unit.replication)
    plane_fits = tuple(_fit_plane(unit, number, fit_pairs) for number in range(len(case.targets)))
    planes = tuple(
        profile.plane if fitted is None else fitted.plane for profile, fitted in zip(case.profiles, plane_fits, strict=True)
    )
    return Learnt(fit_pairs, evaluated_pairs, fit_lengths(fit_pairs), plane_fits, planes, request_costs(unit))


NOISELESS_INFERENCES = 10_000
"""Inferences without noise from which a streamed model's plane is fitted if no calibration is simulated."""


def _fit_plane(unit: Unit, number: int, pairs: LengthTable) -> PlaneFit | None:
    """Fit the plane of a target on simulated inferences; None if the profile's plane is used.

    Without simulated inferences the plane of a streamed model is fitted without noise, since the profile's plane is that of
    the whole model and not of the planned one.
    """
    target, inferences = unit.case.targets[number], unit.scenario.fit.inferences
    if inferences == 0:
        if target.streamed is None:
            return None
        src_len, tgt_len = pairs.sample(*unit.stream(f"planned {number} lengths"), NOISELESS_INFERENCES)
        return fit_plane(src_len, tgt_len, target.streamed.compute.in_memory_s(src_len, tgt_len))
    name = f"calibration {target.device}"
    src_len, tgt_len = pairs.sample(*unit.stream(f"{name} lengths"), inferences)
    noise = random_streams.standard_normal(*unit.stream(name), inferences)
    shares = partial(random_streams.uniform, *unit.stream(f"{name} {ACTIVE_SHARE_STREAM}"))
    more_s = more_s_per_tgt_token(unit.case, inferences, shares)[number]
    return fit_plane(src_len, tgt_len, target.in_memory_s(src_len, tgt_len, noise, more_s))


@dataclass(frozen=True, slots=True)
class Drawn:
    """The requests of a unit: the truth for the log, and the columns for the world."""

    truth: Truth
    """In the order of issue. If the moments at which requests meet the network depend on the policy, its transfer times only
    represent the network."""
    requests: Truth
    """In the order of the decisions, at the moments of the decisions."""
    decided_order: NDArray[np.int64] | None
    """Numbers of the requests in the order of the decisions; None if that is the order of issue."""
    issued_s: Array | None
    """When requests are issued; None if the world sets the pace."""
    routes: Routes
    route: Route | None
    moments_s: Array | None
    """Moments at which requests meet the links, the same for every policy; None if they meet the links when they are issued."""
    pace_s: float | None
    """Seconds from one such moment to the next."""
    clients: Clients | None
    half_overhead_s: tuple[Array | None, ...]

    def own_truth(self, arrival_s: Array, node: Array) -> Truth | None:
        """Return the truth of the requests that a policy issued at these moments; None if all policies share one truth."""
        if self.route is None:
            return None
        truth, at_s = self.truth, arrival_s if self.moments_s is None else self.moments_s
        assert truth.tgt_len is not None
        ways = self.routes.ways(at_s, node, truth.src_len, truth.tgt_len, self.half_overhead_s)
        trace_s = np.mod(self.routes.begin_s + at_s, self.routes.lap_s)
        return replace(truth, node=node, transfer_s=ways.transfer_s, rtt_time_s=trace_s)


def draw(unit: Unit, learnt: Learnt) -> Drawn:
    """Draw the requests of a unit."""
    scenario, case, size = unit.scenario, unit.case, unit.scenario.requests
    arrivals = case.arrivals
    issued_s = arrival_times(unit)
    network_routes = routes_of(unit, unit.links, unit.network, unit.nodes)
    clock = scenario.clock_of(case.name, unit.network)
    pace_s = clock_pace_s(scenario, unit.known.case, unit.network, network_routes)
    moments_s: Array
    if pace_s is not None and clock == "pace":
        moments_s = np.arange(size, dtype=np.float64) * pace_s
    elif clock == "spread" or issued_s is None:
        moments_s = (np.arange(size) + 0.5) / size * network_routes.lap_s
    else:
        moments_s = issued_s
    columns = drawn_columns(
        unit, learnt, lambda rows, block: columns_on_links(network_routes, unit.nodes, moments_s[rows], block)
    )
    truth, requests, order = requests_of(columns, issued_s)
    run_moments_s = None if clock == "time" else moments_s
    half_overhead_s = tuple(columns.get(f"half_overhead_s {number}") for number in range(len(case.targets)))
    clients = route = None
    if issued_s is None and (clock == "time" or arrivals.discipline == "closed"):
        hops = network_routes.access, network_routes.hops
        lengths = truth.src_len, columns["tgt_len"]
        route = MovingRoute(*hops, network_routes.token_bytes, *lengths, run_moments_s, half_overhead_s)
    if arrivals.discipline == "closed":
        think_s = arrivals.think_times(size, RandomStream(*unit.stream("thinking")))
        clients = Clients(len(think_s) - size, unit.nodes, think_s)
    return Drawn(truth, requests, order, issued_s, network_routes, route, run_moments_s, pace_s, clients, half_overhead_s)


def arrival_times(unit: Unit) -> Seconds | None:
    """Return when the requests of a unit are issued; None if the world sets the pace."""
    arrivals = unit.case.arrivals
    open_loop = arrivals.discipline == "open"
    return arrivals.times(unit.scenario.requests, RandomStream(*unit.stream("arrivals"))) if open_loop else None


def routes_of(unit: Unit, links: Network, name: str, nodes: int, is_first: bool = True) -> Routes:
    """Return the routes of a unit over some links; `name` keys what is drawn, and `is_first` tells the first of all lines."""
    token_bytes = tuple(bytes_per_token(profile.model.vocab) for profile in unit.case.profiles)
    return routes(links, tuple(unit.scenario.devices), token_bytes, nodes, unit.scenario.seed, unit.replication, name, is_first)


def requests_of(columns: dict[str, Array], issued_s: Array | None) -> tuple[Truth, Requests, NDArray[np.int64] | None]:
    """Return the truth of drawn columns in the order of issue, the requests in the order of the decisions, and that order."""
    truth: Truth = Requests(
        src_len=columns["src_len"],
        tgt_len=columns["tgt_len"],
        execution_s=tuple(columns["execution_s"]),
        node=columns["node"],
        transfer_s=tuple(columns["transfer_s"]),
        rtt_time_s=columns["rtt_time_s"],
    )
    requests = replace(
        truth,
        uplink_s=tuple(columns["uplink_s"]),
        downlink_s=tuple(columns["downlink_s"]),
        arrival_s=issued_s,
        access_s=columns.get("access_s") if issued_s is None else None,
    )
    if issued_s is None or "access_up_s" not in columns:
        return truth, requests, None
    decided_s = issued_s + columns["access_up_s"]  # the deciders receive them behind the access link
    order = np.argsort(decided_s, kind="stable")
    return truth, requests.in_order(order, decided_s), order


Columns = dict[str, Array]
"""Columns of some requests by name, with a row for each target where targets differ."""


def drawn_columns(unit: Unit, learnt: Learnt, further: Callable[[slice, Columns], Columns]) -> Columns:
    """Draw the columns of all requests block by block, with the `further` ones of each block.

    The drawn ones are `node_share` (a uniform number, which draws the end node), lengths, times of execution, and overheads.
    """
    columns: Columns = {}
    for rows, block in _blocks(unit, learnt):
        block |= further(rows, block)
        for name, part in block.items():
            if name not in columns:
                columns[name] = np.empty((*part.shape[:-1], unit.scenario.requests), part.dtype)
            columns[name][..., rows] = part
    return columns


def columns_on_links(network_routes: Routes, nodes: int, at_s: Array, drawn: Columns) -> Columns:
    """Return the end nodes of some requests, and their times on the links, which they meet at moments of the run."""
    halves_s = [drawn.get(f"half_overhead_s {number}") for number in range(len(network_routes.token_bytes))]
    node = (drawn.pop("node_share") * nodes).astype(np.int32)
    ways = network_routes.ways(at_s, node, drawn["src_len"], drawn["tgt_len"], halves_s)
    columns: Columns = {
        "node": node,
        "rtt_time_s": np.mod(network_routes.begin_s + at_s, network_routes.lap_s),
        "transfer_s": np.stack(ways.transfer_s),
        "uplink_s": np.reshape(ways.uplink_s, (len(ways.uplink_s), len(node))),
        "downlink_s": np.reshape(ways.downlink_s, (len(ways.downlink_s), len(node))),
    }
    if ways.access_s is not None:
        columns |= {"access_up_s": ways.access_s[0], "access_s": ways.transfer_s[0]}
    return columns


def _blocks(unit: Unit, learnt: Learnt) -> Iterator[tuple[slice, Columns]]:
    """Yield each block of requests with its drawn columns."""
    case, size = unit.case, unit.scenario.requests
    ranks = case.arrivals.size_ranks(size, RandomStream(*unit.stream("arrivals")))
    engagement = case.arrivals.engagements(size, RandomStream(*unit.stream("arrivals")))
    share_of: Seconds | None = None
    if engagement is not None:  # all turns of one come from the same end node
        share_of = random_streams.uniform(*unit.stream("nodes"), int(engagement.max(initial=-1)) + 1)[engagement]
    for block, rows in random_streams.blocks(size):
        count = rows.stop - rows.start

        def stream(name: str, block: int = block) -> np.random.Generator:
            return random_streams.stream(*unit.stream(name), block)

        uniform = stream("lengths").random(count) if ranks is None else ranks[rows]
        src_len, tgt_len = learnt.evaluated_pairs.at_quantiles(uniform)
        more_s = more_s_per_tgt_token(case, count, lambda requests: stream(ACTIVE_SHARE_STREAM).random(requests))
        execution_s = [
            target.execution_s(src_len, tgt_len, stream(f"execution {target.device}").standard_normal(count), more)
            for target, more in zip(case.targets, more_s, strict=True)
        ]
        overheads = {device: part.overhead for device, part in unit.scenario.devices.items()}
        half_s = half_overheads_s(
            [None if part is None else part.draw_s(stream(f"overhead {device}"), count) for device, part in overheads.items()]
        )
        columns: Columns = {
            "node_share": stream("nodes").random(count) if share_of is None else share_of[rows],
            "src_len": src_len,
            "tgt_len": tgt_len,
            "execution_s": np.stack(execution_s),
        }
        columns |= {f"half_overhead_s {number}": column for number, column in enumerate(half_s) if column is not None}
        yield rows, columns
