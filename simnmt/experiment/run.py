"""Run all units of a scenario on one or more processes, and gather their numbers into a result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from simnmt.experiment.cases import RunPlan, Unit, groups_of, mixed_unit
from simnmt.experiment.draws import Learnt
from simnmt.experiment.notes import describe_scope, fits, notes, warnings
from simnmt.experiment.processes import answers_of, worthwhile_processes
from simnmt.experiment.quality import with_quality_intervals
from simnmt.experiment.targets import Target
from simnmt.experiment.units import UnitResult, devices_of, expected_s, run_unit
from simnmt.policies.cnmt import CNmtPolicy
from simnmt.results.metrics import Requirement
from simnmt.results.places import ALL, CellName, Place, by_world, class_row
from simnmt.results.recommendation import Goal, Roles, recommend
from simnmt.results.requests import Engine, RequestLog
from simnmt.results.run import Cell, Run
from simnmt.results.stability import with_stability
from simnmt.results.statistics import (
    change_columns,
    change_percent,
    describe_exact,
    describe_predictions,
    interval_columns,
    over_replications,
    with_predictions,
)
from simnmt.results.summary import Numbers, Row, Runs, comparisons, replicated, rows
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.workload.arrivals import BackToBack
from simnmt.world.structures import library

Progress = Callable[[float, int], None]
"""Called with the number of finished units and the number of all units."""

_LOG = logging.getLogger("simnmt.experiment")


def run_plan(
    plan: RunPlan,
    *,
    jobs: int | None = 1,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> Run:
    """Run every unit of a plan. The result is the same for any number of processes.

    Args:
        plan: the scenario with its inputs.
        jobs: number of processes; None: as many as save time, at most one per processor.
        progress: called with the number of finished units and of all units.
        engine: of the world; None: the compiled one where it covers a unit.
    """
    units = units_of(plan, engine)
    results = _run(units, 0, jobs, progress)
    result = _result(plan, units, results)
    for policy, engine_of_policy in result.engines.items():
        _LOG.info("policy %s: the world ran in engine %s", policy, engine_of_policy)
    uncertainty = plan.scenario.profile_uncertainty
    if uncertainty is None or not plan.drawn:
        return result
    # Draw n runs in replication n modulo the replications alone, and is compared with the unit of the calibrated profiles in
    # that replication. Both meet the same requests, so their difference is the effect of the profiles, almost without the noise
    # of replications. Every draw in every replication would cost `replications` times as much for nearly the same interval.
    places = len(units) // plan.scenario.replications
    drawn_units = [
        unit.with_boxes({name: drawn.targets[number] for name, drawn in plan.drawn.items()})
        for number in range(uncertainty.profiles)
        for unit in units[number % plan.scenario.replications * places :][:places]
    ]
    drawn = _run(units + drawn_units, len(units), jobs, progress)
    numbers = [(unit.replication, of_unit.numbers) for unit, of_unit in zip(drawn_units, drawn, strict=True)]
    runs = in_order(plan.scenario, units, results)
    table, compared = with_predictions(result.summary_rows, result.comparisons, runs, numbers, uncertainty.confidence)
    exact = {device: reason for case in plan.drawn.values() for device, reason in case.exact.items()}
    return replace(
        result,
        summary_rows=table,
        comparisons=compared,
        notes=[*result.notes, *describe_predictions(uncertainty.profiles, uncertainty.confidence, exact)],
        warnings=result.warnings + [describe_exact(exact)] * bool(exact),
    )


def units_of(plan: RunPlan, engine: Engine | None, *, keeps_requests: bool = True) -> list[Unit]:
    """Return the units of a plan, replication by replication, so that those of further replications come last."""
    units = [
        Unit(plan.scenario, case, network, links, replication, engine=engine, keeps_requests=keeps_requests)
        for replication in range(plan.scenario.replications)
        for case in list(plan.cases.values())[: 1 if plan.is_mixed else None]
        for network, links in plan.networks.items()
    ]
    return [mixed_unit(plan, unit) for unit in units] if plan.is_mixed else units


def _run(units: list[Unit], begin: int, jobs: int | None, progress: Progress | None) -> list[UnitResult]:
    library()  # warns here, and not in every process, if it cannot be used
    if jobs is None:
        jobs = worthwhile_processes(sum(expected_s(unit.scenario, unit.engine) for unit in units[begin:]))

    def report(done: float, _: int) -> None:
        if progress is not None:
            progress(begin + done, len(units))

    return answers_of(run_unit, units[begin:], jobs, report)


def _result(plan: RunPlan, units: list[Unit], results: list[UnitResult]) -> Run:
    scenario = plan.scenario
    numbers = in_order(scenario, units, results)
    table = summarise(plan, numbers, results)
    # Of the kind C-NMT, all are compared with the first, and with the one that differs by a view alone.
    cnmt = {name: policy for name, policy in scenario.policies.items() if isinstance(policy, CNmtPolicy)}
    views = (("sees_backlog", False), ("batch", "plain"), ("plan_state", "ignored"))
    plain = [*cnmt.values()][:1] + [
        policy.model_copy(update={view: blind})
        for policy, (view, blind) in product(cnmt.values(), views)
        if getattr(policy, view) != blind
    ]
    others = [name for name, policy in scenario.policies.items() if not policy.weighs_gain]  # thresholds of one rule are many
    baselines = [name for name in others if name not in cnmt or cnmt[name] in plain]
    of_cells: dict[CellName, list[UnitResult]] = {}
    engines: dict[str, set[str]] = {}
    engine_reasons: dict[str, str] = {}
    for unit, result in zip(units, results, strict=True):
        for group in result.offloading:
            of_cells.setdefault(CellName(*group, unit.network), []).append(result)
        for policy, (engine, reason) in result.engines.items():
            engines.setdefault(policy, set()).add(engine)
            if reason:
                engine_reasons[policy] = reason
    first = [(unit, result) for unit, result in zip(units, results, strict=True) if unit.replication == 0]
    learnt = {workload: known for _, result in reversed(first) for (_, workload), known in reversed(result.learnts.items())}
    goal, roles = goal_of(scenario), roles_of(scenario)
    recommendations = [
        recommend(whole, numbers, roles, goal, _reason(plan, world, of_cells[world]), parts)
        for world, (whole, *parts) in ((world, cells.values()) for world, cells in by_world(table).items())
    ]
    cautions = dict.fromkeys(record["caution"] for record in recommendations if record["caution"])
    return Run(
        name=scenario.name,
        seed=scenario.seed,
        summary_rows=table,
        comparisons=comparisons(numbers, baselines, table),
        recommendations=recommendations,
        fits=list(_fits(plan, first)),
        cells=[cell_of(unit, result) for unit, result in first],
        notes=[*notes(plan, learnt, table, engine_reasons), *cautions],
        warnings=warnings(plan, table),
        scope=list(describe_scope(plan)),
        gaps=_gaps(scenario, units, results),
        replicated=replicated(numbers, scenario.measured_metrics),
        scenario=scenario.document(),
        engines={policy: ", ".join(sorted(names)) for policy, names in engines.items()},
        engine_reasons=engine_reasons,
    )


def summarise(plan: RunPlan, runs: Runs, results: Sequence[UnitResult]) -> list[Row]:
    """Return the rows of the summary with the overloaded devices; `runs`: the numbers of each replication of the results."""
    scenario = plan.scenario
    table = rows(runs, scenario.requests, metrics=scenario.measured_metrics, oracle=roles_of(scenario).oracle)
    table = with_quality_intervals(table, plan, [result.sentences for result in results])
    # Only requests that arrive by themselves can overload a device.
    open_loops = [unit for unit in _units_on_one_network(plan) if unit.case.arrivals.discipline == "open"]
    groups = [(unit, group) for unit in open_loops for group in unit.groups]
    return with_stability(table, runs, {(group.site, group.workload): devices_of(unit, group) for unit, group in groups})


def _units_on_one_network(plan: RunPlan) -> list[Unit]:
    once, (network, links) = plan.scenario.model_copy(update={"replications": 1}), next(iter(plan.networks.items()))
    return units_of(replace(plan, scenario=once, networks={network: links}), None)


def in_order(scenario: ScenarioConfiguration, units: Sequence[Unit], results: Sequence[UnitResult]) -> Runs:
    """Return the numbers of each replication by place in the order of the scenario."""
    runs: dict[Place, list[Numbers]] = {place: [] for place in places_of(scenario)}
    for _, result in sorted(zip(units, results, strict=True), key=lambda pair: pair[0].replication):
        for place, numbers in result.numbers.items():
            runs[place].append(numbers)
    return runs


def places_of(scenario: ScenarioConfiguration) -> list[Place]:
    """Return the places of a run in the order of its results."""
    groups = [(ALL, workload) for workload in scenario.workloads]
    if scenario.shares_devices:
        groups = groups_of(list(scenario.sites), list(scenario.workloads), list(scenario.classes))
    return [Place(*group, *names) for group, *names in product(groups, scenario.networks, scenario.policies)]


def goal_of(scenario: ScenarioConfiguration) -> Goal:
    """Return the objective and the service levels by which the policies of a scenario are judged."""
    names = [*scenario.workloads, *map(class_row, scenario.classes)]
    levels = {name: scenario.requirements_of(name) for name in names}
    at_sites = {site: level_at(scenario, site) for site in scenario.sites if len(scenario.sites) > 1}
    return Goal(scenario.objective, scenario.requirements, levels, at_sites, scenario.objectives)


def level_at(scenario: ScenarioConfiguration, site: str) -> tuple[Requirement, ...]:
    """Return the service level of a site: that of its workloads if they have one, without rates, which are of all sites."""
    levels = {scenario.requirements_of(name) for name in scenario.workloads_at(site)}
    return tuple(one for one in levels.pop() if one.metric.unit != "requests/s") if len(levels) == 1 else ()


def roles_of(scenario: ScenarioConfiguration) -> Roles:
    """Return the policies of a scenario by role."""
    policies = scenario.policies
    return Roles(
        deployable=[name for name, policy in policies.items() if policy.is_deployable],
        fixed=[name for name, policy in policies.items() if policy.single_device],
        oracle=next((name for name, policy in policies.items() if policy.knows_truth), None),
    )


def _reason(plan: RunPlan, cell: CellName, results: list[UnitResult]) -> Row:
    """Return the facts behind the decisions of the policies.

    These are the mean transfer time to the last device, the source lengths that each policy keeps at the first device at that
    time, and the share of requests that are truly executed sooner on another device.
    """
    scenario = plan.scenario
    best_share, transfer_s = (
        sum(result.offloading[cell.site, cell.workload][number] for result in results) / len(results) for number in (0, 1)
    )
    known = [
        learnt
        for (site, workload), learnt in results[0].learnts.items()
        if cell.site in (ALL, site) and cell.workload in (ALL, workload)
    ]
    kept = {}
    if len(known) == 1:  # lengths that are kept differ between workloads and sites
        knowledge = known[0].knowledge(list(scenario.devices))
        kept = {name: policy.kept_lengths(knowledge, transfer_s) for name, policy in scenario.policies.items()}
    arrivals = [scenario.workloads[name].arrivals for name in scenario.workloads if cell.workload in (ALL, name)]
    return {
        "transfer_s": transfer_s,
        "kept": {name: lengths for name, lengths in kept.items() if lengths},
        "best_offloaded_share": best_share,
        "queues": not isinstance(arrivals[0], BackToBack),
        "devices": list(scenario.devices),
    }


def _fits(plan: RunPlan, first: Sequence[tuple[Unit, UnitResult]]) -> Iterator[Row]:
    """Yield the fits of each workload, and those of the own devices of further sites; `first`: units of replication 0."""
    seen: dict[str, set[int]] = {}
    for unit, result in first:
        for part in unit.parts:
            known = seen.setdefault(part.case.name, set())
            if id(part.case) not in known:
                lengths, first_plane, *planes = fits(part.case, result.learnts[part.site_name, part.case.name])
                at_site = [first_plane | {"site": part.site_name if known else ALL}] if part.has_own_device else []
                yield from at_site if known else [lengths, *at_site, *planes]
            known.add(id(part.case))


def _gaps(scenario: ScenarioConfiguration, units: Sequence[Unit], results: Sequence[UnitResult]) -> list[Row]:
    policy, gaps = scenario.analysed_policy, list[Row]()
    by_place: dict[Place, list[UnitResult]] = {}
    if policy is not None and scenario.gap_analysis:
        for unit, result in zip(units, results, strict=True):
            group = unit.groups[0]
            by_place.setdefault(Place(group.site, group.workload, unit.network, policy), []).append(result)
    for place, of_place in by_place.items():
        names = of_place[0].gap_totals_s
        gaps += gap_rows(place, {name: [result.gap_totals_s[name] for result in of_place] for name in names})
    return gaps


def gap_rows(place: Place, totals_s: Mapping[str, list[float]]) -> Iterator[Row]:
    """Yield one row per variant: total latency, its paired change with a 95 % interval, and that change as a share of the gap.

    `totals_s`: by variant, the total latency of every replication. The gap is the change of `everything`; each change is the
    ratio of the totals' means. A share may be negative or above 100 % if two wrong beliefs compensate each other. It is None
    without a gap, which happens with queues, since the policy that knows the truth is greedy there.
    """
    as_it_is = totals_s["nothing"]
    gap = change_percent(totals_s["everything"], as_it_is).mean
    for removed, totals in totals_s.items():
        change = change_percent(totals, as_it_is)
        yield {
            **place._asdict(),
            "removed": removed,
            "replications": len(totals),
            **interval_columns("total_latency_s", over_replications(totals, positive=True)),
            **change_columns(change),
            "share_of_gap_percent": 100.0 * (change.mean / gap) + 0.0 if gap < 0.0 else None,
        }


def cell_of(unit: Unit, result: UnitResult) -> Cell:
    """Return the cell of a unit of replication 0."""
    case, truth, trails = unit.case, result.truth, result.trails
    assert truth is not None
    group = unit.groups[0]
    whole = _cell_of_inputs(unit, result.learnt, ALL, group.workload)
    sources = [
        _cell_of_inputs(part, result.learnts[part.site_name, part.case.name], part.site_name, part.case.name)
        for part in unit.parts
    ]
    return replace(
        whole,
        devices=tuple(devices_of(unit, group)),
        sources=tuple(sources) if len(sources) > 1 else (),
        logs={name: RequestLog.of(truth, trail) for name, trail in trails.items()},
        batches={name: trail.batches for name, trail in trails.items() if trail.batches},
        streams={name: trail.streams for name, trail in trails.items() if trail.streams},
        energies={name: trail.energy for name, trail in trails.items() if trail.energy is not None},
        parts=result.rows,
        planned=tuple(target.streaming.planned if target.streaming else None for target in case.targets if case.streams),
    )


def _cell_of_inputs(unit: Unit, learnt: Learnt, site: str, workload: str) -> Cell:
    """Return what a unit reads and believes, as a cell without requests."""
    scenario, case, used = unit.scenario, unit.case, slice(0 if unit.has_own_device else 1, None)
    # The line of the first C-NMT policy; the fitted one if there is none.
    cnmt = next((policy for policy in scenario.policies.values() if isinstance(policy, CNmtPolicy)), CNmtPolicy(kind="cnmt"))
    line = cnmt.line(learnt.knowledge([]).lengths)
    planes = [(plane.s_per_src_token, plane.s_per_tgt_token, plane.s_fixed) for plane in learnt.planes]
    return Cell(
        site=site,
        workload=workload,
        network=unit.network,
        logs={},
        lengths=case.table,
        devices=tuple(devices_of(unit, unit.groups[0])[used]),
        series=unit.links.link.rtt,
        regression_slope=line.slope,
        regression_offset=line.offset,
        planes=tuple(planes[used]),
        profile_kinds=tuple(target.kind for target in case.targets[used]),
        profile_names=tuple(map(_profile_name, case.targets[used])),
        profile_warnings=tuple(target.doubts for target in case.targets[used]),
    )


def _profile_name(target: Target) -> str:
    labels = [target.profile.device.name, target.profile.model.name]
    labels += [] if target.decoder is None else [target.decoder.short]
    labels += [] if target.streaming is None else [target.streaming.planned.short]
    return ", ".join(labels)
