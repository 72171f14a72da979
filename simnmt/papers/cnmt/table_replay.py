"""Replay Table I on one set of profiles and networks, and judge the paper's claims on the replay."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.inputs import read_inputs
from simnmt.experiment.run import run_plan
from simnmt.papers.cnmt import claims, published
from simnmt.papers.cnmt.claims import TRANSFORMER
from simnmt.papers.cnmt.table_one import ALL_POLICIES, TableRun
from simnmt.papers.kit.claim import ClaimRecord
from simnmt.profile.device_profile import DeviceProfile
from simnmt.results.run import Cell
from simnmt.results.summary import Row
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.scenario.document import Override
from simnmt.scenario.source import open_source

Progress = Callable[[float, int], None]
"""Called with the number of runs done and the number of all runs."""
REPLICATIONS = 5
"""Replications of a replay whose claims are judged: one replication does not show how far chance moves a difference."""


def count_from(progress: Progress | None, before: int, whole: int) -> Progress | None:
    """Return a progress for some of `whole` runs, of which `before` are done; None without `progress`."""
    return None if progress is None else lambda done, _: progress(before + done, whole)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A scenario of Table I, limited to the data sets whose profiles are at hand."""

    plan: RunPlan | None
    """None if no data set has both profiles."""
    missing: dict[str, list[str]]
    """By workload, the shipped profiles that it names and that are missing."""
    profiles: dict[str, tuple[DeviceProfile, ...]] = field(default_factory=dict)
    """By workload, for each device."""


@dataclass(frozen=True, slots=True)
class Part:
    """Table I replayed on one kind of profiles, beside the published one."""

    name: str
    """`inferred`, `measured`, or another basis of its profiles (`name_of`)."""
    run: TableRun
    claims: list[ClaimRecord]
    requests: int | None = None
    """Requests per run; None if nothing was replayed."""
    fits: list[Row] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Limits of the numbers of this part: data sets left out, lengths outside a profile's range."""

    @property
    def key(self) -> str:
        """Name as the beginning of a JSON key."""
        return self.name.replace(", ", "_").replace(" ", "_")

    @property
    def shown_kinds(self) -> dict[str, list[str]]:
        """Kinds of the profiles by workload, for readers: `measured, doubtful` if a profile has warnings."""
        by_workload: dict[str, dict[str, None]] = {}
        for cell in self.cells:
            by_workload.setdefault(cell.workload, {}).update(dict.fromkeys(cell.shown_kinds))
        return {workload: list(kinds) for workload, kinds in by_workload.items()}


def prepare(scenario: str | os.PathLike[str], requests: int | None = None, *, allow_code: bool = False) -> Prepared:
    """Read a scenario of Table I and its inputs; leave out data sets whose shipped profiles are missing.

    Raises `InputError` for wrong inputs, and for a scenario that is not one of Table I.
    """
    overrides = [] if requests is None else [Override.of("requests", requests, f"--requests {requests}")]
    table_scenario = open_source(scenario, overrides, allow_code=allow_code).scenario
    known = [name for name in table_scenario.workloads if name in published.WORKLOADS]
    _refuse_another_protocol(os.fspath(scenario), table_scenario, known)
    missing = {workload: names for workload in known if (names := _missing(table_scenario, workload))}
    there = [workload for workload in known if workload not in missing]
    if not there:
        return Prepared(None, missing)
    plan = read_inputs(only(table_scenario, there), Path.cwd())
    return Prepared(plan, missing, {name: case.profiles for name, case in plan.cases.items()})


def _refuse_another_protocol(name: str, scenario: ScenarioConfiguration, known: Sequence[str]) -> None:
    """Raise `InputError` for a scenario whose rows would not mean what Table I means (CNMT-14)."""
    wrong = ""
    if not known:
        wrong = f"none of the workloads {', '.join(published.WORKLOADS)}"
    elif not set(published.NETWORKS) <= set(scenario.networks):
        wrong = f"not both networks {' and '.join(published.NETWORKS)}"
    elif list(scenario.devices) != ["gateway", "cloud"]:
        wrong = "other devices than gateway and cloud, in this order"
    elif not {*ALL_POLICIES} <= set(scenario.policies):
        wrong = f"not all of the policies {', '.join(ALL_POLICIES)}"
    elif any(scenario.workloads[workload].arrivals.kind != "back_to_back" for workload in known):
        wrong = "arrivals that are not back to back"
    elif any(scenario.networks[network].clock != "spread" for network in published.NETWORKS):
        wrong = "a network whose clock is not spread over the trace"
    if wrong:
        raise InputError(f"no scenario of Table I: {wrong}", path=name, remedy="see @table1-measured")


def _missing(scenario: ScenarioConfiguration, workload: str) -> list[str]:
    names = [str(scenario.profile_of(device, workload)) for device in scenario.devices]
    shipped_ones = shipped_files.names("calibration")
    return [name for name in names if name.startswith("@") and name.removeprefix("@") not in shipped_ones]


def only(scenario: ScenarioConfiguration, workloads: Sequence[str]) -> ScenarioConfiguration:
    """Return the scenario with only these workloads and the paper's two networks, and enough replications to judge claims.

    With EN-ZH the run also analyses the causes of C-NMT's gap to the oracle (CNMT-17 (e)).
    """
    return scenario.model_copy(
        update={
            "replications": max(scenario.replications, REPLICATIONS),
            "gap_analysis": TRANSFORMER in workloads,
            "workloads": {name: scenario.workloads[name] for name in workloads},
            "networks": {name: scenario.networks[name] for name in published.NETWORKS},
        }
    )


def separated(scenario: ScenarioConfiguration) -> list[RunPlan]:
    """Return one plan for EN-ZH, the only data set whose gap is analysed, and one for the other data sets of a scenario."""
    names = list(scenario.workloads)
    groups = [[name for name in names if name != TRANSFORMER], [name for name in names if name == TRANSFORMER]]
    return [read_inputs(only(scenario, group), Path.cwd()) for group in groups if group]


def at_levels(plan: RunPlan, workload: str, mean_rtt_ms: Mapping[str, float]) -> RunPlan:
    """Return the plan of one workload with its networks scaled to these mean RTTs."""
    scenario = only(plan.scenario, [workload])
    networks = {
        name: network.model_copy(update={"rtt_mean_ms": mean_rtt_ms[name]}) for name, network in scenario.networks.items()
    }
    return read_inputs(scenario.model_copy(update={"networks": networks}), Path.cwd())


def name_of(profiles: Mapping[str, Sequence[DeviceProfile]]) -> str:
    """Return the name of a part on these profiles: `measured` only if all of them were measured."""
    basis = claims.basis_of([profile.execution.kind for pair in profiles.values() for profile in pair])
    return basis if basis == "measured" else f"given, {basis}"


def replay(name: str, plans: Sequence[RunPlan], *, jobs: int, progress: Progress | None) -> Part:
    """Run the plans of Table I, or of some of its data sets, and judge the claims."""
    results = []
    units = [units_of(plan) for plan in plans]
    for number, plan in enumerate(plans):
        count = count_from(progress, sum(units[:number]), sum(units))
        results.append(run_plan(plan, jobs=jobs, progress=count))
    cells = [cell for result in results for cell in result.cells]
    run = TableRun.joined([TableRun.of(result.summary_rows, result.gaps, result.totals_s) for result in results])
    return Part(
        name,
        run,
        claims.evaluate(run, [kind for cell in cells for kind in cell.profile_kinds], headline=True),
        results[0].summary_rows[0]["requests"],
        [fit for result in results for fit in result.fits],
        cells,
        list(dict.fromkeys(note for result in results for note in result.notes)),
    )


def units_of(plan: RunPlan) -> int:
    """Return the number of runs of the plan that its progress counts."""
    return len(plan.cases) * len(plan.networks) * plan.scenario.replications


def without(name: str, missing: Mapping[str, Sequence[str]]) -> Part:
    """Return a part without results, for profiles that are all missing."""
    nothing = TableRun.of([])
    return Part(name, nothing, claims.evaluate(nothing, ["measured"], headline=True), notes=[lacking(missing)])


def lacking(missing: Mapping[str, Sequence[str]]) -> str:
    """Return one sentence on the missing profiles."""
    needs = "; ".join(f"{workload.upper()} needs {' and '.join(names)}" for workload, names in missing.items())
    return f"Not at hand: {needs} (make them with simnmt calibrate)"
