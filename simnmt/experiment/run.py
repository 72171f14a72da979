"""Run all units of a scenario on one or more processes, and gather their numbers into a result."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from simnmt.experiment.comparisons import baselines, gap_rows, load_sweeps, variants
from simnmt.experiment.draws import Learnt
from simnmt.experiment.inputs import RunPlan, Target, Unit
from simnmt.experiment.notes import fits, notes, warnings
from simnmt.experiment.processes import run_in_processes
from simnmt.experiment.units import UnitResult, devices, known_misroutes, run_unit
from simnmt.policies.cnmt import CNmtPolicy
from simnmt.results.precision import describe_precision, next_replications
from simnmt.results.recommendation import Goal, Roles, recommend
from simnmt.results.recommendation_text import Reason, describe_recommendation
from simnmt.results.request_log import Logs, misroutes
from simnmt.results.result import Cell, RunResult, Transfer
from simnmt.results.stability import mark_unstable, with_stability
from simnmt.results.summary import Numbers, Row, RunKey, comparisons, rows, total_latencies_s, with_regret
from simnmt.scenario.configuration import Scenario
from simnmt.workload.arrivals import BackToBack

Progress = Callable[[int, int], None]
"""Called with units done and units in all."""
KEPT_MISROUTES = 3_000
"""Misrouted requests kept of each workload and network, dealt evenly to the policies."""
_Finished = Generator[tuple[int, UnitResult], None, None]


def run_plan(
    plan: RunPlan,
    *,
    folder: Path | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
    until_precision: float | None = None,
) -> RunResult:
    """Run every unit of a plan. The result is the same for any number of processes.

    `until_precision`: add replications until the 95 % interval of every policy's objective (mean, p95 or p99) reaches no
    further than this share of it, 100 replications at most; policies without a steady state are left out. The result is
    that of a scenario which asks for so many replications at once; its `precision` says whether they sufficed.

    `folder`: where the columns of its requests may lie meanwhile, the system's if it is left out. Nothing of them is to be seen
    there afterwards: the result still reads their files, but these have no names any more. Raises `OSError` without room.
    """
    if folder is None:
        with TemporaryDirectory(prefix="simnmt-", ignore_cleanup_errors=True) as temporary_folder:
            return run_plan(plan, folder=Path(temporary_folder), jobs=jobs, progress=progress, until_precision=until_precision)
    units: list[Unit] = []
    results: list[UnitResult] = []
    while True:
        more = _units(plan, folder, len(units))
        results += _run(more, len(units), folder, jobs, progress)
        units += more
        result = _result(plan, units, results)
        if until_precision is None:
            return result
        objective = plan.scenario.objective
        replications = next_replications(result.rows, objective, until_precision)
        if replications <= plan.scenario.replications:
            return replace(result, precision=describe_precision(result.rows, objective, until_precision))
        plan = replace(plan, scenario=plan.scenario.model_copy(update={"replications": replications}))


def _units(plan: RunPlan, folder: Path, begin: int) -> list[Unit]:
    """The units of a plan from number `begin` on; replication by replication, so that further ones come behind."""
    places = product(range(plan.scenario.replications), plan.cases.values(), plan.networks.items())
    return [
        Unit(plan.scenario, case, name, links, replication, folder / str(number))
        for number, (replication, case, (name, links)) in enumerate(places)
        if number >= begin
    ]


def _run(units: list[Unit], begin: int, folder: Path, jobs: int, progress: Progress | None) -> list[UnitResult]:
    """The units' results in their order; `begin`: how many units were run before."""
    results = {}
    with closing(_finished(units, min(jobs, len(units)))) as finished:
        for done, (index, result) in enumerate(finished, start=1):
            results[index] = result
            shutil.rmtree(folder / str(begin + index), ignore_errors=True)
            if progress is not None:
                progress(begin + done, begin + len(units))
    return [results[index] for index in range(len(units))]


def _finished(units: list[Unit], jobs: int) -> _Finished:
    if jobs > 1:
        return run_in_processes(run_unit, units, jobs)
    return ((index, run_unit(unit)) for index, unit in enumerate(units))


def _result(plan: RunPlan, units: list[Unit], results: list[UnitResult]) -> RunResult:
    scenario = plan.scenario
    roles = _roles(scenario)
    numbers = with_regret(_in_order(scenario, results), roles.oracle)
    open_loops = {case.name: devices(scenario, case.name) for case in plan.cases.values() if case.arrivals.discipline == "open"}
    table = with_stability(rows(numbers, scenario.requests), numbers, open_loops)
    compared = mark_unstable(comparisons(numbers, baselines(scenario)), table)
    learnt = {unit.case.name: result.learnt for unit, result in zip(units, results, strict=True) if unit.replication == 0}
    goal = Goal(scenario.objective, {} if scenario.slo is None else scenario.slo.limits_ms)
    verdicts, recommendations = [], []
    for case in plan.cases.values():
        for network in plan.networks:
            unit_results = [
                result
                for unit, result in zip(units, results, strict=True)
                if (unit.case.name, unit.network) == (case.name, network)
            ]
            reason = _reason(scenario, case.name, learnt[case.name], unit_results)
            here = [row for row in table if (row["workload"], row["network"]) == (case.name, network)]
            pairs = [row for row in compared if (row["workload"], row["network"]) == (case.name, network)]
            recommendations.append(recommend(table, numbers, case.name, network, roles, goal))
            verdicts.append(describe_recommendation(recommendations[-1], here, pairs, roles, reason))
    return RunResult(
        name=scenario.name,
        seed=scenario.seed,
        rows=table,
        comparisons=compared,
        verdicts=verdicts,
        recommendations=recommendations,
        fits=[row for case in plan.cases.values() for row in fits(case, learnt[case.name])],
        cells=[_cell(plan, unit, result) for unit, result in zip(units, results, strict=True) if unit.replication == 0],
        notes=notes(plan, learnt, table) + list(dict.fromkeys(record["caution"] for record in verdicts if record["caution"])),
        warnings=warnings(plan),
        gaps=_gaps(scenario, units, results),
        totals_s=total_latencies_s(numbers),
        load_sweeps=list(load_sweeps(plan, table, compared)),
        scenario=scenario.model_dump(mode="json"),
    )


def _in_order(scenario: Scenario, results: list[UnitResult]) -> dict[RunKey, Numbers]:
    """The runs by workload, network and policy as the scenario names them."""
    merged: dict[RunKey, Numbers] = {}
    for result in results:
        merged |= result.numbers
    return {
        key: merged[key]
        for workload in scenario.workloads
        for network in scenario.networks
        for policy in scenario.policies
        for replication in range(scenario.replications)
        for key in [RunKey(workload, network, policy, replication)]
    }


def _roles(scenario: Scenario) -> Roles:
    policies = scenario.policies
    return Roles(
        deployable=[name for name, policy in policies.items() if not policy.knows_truth],
        fixed=[name for name, policy in policies.items() if policy.single_device],
        oracle=next((name for name, policy in policies.items() if policy.knows_truth), None),
        variants=variants(scenario),
    )


def _reason(scenario: Scenario, workload: str, learnt: Learnt, results: list[UnitResult]) -> Reason:
    transfer_s, known = (
        sum(result.mean_transfer_s for result in results) / len(results),
        learnt.knowledge(list(scenario.devices)),
    )
    kept = {name: policy.kept_lengths(known, transfer_s) for name, policy in scenario.policies.items()}
    return Reason(
        transfer_s=transfer_s,
        kept={name: lengths for name, lengths in kept.items() if lengths},
        best_offloaded_share=sum(result.best_offloaded_share for result in results) / len(results),
        queues=not isinstance(scenario.workloads[workload].arrivals, BackToBack),
        devices=list(scenario.devices),
    )


def _gaps(scenario: Scenario, units: list[Unit], results: list[UnitResult]) -> list[Row]:
    """The gap analysis of every workload and network; empty where none was asked for."""
    policy = scenario.analysed_policy
    if policy is None or not scenario.gap_analysis:
        return []
    totals_s: dict[tuple[str, str], dict[str, list[float]]] = {}
    for unit, result in zip(units, results, strict=True):
        of_cell = totals_s.setdefault((unit.case.name, unit.network), {})
        for removed, total_s in result.gap_totals_s.items():
            of_cell.setdefault(removed, []).append(total_s)
    return [row for (workload, network), of_cell in totals_s.items() for row in gap_rows(workload, network, policy, of_cell)]


def _cell(plan: RunPlan, unit: Unit, result: UnitResult) -> Cell:
    assert result.truth is not None
    case = unit.case
    # The line of the first C-NMT policy; the fitted one where there is none.
    cnmt = next(
        (policy for policy in plan.scenario.policies.values() if isinstance(policy, CNmtPolicy)), CNmtPolicy(kind="cnmt")
    )
    line = cnmt.line(result.learnt.knowledge([]).lengths)
    return Cell(
        workload=case.name,
        network=unit.network,
        lengths=case.replayed,
        devices=tuple(devices(plan.scenario, case.name)),
        series=unit.links.link.rtt,
        regression_slope=line.slope,
        regression_offset=line.offset,
        planes=tuple((p.s_per_src_token, p.s_per_tgt_token, p.s_fixed) for p in result.learnt.planes),
        profile_kinds=tuple(target.kind for target in case.targets),
        profile_names=tuple(map(_profile_name, case.targets)),
        profile_warnings=tuple(tuple(doubt.message for doubt in target.doubts) for target in case.targets),
        logs=Logs(result.truth, result.trails),
        transfers=tuple(_transfer(column[:]) for column in result.truth.transfer_s),
        misroutes={
            name: misroutes(result.truth, trail, KEPT_MISROUTES // len(result.trails))
            for name, trail in result.trails.items()
            if known_misroutes(plan.scenario, case)
        },
        batches={name: trail.batches for name, trail in result.trails.items() if trail.batches},
        streams={name: trail.streams for name, trail in result.trails.items() if trail.streams},
        planned=tuple(target.streaming.planned if target.streaming else None for target in case.targets if case.streams),
    )


def _profile_name(target: Target) -> str:
    labels = [target.profile.device.name, target.profile.model.name]
    labels += [] if target.decoder is None else [target.decoder.short]
    labels += [] if target.streaming is None else [target.streaming.planned.short]
    return ", ".join(labels)


def _transfer(seconds: NDArray[np.float64]) -> Transfer:
    low_s, high_s = np.quantile(seconds, [0.1, 0.9]).tolist()
    return Transfer(float(seconds.mean()), low_s, high_s)
