"""Replays of Table I on inferred and on measured profiles (CNMT-14): the scenarios, their runs, and the claims on each.

Inferred profiles were fitted to Table I, so their verdicts are marked as fitted. Measured profiles test the claims, on networks
where the oracle offloads 20 to 80 % of the requests. No one pair of networks gives this share for every data set with the
shipped profiles: each data set has a pair of its own, and the scenario's one pair for all is shown beside it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simnmt.base.errors import InputError
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.inputs import read_inputs
from simnmt.experiment.run import run_plan
from simnmt.papers.cnmt.claims import DEVICE_CLAIMS, TABLE_CLAIMS, Profiles, basis_of
from simnmt.papers.cnmt.table_one import ALL_POLICIES, NETWORKS, TRANSFORMER, WORKLOADS, TableRun
from simnmt.papers.kit.claims import ClaimRecord, judge
from simnmt.results.run import Cell, Run
from simnmt.results.summary import Row
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.scenario.document import Override
from simnmt.scenario.source import open_source

Progress = Callable[[float, int], None]
"""Called with the number of scenarios run and the number of all scenarios."""
REPLICATIONS = 5
"""Replications of a replay whose claims are judged: one replication does not show how far chance moves a difference."""
INFERRED, MEASURED = "@table1", "@table1-measured"
LEVELS_MS = {"de-en": {"cp1": 248.0, "cp2": 183.0}, "fr-en": {"cp1": 54.1, "cp2": 35.3}, "en-zh": {"cp1": 307.0, "cp2": 223.0}}
"""Mean RTTs at which the oracle sends nearly 40 % (CP1) and 60 % (CP2) of a data set's requests away with the profiles of
`MEASURED`, CP2 at 0.65 to 0.75 of CP1 as Table I allows. No policy's result chose them."""


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
    progress: Progress = lambda done, whole: None,
) -> tuple[list[Part], Profiles]:
    """Replay Table I on the inferred profiles and on those of the scenario `measured`, and judge the claims on each.

    Returns the parts, inferred first, and the profiles of `measured`. On the shipped measured profiles, `measured` has a pair
    of networks for each data set, and a third part is measured on the scenario's pair. Raises `InputError` for a scenario of
    another protocol, or with wrong inputs.
    """
    inferred, tested = prepare(INFERRED, requests), prepare(measured, requests)
    cases = tested.cases.items()
    kinds = [profile.execution.kind for case in tested.cases.values() for profile in case.profiles]
    name = "measured" if basis_of(kinds) == "measured" else f"given, {basis_of(kinds)}"
    pairs, tables = ({key: getattr(case, part) for key, case in cases} for part in ("profiles", "table"))
    profiles = Profiles(pairs, tables, basis_of(kinds), name)
    # Only EN-ZH's gap is analysed, so that it has a plan of its own.
    todo = {"inferred": _plans(inferred.scenario), name: _plans(tested.scenario)}
    if measured == MEASURED:
        todo[f"{name}, one network"] = todo[name]
        todo[name] = [_plan(tested.scenario, [workload], LEVELS_MS[workload]) for workload in tested.cases]
    parts, done, whole = list[Part](), 0, sum(map(len, todo.values()))
    for part_name, plans in todo.items():
        results = []
        for plan in plans:
            results.append(run_plan(plan, jobs=jobs, progress=lambda units, total: progress(done + units / total, whole)))  # noqa: B023
            done += 1
        part = _part(part_name, results)
        if part_name == name:
            part.claims.extend(judge(DEVICE_CLAIMS, [profiles]))
        parts.append(part)
    return parts, profiles


def _part(name: str, results: Sequence[Run]) -> Part:
    cells = [cell for result in results for cell in result.cells]
    run = TableRun.of(
        [row for result in results for row in result.summary_rows],
        [gap for result in results for gap in result.gaps],
        {place[1:]: values for result in results for place, values in result.totals_s.items()},
        basis=basis_of([kind for cell in cells for kind in cell.profile_kinds]),
        device=name,
    )
    notes = list(dict.fromkeys(note for result in results for note in result.notes))
    return Part(name, run, judge(TABLE_CLAIMS, [run]), [fit for result in results for fit in result.fits], cells, notes)


def prepare(scenario: str | os.PathLike[str], requests: int | None = None) -> RunPlan:
    """Read a scenario of Table I and its inputs; raises `InputError` for one of another protocol, or with wrong inputs."""
    overrides = [] if requests is None else [Override.of("requests", requests, f"--requests {requests}")]
    table = open_source(scenario, overrides).scenario
    known = [name for name in table.workloads if name in WORKLOADS]
    protocol = {  # CNMT-14
        f"one of the workloads {', '.join(WORKLOADS)}": bool(known),
        f"the networks {' and '.join(NETWORKS)}": {*NETWORKS} <= {*table.networks},
        "the devices gateway and cloud, in this order": list(table.devices) == ["gateway", "cloud"],
        f"the policies {', '.join(ALL_POLICIES)}": {*ALL_POLICIES} <= {*table.policies},
        "arrivals back to back": all(table.workloads[name].arrivals.kind == "back_to_back" for name in known),
        "a clock spread over each trace": all(network.clock == "spread" for network in table.networks.values()),
    }
    if missing := [what for what, is_so in protocol.items() if not is_so]:
        raise InputError(f"no scenario of Table I: needs {missing[0]}", path=scenario, remedy="see @table1-measured")
    return _plan(table, known)


def _plans(scenario: ScenarioConfiguration) -> list[RunPlan]:
    names = list(scenario.workloads)
    groups = [[name for name in names if name != TRANSFORMER], [name for name in names if name == TRANSFORMER]]
    return [_plan(scenario, group) for group in groups if group]


def _plan(scenario: ScenarioConfiguration, workloads: Sequence[str], mean_rtt_ms: Mapping[str, float] | None = None) -> RunPlan:
    """Read the inputs of the scenario with only these workloads and the paper's two networks, scaled to these mean RTTs.

    There are enough replications to judge claims. With EN-ZH the run also analyses the causes of C-NMT's gap to the oracle
    (CNMT-17 (e)).
    """
    networks = {name: scenario.networks[name] for name in NETWORKS}
    for name, level_ms in (mean_rtt_ms or {}).items():
        networks[name] = networks[name].model_copy(update={"rtt_mean_ms": level_ms})
    changes = {
        "replications": max(scenario.replications, REPLICATIONS),
        "gap_analysis": TRANSFORMER in workloads,
        "workloads": {name: scenario.workloads[name] for name in workloads},
        "networks": networks,
    }
    return read_inputs(scenario.model_copy(update=changes), Path.cwd())
