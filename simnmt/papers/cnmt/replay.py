"""Replays of Table I on inferred and on measured profiles (CNMT-14): the scenarios, their runs, and the claims on each.

Inferred profiles were fitted to Table I, so their verdicts are marked as fitted. Measured profiles test the claims, on networks
where the oracle offloads 20 to 80 % of the requests. No one pair of networks gives this share for every data set with the
shipped profiles: each data set has a pair of its own, and the scenario's one pair for all is shown beside it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.inputs import read_inputs
from simnmt.experiment.run import run_plan
from simnmt.papers.cnmt.claims import DEVICE_CLAIMS, Profiles, basis_of, table_claims
from simnmt.papers.cnmt.table_one import ALL_POLICIES, NETWORKS, TRANSFORMER, WORKLOADS, TableRun, name_cell
from simnmt.papers.kit.claims import ClaimRecord, judge
from simnmt.results.run import Cell
from simnmt.results.summary import Row
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.scenario.document import Override
from simnmt.scenario.source import open_source

Progress = Callable[[float, int], None]
"""Called with the number of runs done and the number of all runs."""
REPLICATIONS = 5
"""Replications of a replay whose claims are judged: one replication does not show how far chance moves a difference."""
INFERRED, MEASURED = "@table1", "@table1-measured"
LEVELS_MS = {
    "de-en": {"cp1": 248.0, "cp2": 183.0},
    "fr-en": {"cp1": 54.1, "cp2": 35.3},
    "en-zh": {"cp1": 307.0, "cp2": 223.0},
}
"""Mean RTTs at which the oracle sends nearly 40 % (CP1) and 60 % (CP2) of a data set's requests away with the profiles of
`MEASURED`, CP2 at 0.65 to 0.75 of CP1 as Table I allows. No policy's result chose them."""
LEAST_SHARE, MOST_SHARE = 0.2, 0.8
"""Range of the share that the oracle sends away; outside it one device nearly always wins."""
ONE_NETWORK = ", one network"


@dataclass(frozen=True, slots=True)
class Part:
    """Table I replayed on one kind of profiles, beside the published one."""

    name: str
    """`inferred`, `measured`, or another basis of its profiles."""
    run: TableRun
    claims: list[ClaimRecord]
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


def replays(
    measured: str | os.PathLike[str] = MEASURED,
    *,
    allow_code: bool = False,
    requests: int | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> tuple[list[Part], Profiles]:
    """Replay Table I on the inferred profiles and on measured ones, and judge the claims on each.

    Args:
        measured: scenario of Table I that names the measured profiles.
        allow_code: whether modules and files that it names may run.
        requests: requests per run; None: those of the scenarios.
        jobs: processes.
        progress: called after each run.

    Returns:
        The parts, inferred first, and the measured profiles at hand. On the shipped measured profiles, `measured` has a pair
        of networks for each data set, and a third part is measured on the scenario's pair.

    Raises:
        InputError: a scenario of another protocol, or wrong inputs.
    """
    inferred, lacking = prepare(INFERRED, requests)
    if inferred is None or lacking:
        raise InputError(lacking, remedy="install simnmt again")
    tested, lacking = prepare(measured, requests, allow_code=allow_code)
    cases = {} if tested is None else tested.cases
    profiles = Profiles(
        {name: case.profiles for name, case in cases.items()}, {name: case.table for name, case in cases.items()}
    )
    name = profiles.basis if profiles.basis == "measured" else f"given, {profiles.basis}"
    todo: dict[str, list[RunPlan]] = {"inferred": _separated(inferred.scenario)}
    if tested is not None:
        todo[name] = _separated(tested.scenario)
        if measured == MEASURED:
            todo[name + ONE_NETWORK] = todo[name]
            todo[name] = [_at_levels(tested, workload, LEVELS_MS[workload]) for workload in tested.cases]
    units = [units_of(plan) for plans in todo.values() for plan in plans]
    parts = []
    done = 0
    for part_name, plans in todo.items():
        results = []
        for plan in plans:
            count = _count_from(progress, done, sum(units))
            results.append(run_plan(plan, jobs=jobs, progress=count))
            done += units_of(plan)
        cells = [cell for result in results for cell in result.cells]
        rows = chain.from_iterable(result.summary_rows for result in results)
        gaps = chain.from_iterable(result.gaps for result in results)
        totals_s = {run: values for result in results for run, values in result.totals_s.items()}
        basis = basis_of([kind for cell in cells for kind in cell.profile_kinds])
        run = TableRun.of(rows, gaps, totals_s, basis=basis, device=part_name)
        notes = list(dict.fromkeys(note for result in results for note in result.notes))
        parts.append(Part(part_name, run, table_claims(run), [fit for result in results for fit in result.fits], cells, notes))
    if tested is None:
        nothing = TableRun.of([], basis="measured", device=name)
        parts.append(Part(name, nothing, table_claims(nothing), notes=[lacking]))
    elif lacking:
        for part in parts[1:]:
            part.notes.insert(0, lacking)
    return [_with_reasons(part, parts, profiles, lacking) for part in parts], profiles


def _with_reasons(part: Part, parts: Sequence[Part], profiles: Profiles, lacking: str) -> Part:
    """Return the part whose claims name its limits; the first measured part has the claims on devices, too."""
    limits = []
    if part is not parts[0]:
        limits = [lacking[:1].lower() + lacking[1:]] if lacking else []
        outside = [
            name_cell(cell)
            for cell, share in part.run.oracle_share.items()
            if share is not None and not LEAST_SHARE <= share <= MOST_SHARE
        ]
        limits += [f"the oracle sends less than 20 or more than 80 % away in {', '.join(outside)}"] if outside else []
    # Where the scenario's pair is shown as well, the part before it has a pair for each data set.
    own_pairs = "each data set on its own pair of RTT levels, chosen so that the oracle sends 20 to 80 % away"
    ending = [own_pairs] if any(other.name == part.name + ONE_NETWORK for other in parts) else []
    on_devices = judge(DEVICE_CLAIMS, [replace(profiles, device=part.name)]) if part is parts[1] else []
    records = [(record, ending) for record in part.claims] + [(record, []) for record in on_devices]
    claims = [
        replace(record, why="; ".join([record.why, *(limits if record.hardware_dependent else []), *more]))
        for record, more in records
    ]
    return replace(part, claims=claims)


def prepare(
    scenario: str | os.PathLike[str], requests: int | None = None, *, allow_code: bool = False
) -> tuple[RunPlan | None, str]:
    """Read a scenario of Table I and its inputs; leave out data sets whose shipped profiles are missing.

    Returns:
        The plan, None if no data set has both profiles, and one sentence on the missing profiles.

    Raises:
        InputError: wrong inputs, or a scenario that is not one of Table I.
    """
    overrides = [] if requests is None else [Override.of("requests", requests, f"--requests {requests}")]
    table_scenario = open_source(scenario, overrides, allow_code=allow_code).scenario
    known = [name for name in table_scenario.workloads if name in WORKLOADS]
    _refuse_another_protocol(os.fspath(scenario), table_scenario, known)
    missing = {workload: names for workload in known if (names := _missing(table_scenario, workload))}
    needs = "; ".join(f"{workload.upper()} needs {' and '.join(names)}" for workload, names in missing.items())
    lacking = f"Not at hand: {needs} (make them with simnmt calibrate)" if missing else ""
    there = [workload for workload in known if workload not in missing]
    return read_inputs(_only(table_scenario, there), Path.cwd()) if there else None, lacking


def _refuse_another_protocol(name: str, scenario: ScenarioConfiguration, known: Sequence[str]) -> None:
    """Raise `InputError` for a scenario whose rows would not mean what Table I means (CNMT-14)."""
    wrong = ""
    if not known:
        wrong = f"none of the workloads {', '.join(WORKLOADS)}"
    elif not set(NETWORKS) <= set(scenario.networks):
        wrong = f"not both networks {' and '.join(NETWORKS)}"
    elif list(scenario.devices) != ["gateway", "cloud"]:
        wrong = "other devices than gateway and cloud, in this order"
    elif not {*ALL_POLICIES} <= set(scenario.policies):
        wrong = f"not all of the policies {', '.join(ALL_POLICIES)}"
    elif any(scenario.workloads[workload].arrivals.kind != "back_to_back" for workload in known):
        wrong = "arrivals that are not back to back"
    elif any(scenario.networks[network].clock != "spread" for network in NETWORKS):
        wrong = "a network whose clock is not spread over the trace"
    if wrong:
        raise InputError(f"no scenario of Table I: {wrong}", path=name, remedy="see @table1-measured")


def _missing(scenario: ScenarioConfiguration, workload: str) -> list[str]:
    names = [str(scenario.profile_of(device, workload)) for device in scenario.devices]
    shipped_ones = shipped_files.names("calibration")
    return [name for name in names if name.startswith("@") and name.removeprefix("@") not in shipped_ones]


def _only(scenario: ScenarioConfiguration, workloads: Sequence[str]) -> ScenarioConfiguration:
    """Return the scenario with only these workloads and the paper's two networks, and enough replications to judge claims.

    With EN-ZH the run also analyses the causes of C-NMT's gap to the oracle (CNMT-17 (e)).
    """
    return scenario.model_copy(
        update={
            "replications": max(scenario.replications, REPLICATIONS),
            "gap_analysis": TRANSFORMER in workloads,
            "workloads": {name: scenario.workloads[name] for name in workloads},
            "networks": {name: scenario.networks[name] for name in NETWORKS},
        }
    )


def _separated(scenario: ScenarioConfiguration) -> list[RunPlan]:
    """Return one plan for EN-ZH, the only data set whose gap is analysed, and one for the other data sets of a scenario."""
    names = list(scenario.workloads)
    groups = [[name for name in names if name != TRANSFORMER], [name for name in names if name == TRANSFORMER]]
    return [read_inputs(_only(scenario, group), Path.cwd()) for group in groups if group]


def _at_levels(plan: RunPlan, workload: str, mean_rtt_ms: Mapping[str, float]) -> RunPlan:
    """Return the plan of one workload with its networks scaled to these mean RTTs."""
    scenario = _only(plan.scenario, [workload])
    networks = {
        name: network.model_copy(update={"rtt_mean_ms": mean_rtt_ms[name]}) for name, network in scenario.networks.items()
    }
    return read_inputs(scenario.model_copy(update={"networks": networks}), Path.cwd())


def _count_from(progress: Progress | None, before: int, whole: int) -> Progress | None:
    return None if progress is None else lambda done, _: progress(before + done, whole)


def units_of(plan: RunPlan) -> int:
    """Return the number of runs of the plan that its progress counts."""
    return len(plan.cases) * len(plan.networks) * plan.scenario.replications
