"""Mixes: the requests of several workloads at several sites, which meet at the same devices.

Each workload draws its requests as in a run of its own. The end node of a request decides its site, whose links, own devices
and policies it meets. The requests of all workloads are then merged by the moment at which they are decided on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.experiment.cases import RunPlan, SitePlan, Unit, requests_by_workload
from simnmt.experiment.draws import (
    ACTIVE_SHARE_STREAM,
    Columns,
    Drawn,
    Learnt,
    arrival_times,
    columns_on_links,
    drawn_columns,
    more_s_per_tgt_token,
    requests_of,
    routes_of,
)
from simnmt.experiment.policy_setup import Truths, set_up_policy, simulated_estimate
from simnmt.experiment.routes import Line
from simnmt.policies.decision import Decide, Fixed, LeastTotal
from simnmt.results.columns import Array
from simnmt.results.places import ALL
from simnmt.results.requests import Block, Requests
from simnmt.scenario.configuration import END_NODE
from simnmt.world.inputs import PolicySetup

Numbers = NDArray[np.int64]
NO_DEVICE_S = 1e9
"""Seconds of an execution at a site without a device of its own: longer than every other way to an answer."""


def mixed_units(plan: RunPlan, template: Unit) -> Unit:
    """Return the mix of a plan on the network and in the replication of a unit."""
    scenario, network = plan.scenario, template.network
    alone = SitePlan(ALL, scenario, plan.cases, {name: (links,) for name, links in plan.networks.items()})
    counts = requests_by_workload(plan)
    parts = tuple(
        replace(
            template,
            scenario=site.scenario.model_copy(update={"requests": counts[name]}),
            case=case,
            links=site.networks[network][0],
            site=site,
        )
        for site in plan.sites or (alone,)
        for name, case in site.cases.items()
    )
    first = next((part for part in parts if part.has_own_device), parts[0])
    whole = first.scenario.model_copy(update={"requests": scenario.requests})
    return replace(template, scenario=whole, case=first.case, links=first.links, parts=parts)


@dataclass(frozen=True, slots=True)
class Part:
    """A workload at a site, and its requests among all of a mix."""

    unit: Unit
    learnt: Learnt
    lines: Sequence[Line]
    """Lines of each copy of the site."""
    rows: Numbers
    """Its requests among all in the order of the decisions."""
    drawn: Drawn
    """Its workload's requests; `decided_order` has the numbers of those at this site alone, in the order of the decisions."""


@dataclass(frozen=True, slots=True)
class Deciders:
    """The devices of a site that decide: the gateways of all its workloads, or the end nodes of one."""

    parts: tuple[int, ...]
    """Numbers of the parts whose requests they decide on."""
    first: int
    boxes_per_copy: int
    """Devices of each copy of the site."""
    copies: int

    @property
    def count(self) -> int:
        """Devices of all copies."""
        return self.boxes_per_copy * self.copies


@dataclass(frozen=True, slots=True)
class Group:
    """Requests with a row of results of their own."""

    site: str
    workload: str
    parts: tuple[int, ...]
    boxes: slice
    """The deciders whose own devices execute them."""
    workers: float | None = None
    """Workers of each of these boxes; the mean if sites differ. None: as the scenario has it."""


@dataclass(frozen=True, slots=True)
class Mix:
    """The drawn requests of a mix."""

    drawn: Drawn
    """Requests of all parts together."""
    parts: tuple[Part, ...]
    deciders: tuple[Deciders, ...]
    lines: tuple[Line, ...]
    """The ways of all end nodes, in their order."""
    decider: NDArray[np.int32]
    """The device that decides on each request, in the order of the decisions."""
    part: NDArray[np.int32]
    """Number of each request's part, in the order of issue."""
    part_rows: tuple[Numbers, ...]
    """By part, the numbers of its requests, in the order of issue."""

    def rows_of(self, group: Group) -> Numbers:
        """Return the numbers of the requests of a group, in the order of issue."""
        return np.sort(np.concatenate([self.part_rows[number] for number in group.parts]))

    def rows_by_part(self) -> dict[tuple[str, str], NDArray[np.int64]]:
        """Return the numbers of the requests of each site and workload that has some, in the order of issue."""
        names = [(part.unit.site_name, part.unit.case.name) for part in self.parts]
        return {name: rows for name, rows in zip(names, self.part_rows, strict=True) if len(rows)}

    def set_up(self, policy: str, truths: Truths = frozenset()) -> MixedSetup:
        """Set a policy up for all parts."""
        setups = list[PolicySetup]()
        for part in self.parts:
            unit = part.unit.known
            settings = unit.scenario.policies[policy]
            devices = next(site.boxes_per_copy for site in self.deciders if len(setups) in site.parts)
            routes = [line.routes for line in part.lines]
            estimate = partial(simulated_estimate, unit, settings.estimation, routes, devices)
            setups.append(set_up_policy(unit, part.learnt, part.drawn, settings, truths, estimate))
        return MixedSetup(self, tuple(setups))


@dataclass(frozen=True, slots=True)
class MixedSetup:
    """A policy that is set up for every part of a mix."""

    mix: Mix
    setups: tuple[PolicySetup, ...]

    def composed(self) -> PolicySetup:
        """Return the policy that decides on each request as its part does."""
        setups = self.setups
        has_views, has_plans = any(one.expected_for for one in setups), any(one.plan_beyond_for for one in setups)
        beliefs = [setups[of_site.parts[0]].beliefs[0] for of_site in self.mix.deciders]
        return PolicySetup(
            self._decide_for, beliefs, self._expected_for if has_views else None, self._beyond_for if has_plans else None
        )

    def _parts_of(self, block: Block) -> Iterator[tuple[PolicySetup, Numbers, Block]]:
        """Yield the set-up of each part, its rows in a block, and these requests as a block of the part."""
        for part, setup in zip(self.mix.parts, self.setups, strict=True):
            begin, end = np.searchsorted(part.rows, [block.first, block.first + len(block)])
            rows = part.rows[begin:end] - block.first
            if rows.size == len(block):
                yield setup, rows, replace(block, first=int(begin))
            elif rows.size:
                execution_s = tuple(column[rows] for column in block.execution_s)
                yield setup, rows, Requests(block.src_len[rows], execution_s, first=int(begin))

    def _decide_for(self, block: Block) -> Decide:
        choices = [(setup.decide_for(of_part), rows) for setup, rows, of_part in self._parts_of(block)]
        if len(choices) == 1:
            return choices[0][0]
        fixed = {choice.target if isinstance(choice, Fixed) else None for choice, _ in choices}
        if len(fixed) == 1 and None not in fixed:
            return choices[0][0]
        if all(isinstance(choice, (Fixed, LeastTotal)) for choice, _ in choices):
            columns = [np.empty(len(block)) for _ in block.execution_s]
            for choice, rows in choices:
                for target, column in enumerate(columns):
                    if isinstance(choice, LeastTotal):
                        column[rows] = choice.execution_s[target]
                    else:
                        column[rows] = 0.0 if isinstance(choice, Fixed) and choice.target == target else np.inf
            return LeastTotal(columns)
        number, row = np.empty(len(block), np.int64), np.empty(len(block), np.int64)
        for at, (_, rows) in enumerate(choices):
            number[rows], row[rows] = at, np.arange(rows.size)
        decides, places = [choice for choice, _ in choices], list(zip(number.tolist(), row.tolist(), strict=True))

        def decide(request: int, shown: Any) -> int:
            at, in_part = places[request]
            return decides[at](in_part, shown)

        return decide

    def _expected_for(self, block: Block) -> Sequence[NDArray[np.float64]]:
        columns = [np.zeros(len(block)) for _ in block.execution_s]
        for setup, rows, of_part in self._parts_of(block):
            if setup.expected_for is not None:
                for column, expected in zip(columns, setup.expected_for(of_part), strict=True):
                    column[rows] = expected
        return columns

    def _beyond_for(self, block: Block) -> Sequence[Sequence[NDArray[np.float64]] | None]:
        tables: list[list[NDArray[np.float64]] | None] = [None for _ in block.execution_s]
        for setup, rows, of_part in self._parts_of(block):
            for target, states in enumerate(setup.plan_beyond_for(of_part) if setup.plan_beyond_for else ()):
                if states is not None:
                    table = tables[target] or [np.zeros(len(block)) for _ in states]
                    for column, seconds in zip(table, states, strict=True):
                        column[rows] = seconds
                    tables[target] = table
        return tables

    def predicted_tgt_len(self) -> NDArray[np.float64]:
        """Return the target length that each request's part assumes, in the order of issue; NaN if it assumes none."""
        src_len, part = self.mix.drawn.truth.src_len, self.mix.part
        predicted = np.full(len(src_len), np.nan)
        for number, setup in enumerate(self.setups):
            if setup.predicted_tgt_len is not None:
                rows = np.flatnonzero(part == number)
                by_src_len = setup.predicted_tgt_len(np.arange(1, int(src_len.max()) + 1))
                predicted[rows] = np.asarray(by_src_len, np.float64)[src_len[rows] - 1]
        return predicted


def groups_of(sites: Sequence[str], workloads: Sequence[str]) -> list[tuple[str, str]]:
    """Return site and workload of each row of results of a mix: of all requests, of each site, and of each workload."""
    every = workloads[0] if len(workloads) == 1 else ALL
    groups = [(ALL, every), *((site, every) for site in sites if len(sites) > 1)]
    return groups + [(ALL, workload) for workload in workloads if len(workloads) > 1]


def result_groups(unit: Unit) -> list[Group]:
    """Return the groups of a unit's requests that have a row of results; the first is of all."""
    if not unit.parts:
        return [Group(ALL, unit.case.name, (0,), slice(0, unit.boxes_of(next(iter(unit.scenario.devices)))))]
    deciders, groups = _deciders(unit.parts), []
    sites = list(dict.fromkeys(part.site_name for part in unit.parts))
    workloads = list(dict.fromkeys(part.case.name for part in unit.parts))
    for site, workload in groups_of(sites, workloads):
        parts = tuple(
            number
            for number, part in enumerate(unit.parts)
            if site in (ALL, part.site_name) and (workload in (ALL, part.case.name))
        )
        own = [one for one in deciders if {*parts} & {*one.parts} and unit.parts[one.parts[0]].has_own_device]
        boxes = slice(own[0].first, own[-1].first + own[-1].count) if own else slice(0, 0)
        groups.append(Group(site, workload, parts, boxes, _mean_workers(unit.parts, own)))
    return groups


def _mean_workers(units: Sequence[Unit], deciders: Sequence[Deciders]) -> float | None:
    by_site = [next(iter(units[one.parts[0]].scenario.devices.values())).workers for one in deciders]
    if len(set(by_site)) <= 1:
        return by_site[0] if by_site else None
    return float(np.average(by_site, weights=[one.count for one in deciders]))


def draw_mix(unit: Unit, learnts: Sequence[Learnt]) -> Mix:
    """Draw the requests of all parts of a mix. `learnts`: of each part."""
    units, deciders = unit.parts, _deciders(unit.parts)
    of_workloads: list[_DrawnWorkload] = []
    first_node = 0
    for name in dict.fromkeys(part.case.name for part in units):
        numbers = [number for number, part in enumerate(units) if part.case.name == name]
        firsts = [next(of_site for of_site in deciders if number in of_site.parts) for number in numbers]
        of_workloads.append(_draw_workload(units, numbers, learnts[numbers[0]], firsts, first_node))
        first_node += of_workloads[-1].nodes
    begins = np.cumsum([0, *(len(one.part) for one in of_workloads)])
    # The requests of all workloads, one after another: in the order of issue, and in the order of the decisions.
    issued_s = np.concatenate([one.issued_s for one in of_workloads])
    issue_order = np.argsort(issued_s, kind="stable")
    arrivals_s = np.concatenate([one.requests.arrival_s for one in of_workloads])
    decision_order = np.argsort(arrivals_s, kind="stable")
    decided = np.concatenate([begin + one.decided for begin, one in zip(begins, of_workloads, strict=False)])[decision_order]
    issue_place = np.empty_like(issue_order)
    issue_place[issue_order] = np.arange(len(issue_order))
    order = issue_place[decided]
    part = np.concatenate([one.part for one in of_workloads])
    truth = _merged([one.truth for one in of_workloads], issue_order)
    requests = _merged([one.requests for one in of_workloads], decision_order)
    if len(of_workloads) > 1:
        numbers_of = np.repeat(np.arange(len(of_workloads), dtype=np.int16), np.diff(begins))
        requests = replace(requests, model=numbers_of[decided])
    in_order = all(one.in_order for one in of_workloads)
    drawn = Drawn(
        truth,
        requests,
        None if in_order else order,
        issued_s[issue_order],
        of_workloads[0].lines[0][0].routes,
        None,
        None,
        None,
        None,
        (),
    )
    part_decided, parts = part[decided], list[Part]()
    for number, (of_part, learnt) in enumerate(zip(units, learnts, strict=True)):
        rows = np.flatnonzero(part_decided == number)
        at = next(at for at, one in enumerate(of_workloads) if number in one.numbers)
        of_workload = of_workloads[at]
        own = replace(drawn, truth=of_workload.truth, decided_order=decided[rows] - begins[at])
        parts.append(Part(of_part, learnt, of_workload.lines[of_workload.numbers.index(number)], rows, own))
    decider = np.concatenate([one.decider for one in of_workloads])[decided]
    lines = tuple(line for one in of_workloads for of_site in one.lines for line in of_site)
    issued_part = part[issue_order]
    by_part = np.argsort(issued_part, kind="stable")
    part_rows = np.split(by_part, np.cumsum(np.bincount(issued_part, minlength=len(parts)))[:-1])
    return Mix(drawn, tuple(parts), deciders, lines, decider, issued_part, tuple(part_rows))


def _deciders(units: Sequence[Unit]) -> tuple[Deciders, ...]:
    """Return the devices that decide, site by site."""
    together: dict[tuple[str, str], list[int]] = {}
    for number, unit in enumerate(units):
        owner = unit.case.name if next(iter(unit.scenario.devices)) == END_NODE else ""
        together.setdefault((unit.site_name, owner), []).append(number)
    deciders, first = list[Deciders](), 0
    # Those without a device of their own come last, so that the own devices are numbered without a gap.
    for parts in sorted(together.values(), key=lambda parts: not units[parts[0]].has_own_device):
        unit = units[parts[0]]
        boxes_per_copy = unit.scenario.count_of(next(iter(unit.scenario.devices)), unit.case.name)
        deciders.append(Deciders(tuple(parts), first, boxes_per_copy, len(unit.lines)))
        first += deciders[-1].count
    return tuple(deciders)


@dataclass(frozen=True, slots=True)
class _DrawnWorkload:
    """The requests of one workload at all its sites."""

    numbers: list[int]
    """Numbers of its parts."""
    truth: Requests
    requests: Requests
    issued_s: Array
    decided: Numbers
    """Numbers of the requests in the order of the decisions."""
    in_order: bool
    """True if that is the order of issue."""
    lines: list[list[Line]]
    """By part and copy of its site."""
    part: NDArray[np.int32]
    """In the order of issue, as is the next."""
    decider: NDArray[np.int32]
    nodes: int


def _draw_workload(
    units: Sequence[Unit], numbers: list[int], learnt: Learnt, deciders: Sequence[Deciders], first_node: int
) -> _DrawnWorkload:
    """Draw the requests of one workload; `numbers`: of its parts, whose `deciders` are given; its end nodes count on from
    `first_node`."""
    unit, size = units[numbers[0]], units[numbers[0]].scenario.requests
    issued_s = arrival_times(unit)
    assert issued_s is not None, "only requests that arrive by themselves share devices"
    is_one_line = len({one.site_name for one in units}) == len(unit.lines) == 1
    copies = [(at, copy) for at, number in enumerate(numbers) for copy in range(len(units[number].lines))]
    lines: list[list[Line]] = [[] for _ in numbers]
    for at, copy in copies:
        of_site = units[numbers[at]]
        name = of_site.network if is_one_line else of_site.line_name(copy)
        lines[at].append(Line(name, routes_of(of_site, of_site.lines[copy], name, of_site.nodes), of_site.nodes))
    if len(copies) == 1 and unit.has_own_device:
        on_line = partial(columns_on_links, lines[0][0].routes, unit.nodes)
        columns = drawn_columns(unit, learnt, lambda rows, block: on_line(issued_s[rows], block))
        copy_of: NDArray[np.int64] = np.zeros(size, np.int64)
    else:
        columns = drawn_columns(unit, learnt, lambda rows, block: {})
        copy_of = _meet_lines(units, numbers, copies, lines, columns, issued_s)
    truth, requests, order = requests_of(columns, issued_s)
    nodes = [units[numbers[at]].nodes for at, _ in copies]
    first_nodes = first_node + np.cumsum([0, *nodes[:-1]])
    firsts = np.array([deciders[at].first + copy * deciders[at].boxes_per_copy for at, copy in copies])
    boxes_per_copy = np.array([deciders[at].boxes_per_copy for at, _ in copies])
    local = columns["node"]
    decider = (firsts[copy_of] + local % boxes_per_copy[copy_of]).astype(np.int32)
    node = (first_nodes[copy_of] + local).astype(np.int32)
    decided = np.arange(size) if order is None else order
    part = np.array([numbers[at] for at, _ in copies], np.int32)[copy_of]
    truth, requests = replace(truth, node=node), replace(requests, node=node[decided])
    return _DrawnWorkload(numbers, truth, requests, issued_s, decided, order is None, lines, part, decider, sum(nodes))


def _meet_lines(
    units: Sequence[Unit],
    numbers: Sequence[int],
    copies: Sequence[tuple[int, int]],
    lines: Sequence[Sequence[Line]],
    columns: Columns,
    issued_s: Array,
) -> Numbers:
    """Add what depends on the site to the columns of all requests; return the number of each request's site copy.

    The uniform number that draws an end node is divided by the shares of the copies.
    """
    shares = [site.share for at, _ in copies if (site := units[numbers[at]].site) is not None]
    ends = np.cumsum(shares) / sum(shares)
    begins = np.concatenate(([0.0], ends[:-1]))
    node_share = columns.pop("node_share")
    copy_of = np.searchsorted(ends[:-1], node_share, side="right")
    node_share -= begins[copy_of]
    node_share /= (ends - begins)[copy_of]
    columns["node_share"] = np.clip(node_share, 0.0, np.nextafter(1.0, 0.0), out=node_share)
    own_devices = _OwnDevices(units[numbers[0]], columns)
    by_copy = np.argsort(copy_of.astype(np.int16 if len(copies) < 2**15 else np.int32), kind="stable")
    edges = np.concatenate(([0], np.cumsum(np.bincount(copy_of, minlength=len(copies)))))
    read = [name for name in columns if name != "execution_s"]
    met: Columns = {}
    for number, (at, copy) in enumerate(copies):
        rows = by_copy[edges[number] : edges[number + 1]]
        if not rows.size:  # few requests, many sites
            continue
        unit, block = units[numbers[at]], {name: columns[name][rows] for name in read}
        own_devices.enter(unit, rows, block)
        on_links = columns_on_links(lines[at][copy].routes, unit.nodes, issued_s[rows], block)
        on_links.pop("access_s", None)  # the way there and back, for requests back to back
        for name, column in on_links.items():
            if name not in met:
                met[name] = np.zeros((*column.shape[:-1], len(issued_s)), column.dtype)
            # Row by row: numpy scatters the rows of a table more slowly than single columns.
            for into, part in zip(np.atleast_2d(met[name]), np.atleast_2d(column), strict=True):
                into[rows] = part
    del columns["node_share"]
    columns |= met
    return copy_of


class _OwnDevices:
    """The deciders' own devices at the sites of one workload, where they differ from that of the first site."""

    def __init__(self, first: Unit, columns: Columns) -> None:
        """`columns`: of all requests, whose times at own devices are changed where they differ."""
        self._first, self._columns, self._size = first, columns, first.scenario.requests
        self._name = next(iter(first.scenario.devices))
        self._drawn: tuple[Array, Array] | None = None
        self._overheads: list[tuple[Any, Array]] = []

    def enter(self, unit: Unit, rows: Numbers, block: Columns) -> None:
        """Let some requests enter the devices of a site; `block`: their columns, in which half overheads are changed."""
        first, name, execution_s = self._first, self._name, self._columns["execution_s"][0]
        ours, theirs = unit.scenario.devices[name], first.scenario.devices[name]
        if ours.overhead != theirs.overhead:
            half_s = np.zeros(len(rows)) if ours.overhead is None else self._overhead_s(ours.overhead)[rows] / 2.0
            block["half_overhead_s 0"] = half_s
        if not unit.has_own_device:
            execution_s[rows] = NO_DEVICE_S
            return
        if ours == theirs and first.has_own_device:
            return
        if self._drawn is None:
            noise = random_streams.standard_normal(*first.stream(f"execution {name}"), self._size)
            self._drawn = noise, random_streams.uniform(*first.stream(ACTIVE_SHARE_STREAM), self._size)
        noise, shares = (column[rows] for column in self._drawn)
        more_s = more_s_per_tgt_token(unit.case, len(rows), lambda count: shares)[0]
        execution_s[rows] = unit.case.targets[0].execution_s(block["src_len"], block["tgt_len"], noise, more_s)

    def _overhead_s(self, overhead: Any) -> Array:
        for known, column in self._overheads:
            if known == overhead:
                return column
        column = random_streams.draw(*self._first.stream(f"overhead {self._name}"), self._size, overhead.draw_s)
        self._overheads.append((overhead, column))
        return column


def _merged(of_workloads: Sequence[Requests], order: Numbers) -> Requests:
    """Return the requests of several workloads in an order; `order`: of all, one workload after another."""
    if len(of_workloads) == 1:
        return of_workloads[0]

    # Requests that were sorted behind an access link lack the columns that the world does not read.
    def merged(columns: Sequence[Array | None]) -> Any:
        known = [column for column in columns if column is not None]
        return np.concatenate(known)[order] if len(known) == len(columns) else None

    def all_merged(of_workloads: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
        return tuple(map(merged, zip(*of_workloads, strict=True))) if all(of_workloads) else ()

    return Requests(
        src_len=merged([one.src_len for one in of_workloads]),
        tgt_len=merged([one.tgt_len for one in of_workloads]),
        node=merged([one.node for one in of_workloads]),
        arrival_s=merged([one.arrival_s for one in of_workloads]),
        rtt_time_s=merged([one.rtt_time_s for one in of_workloads]),
        execution_s=all_merged([one.execution_s for one in of_workloads]),
        uplink_s=all_merged([one.uplink_s for one in of_workloads]),
        downlink_s=all_merged([one.downlink_s for one in of_workloads]),
        transfer_s=all_merged([one.transfer_s for one in of_workloads]),
    )
