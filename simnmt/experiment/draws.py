"""What one replication draws, the same for every policy: the pairs and planes that policies fit on (CNMT-05, CNMT-07), and the
requests with their arrivals, lengths, true execution times and transfer times.

Every replication splits the corpus's pairs and calibrates again, so that an interval over replications also contains the
variation of the fit. (With one fit for all, Naive's intervals came out several times too narrow.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.base.columns import AnyColumn, Array, Column, blocks_of, write_columns
from simnmt.experiment.inputs import Case, Target
from simnmt.experiment.routes import Routes, clock_pace_s, routes
from simnmt.network.configuration import Network
from simnmt.network.link import bytes_per_token
from simnmt.policies.decision import Knowledge
from simnmt.profile.execution_plane import ExecutionPlane, PlaneFit, fit_plane
from simnmt.profile.profile_variant import DecoderChoice
from simnmt.results.request_log import Truth
from simnmt.results.requests import Joules, Requests
from simnmt.scenario.configuration import FitConfiguration, Scenario
from simnmt.workload.length_regression import LengthFit, LengthRegression, fit_lengths
from simnmt.workload.length_table import LengthTable
from simnmt.world.simulation import Clients, Route

ACTIVE_SHARE_STREAM = "active share"
"""Of the draws: how much of the vocabulary a sentence needs is the sentence's own, so one draw serves all devices."""
MoreSeconds = NDArray[np.float64]


def more_s_per_tgt_token(case: Case, requests: int, uniform: Callable[[int], NDArray[np.float64]]) -> list[MoreSeconds | None]:
    """Return, per target, seconds above the mean for each target token of so many requests; None where they do not differ.

    `uniform`: draws so many numbers in [0, 1); not called where no device needs them. A device that batches takes what its
    steps take on the average of all sentences that share them (XP-01), so that its requests do not differ either.
    """
    varying = [target.decoder is not None and target.decoder.varies and target.decoding is None for target in case.targets]
    decoders = [target.decoder if varies else None for target, varies in zip(case.targets, varying, strict=True)]
    drawn = uniform(requests) if any(varying) else np.empty(0)
    return [None if decoder is None else decoder.more_s_per_tgt_token(drawn) for decoder in decoders]


def describe_active_shares(decoder: DecoderChoice, *, together: bool) -> str:
    """What a reader must know of how the active share enters the times; `together`: the device batches. Empty: nothing."""
    if together and decoder.describe_active():
        return "a step takes the mean over active shares of as many sentences as decode together, which grow with their number"
    if together or not decoder.varies:
        return ""
    assert decoder.alone is not None and decoder.alone.active is not None and decoder.alone.active.by_sentence is not None
    least, *_, most = (100 * share for share in decoder.alone.active.by_sentence)
    return (
        f"a request's active share is drawn from those of single sentences, {least:.3g} to {most:.3g} %, whatever its length,"
        " and moves its steps along a line through timed steps; policies reckon with the mean"
    )


@dataclass(frozen=True, slots=True)
class Learnt:
    """What one replication's policies know of a workload, and the pairs that they do not know."""

    fit_pairs: LengthTable
    evaluated_pairs: LengthTable
    """The other pairs: the run's requests are drawn from these."""
    lengths: LengthFit
    plane_fits: tuple[PlaneFit | None, ...]
    """Per target; None where the policies take the profile's plane."""
    planes: tuple[ExecutionPlane, ...]
    """What the policies reckon with, per target."""

    def knowledge(self, devices: Sequence[str]) -> Knowledge:
        """Return what policies are made from."""
        line = LengthRegression(self.lengths.len_slope, self.lengths.len_offset)
        return Knowledge(devices, self.planes, self.fit_pairs, line)


def learn(case: Case, fit: FitConfiguration, seed: int, replication: int) -> Learnt:
    """Split the pairs, fit the regression on one part, and the devices' planes on simulated inferences over the same part."""
    fit_pairs, evaluated_pairs = case.table.split(fit.share, seed, replication)
    if case.outliers is not None:
        # Thinned as the kept pairs are, so that both keep their shares of the requests.
        outliers = case.outliers if case.outliers.pairs < 2 else case.outliers.split(fit.share, seed, replication)[1]
        evaluated_pairs = evaluated_pairs.plus(outliers)
    plane_fits: list[PlaneFit | None] = []
    for number, target in enumerate(case.targets):
        if fit.inferences == 0:
            plane_fits.append(_fit_streamed_plane(case, number, fit_pairs, seed, replication))
            continue
        name = f"{case.name}/calibration {target.device}"
        src_len, tgt_len = fit_pairs.sample(seed, replication, f"{name} lengths", fit.inferences)
        noise = standard_normal(seed, replication, name, fit.inferences)
        draw_shares = partial(uniform, seed, replication, f"{name} {ACTIVE_SHARE_STREAM}")
        more_s = more_s_per_tgt_token(case, fit.inferences, draw_shares)[number]
        plane_fits.append(fit_plane(src_len, tgt_len, target.in_memory_s(src_len, tgt_len, noise, more_s)))
    return Learnt(
        fit_pairs=fit_pairs,
        evaluated_pairs=evaluated_pairs,
        lengths=fit_lengths(fit_pairs),
        plane_fits=tuple(plane_fits),
        planes=tuple(
            profile.plane if fitted is None else fitted.plane for profile, fitted in zip(case.profiles, plane_fits, strict=True)
        ),
    )


NOISELESS_INFERENCES = 10_000
"""Inferences without noise from which a streamed model's plane is fitted where no calibration is simulated."""


def _fit_streamed_plane(case: Case, target: int, pairs: LengthTable, seed: int, replication: int) -> PlaneFit | None:
    """The plane of what a streamed model computes as planned: the profile's is of the whole model; None where that holds."""
    streamed = case.targets[target].streamed
    if streamed is None:
        return None
    src_len, tgt_len = pairs.sample(seed, replication, f"{case.name}/planned {target} lengths", NOISELESS_INFERENCES)
    return fit_plane(src_len, tgt_len, streamed.compute.in_memory_s(src_len, tgt_len))


def standard_normal(seed: int, replication: int, name: str, size: int) -> NDArray[np.float64]:
    """Standard normal numbers of one stream."""
    return random_streams.draw(seed, replication, name, size, lambda generator, count: generator.standard_normal(count))


def uniform(seed: int, replication: int, name: str, size: int) -> NDArray[np.float64]:
    """Numbers in [0, 1) of one stream."""
    return random_streams.draw(seed, replication, name, size, lambda generator, count: generator.random(count))


Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a unit's policies meet: the truth for the log, the columns for the world."""

    truth: Truth
    """In the order in which they are issued. Where requests meet the network at moments of the policies, its transfer times
    stand for the network as such."""
    requests: Truth
    """The same in the order in which they are decided on, at the moments when they are."""
    decided_order: NDArray[np.int64] | None
    """Which request is decided on first, second and so on; None where that is the order in which they are issued."""
    issued_s: AnyColumn | None
    """When they are issued; None where the world sets the pace."""
    routes: Routes
    route: Route | None
    """For a world that looks links up as time goes by."""
    moments_s: Seconds | None
    """Where on the run's time requests meet the links whatever the policy; None where that is when they are issued."""
    pace_s: float | None
    """From one such moment to the next."""
    clients: Clients | None

    def own_truth(self, arrival_s: Seconds, node: AnyColumn) -> Truth | None:
        """The truth of requests that a policy issued at these moments; None where all policies share one."""
        if self.route is None:
            return None
        truth, at_s = self.truth, arrival_s if self.moments_s is None else self.moments_s
        assert truth.tgt_len is not None
        tgt_len = truth.tgt_len

        def transfer_s(rows: slice) -> tuple[Seconds, ...]:
            return self.routes.ways(at_s[rows], node[rows], truth.src_len[rows], tgt_len[rows]).transfer_s

        whole_s = tuple(map(np.concatenate, zip(*map(transfer_s, blocks_of(truth.all)), strict=True)))
        trace_s = np.mod(self.routes.begin_s + at_s, self.routes.lap_s)
        return replace(truth, node=node, transfer_s=whole_s, rtt_time_s=trace_s)


def draw(scenario: Scenario, case: Case, network: str, links: Network, learnt: Learnt, replication: int, folder: Path) -> Drawn:
    """Draw the requests of one workload on one network in one replication, into files of a folder."""
    seed, size, nodes = scenario.seed, scenario.requests, scenario.workloads[case.name].end_nodes
    arrivals = case.arrivals
    issued_s = arrivals.times(size, seed, replication, f"{case.name}/arrivals") if arrivals.discipline == "open" else None
    token_bytes = tuple(bytes_per_token(profile.model.vocab) for profile in case.profiles)
    network_routes = routes(links, tuple(scenario.devices), token_bytes, nodes, seed, replication, network)
    clock = scenario.clock_of(case.name, network)
    pace_s = clock_pace_s(scenario, case, network, network_routes)
    if pace_s is not None and clock == "pace":
        moments_s = np.arange(size, dtype=np.float64) * np.float64(pace_s)
    else:
        moments_s = (np.arange(size) + 0.5) / size * network_routes.lap_s if clock == "spread" or issued_s is None else issued_s
    columns = write_columns(folder, _blocks(scenario, case, learnt, replication, network_routes, issued_s, moments_s))
    truth: Truth = Requests(
        src_len=columns["src_len"],
        tgt_len=columns["tgt_len"],
        execution_s=_numbers(columns, "execution_s"),
        node=columns["node"],
        transfer_s=_numbers(columns, "transfer_s"),
        rtt_time_s=columns["rtt_time_s"],
        joules=tuple(_joules(case, target) for target in case.targets),
    )
    requests, order = _order_by_decision(truth, columns, issued_s)
    run_moments_s = None if clock == "time" else moments_s
    looked_up = issued_s is None and (clock == "time" or arrivals.discipline == "closed")
    return Drawn(
        truth=truth,
        requests=requests,
        decided_order=order,
        issued_s=columns.get("issued_s"),
        routes=network_routes,
        route=network_routes.route(columns["src_len"][:], columns["tgt_len"][:], run_moments_s) if looked_up else None,
        moments_s=run_moments_s,
        pace_s=pace_s,
        clients=_clients(case, nodes, size, seed, replication),
    )


def _blocks(
    scenario: Scenario,
    case: Case,
    learnt: Learnt,
    replication: int,
    network_routes: Routes,
    issued_s: Seconds | None,
    moments_s: Seconds,
) -> Iterator[dict[str, Array]]:
    """The columns of each block of requests by name; a tuple's are numbered."""
    seed, size, nodes = scenario.seed, scenario.requests, scenario.workloads[case.name].end_nodes
    ranks = case.arrivals.size_ranks(size, seed, replication, f"{case.name}/arrivals")
    node_of = _nodes_of_engagements(case, nodes, size, seed, replication)
    for block, rows in random_streams.blocks(size):
        count = rows.stop - rows.start

        def stream(name: str, block: int = block) -> np.random.Generator:
            return random_streams.stream(seed, replication, f"{case.name}/{name}", block)

        src_len, tgt_len = learnt.evaluated_pairs.at_quantiles(
            stream("lengths").random(count) if ranks is None else ranks[rows]
        )
        node = (stream("nodes").random(count) * nodes).astype(np.int32) if node_of is None else node_of[rows]
        more_s = more_s_per_tgt_token(case, count, lambda size: stream(ACTIVE_SHARE_STREAM).random(size))
        execution_s = [
            target.execution_s(src_len, tgt_len, stream(f"execution {target.device}").standard_normal(count), more)
            for target, more in zip(case.targets, more_s, strict=True)
        ]
        ways = network_routes.ways(moments_s[rows], node, src_len, tgt_len)
        columns: dict[str, Array] = {
            "node": node,
            "src_len": src_len,
            "tgt_len": tgt_len,
            "rtt_time_s": np.mod(network_routes.begin_s + moments_s[rows], network_routes.lap_s),
            **_numbered("execution_s", execution_s),
            **_numbered("transfer_s", ways.transfer_s),
            **_numbered("uplink_s", ways.uplink_s),
            **_numbered("downlink_s", ways.downlink_s),
        }
        if issued_s is not None:
            columns["issued_s"] = issued_s[rows]
        if ways.access_up_s is not None and ways.access_down_s is not None:
            columns |= {"access_up_s": ways.access_up_s, "access_s": ways.access_up_s + ways.access_down_s}
        yield columns


def _nodes_of_engagements(case: Case, nodes: int, size: int, seed: int, replication: int) -> NDArray[np.int32] | None:
    """The end node of each request, one for all turns of an engagement; None where every request has one of its own."""
    of = case.arrivals.engagements(size, seed, replication, f"{case.name}/arrivals")
    if of is None:
        return None
    engagements = int(of.max(initial=-1)) + 1
    drawn = random_streams.draw(
        seed, replication, f"{case.name}/nodes", engagements, lambda generator, count: generator.random(count)
    )
    node: NDArray[np.int32] = (drawn * nodes).astype(np.int32)[of]
    return node


def _joules(case: Case, target: Target) -> Joules | None:
    """Return what an execution alone costs; None where that was not measured, for a sentence of a batch, and for a streamed
    model."""
    energy = target.profile.energy_cost
    shares = case.batches and target.decoding is not None
    return None if energy is None or shares or target.streamed is not None else energy.joules


def _numbered(name: str, columns: Sequence[Array]) -> dict[str, Array]:
    return {f"{name} {number}": column for number, column in enumerate(columns)}


def _numbers(columns: dict[str, Column], name: str) -> tuple[Column, ...]:
    """What `_numbered` had named, in its order."""
    return tuple(column for key, column in columns.items() if key.rpartition(" ")[0] == name)


def _order_by_decision(
    truth: Truth, columns: dict[str, Column], issued_s: Seconds | None
) -> tuple[Truth, NDArray[np.int64] | None]:
    """Return the requests as the deciders see them: a request is theirs once it has come over the access link."""
    requests = replace(
        truth,
        uplink_s=_numbers(columns, "uplink_s"),
        downlink_s=_numbers(columns, "downlink_s"),
        arrival_s=issued_s,
        access_s=columns.get("access_s") if issued_s is None else None,
    )
    if issued_s is None or "access_up_s" not in columns:
        return requests, None
    decided_s = issued_s + columns["access_up_s"][:]
    order = np.argsort(decided_s, kind="stable")
    return requests.in_order(order, decided_s), order


def _clients(case: Case, nodes: int, size: int, seed: int, replication: int) -> Clients | None:
    if case.arrivals.discipline != "closed":
        return None
    count = case.arrivals.clients
    return Clients(count, nodes, case.arrivals.think_times(size + count, seed, replication, f"{case.name}/thinking"))
