"""Which policies of a scenario are held against which other: C-NMT's variants beside the plain one, and over loads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simnmt.policies.configuration import CNmtPolicy
from simnmt.results.load_sweep import load_sweep
from simnmt.results.summary import Row
from simnmt.scenario.build import Plan
from simnmt.scenario.model import Scenario


def variants(scenario: Scenario) -> dict[str, str]:
    """Each C-NMT policy but the first, and the one it is held against.

    For a policy that sees backlogs that is the same without, where the scenario has it; else the first C-NMT policy.
    """
    cnmt = {name: policy for name, policy in scenario.policies.items() if isinstance(policy, CNmtPolicy)}
    found = {}
    for name, policy in list(cnmt.items())[1:]:
        blind = policy.model_copy(update={"sees_backlog": False})
        twins = [other for other, its in cnmt.items() if policy.sees_backlog and its == blind]
        found[name] = twins[0] if twins else next(iter(cnmt))
    return found


def baselines(scenario: Scenario) -> list[str]:
    """The policies that all others are compared with: those that are no C-NMT, and those that variants are held against."""
    plain = set(variants(scenario).values())
    return [name for name, policy in scenario.policies.items() if not isinstance(policy, CNmtPolicy) or name in plain]


def load_sweeps(plan: Plan, rows: Sequence[Row], comparisons: Sequence[Row]) -> Iterator[Row]:
    """Each variant over the loads of workloads that differ in when their requests come, and in nothing else."""
    scenario = plan.scenario
    groups: dict[str, list[str]] = {}
    for name, case in plan.cases.items():
        if case.arrivals.discipline == "open":
            part = scenario.workloads[name]
            alike = f"{part.arrivals.kind} {part.model_dump_json(exclude={'arrivals'})}"
            groups.setdefault(alike, []).append(name)
    for workloads in groups.values():
        if len(workloads) > 1:
            for network in scenario.networks:
                for policy, plain in variants(scenario).items():
                    yield load_sweep(rows, comparisons, workloads, network, policy, plain)
