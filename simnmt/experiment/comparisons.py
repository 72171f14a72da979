"""Select which policies of a scenario are compared, beyond every policy with every baseline.

The gap analysis replaces one belief of C-NMT after another by the truth (CNMT-19). Variants of a policy are compared with the
plain one. A load sweep compares a variant over workloads that differ only in the rate of their requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from simnmt.base.extension import Extended
from simnmt.base.suggestions import format_list
from simnmt.experiment.cases import Case, RunPlan
from simnmt.experiment.policy_setup import Truths
from simnmt.policies.cnmt import CNmtPolicy
from simnmt.policies.decision import Estimation
from simnmt.results.number_text import percent_interval
from simnmt.results.stability import busiest_load
from simnmt.results.statistics import change_columns, change_percent, interval_columns, over_replications
from simnmt.results.summary import Row
from simnmt.scenario.configuration import Scenario

UNSEEN_QUEUES = "unseen queues"
LOSS_SOURCES: dict[str, Truths] = {
    "length regression": frozenset({"lengths"}),
    "scatter of execution times": frozenset({"times"}),
    "stale transfer time": frozenset({"transfer"}),
    UNSEEN_QUEUES: frozenset({"backlog"}),
}
"""Sources of loss, and the truth that removes each. Queues, which do not exist back to back, are added to the paper's three.

The paper's "linear time model" is a scatter here: true times are a plane plus noise, so the plane's error is the noise.
"""


def truths_by_source(queues: bool, streams: bool = False) -> dict[str, Truths]:
    """Return the truths that the analysed policy knows, by the source of loss that they remove, with `nothing` and
    `everything`."""
    sources = {name: truths for name, truths in LOSS_SOURCES.items() if queues or name != UNSEEN_QUEUES}
    if streams:
        # The time that a streamed model's state adds is known as a wait is, back to back too.
        sources.pop(UNSEEN_QUEUES, None)
        sources["unseen queues and states" if queues else "unseen states"] = LOSS_SOURCES[UNSEEN_QUEUES]
    return {"nothing": frozenset(), **sources, "everything": frozenset().union(*sources.values())}


def gap_rows(workload: str, network: str, policy: str, totals_s: Mapping[str, list[float]]) -> Iterator[Row]:
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
            "workload": workload,
            "network": network,
            "policy": policy,
            "removed": removed,
            "replications": len(totals),
            **interval_columns("total_latency_s", over_replications(totals, positive=True)),
            **change_columns(change),
            "share_of_gap_percent": 100.0 * (change.mean / gap) + 0.0 if gap < 0.0 else None,
        }


def load_sweep(
    rows: Sequence[Row], comparisons: Sequence[Row], workloads: Sequence[str], network: str, policy: str, baseline: str
) -> Row:
    """Return a comparison of `policy` with `baseline` over the loads of some workloads, as a record with its `sentence`.

    The load is that of the busiest box under the baseline. `faster_from`: the least load from which on every comparison is
    faster; None if that of the highest load is not. `never_slower`: None with one replication, which cannot distinguish a
    difference from chance. Raises `KeyError` if a workload lacks one of the two policies or has no load.
    """
    by_place = {(row["workload"], row["network"], row["policy"]): row for row in rows}
    pairs = {(pair["workload"], pair["network"], pair["policy"], pair["baseline"]): pair for pair in comparisons}
    points = []
    for workload in workloads:
        pair, load = pairs[workload, network, policy, baseline], busiest_load(by_place[workload, network, baseline])
        if load is None:
            raise KeyError(f"{workload} has no load")
        unstable = [name for name in (baseline, policy) if by_place[workload, network, name].get("unstable")]
        change = {key: pair[key] for key in ("change_percent", "low_percent", "high_percent", "verdict")}
        points.append({"workload": workload, "load": load, "unstable": unstable, **change})
    points.sort(key=lambda point: point["load"])
    faster_from = None
    for point in reversed(points):
        if point["verdict"] != "faster":
            break
        faster_from = point["load"]
    known = all(point["low_percent"] is not None for point in points)
    record = {
        "network": network,
        "policy": policy,
        "baseline": baseline,
        "points": points,
        "never_slower": all(point["verdict"] != "slower" for point in points) if known else None,
        "faster_from": faster_from,
    }
    return record | {"sentence": _describe_sweep(record)}


def _describe_sweep(record: Row) -> str:
    points, begin = record["points"], record["faster_from"]
    first, last = (
        percent_interval(point["change_percent"], point["low_percent"], point["high_percent"])
        for point in (points[0], points[-1])
    )

    def loads(chosen: Sequence[Row]) -> str:
        return format_list((f"{point['load']:.2f}" for point in chosen), "and", most=5)

    slower = [point for point in points if point["verdict"] == "slower"]
    parts = [
        f"load {loads(points[:1])} to {loads(points[-1:])} under {record['baseline']}: {record['policy']} changes the total "
        f"time by {first} at the least load and by {last} at the greatest",
        "with one replication this may be chance" if record["never_slower"] is None else "",
        f"slower at load {loads(slower)}" if slower else "",
        f"faster from load {begin:.2f} on" if begin is not None else "not faster beyond the interval at the greatest load",
    ]
    if unstable := [point for point in points if point["unstable"]]:
        parts.append(f"unstable, so that the change depends on how long the run lasts, at load {loads(unstable)}")
    return f"{record['network']}, {'; '.join(filter(None, parts))}."


def variants(scenario: Scenario) -> dict[str, str]:
    """Return each estimating policy but the first of its kind, C-NMT or naive, with the policy that it is compared with.

    That is the policy without its view of backlogs, batches or states of plans, if the scenario has it, else the first of its
    kind.
    """
    counterparts = {}
    estimating = {name: policy.estimation for name, policy in scenario.policies.items() if isinstance(policy, Estimation)}
    for kind in dict.fromkeys(type(policy) for policy in estimating.values()):
        alike = {name: policy for name, policy in estimating.items() if type(policy) is kind}
        for name, policy in list(alike.items())[1:]:
            twins = [other for blind in policy.less_informed for other, settings in alike.items() if settings == blind]
            counterparts[name] = twins[0] if twins else next(iter(alike))
    return counterparts


def baselines(scenario: Scenario) -> list[str]:
    """Return the policies that all others are compared with: all but C-NMT's, and those that variants are compared with."""
    plain = set(variants(scenario).values())
    return [name for name, policy in scenario.policies.items() if not isinstance(policy, CNmtPolicy) or name in plain]


def load_sweeps(plan: RunPlan, rows: Sequence[Row], comparisons: Sequence[Row]) -> Iterator[Row]:
    """Yield each variant over the loads of workloads that differ in the rate of their requests, and in nothing else.

    If all of a workload's requests come at one moment nothing has a load, and workloads like it make no sweep.
    """
    scenario = plan.scenario
    groups: dict[str, list[str]] = {}
    for name, case in plan.cases.items():
        part = scenario.workloads[name]
        # Whether arrivals and lengths of users differ in the rate alone is unknown.
        has_objects = any(isinstance(content, Extended) for content in (part.arrivals, part.lengths))
        if case.arrivals.discipline == "open" and not has_objects:
            groups.setdefault(_workload_without_rate(scenario, case), []).append(name)
    without_load = {row["workload"] for row in rows if busiest_load(row) is None}
    for workloads in groups.values():
        if len(workloads) > 1 and without_load.isdisjoint(workloads):
            for network in scenario.networks:
                for policy, plain in variants(scenario).items():
                    yield load_sweep(rows, comparisons, workloads, network, policy, plain)


def _workload_without_rate(scenario: Scenario, case: Case) -> str:
    """Return a workload with the rate 1 as text: lengths, shape of its arrivals, device profiles."""
    part, rate_rps = scenario.workloads[case.name], case.arrivals.mean_rate_rps
    arrivals = (part.arrivals.with_rate(1.0, rate_rps) if rate_rps else None) or part.arrivals
    profiles = [str(scenario.profile_of(device, case.name)) for device in scenario.devices]
    text = json.dumps([part.model_dump(mode="json", exclude={"arrivals"}), arrivals.model_dump(mode="json"), profiles])
    # Scaled rates differ in their last bits.
    return json.dumps(json.loads(text, parse_float=lambda number: f"{float(number):.9g}"))
