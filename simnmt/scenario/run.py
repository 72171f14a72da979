"""Run a scenario: its units on one or more processes, their numbers into a result."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any

from simnmt.policies import threshold
from simnmt.policies.configuration import CloudPolicy, CNmtPolicy, EdgePolicy, OraclePolicy
from simnmt.results.request_log import Logs
from simnmt.results.result import Cell, RunResult
from simnmt.results.summary import Row, RunKey, comparisons, rows, with_regret
from simnmt.results.verdict import Reason, Roles, verdict
from simnmt.scenario.build import DEVICES, Case, Plan, outside_share
from simnmt.scenario.model import Scenario
from simnmt.scenario.processes import answers
from simnmt.scenario.unit import Unit, UnitResult, length_regression, run_unit
from simnmt.workload.arrivals import BackToBack

Progress = Callable[[int, int], None]
"""Called with units done and units in all."""
_Finished = Generator[tuple[int, UnitResult], None, None]


def run_plan(plan: Plan, *, jobs: int = 1, progress: Progress | None = None) -> RunResult:
    """Run every unit of a plan. The result is the same for any number of processes."""
    scenario = plan.scenario
    units = [
        Unit(scenario, case, name, link, replication)
        for replication in range(scenario.replications)
        for case in plan.cases.values()
        for name, link in plan.links.items()
    ]
    results = {}
    with closing(_finished(units, min(jobs, len(units)))) as finished:
        for done, (index, result) in enumerate(finished, start=1):
            results[index] = result
            if progress is not None:
                progress(done, len(units))
    return _result(plan, units, [results[index] for index in range(len(units))])


def _finished(units: list[Unit], jobs: int) -> _Finished:
    if jobs > 1:
        return answers(run_unit, units, jobs)
    return ((index, run_unit(unit)) for index, unit in enumerate(units))


def _result(plan: Plan, units: list[Unit], results: list[UnitResult]) -> RunResult:
    scenario = plan.scenario
    roles = _roles(scenario)
    numbers = with_regret(_in_order(scenario, results), roles.oracle)
    baselines = [name for name, policy in scenario.policies.items() if not isinstance(policy, CNmtPolicy)]
    table, compared = rows(numbers, scenario.requests), comparisons(numbers, baselines)
    verdicts = []
    for case in plan.cases.values():
        for network in plan.links:
            own = [
                result
                for unit, result in zip(units, results, strict=True)
                if (unit.case.name, unit.network) == (case.name, network)
            ]
            reason = _reason(scenario, case, own)
            here = [row for row in table if (row["workload"], row["network"]) == (case.name, network)]
            pairs = [row for row in compared if (row["workload"], row["network"]) == (case.name, network)]
            verdicts.append(verdict(case.name, network, here, pairs, roles, reason))
    return RunResult(
        name=scenario.name,
        seed=scenario.seed,
        rows=table,
        comparisons=compared,
        verdicts=verdicts,
        fits=[row for case in plan.cases.values() for row in _fits(case)],
        cells=[_cell(plan, unit, result) for unit, result in zip(units, results, strict=True) if unit.replication == 0],
        notes=_notes(plan),
        scenario=scenario.model_dump(mode="json"),
    )


def _in_order(scenario: Scenario, results: list[UnitResult]) -> dict[RunKey, dict[str, float | None]]:
    """The runs by workload, network and policy as the scenario names them."""
    merged: dict[RunKey, dict[str, float | None]] = {}
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
    kinds = {name: type(policy) for name, policy in scenario.policies.items()}
    deciding = [name for name, kind in kinds.items() if kind not in (EdgePolicy, CloudPolicy, OraclePolicy)]
    cnmt = [name for name in deciding if kinds[name] is CNmtPolicy]
    return Roles(
        subject=(cnmt or deciding or list(kinds))[0],
        single_devices=[name for name, kind in kinds.items() if kind in (EdgePolicy, CloudPolicy)],
        oracle=next((name for name, kind in kinds.items() if kind is OraclePolicy), None),
    )


def _reason(scenario: Scenario, case: Case, results: list[UnitResult]) -> Reason:
    transfer_s = sum(result.mean_transfer_s for result in results) / len(results)
    configuration = next(
        (policy for policy in scenario.policies.values() if isinstance(policy, CNmtPolicy)), CNmtPolicy(kind="cnmt")
    )
    line = length_regression(configuration, case)
    gateway, cloud = case.believed_planes
    border = threshold(gateway, cloud, line.slope, line.offset, transfer_s)
    kept = ""
    if border.kept in ("up to", "from") and border.src_len > 0:
        kept = f"{border.kept} {border.src_len:.0f} tokens"
    return Reason(
        transfer_s=transfer_s,
        kept=kept,
        best_offloaded_share=sum(result.best_offloaded_share for result in results) / len(results),
        queues=not isinstance(scenario.workloads[case.name].arrivals, BackToBack),
    )


def _fits(case: Case) -> Iterator[Row]:
    lengths = case.lengths
    yield {
        "workload": case.name,
        "of": "target length over source length",
        "kind": "measured",
        "samples": lengths.pairs,
        "len_slope": lengths.len_slope,
        "len_offset": lengths.len_offset,
        "pairs_r2": lengths.pairs_r2,
        "pairs_mse": lengths.pairs_mse,
        "means_r2": lengths.means_r2,
        "means_mse": lengths.means_mse,
    }
    for device, profile, fit in zip(DEVICES, case.profiles, case.plane_fits, strict=True):
        plane = profile.plane if fit is None else fit.plane
        row: dict[str, Any] = {
            "workload": case.name,
            "of": f"execution time on the {device}",
            "profile": profile.name,
            "kind": profile.execution.kind,
            "samples": 0 if fit is None else fit.inferences,
            "s_per_src_token": plane.s_per_src_token,
            "s_per_tgt_token": plane.s_per_tgt_token,
            "s_fixed": plane.s_fixed,
        }
        if fit is not None:
            row |= {
                "r2": fit.r2,
                "mse_ms2": fit.mse_ms2,
                "condition_number": None if fit.collinear else fit.condition_number,
                "collinear": fit.collinear,
            }
        yield row


def _cell(plan: Plan, unit: Unit, result: UnitResult) -> Cell:
    assert result.truth is not None
    case = unit.case
    configuration = next((p for p in plan.scenario.policies.values() if isinstance(p, CNmtPolicy)), CNmtPolicy(kind="cnmt"))
    line = length_regression(configuration, case)
    return Cell(
        workload=case.name,
        network=unit.network,
        lengths=case.evaluated_pairs,
        series=unit.link.rtt,
        regression_slope=line.slope,
        regression_offset=line.offset,
        planes=tuple((p.s_per_src_token, p.s_per_tgt_token, p.s_fixed) for p in case.believed_planes),
        profile_kinds=tuple(profile.execution.kind for profile in case.profiles),
        profile_names=tuple(f"{profile.device.name}, {profile.model.name}" for profile in case.profiles),
        logs=Logs(result.truth, result.passages),
    )


def _notes(plan: Plan) -> list[str]:
    scenario = plan.scenario
    notes = []
    for case in plan.cases.values():
        fit, evaluated = case.fit_pairs.pairs, case.evaluated_pairs.pairs
        notes.append(
            f"{case.name}: {fit + evaluated:,} length pairs of {case.evaluated_pairs.source}, counted by "
            f"{case.evaluated_pairs.src_unit} and {case.evaluated_pairs.tgt_unit}; {fit:,} of them set apart for fitting, the "
            f"{scenario.requests:,} requests of each replication drawn with replacement from the other {evaluated:,}. "
            "The target length is the reference translation's, standing in for a model's own output."
        )
        for device, profile in zip(DEVICES, case.profiles, strict=True):
            outside = outside_share(profile, case.evaluated_pairs)
            beyond = f"; {100 * outside:.2f} % of the pairs lie outside its range" if outside else ""
            notes.append(f"{case.name}, {device}: profile {profile.name} ({profile.execution.kind}){beyond}.")
    for link in plan.links.values():
        lost = f"; {link.rtt.lost} lost samples held at the value before" if link.rtt.lost else ""
        notes.append(f"{link.rtt.name}: {link.rtt.kind} RTT series, mean {link.rtt.mean_s * 1e3:.1f} ms{lost}.")
    if scenario.replications == 1:
        notes.append("One replication: no intervals, no word on whether a difference is chance.")
    return notes
