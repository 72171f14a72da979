"""Which policies of a scenario are held against which other: variants beside the plain policy, and over loads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from simnmt.policies.configuration import CNmtPolicy, NaivePolicy
from simnmt.results.load_sweep import load_sweep
from simnmt.results.stability import busiest_load
from simnmt.results.summary import Row
from simnmt.scenario.build import Plan
from simnmt.scenario.model import Scenario

_RATES = ("rate_rps", "on_rate_rps", "off_rate_rps", "hourly_rps")
"""Keys of arrivals that hold rates."""


def variants(scenario: Scenario) -> dict[str, str]:
    """Each policy that estimates but the first of its kind, C-NMT or naive, and the one it is held against.

    For a policy that sees backlogs, hears of batches or knows the states of plans, that is the same without, where the scenario
    has it; else the first of its kind.
    """
    found = {}
    for kind in (CNmtPolicy, NaivePolicy):
        alike = {name: policy for name, policy in scenario.policies.items() if isinstance(policy, kind)}
        for name, policy in list(alike.items())[1:]:
            blind = [policy.model_copy(update=without) for without in _ways_of_seeing_less(policy)]
            twins = [other for one in blind for other, its in alike.items() if its == one]
            found[name] = twins[0] if twins else next(iter(alike))
    return found


def _ways_of_seeing_less(policy: CNmtPolicy | NaivePolicy) -> Iterator[dict[str, Any]]:
    if getattr(policy, "batch", "plain") != "plain":
        yield {"batch": "plain"}
    if policy.sees_backlog:
        yield {"sees_backlog": False}
    if policy.plan_state != "ignored":
        yield {"plan_state": "ignored"}


def baselines(scenario: Scenario) -> list[str]:
    """The policies that all others are compared with: those that are no C-NMT, and those that variants are held against."""
    plain = set(variants(scenario).values())
    return [name for name, policy in scenario.policies.items() if not isinstance(policy, CNmtPolicy) or name in plain]


def load_sweeps(plan: Plan, rows: Sequence[Row], comparisons: Sequence[Row]) -> Iterator[Row]:
    """Each variant over the loads of workloads that differ in the rate of their requests, and in nothing else.

    Where all of a workload's requests come at one moment nothing has a load, and workloads like it make no sweep.
    """
    scenario = plan.scenario
    groups: dict[str, list[str]] = {}
    for name, case in plan.cases.items():
        if case.arrivals.discipline == "open":
            groups.setdefault(_all_but_rate(scenario, name), []).append(name)
    without_load = {row["workload"] for row in rows if busiest_load(row) is None}
    for workloads in groups.values():
        if len(workloads) > 1 and without_load.isdisjoint(workloads):
            for network in scenario.networks:
                for policy, plain in variants(scenario).items():
                    yield load_sweep(rows, comparisons, workloads, network, policy, plain)


def _all_but_rate(scenario: Scenario, workload: str) -> str:
    """What makes a workload beside the rate of its requests, as text: lengths, the course of its arrivals, device profiles."""
    part = scenario.workloads[workload]
    arrivals = part.arrivals.model_dump(mode="json", exclude={"rate_rps", "speed", "scale_s"})
    profiles = [scenario.profile_of(device, workload) for device in scenario.devices]
    rates = list(_rates(arrivals))
    return json.dumps([part.model_dump(mode="json", exclude={"arrivals"}), _over(max(rates, default=0.0), arrivals), profiles])


def _rates(content: Any) -> Iterator[float]:
    """All rates within arrivals."""
    if isinstance(content, list):
        for part in content:
            yield from _rates(part)
    elif isinstance(content, dict):
        for key, part in content.items():
            if key in _RATES:
                yield from (rate for rate in (part if isinstance(part, list) else [part]) if rate is not None)
            else:
                yield from _rates(part)


def _over(greatest_rps: float, content: Any, is_rate: bool = False) -> Any:
    """The same arrivals with every rate as a share of the greatest."""
    if isinstance(content, list):
        return [_over(greatest_rps, part, is_rate) for part in content]
    if isinstance(content, dict):
        return {key: _over(greatest_rps, part, key in _RATES) for key, part in content.items()}
    return round(content / greatest_rps, 9) if is_rate and content and greatest_rps else content
