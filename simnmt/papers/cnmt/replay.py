"""Replays of Table I on inferred and on measured profiles (CNMT-14): the scenarios, their runs, and the claims on each.

Inferred profiles were fitted to Table I, so their verdicts are marked as fitted. Measured profiles test the claims, on networks
where the oracle offloads 20 to 80 % of the requests. No one pair of networks gives this share for every data set with the
shipped profiles: each data set has a pair of its own, and the scenario's one pair for all is shown beside it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from simnmt.base.errors import InputError
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.inputs import read_inputs
from simnmt.experiment.run import run_plan
from simnmt.papers.cnmt.claims import DEVICE_CLAIMS, Profiles, basis_of, table_claims
from simnmt.papers.cnmt.table_one import ALL_POLICIES, NETWORKS, TRANSFORMER, WORKLOADS, TableRun, name_cell
from simnmt.papers.kit.claims import ClaimRecord, judge
from simnmt.results.run import Cell, Run
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
    fits: list[Row]
    cells: list[Cell]
    notes: list[str]
    """Limits of the numbers of this part, such as lengths outside a profile's range."""

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
    requests: int | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> tuple[list[Part], Profiles]:
    """Replay Table I on the inferred profiles and on those of the scenario `measured`, and judge the claims on each.

    Returns:
        The parts, inferred first, and the profiles of `measured`. On the shipped measured profiles, `measured` has a pair of
        networks for each data set, and a third part is measured on the scenario's pair.

    Raises:
        InputError: a scenario of another protocol, or wrong inputs.
    """
    inferred, tested = prepare(INFERRED, requests), prepare(measured, requests)
    cases = tested.cases.items()
    profiles = Profiles({name: case.profiles for name, case in cases}, {name: case.table for name, case in cases})
    name = profiles.basis if profiles.basis == "measured" else f"given, {profiles.basis}"
    on_one_network = _separated(tested.scenario)
    todo = {"inferred": _separated(inferred.scenario), name: on_one_network}
    if measured == MEASURED:
        todo[name] = [_at_levels(tested, workload, LEVELS_MS[workload]) for workload in tested.cases]
        todo[name + ONE_NETWORK] = on_one_network
    whole = sum(units_of(plan) for plans in todo.values() for plan in plans)
    parts: list[Part] = []
    done = 0
    for part_name, plans in todo.items():
        results = []
        for plan in plans:
            results.append(run_plan(plan, jobs=jobs, progress=_count_from(progress, done, whole)))
            done += units_of(plan)
        part = _part(part_name, results)
        on_devices = judge(DEVICE_CLAIMS, [replace(profiles, device=name)]) if part_name == name else []
        # Where the scenario's pair is shown as well, the part before it has a pair for each data set.
        own_pairs = "each data set on its own pair of RTT levels, chosen so that the oracle sends 20 to 80 % away"
        endings = [own_pairs] if part_name + ONE_NETWORK in todo else []
        claims = [_with_limits(record, part, endings) for record in part.claims]
        claims += [_with_limits(record, part, []) for record in on_devices]
        parts.append(replace(part, claims=claims))
    return parts, profiles


def _part(name: str, results: Sequence[Run]) -> Part:
    cells = [cell for result in results for cell in result.cells]
    run = TableRun.of(
        chain.from_iterable(result.summary_rows for result in results),
        chain.from_iterable(result.gaps for result in results),
        {run: values for result in results for run, values in result.totals_s.items()},
        basis=basis_of([kind for cell in cells for kind in cell.profile_kinds]),
        device=name,
    )
    notes = list(dict.fromkeys(note for result in results for note in result.notes))
    return Part(name, run, table_claims(run), [fit for result in results for fit in result.fits], cells, notes)


def _with_limits(record: ClaimRecord, part: Part, endings: Sequence[str]) -> ClaimRecord:
    """Return the record whose reason names the cells of its part in which one device nearly always wins."""
    shares = part.run.oracle_share.items()
    outside = [name_cell(cell) for cell, share in shares if share is not None and not LEAST_SHARE <= share <= MOST_SHARE]
    limits = []
    if outside and record.hardware_dependent and part.name != "inferred":
        limits = [f"the oracle sends less than 20 or more than 80 % away in {', '.join(outside)}"]
    return replace(record, why="; ".join([record.why, *limits, *endings]))


def prepare(scenario: str | os.PathLike[str], requests: int | None = None) -> RunPlan:
    """Read a scenario of Table I and its inputs; raises `InputError` for one of another protocol, or with wrong inputs."""
    overrides = [] if requests is None else [Override.of("requests", requests, f"--requests {requests}")]
    table_scenario = open_source(scenario, overrides).scenario
    known = [name for name in table_scenario.workloads if name in WORKLOADS]
    _refuse_another_protocol(os.fspath(scenario), table_scenario, known)
    return read_inputs(_only(table_scenario, known), Path.cwd())


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
