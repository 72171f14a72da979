"""Draw the requests of one replication, the same for every policy, and what policies learn beforehand (CNMT-05, CNMT-07).

Every replication splits the corpus's pairs and calibrates again, so that an interval over replications also contains the
variation of the fit. (With one fit for all, Naive's intervals came out several times too narrow.)

Each workload of a mix draws its requests as in a run of its own. The end node of a request decides its site, whose links and
devices it meets. The requests of all workloads are then merged by the moment at which they are decided on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.experiment.accounts import request_costs
from simnmt.experiment.cases import Unit
from simnmt.experiment.clients import client_columns
from simnmt.experiment.quality import fitted_gains
from simnmt.experiment.routes import Line, clock_pace_s, half_overheads_s, lines_of
from simnmt.network.link import MovingRoute, Overhead
from simnmt.policies.decision import Knowledge, Resource
from simnmt.policies.gains import Gains
from simnmt.profile.cost import Plane
from simnmt.profile.execution_fit import PlaneFit, fit_plane
from simnmt.profile.power import RequestCost
from simnmt.results.columns import Array
from simnmt.results.requests import Requests, Truth
from simnmt.workload.arrivals import RandomStream
from simnmt.workload.length_regression import LengthFit, LengthRegression, fit_lengths
from simnmt.workload.length_table import LengthTable
from simnmt.workload.repeats import SentenceNumbers, first_requests, numbered_apart
from simnmt.world.inputs import Clients

NO_DEVICE_S = 1e9
"""Seconds of an execution at a site without a device of its own: longer than every other way to an answer."""
Seconds = NDArray[np.float64]
Numbers = NDArray[np.int64]
Columns = dict[str, Array]
"""Columns of some requests by name."""


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
    sentences: NDArray[np.int32] | None = None
    """Row in the text of each evaluated pair, in the order of the pairs; None without quality."""
    costs: dict[Resource, tuple[RequestCost, ...]] = field(default_factory=dict)
    """Joules and money of a request alone on each target; without what is unknown on some target."""
    gains: Gains | None = None
    """Expected gains in quality of the last device over the first one; None if quality is unknown."""

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
    text = case.quality
    sentences = None if text is None else text.evaluated(case.table, evaluated_pairs, seed, unit.replication)
    known = planes, sentences, request_costs(unit), fitted_gains(unit, sentences)
    return Learnt(fit_pairs, evaluated_pairs, fit_lengths(fit_pairs), plane_fits, *known)


def learn_parts(unit: Unit) -> list[Learnt]:
    """Return what policies learn of each part of a unit; sites with the same inputs share the fits."""
    learnt: dict[int, Learnt] = {}
    for part in unit.parts:
        if id(part.case) not in learnt:
            learnt[id(part.case)] = learn(part)
    return [replace(learnt[id(part.case)], costs=request_costs(part)) for part in unit.parts]


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
    return fit_plane(src_len, tgt_len, target.in_memory_s(src_len, tgt_len, noise))


@dataclass(frozen=True, slots=True)
class DrawnPart:
    """The requests of one workload at one site."""

    unit: Unit
    learnt: Learnt
    lines: Sequence[Line]
    """The line of each copy of the site."""
    rows: Numbers | None
    """Its requests among all, in the order of the decisions; None: all of them."""
    numbers: Numbers | None
    """Their numbers in the workload's own run, in the order of the decisions; None if that is the order of issue."""
    tgt_len: Array
    """True target lengths of the workload's own run."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The requests of a unit: the truth for the log, and the columns for the world."""

    truth: Truth
    """In the order of issue. If the moments at which requests meet the network depend on the policy, its transfer times only
    represent the network."""
    requests: Truth
    """In the order of the decisions, at the moments of the decisions."""
    decided_order: Numbers | None
    """Numbers of the requests in the order of the decisions; None if that is the order of issue."""
    issued_s: Array | None
    """When requests are issued; None if the world sets the pace."""
    decider: NDArray[np.int32] | None
    """The device that decides on each request, in the order of the decisions; None if the world sets the pace."""
    part: NDArray[np.int32] | None
    """Number of each request's part, in the order of issue; None if there is only one."""
    lines: Sequence[Line]
    parts: tuple[DrawnPart, ...] = ()
    part_rows: Sequence[Numbers] = ()
    """By part, the numbers of its requests in the order of issue; empty if there is only one."""
    moments_s: Array | None = None
    """Moments at which requests meet the links, the same for every policy; None if they meet the links when they are issued."""
    pace_s: float | None = None
    """Seconds from one such moment to the next."""
    route: MovingRoute | None = None
    clients: Clients | None = None

    @property
    def retries_s(self) -> tuple[Array, ...]:
        """`Requests.retry_after_s` in the order of issue."""
        columns, place = self.requests.retry_after_s, self.decided_order
        return columns if place is None else tuple(column[np.argsort(place)] for column in columns)

    def own_truth(self, arrival_s: Array, node: Array) -> Truth | None:
        """Return the truth of the requests that a policy issued at these moments; None if all policies share one truth."""
        if self.route is None:
            return None
        truth, at_s, routes = self.truth, arrival_s if self.moments_s is None else self.moments_s, self.lines[0].routes
        assert truth.tgt_len is not None
        ways = routes.ways(at_s, node, truth.src_len, truth.tgt_len, self.route.half_overhead_s)
        trace_s = np.mod(routes.begin_s + at_s, routes.lap_s)
        return replace(truth, node=node, transfer_s=ways.transfer_s, rtt_time_s=trace_s)

    def rows_of(self, parts: Sequence[int]) -> Numbers:
        """Return the numbers of the requests of some parts, in the order of issue."""
        return np.sort(np.concatenate([self.part_rows[number] for number in parts]))


def draw(unit: Unit, learnts: Sequence[Learnt]) -> Drawn:
    """Draw the requests of a unit; `learnts`: of each part."""
    lines = lines_of(unit)
    by_workload: dict[str, list[Line]] = {}
    for line in lines:
        by_workload.setdefault(unit.parts[line.part].case.name, []).append(line)
    workloads = {name: _draw_workload(unit, at, learnts[at[0].part]) for name, at in by_workload.items()}
    first = next(iter(workloads.values()))
    drawn, numbers = (first, first.decided_order) if len(workloads) == 1 else _merged([*workloads.values()])
    if unit.scenario.classes and drawn.requests.model is not None:
        ranks = {part.case.name: part.rank for part in unit.parts}
        of_workload = np.array([ranks[name] for name in workloads], np.int8)
        drawn = replace(drawn, requests=replace(drawn.requests, priority=of_workload[drawn.requests.model]))
    part = drawn.part if drawn.part is None or drawn.decided_order is None else drawn.part[drawn.decided_order]
    rows: Sequence[Numbers | None] = [None] if part is None else _rows_by(part, len(unit.parts))
    if numbers is not None and part is not None:
        numbers_by_part: Sequence[Numbers | None] = [numbers[of_part] for of_part in rows]
    else:  # in the order of issue, the rows of a part are its numbers
        numbers_by_part = rows if numbers is None else [numbers]
    parts = tuple(
        DrawnPart(
            of_part,
            learnts[number],
            [line for line in lines if line.part == number],
            rows[number],
            numbers_by_part[number],
            _known(workloads[of_part.case.name].truth.tgt_len),
        )
        for number, of_part in enumerate(unit.parts)
    )
    part_rows = () if drawn.part is None else _rows_by(drawn.part, len(parts))
    return replace(drawn, lines=lines, parts=parts, part_rows=part_rows)


def _rows_by(numbers: NDArray[np.integer[Any]], count: int) -> list[Numbers]:
    """Return the rows of each of `count` numbers, ascending."""
    order = np.argsort(numbers.astype(np.int16 if count < 2**15 else np.int32), kind="stable")
    return np.split(order, np.cumsum(np.bincount(numbers, minlength=count))[:-1])


def _draw_workload(unit: Unit, lines: Sequence[Line], learnt: Learnt) -> Drawn:
    """Draw the requests of one workload, which come over some lines."""
    parts = [unit.parts[line.part] for line in lines]
    part, routes = parts[0], lines[0].routes
    scenario, case, size = part.scenario, part.case, part.scenario.requests
    issued_s: Array | None = None
    if case.arrivals.discipline == "open":
        issued_s = case.arrivals.times(size, RandomStream(*part.stream("arrivals")))
    clock, pace_s = scenario.clock_of(case.name, part.network), clock_pace_s(scenario, part.known.case, part.network, routes)
    moments_s: Array
    if pace_s is not None and clock == "pace":
        moments_s = np.arange(size, dtype=np.float64) * pace_s
    elif clock == "spread" or issued_s is None:
        moments_s = (np.arange(size) + 0.5) / size * routes.lap_s
    else:
        moments_s = issued_s
    laws: Laws = []
    for device, settings in ((device, settings) for one in parts for device, settings in one.scenario.devices.items()):
        if settings.overhead is not None and (device, settings.overhead) not in laws:
            laws.append((device, settings.overhead))
    blocks = _blocks(parts, learnt, laws, moments_s, _sentences(unit, part))
    if len(lines) == 1:
        columns = _filled(((rows, _on_line(part, lines[0], laws, block)) for rows, block in blocks), size)
    else:
        drawn = _filled(blocks, size)
        order, ends = _sorted_by_line(drawn["node_share"], lines)
        drawn = {name: column[order] for name, column in drawn.items()}
        slices = [slice(begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
        pieces = (
            (rows, _on_line(at, line, laws, {name: column[rows] for name, column in drawn.items()}))
            for at, line, rows in zip(parts, lines, slices, strict=True)
            if rows.stop > rows.start  # few requests, many sites
        )
        columns, place = _filled(pieces, size), np.empty(size, np.int64)
        place[order] = np.arange(size)
        columns = {name: column[place] for name, column in columns.items()}
    columns |= client_columns(unit, part, columns["transfer_s 0"])
    run_moments_s = None if clock == "time" else moments_s
    if (document := _documents(unit, part)) is not None:
        columns["document"] = document
    drawn_requests = _requests(columns, issued_s, len(case.targets), is_part=len(unit.parts) > 1)
    if issued_s is not None:
        return replace(drawn_requests, moments_s=run_moments_s, pace_s=pace_s)
    clients = route = None
    if clock == "time" or case.arrivals.discipline == "closed":
        half_overhead_s = tuple(columns.get(f"half_overhead_s {number}") for number in range(len(case.targets)))
        lengths = columns["src_len"], columns["tgt_len"]
        route = MovingRoute(routes.access, routes.hops, routes.token_bytes, *lengths, run_moments_s, half_overhead_s)
    if case.arrivals.discipline == "closed":
        think_s = case.arrivals.think_times(size, RandomStream(*part.stream("thinking")))
        clients = Clients(len(think_s) - size, part.nodes, think_s)
    return replace(drawn_requests, moments_s=run_moments_s, pace_s=pace_s, route=route, clients=clients)


Laws = list[tuple[str, Overhead]]
"""The different laws of the overheads of devices, which may differ between sites."""


def _documents(unit: Unit, part: Unit) -> NDArray[np.int32] | None:
    """Return the document of each request of a workload; None if no workload of the scenario has documents."""
    size = part.scenario.requests
    document = part.case.arrivals.documents(size, RandomStream(*part.stream("arrivals")))
    if document is None and any(one.scenario.has_documents for one in unit.parts):
        return np.arange(size, dtype=np.int32)
    return document


def _sentences(unit: Unit, part: Unit) -> SentenceNumbers | None:
    """Return the sentence of each request of a workload; None if no sentence of the unit comes back."""
    size, repeats, arrivals = part.scenario.requests, part.case.repeats, part.case.arrivals
    if repeats is not None:
        first_row = arrivals.first_row(RandomStream(*part.stream("arrivals"))) if repeats.is_log_of_arrivals else None
        return repeats.draw(size, RandomStream(*part.stream("sentences")), first_row)
    return np.arange(size, dtype=np.int32) if any(one.case.repeats is not None for one in unit.parts) else None


def _blocks(
    parts: Sequence[Unit], learnt: Learnt, laws: Laws, moments_s: Seconds, sentence: SentenceNumbers | None
) -> Iterator[tuple[slice, Columns]]:
    """Yield each block of requests with its drawn numbers: whatever the site of a request is, it has the same ones.

    These are `node_share` (a uniform number, which draws the end node), lengths, noises of execution, overheads by law, the
    sentence, whose requests all have the same lengths, and with quality the row of the text.
    """
    part, arrivals, size = parts[0], parts[0].case.arrivals, parts[0].scenario.requests
    ranks, repeats = arrivals.size_ranks(size, RandomStream(*part.stream("arrivals"))), part.case.repeats
    quantiles: Seconds | None = None
    if repeats is not None and sentence is not None:
        if ranks is None:
            quantiles = repeats.length_quantiles(random_streams.stream(*part.stream("lengths of sentences")))
        else:
            ranks = ranks[first_requests(sentence)]
    engagement = arrivals.engagements(size, RandomStream(*part.stream("arrivals")))
    share_of: Seconds | None = None
    if engagement is not None:  # all turns of one come from the same end node
        share_of = random_streams.uniform(*part.stream("nodes"), int(engagement.max(initial=-1)) + 1)[engagement]
    for block, rows in random_streams.blocks(size):
        count = rows.stop - rows.start

        def stream(name: str, block: int = block) -> np.random.Generator:
            return random_streams.stream(*part.stream(name), block)

        if quantiles is not None and sentence is not None:
            uniform = quantiles[sentence[rows]]
        else:
            uniform = stream("lengths").random(count) if ranks is None else ranks[rows]
        src_len, tgt_len = learnt.evaluated_pairs.at_quantiles(uniform)
        node_share = stream("nodes").random(count) if share_of is None else share_of[rows]
        columns: Columns = {"moment_s": moments_s[rows], "node_share": node_share, "src_len": src_len, "tgt_len": tgt_len}
        if sentence is not None:
            columns["sentence"] = sentence[rows]
        if learnt.sentences is not None:  # the number that draws a pair of lengths is that of one of its sentences
            columns["text_row"] = learnt.sentences[(uniform * len(learnt.sentences)).astype(np.int64)]
        for target in part.case.targets:
            columns[f"noise {target.device}"] = stream(f"execution {target.device}").standard_normal(count)
        for number, (device, law) in enumerate(laws):
            columns[f"overhead {number}"] = law.draw_s(stream(f"overhead {device}"), count)
        yield rows, columns


def _filled(pieces: Iterable[tuple[slice, Columns]], size: int) -> Columns:
    """Return the columns of all requests from pieces of them; a column that some pieces lack is 0 there."""
    columns: Columns = {}
    for rows, piece in pieces:
        for name, column in piece.items():
            if name not in columns:
                columns[name] = np.zeros(size, column.dtype)
            columns[name][rows] = column
    return columns


def _sorted_by_line(node_share: Seconds, lines: Sequence[Line]) -> tuple[Numbers, list[int]]:
    """Return the order that sorts requests by line, and where the requests of each line end in it.

    The uniform number that draws an end node is divided by the shares of the lines: it changes to one that draws a node there.
    """
    ends = np.cumsum([line.share for line in lines]) / sum(line.share for line in lines)
    begins = np.concatenate(([0.0], ends[:-1]))
    number = np.searchsorted(ends[:-1], node_share, side="right")
    node_share -= begins[number]
    node_share /= (ends - begins)[number]
    np.clip(node_share, 0.0, np.nextafter(1.0, 0.0), out=node_share)
    order = np.argsort(number.astype(np.int16 if len(lines) < 2**15 else np.int32), kind="stable")
    return order, np.cumsum(np.bincount(number, minlength=len(lines))).tolist()


def _on_line(part: Unit, line: Line, laws: Laws, drawn: Columns) -> Columns:
    """Return the columns of some requests that come over a line, from their drawn numbers; names end with the target."""
    targets, src_len, tgt_len = part.case.targets, drawn["src_len"], drawn["tgt_len"]
    overheads = [(device, settings.overhead) for device, settings in part.scenario.devices.items()]
    halves_s = half_overheads_s(
        [None if law is None else drawn[f"overhead {laws.index((name, law))}"] for name, law in overheads]
    )
    node = (drawn["node_share"] * line.nodes).astype(np.int32)
    ways = line.routes.ways(drawn["moment_s"], node, src_len, tgt_len, halves_s)
    columns: Columns = {
        "src_len": src_len,
        "tgt_len": tgt_len,
        "node": node + np.int32(line.first_node),
        "decider": node % np.int32(line.deciders) + np.int32(line.first_decider),
        "part": np.full(len(node), line.part, np.int32),
        "rtt_time_s": np.mod(line.routes.begin_s + drawn["moment_s"], line.routes.lap_s),
    }
    for number, target in enumerate(targets):
        columns[f"execution_s {number}"] = (
            target.execution_s(src_len, tgt_len, drawn[f"noise {target.device}"])
            if number or part.has_own_device
            else np.full(len(node), NO_DEVICE_S)
        )
    columns |= {f"transfer_s {number}": column for number, column in enumerate(ways.transfer_s)}
    columns |= {f"uplink_s {number}": column for number, column in enumerate(ways.uplink_s, start=1)}
    columns |= {f"downlink_s {number}": column for number, column in enumerate(ways.downlink_s, start=1)}
    columns |= {f"half_overhead_s {number}": column for number, column in enumerate(halves_s) if column is not None}
    columns |= {name: drawn[name] for name in ("sentence", "text_row") if name in drawn}
    return columns if ways.access_s is None else columns | {"access_up_s": ways.access_s[0]}


def _requests(columns: Columns, issued_s: Array | None, targets: int, *, is_part: bool) -> Drawn:
    """Return requests with these columns, without what is of all parts."""

    def by_target(name: str, first: int = 0) -> tuple[Array, ...]:
        return tuple(columns[f"{name} {number}"] for number in range(first, targets))

    truth = Requests(
        src_len=columns["src_len"],
        tgt_len=columns["tgt_len"],
        execution_s=by_target("execution_s"),
        node=columns["node"],
        transfer_s=by_target("transfer_s"),
        rtt_time_s=columns["rtt_time_s"],
        sentence=columns.get("sentence"),
        document=columns.get("document"),
        text_row=columns.get("text_row"),
    )
    access_up_s, order = columns.get("access_up_s"), None
    if access_up_s is not None and truth.document is not None:
        # A document is decided on when all of its sentences are there.
        begins, own_up_s = np.flatnonzero(np.diff(truth.document, prepend=-1)), access_up_s
        access_up_s = np.repeat(np.maximum.reduceat(own_up_s, begins), np.diff(begins, append=len(own_up_s)))
        truth = replace(truth, transfer_s=tuple(column + (access_up_s - own_up_s) for column in truth.transfer_s))
    requests = replace(
        truth,
        uplink_s=by_target("uplink_s", 1),
        downlink_s=by_target("downlink_s", 1),
        arrival_s=issued_s,
        retry_after_s=tuple(column for name, column in columns.items() if name.startswith("retry_after_s")),
        patience_s=columns.get("patience_s"),
    )
    if issued_s is None and access_up_s is not None:
        requests = replace(requests, access_s=truth.transfer_s[0])
    elif issued_s is not None and access_up_s is not None:
        decided_s = issued_s + access_up_s  # the deciders receive them behind the access link
        order = np.argsort(decided_s, kind="stable")
        requests = requests.in_order(order, decided_s)
    decider = None if issued_s is None else columns["decider"] if order is None else columns["decider"][order]
    return Drawn(truth, requests, order, issued_s, decider, columns["part"] if is_part else None, ())


def _merged(workloads: Sequence[Drawn]) -> tuple[Drawn, Numbers]:
    """Return the requests of several workloads together, and the number of each in its workload, in the order of decisions."""
    sizes = [len(drawn.truth) for drawn in workloads]
    issued_s = np.concatenate([_known(drawn.issued_s) for drawn in workloads])
    issue_order = np.argsort(issued_s, kind="stable")
    decision_order = np.argsort(np.concatenate([_known(drawn.requests.arrival_s) for drawn in workloads]), kind="stable")
    numbers = np.concatenate(
        [np.arange(len(one.truth)) if one.decided_order is None else one.decided_order for one in workloads]
    )
    workload = np.repeat(np.arange(len(workloads), dtype=np.int16), sizes)
    begins = np.cumsum([0, *sizes[:-1]])
    place = np.empty_like(issue_order)
    place[issue_order] = np.arange(len(issue_order))
    order = place[(begins[workload] + numbers)[decision_order]]
    requests = _joined([drawn.requests for drawn in workloads], decision_order)
    drawn = Drawn(
        _joined([drawn.truth for drawn in workloads], issue_order),
        replace(requests, model=workload[decision_order]),
        None if all(drawn.decided_order is None for drawn in workloads) else order,
        issued_s[issue_order],
        np.concatenate([_known(drawn.decider) for drawn in workloads])[decision_order],
        np.concatenate([_known(drawn.part) for drawn in workloads])[issue_order],
        (),
    )
    return drawn, numbers[decision_order]


def _joined(requests: Sequence[Requests], order: Numbers) -> Requests:
    """Return the requests of several workloads, one after another, in an order; without columns that some of them lack."""

    def joined(columns: Sequence[Any]) -> Any:
        if isinstance(columns[0], tuple):
            return tuple(map(joined, zip(*columns, strict=False)))
        return None if any(column is None for column in columns) else np.concatenate(columns)[order]

    names = [field.name for field in fields(Requests) if field.name != "first"]
    columns = {name: [getattr(one, name) for one in requests] for name in names}
    for name in ("sentence", "document"):
        columns[name] = numbered_apart(columns[name])
    return Requests(**{name: joined(column) for name, column in columns.items()})


def _known(column: Array | None) -> Array:
    assert column is not None, "drawn requests of several workloads have this column"
    return column
