"""Run a unit of work: one workload on one network in one replication, under every policy.

Units share nothing, so any number of processes may run them and the numbers stay the same. A unit draws its requests and makes
its world once, simulates each policy in it, and measures the log. The load of a batching server is judged by the time it would
need with full batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.base.errors import InputError
from simnmt.batching.custom import CustomBatchingConfiguration
from simnmt.devices import KINDS, Fifo, Kind
from simnmt.devices.device import Balancer, ByNode, InTurn, LeastLoadedOfDrawn, LeastWork
from simnmt.devices.models import Models
from simnmt.experiment.accounts import (
    NoAnswers,
    down_times,
    link_faults,
    refuse_without_answers,
    remedy_of_losses,
    unit_energy,
    with_faults,
)
from simnmt.experiment.cases import Case, Group, Unit
from simnmt.experiment.clients import client_shares, with_given_up
from simnmt.experiment.draws import Drawn, Learnt, draw, learn_parts
from simnmt.experiment.group_numbers import documents_of, overdue_share
from simnmt.experiment.policy_setup import UnitSetup, truths_by_source
from simnmt.experiment.quality import SentenceCounts, corpus_numbers, count_sentences
from simnmt.experiment.routes import estimate_age_s
from simnmt.experiment.targets import most_together, saturated_s
from simnmt.network.outages import DownTimes
from simnmt.results.columns import Array, Executions, executed_on, first_executions
from simnmt.results.device_accounts import FaultAccount, Log, StreamAccount
from simnmt.results.metrics import Criteria
from simnmt.results.places import ALL, Place
from simnmt.results.requests import Columns, Engine, RequestLog, Trail, Truth, decision_regret_s, run_columns, were_answered
from simnmt.results.summary import NO_LOADS, BatchedWork, Device, Numbers, known, measure
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.world.engine import simulate
from simnmt.world.inputs import World
from simnmt.world.structures import library


def devices_of(unit: Unit, group: Group) -> list[Device]:
    """Return the devices that the requests of a group meet, in the targets' order; the first ones are those of its sites."""
    shown = list[Device]()
    for number, (name, device) in enumerate(unit.scenario.devices.items()):
        loads_s = [
            [0.0 if model is None or model.stays else model.load_s for model in part.case.targets[number].models.values()]
            for part in unit.parts
        ]
        shown.append(
            Device(
                name,
                unit.scenario.count_of(name, unit.case.name) if number else max(group.boxes.stop - group.boxes.start, 1),
                (None if number else group.workers) or unit.case.targets[number].workers,
                most_together(unit.case.targets[number]),
                device.sti is not None,
                # Every group has the same columns.
                any(part.scenario.devices[name].loads_models for part in unit.parts),
                tuple((first, second) for first, second, *_ in ([*load_s, 0.0, 0.0] for load_s in loads_s)),
            )
        )
    return shown


def _models(unit: Unit, number: int, cases: Sequence[Case | None]) -> Models:
    """Return the models of a target, and the memory of its boxes.

    `cases`: of all workloads that may enter them, by the numbers in `Requests.model`.
    """
    targets = [None if case is None else case.targets[number] for case in cases]
    by_name = {name: model for target in targets if target is not None for name, model in target.models.items()}
    numbers = [[0] if target is None else [list(by_name).index(name) for name in target.models] for target in targets]
    of_workload = tuple(first for first, *_ in numbers)
    held = [model for model in by_name.values() if model is not None and not model.stays]
    if not held or not unit.case.queues:
        return Models(of_workload, (0,) * len(by_name), (0.0,) * len(by_name), 0, "never")
    size_bytes, load_s = (tuple(getattr(model, key) for model in held) for key in ("size_bytes", "load_s"))
    seconds = tuple(second[0] if second else -1 for _, *second in numbers)
    return Models(of_workload, size_bytes, load_s, held[0].memory_bytes, second_of_workload=seconds)


def _settings(unit: Unit, number: int, cases: Sequence[Case | None]) -> Kind | None:
    """Return the settings of a target's boxes; None if they execute requests first in, first out, by models in memory."""
    target = unit.case.targets[number]
    if target.streamed is not None:
        return target.streamed
    if target.slots is not None and unit.case.queues:
        slots = [one for case in cases if case is not None and (one := case.targets[number].slots) is not None]
        return next((one for one in slots if one.refuses_long), target.slots)
    models = _models(unit, number, cases)
    if target.decoding is None or not unit.case.batches:
        special = Fifo(
            models=models if models.loads else None,
            max_wait_s=unit.scenario.max_wait_s,
            occupancy_factors=target.occupancy_factors if unit.case.queues else (),
        )
        return None if special == Fifo() else special
    if len(models.size_bytes) == 1 and not models.loads:
        return target.decoding
    targets = [case.targets[number] for case in cases if case is not None]
    decodings = {name: target.decoding for target in targets for name in target.models}
    costs = tuple(decoding.cost for decoding in decodings.values() if decoding is not None)
    return replace(target.decoding, models=models, costs=costs)


def kinds(unit: Unit, down: Mapping[str, Sequence[DownTimes]] | None = None) -> list[Kind]:
    """Return the boxes of every target; `down`: when the boxes of devices that fail are down."""
    boxes_of_targets = list[Kind]()
    cases = list({part.case.name: part.case for part in unit.parts}.values())
    for number, target in enumerate(unit.case.targets):
        boxes = unit.scenario.count_of(target.device, unit.case.name)
        balancer = _balancer(unit, target.device, boxes) if boxes_of_targets else ByNode()
        kind = _kind(unit, number, cases, boxes, balancer)
        if down and target.device in down:
            # The kinds of which boxes fail are dataclasses.
            kind = replace(kind, failures=down[target.device])  # type: ignore[type-var]
        boxes_of_targets.append(kind)
    return boxes_of_targets


def _kind(unit: Unit, number: int, cases: Sequence[Case | None], boxes: int, balancer: Balancer) -> Kind:
    target = unit.case.targets[number]
    device = unit.scenario.devices[target.device]
    settings = _settings(unit, number, cases)
    name = device.execution or ("fifo" if settings is None else settings.name)
    kind = KINDS[name].of_device(boxes, target.workers, balancer, settings)
    if device.refuses_above is None:
        return kind
    return replace(kind, max_waiting=device.refuses_above)  # type: ignore[type-var]  # kinds that refuse are dataclasses


def _balancer(unit: Unit, device: str, boxes: int) -> Balancer:
    name = unit.scenario.balancer_of(device)
    if boxes == 1 or name == "attached":
        return ByNode()
    if name == "round_robin":
        return InTurn()
    if name == "least_work":
        return LeastWork()

    # Boxes drawn for each request, one or two different ones: the same for every policy.
    def below(most: int, draw: int) -> NDArray[np.int64]:
        uniform = random_streams.uniform(*unit.stream(f"{device} choices {draw}"), unit.scenario.requests)
        return (uniform * most).astype(np.int64)

    choices = [below(boxes, 0)]
    if name == "two_choices":
        choices.append((choices[0] + 1 + below(boxes - 1, 1)) % boxes)  # a step of 1 to boxes - 1 around
    return LeastLoadedOfDrawn(np.stack(choices, axis=1).astype(np.int16))


@dataclass(frozen=True, slots=True)
class UnitResult:
    """The result of one unit."""

    numbers: dict[Place, Numbers]
    offloading: dict[tuple[str, str], tuple[float, float]]
    """By site and workload of each row of results: the share of requests whose execution plus transfer is truly least on
    another device than the first, and the mean transfer time to the last device, of all requests: of those that a policy
    offloads, it would depend on when the policy offloads."""
    learnts: dict[tuple[str, str], Learnt]
    """What policies learnt, by site and workload."""
    gap_totals_s: dict[str, float]
    engines: dict[str, tuple[Engine, str]]
    """The engine of the world by policy, and why the compiled one did not run it."""
    truth: Truth | None
    trails: dict[str, Trail]
    rows: dict[tuple[str, str], NDArray[np.int64]] = field(default_factory=dict)
    """In a mix, numbers of the requests by site and workload."""
    sentences: dict[Place, SentenceCounts] = field(default_factory=dict)
    """With quality, how often each device translated each sentence."""
    live: bool = False
    """True if measured live, so that only the target that was taken has known times."""

    @property
    def learnt(self) -> Learnt:
        """What policies learnt; in a mix, that of the first part."""
        return next(iter(self.learnts.values()))


def run_unit(unit: Unit) -> UnitResult:
    """Draw the requests of a unit and run them under every policy of the scenario."""
    scenario, case = unit.scenario, unit.case
    # Policies know the profiles as calibrated, also where the boxes have drawn ones.
    learnts = learn_parts(unit.known)
    drawn = draw(unit, learnts)
    world = UnitWorld(unit, drawn)
    # Misroutes of runs with drawn profiles are shown nowhere.
    share = None if unit.calibrated is not None else judged_share(unit)
    cut = scenario.warm_up_requests
    trails, numbers, sentences = dict[str, Trail](), dict[Place, Numbers](), dict[Place, SentenceCounts]()
    for name in scenario.policies:
        trail = world.trail(UnitSetup.of(unit.known, drawn, name), share or 0.0)
        refuse_without_answers(unit, name, trail.outcome, cut)
        trail = replace(trail, energy=unit_energy(unit, RequestLog.of(drawn.truth, trail).answered, trail))
        trails[name] = trail
        for group, measured in world.measured(trail):
            place = Place(group.site, group.workload, unit.network, name)
            numbers[place] = measured
            if drawn.truth.text_row is not None:
                sentences[place] = count_sentences(unit, group, trail.target, drawn.truth.text_row, drawn.part)
                measured |= corpus_numbers(unit, sentences[place])
            policies = [unit.parts[number].scenario.policies[name] for number in group.parts]
            if all(policy.knows_truth or policy.single_device for policy in policies):
                measured["mean_estimate_age_s"] = None  # it uses none
    gap_totals_s = dict[str, float]()
    if scenario.gap_analysis and scenario.analysed_policy is not None and unit.calibrated is None:
        for removed, truths in truths_by_source(case.queues, case.streams).items():
            trail = world.trail(UnitSetup.of(unit, drawn, scenario.analysed_policy, truths))
            refuse_without_answers(unit, scenario.analysed_policy, trail.outcome, cut)
            counted = RequestLog.of(drawn.truth, trail, slice(cut, scenario.requests)).answered
            answered = 1.0 if trail.outcome is None else float(were_answered(trail.outcome[cut:]).mean())
            gap_totals_s[removed] = float(counted["latency_s"].sum()) * _per_counted(unit) / answered
    names = [(part.site_name, part.case.name) for part in unit.parts]
    part_rows = drawn.part_rows or [np.arange(scenario.requests)]
    return UnitResult(
        numbers=numbers,
        offloading=dict(_offloading(drawn, trails.values(), unit.groups)),
        learnts=dict(zip(names, learnts, strict=True)),
        gap_totals_s=gap_totals_s,
        engines={name: (trail.engine, trail.engine_reason) for name, trail in trails.items()},
        truth=drawn.truth if unit.is_kept else None,
        trails=trails if unit.is_kept else {},
        rows={name: rows for name, rows in zip(names, part_rows, strict=True) if len(rows)}
        if unit.is_kept and unit.mixed
        else {},
        sentences=sentences,
    )


def _offloading(
    drawn: Drawn, trails: Iterable[Trail], groups: Sequence[Group]
) -> Iterator[tuple[tuple[str, str], tuple[float, float]]]:
    is_best_offloaded = drawn.truth.best_target != 0
    transfers_s = [(trail.truth or drawn.truth).transfer_s[-1] for trail in trails]
    for group in groups:
        rows = slice(None) if group is groups[0] else drawn.rows_of(group.parts)
        transfer_s = float(np.mean([column[rows].mean() for column in transfers_s]))
        yield (group.site, group.workload), (float(np.mean(is_best_offloaded[rows])), transfer_s)


def expected_s(scenario: ScenarioConfiguration, engine: Engine | None) -> float:
    """Return about how many seconds of processor time a unit takes, with drawing and summary.

    Only the number of processes depends on it.
    """
    batches_in_python = any(isinstance(part.batching, CustomBatchingConfiguration) for part in scenario.devices.values())
    in_reference = engine == "reference" or library() is None or batches_in_python or scenario.has_faults
    return scenario.requests * len(scenario.policies) * (40e-6 if in_reference else 1e-6)


def _per_counted(unit: Unit) -> float:
    """Return how many requests were issued per request that counts; 1 without a warm-up."""
    return unit.scenario.requests / (unit.scenario.requests - unit.scenario.warm_up_requests)


JUDGED = 2_000
"""About how many decisions of a policy in a replication an oracle judges if requests queue: 5 to 15 us each."""


def judged_share(unit: Unit) -> float | None:
    """Return the share of the requests whose decisions the simulation judges by foresight; None if misroutes stay unknown.

    It is 0 if nothing waits and no device streams: the executions alone tell every misroute. In batches later arrivals matter,
    where models are loaded, waits for memory are not foreseen, with classes others may overtake, and later ones slow those that
    wait where executions take longer beside others.
    """
    scenario, cases = unit.scenario, {id(part.case): part.case for part in unit.parts}.values()
    if any(case.batches or case.loads or case.slows for case in cases) or scenario.classes:
        return None
    if any(case.streams for case in cases):
        return 1.0 if scenario.foresee_misroutes else None
    return min(JUDGED / scenario.requests, 1.0) if unit.case.queues else 0.0


def _local_devices(unit: Unit) -> list[Kind]:
    """Return the deciders' own devices, by site."""
    workloads, local = list(dict.fromkeys(part.case.name for part in unit.parts)), list[Kind]()
    for deciders in unit.deciders:
        cases = {part.case.name: part.case for part in (unit.parts[number] for number in deciders.parts)}
        local.append(_kind(deciders.unit, 0, [cases.get(name) for name in workloads], deciders.boxes, ByNode()))
    return local


class UnitWorld:
    """The boxes, the links and the faults of a unit, in which every policy meets the same requests."""

    def __init__(self, unit: Unit, drawn: Drawn) -> None:
        self._unit, self._drawn = unit, drawn
        self._down = down_times(unit)
        self._criteria = [part.scenario.criteria_of(part.case.name) for part in unit.parts]
        self._world = World(
            drawn.requests,
            kinds(unit, self._down)[1:],
            _local_devices(unit),
            decider=drawn.decider,
            route=drawn.route,
            clients=drawn.clients,
            faults=link_faults(unit, drawn.lines),
            caches=[deciders.cache for deciders in unit.deciders],
            passes_on=unit.scenario.on_refusal == "pass_on",
            decides_by_document=unit.scenario.decide_by == "document",
        )

    def trail(self, setup: UnitSetup, share: float = 0.0) -> Trail:
        """Simulate a policy; return the trail of the requests in the order of issue. `share`: of the decisions to be judged."""
        drawn = self._drawn
        trail = simulate(self._world, setup.composed(self._unit), share, self._unit.engine)
        issued_s, decided_s, measured_at_s = trail.arrival_s, trail.decided_s, trail.measured_at_s
        node = drawn.requests.node if trail.node is None else trail.node
        assert node is not None
        decider = node % self._world.deciders if drawn.decider is None else drawn.decider
        moments_s = drawn.moments_s
        if moments_s is not None and drawn.decided_order is not None:
            moments_s = moments_s[drawn.decided_order]
        trail = trail.with_columns(
            server=np.where(trail.target == 0, decider, trail.server).astype(np.int32),
            estimate_age_s=estimate_age_s(issued_s, decided_s, measured_at_s, moments_s),
            **dict.fromkeys(("decided_s", "measured_at_s", "node")),
            **(first_executions(trail.columns, decider) if self._unit.decides_again else {}),
        )
        trail = replace(trail, tgt_len_by_src_len=setup.tgt_len_by_src_len, truth=drawn.own_truth(issued_s, node))
        if drawn.decided_order is not None:
            trail = trail.in_order(drawn.decided_order)
        trail = trail.with_columns(part=drawn.part, document=drawn.truth.document, text_row=drawn.truth.text_row)
        if trail.transfer_s is not None:  # the world measures from the deciders, a log from the end nodes
            trail = trail.with_columns(transfer_s=trail.transfer_s + (trail.truth or drawn.truth).transfer_s[0])
        if drawn.issued_s is not None:
            trail = trail.with_columns(arrival_s=drawn.issued_s)
        streams = _stream_accounts(self._unit.case, RequestLog.of(drawn.truth, trail), trail)
        boxes = [self._world.deciders, *(kind.boxes for kind in self._world.kinds)]
        trail, devices = replace(trail, streams=streams, streamed=()), devices_of(self._unit, self._unit.groups[0])
        return with_given_up(self._unit, drawn.truth, trail, devices, boxes)

    def measured(self, trail: Trail) -> Iterator[tuple[Group, Numbers]]:
        """Yield the numbers of one policy's run without the warm-up, of each group of its requests; the first is of all."""
        unit, cut, (whole, *groups) = self._unit, self._unit.scenario.warm_up_requests, self._unit.groups
        columns = run_columns(self._drawn.truth, trail)
        if groups:  # else each group would compute the columns of all requests
            columns = Columns(columns.keys, cache(columns.__getitem__))
        log = RequestLog(columns, slice(cut, unit.scenario.requests)).answered
        batches = [
            None if account is None or target.together is None else BatchedWork(account, self._saturated_s(log, number))
            for number, (account, target) in enumerate(zip(trail.batches, unit.case.targets, strict=False))
        ]
        judged = unit.calibrated is None and judged_share(unit) is not None
        regret_s = decision_regret_s(self._drawn.truth, trail) if judged else None
        numbers_of_all = self._measured(whole, None, columns, trail, regret_s, batches)
        if not groups:
            yield whole, numbers_of_all
            return
        measured = [(whole, numbers_of_all)]
        for group in groups:
            rows = self._drawn.rows_of(group.parts)
            measured.append((group, self._measured(group, rows, columns, trail, regret_s, batches)))
        first, busiest = unit.first_device, f"{unit.first_device}_busiest_load"
        if len({group.workers for group in groups if group.site != ALL and group.workers is not None}) > 1:
            # Each box has the workers of its site.
            numbers_of_all[busiest] = max(
                load for group, numbers in measured if group.site != ALL and (load := numbers[busiest]) is not None
            )
        for group, numbers in measured:
            for device in unit.scenario.devices:
                if device != first or group.site == ALL:
                    # The devices are loaded by all requests, but for the first ones of a site.
                    numbers |= {name: numbers_of_all[name] for name in (f"{device}_load", f"{device}_busiest_load")}
        yield from measured

    def _saturated_s(self, log: RequestLog, number: int) -> NDArray[np.float64]:
        """Return the seconds that a target needs with full batches for the sentences of each part.

        Together full are the batches of one profile's sentences on boxes of one kind, and parts take seconds by their tokens.
        """
        alike: dict[tuple[str, int], list[int]] = {}
        parts, device = self._unit.parts, list(self._unit.scenario.devices)[number]
        for at, part in enumerate(parts):
            alike.setdefault((part.case.targets[number].profile.name, id(part.scenario.devices[device])), []).append(at)
        executions, seconds = Executions(log), np.zeros(len(parts))
        there = executed_on(executions) == number
        for of_kind in alike.values():
            decoding = parts[of_kind[0]].case.targets[number].together
            rows = np.flatnonzero(there if len(alike) == 1 else there & np.isin(executions["part"], of_kind))
            if decoding is None or not rows.size:
                continue
            src_len, tgt_len = executions["src_len"][rows], executions["tgt_len"][rows]
            part_of = executions["part"][rows] if len(parts) > 1 else np.zeros(len(rows), np.int64)
            tokens = np.bincount(part_of, tgt_len + 1.0, minlength=len(parts))
            seconds += tokens / tokens.sum() * saturated_s(decoding, src_len, tgt_len, self._unit.engine)
        return seconds

    def _measured(
        self,
        group: Group,
        rows: NDArray[np.int64] | None,
        columns: Columns,
        trail: Trail,
        regret_s: NDArray[np.float32] | None,
        batches: Sequence[BatchedWork | None],
    ) -> Numbers:
        """Return the numbers of the requests of a group; `rows`: their numbers in the order of issue, None for all."""
        unit, cut = self._unit, self._unit.scenario.warm_up_requests
        counted = slice(cut, unit.scenario.requests) if rows is None else rows[rows >= cut]
        count = unit.scenario.requests if rows is None else len(rows)
        left_out = cut if isinstance(counted, slice) else count - len(counted)
        log = RequestLog(columns, counted).answered
        if count == left_out:
            what = f"no request of {group.workload} at {group.site} is counted in replication {unit.replication}"
            raise InputError(what, remedy="give more requests, or fewer warm_up_requests")
        if not len(log["target"]):
            what = f"no request of {group.workload} at {group.site} is answered in replication {unit.replication}"
            assert trail.outcome is not None
            error = NoAnswers(what, remedy=remedy_of_losses(unit, trail.outcome[counted]))
            error.lost_share = float(1.0 - were_answered(trail.outcome[cut:]).mean())
            raise error
        extra_work = [] if trail.faults is None else [work / _per_counted(unit) for work in trail.faults.extra_work]
        if extra_work:
            extra_work[0] = extra_work[0][group.boxes] if group.owners else np.zeros(1)
        numbers = measure(
            _servers_from(log, group.boxes.start),
            None if regret_s is None else regret_s[counted],
            devices_of(unit, group),
            unit.case.arrivals.discipline,
            batches,
            trail.streams,
            extra_work,
            NO_LOADS if trail.faults is None else _loads_of(trail.faults, counted, len(trail.arrival_s)),
            criteria=_criteria_of(self._criteria, group, log),
            start_s=float(trail.arrival_s[slice(cut, cut + 1)][0]) if cut else 0.0,
            documents=documents_of(unit, group, columns, counted),
        )
        # As if all requests were like those that count, so that totals of replications with different cuts are of as many.
        numbers["total_latency_s"] = known(numbers["total_latency_s"]) * (count / (count - left_out))
        numbers = with_faults(numbers, trail, list(unit.scenario.devices), self._down, counted)
        if trail.energy is not None:
            energy = trail.energy if rows is None else trail.energy.of_some(RequestLog(columns, rows).answered)
            numbers |= energy.numbers()
        numbers |= client_shares(unit, trail, counted) | overdue_share(unit, group, log)
        numbers |= {"rtt_pace_s": self._drawn.pace_s, "warm_up_requests": float(left_out)}
        return numbers | {"requests": float(count)} if unit.mixed else numbers


def _loads_of(faults: FaultAccount, counted: slice | NDArray[np.int64], requests: int) -> NDArray[np.float64]:
    """Return target, box and seconds of the loads by counted requests that got no answer from their target."""
    is_counted, loads = np.zeros(requests, bool), np.reshape(np.array(faults.loads, np.float64), (-1, 4))
    is_counted[counted] = True
    return loads[is_counted[loads[:, 0].astype(int)], 1:]


def _servers_from(log: RequestLog, first: int) -> Log:
    """Return the log of a site, in which the deciders' own devices are counted from its first one."""

    def read(name: str) -> Array:
        column = log[name]
        if name == "server":
            return np.where(log["target"] == 0, column - first, column)
        return column - first if name == "deferred_server" else column

    return Columns(log.keys, read) if first else log


def _criteria_of(by_part: Sequence[Criteria], group: Group, log: RequestLog) -> Criteria:
    """Return what the requests of a group are judged by; limits are by request where workloads differ."""
    first, *others = (by_part[number] for number in group.parts)
    if all(criteria == first for criteria in others):
        return first
    part = log["part"]

    def by_request(limits_s: list[Any]) -> Any:
        return np.array([inf if limit_s is None else limit_s for limit_s in limits_s])[part]

    deadlines_s = [criteria.deadline_s for criteria in by_part]
    has_deadline = all(deadlines_s[number] is not None for number in group.parts)
    good_within_s = by_request([criteria.good_within_s for criteria in by_part])
    return Criteria(first.metrics, by_request(deadlines_s) if has_deadline else None, good_within_s)


def _stream_accounts(case: Case, log: RequestLog, trail: Trail) -> tuple[StreamAccount | None, ...]:
    """Return the account of each target's streamed model; None for a target without one, and empty if none streams."""
    if not trail.streamed:
        return ()
    end_s = float(np.nanmax(log["arrival_s"] + log["latency_s"]))
    return tuple(
        StreamAccount.of(log, number, len(target.streamed.states), boxes_until(end_s), trail.decision_regret_s)
        if target.streamed is not None and boxes_until is not None
        else None
        for number, (target, boxes_until) in enumerate(zip(case.targets, trail.streamed, strict=True))
    )
