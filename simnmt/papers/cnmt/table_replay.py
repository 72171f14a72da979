"""Replay Table I on one set of profiles and networks, beside the published table and its 24 time ratios (CNMT-16)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.experiment.inputs import RunPlan, read_inputs
from simnmt.experiment.run import run_plan
from simnmt.papers.cnmt import claims, published, table_one
from simnmt.papers.cnmt.claims import TRANSFORMER, RunName, basis_of
from simnmt.papers.cnmt.fit import FITTED
from simnmt.papers.cnmt.network_levels import Levels
from simnmt.papers.cnmt.published import all_implied_ratios
from simnmt.papers.cnmt.table_one import total_times
from simnmt.profile.device_profile import DeviceProfile
from simnmt.results.result import Cell
from simnmt.results.summary import Row
from simnmt.scenario.configuration import Scenario
from simnmt.scenario.document import Override
from simnmt.scenario.source import open_source

Role = Literal["fitted", "test"]


@dataclass(frozen=True, slots=True)
class Ratio:
    """One total time over the gateway's."""

    workload: str
    network: str
    policy: str
    published: tuple[float, float]
    """As the Naive row and as the C-NMT row imply it; the same number twice for Naive and C-NMT themselves."""
    ours: float
    role: Role
    """Whether the inferred profiles were fitted to it, or it is the test of that fit."""

    @property
    def target(self) -> float:
        """The mean of both derivations."""
        return sum(self.published) / 2

    @property
    def error(self) -> float:
        """Relative: 0.01 where ours is 1 % above the target."""
        return self.ours / self.target - 1


def compare_ratios(rows: Iterable[Mapping[str, Any]]) -> list[Ratio]:
    """The ratios that a run's rows allow, in the table's order; all 24 for a run of Table I."""
    total_s = total_times(rows)
    ratios = []
    for implied in published.all_implied_ratios():
        cell = (implied.workload, implied.network)
        gateway_s = total_s.get((*cell, "edge"))
        both = {
            "cloud": implied.server,
            "oracle": implied.oracle,
            "naive": (implied.naive, implied.naive),
            "cnmt": (implied.cnmt, implied.cnmt),
        }
        for policy, pair in both.items():
            policy_s = total_s.get((*cell, policy))
            if gateway_s and policy_s is not None:
                role: Role = "fitted" if (implied.network, policy) in FITTED else "test"
                ratios.append(Ratio(*cell, policy, pair, policy_s / gateway_s, role))
    return ratios


def mean_absolute_errors(ratios: Iterable[Ratio]) -> dict[str, float]:
    """Mean absolute relative error: `all`, per data set, and apart for `fitted` and `test`; no key without a ratio."""
    groups: dict[str, list[float]] = {}
    for ratio in ratios:
        for group in ("all", ratio.workload, ratio.role):
            groups.setdefault(group, []).append(abs(ratio.error))
    return {group: sum(errors) / len(errors) for group, errors in groups.items()}


def ratios_as_text(ratios: Iterable[Ratio]) -> str:
    """Return the ratios and their errors as text for a terminal."""
    ratios = list(ratios)
    lines = [
        "Total time over the gateway's (Table I of Chen et al., ISCAS 2022, and ours)",
        f"{'data':<6} {'network':<7} {'policy':<7} {'published, two ways':>20} {'ours':>8} {'error %':>8}  role",
    ]
    for ratio in ratios:
        one, other = ratio.published
        both = f"{one:.4f}" if one == other else f"{one:.4f} | {other:.4f}"
        lines.append(
            f"{ratio.workload.upper():<6} {ratio.network.upper():<7} {published.LABELS[ratio.policy]:<7} {both:>20} "
            f"{ratio.ours:>8.4f} {100 * ratio.error:>+8.2f}  {ratio.role}"
        )
    errors = ", ".join(f"{group} {100 * error:.2f} %" for group, error in mean_absolute_errors(ratios).items())
    return "\n".join([*lines, f"mean absolute error: {errors}"])


@dataclass(frozen=True, slots=True)
class Replication:
    """Table I as published and as replayed, the ratios behind it, and the verdict on each claim."""

    cells: list[dict[str, Any]]
    ratios: list[Any]
    claims: list[dict[str, Any]]

    def document(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "claims": self.claims,
            "tables": [
                {"title": "C-NMT, Table I", "cells": self.cells},
                {
                    "title": "Total times over the gateway's, derived from the published table in each way it allows",
                    "rows": [asdict(implied) for implied in all_implied_ratios()],
                },
                {
                    "title": "Total time over the gateway's",
                    "rows": [asdict(ratio) | {"error": ratio.error} for ratio in self.ratios],
                    "mean_absolute_error": mean_absolute_errors(self.ratios),
                },
            ],
            "slips": list(claims.SLIPS),
        }

    def text(self) -> str:
        """The same for a terminal."""
        return "\n\n".join([table_one.as_text(self.cells), ratios_as_text(self.ratios), claims_as_text(self.claims)])


def claims_as_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Return a line per claim: verdict, claim, our figures and the reason; below them once that profiles are inferred."""
    ending = f"; {claims.FITTED}"
    lines = []
    for record in records:
        reason = "; ".join(filter(None, [record["ours"], str(record["why"]).removesuffix(ending)]))
        lines.append(f"{str(record['verdict']).capitalize()}: {record['id']}. {record['claim']} ({reason}).")
    fitted = [str(record["id"]).removeprefix("CNMT-17 ") for record in records if str(record["why"]).endswith(ending)]
    if fitted:
        parts = ", ".join(fitted)
        lines.append(f"The profiles were inferred from Table I itself, so this is consistency, not proof, of CNMT-17 {parts}.")
    return "\n".join(lines)


def replicate(
    rows: Sequence[Mapping[str, Any]],
    profile_kinds: Sequence[str],
    gaps: Sequence[Mapping[str, Any]] = (),
    totals_s: Mapping[claims.RunName, Sequence[float]] | None = None,
) -> Replication:
    """Set a run of Table I beside the published one. Arguments as of `claims.evaluate`."""
    records = claims.evaluate(rows, profile_kinds, gaps, totals_s)
    return Replication(table_one.compare(rows), compare_ratios(rows), records)


Progress = Callable[[int, int], None]
"""Called with runs done and runs in all."""
REPLICATIONS = 5
"""Of a replay whose claims are judged: one replication does not show how far chance moves a difference."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A scenario of Table I as far as its profiles are at hand."""

    plan: RunPlan | None
    """None where no data set has both profiles."""
    missing: dict[str, list[str]]
    """Workload -> the shipped profiles that it names and that are not there."""
    profiles: dict[str, tuple[DeviceProfile, ...]] = field(default_factory=dict)
    """By workload, per device."""


@dataclass(frozen=True, slots=True)
class Part:
    """Table I replayed on one kind of profiles, beside the published one."""

    name: str
    """`inferred`, `measured`, or what else its profiles are (`name_of`)."""
    found: Replication
    rows: list[Row] = field(default_factory=list)
    fits: list[Row] = field(default_factory=list)
    totals_s: dict[RunName, list[float]] = field(default_factory=dict)
    """Total latency of each replication."""
    cells: list[Cell] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What limits the numbers of this part: data sets left out, lengths outside a profile's range."""

    @property
    def key(self) -> str:
        """The name as the start of a key."""
        return self.name.replace(", ", "_").replace(" ", "_")

    @property
    def kinds(self) -> list[str]:
        """Return the distinct kinds of its profiles: how their numbers are known."""
        return list(dict.fromkeys(kind for cell in self.cells for kind in cell.profile_kinds))

    @property
    def shown_kinds(self) -> dict[str, list[str]]:
        """Return the kinds by workload as users see them: `measured, doubtful` if a profile has warnings."""
        by_workload: dict[str, dict[str, None]] = {}
        for cell in self.cells:
            by_workload.setdefault(cell.workload, {}).update(dict.fromkeys(cell.shown_kinds))
        return {workload: list(kinds) for workload, kinds in by_workload.items()}


def prepare(scenario: str | os.PathLike[str], requests: int | None = None) -> Prepared:
    """Read a scenario of Table I and its inputs; leave out data sets whose shipped profiles are missing.

    Raises `InputError` for wrong inputs, and for a scenario that is not one of Table I.
    """
    overrides = [] if requests is None else [Override.of("requests", requests, f"--requests {requests}")]
    table_scenario = open_source(scenario, overrides).scenario
    known = [name for name in table_scenario.workloads if name in published.WORKLOADS]
    _refuse_another_protocol(os.fspath(scenario), table_scenario, known)
    missing = {workload: names for workload in known if (names := _missing(table_scenario, workload))}
    there = [workload for workload in known if workload not in missing]
    if not there:
        return Prepared(None, missing)
    plan = read_inputs(only(table_scenario, there), Path.cwd())
    return Prepared(plan, missing, {name: case.profiles for name, case in plan.cases.items()})


def _refuse_another_protocol(name: str, scenario: Scenario, known: Sequence[str]) -> None:
    """Raise `InputError` for a scenario whose rows would not mean what Table I means (CNMT-14)."""
    wrong = ""
    if not known:
        wrong = f"none of the workloads {', '.join(published.WORKLOADS)}"
    elif not set(published.NETWORKS) <= set(scenario.networks):
        wrong = f"not both networks {' and '.join(published.NETWORKS)}"
    elif list(scenario.devices) != ["gateway", "cloud"]:
        wrong = "other devices than gateway and cloud, in this order"
    elif not {*published.BASELINES, *published.POLICIES} <= set(scenario.policies):
        wrong = f"not all of the policies {', '.join((*published.BASELINES, *published.POLICIES))}"
    elif any(scenario.workloads[workload].arrivals.kind != "back_to_back" for workload in known):
        wrong = "arrivals that are not back to back"
    elif any(scenario.networks[network].clock != "spread" for network in published.NETWORKS):
        wrong = "a network whose clock is not spread over the trace"
    if wrong:
        raise InputError(f"no scenario of Table I: {wrong}", path=name, remedy="see @table1-measured")


def _missing(scenario: Scenario, workload: str) -> list[str]:
    names = [scenario.profile_of(device, workload) for device in scenario.devices]
    shipped_ones = shipped_files.names("calibration")
    return [name for name in names if name.startswith("@") and name.removeprefix("@") not in shipped_ones]


def only(scenario: Scenario, workloads: Sequence[str]) -> Scenario:
    """Return the same with these workloads and the paper's two networks alone, and with enough replications to judge claims.

    With EN-ZH the run also analyses what causes C-NMT's gap to the oracle (CNMT-17 (e)).
    """
    return scenario.model_copy(
        update={
            "replications": max(scenario.replications, REPLICATIONS),
            "gap_analysis": TRANSFORMER in workloads,
            "workloads": {name: scenario.workloads[name] for name in workloads},
            "networks": {name: scenario.networks[name] for name in published.NETWORKS},
        }
    )


def separated(scenario: Scenario) -> list[RunPlan]:
    """Return plans of a scenario's runs in which EN-ZH, whose gap alone is analysed, stands apart from the other data sets."""
    names = list(scenario.workloads)
    groups = [[name for name in names if name != TRANSFORMER], [name for name in names if name == TRANSFORMER]]
    return [read_inputs(only(scenario, group), Path.cwd()) for group in groups if group]


def at_levels(plan: RunPlan, workload: str, levels: Levels) -> RunPlan:
    """The plan of one workload with its networks scaled to these mean RTTs."""
    scenario = only(plan.scenario, [workload])
    networks = {
        name: network.model_copy(update={"rtt_mean_ms": levels.mean_rtt_ms[name]})
        for name, network in scenario.networks.items()
    }
    return read_inputs(scenario.model_copy(update={"networks": networks}), Path.cwd())


def name_of(profiles: Mapping[str, Sequence[DeviceProfile]]) -> str:
    """What a part on these profiles is called: measured only if all of them were."""
    basis = basis_of([profile.execution.kind for pair in profiles.values() for profile in pair])
    return basis if basis == "measured" else f"given, {basis}"


def replay(name: str, plans: Sequence[RunPlan], *, folder: Path, jobs: int, progress: Progress | None) -> Part:
    """Run plans that together make up Table I, or some of its data sets; their columns lie in `folder` meanwhile."""
    rows: list[Row] = []
    fits: list[Row] = []
    gaps: list[Row] = []
    totals_s: dict[RunName, list[float]] = {}
    cells: list[Cell] = []
    notes: list[str] = []
    units = sum(map(units_of, plans))
    before = 0
    for number, plan in enumerate(plans):

        def report(done: int, _: int, before: int = before) -> None:
            if progress is not None:
                progress(before + done, units)

        room = folder / f"{name} {number}"
        room.mkdir()
        result = run_plan(plan, folder=room, jobs=jobs, progress=report)
        before += units_of(plan)
        rows += result.rows
        fits += result.fits
        gaps += result.gaps
        totals_s |= result.totals_s
        cells += result.cells
        notes += [note for note in result.notes if note not in notes]
    kinds = [kind for cell in cells for kind in cell.profile_kinds]
    return Part(name, replicate(rows, kinds, gaps, totals_s), rows, fits, totals_s, cells, notes)


def units_of(plan: RunPlan) -> int:
    """Return how many units a run of the plan has: what its progress counts."""
    return len(plan.cases) * len(plan.networks) * plan.scenario.replications


def without(name: str, missing: Mapping[str, Sequence[str]]) -> Part:
    """Return a part without results, since all its profiles are missing."""
    return Part(name, replicate([], ["measured"]), notes=[lacking(missing)])


def lacking(missing: Mapping[str, Sequence[str]]) -> str:
    """Return one sentence on the missing profiles."""
    needs = "; ".join(f"{workload.upper()} needs {' and '.join(names)}" for workload, names in missing.items())
    return f"Not at hand: {needs} (make them with simnmt calibrate)"
