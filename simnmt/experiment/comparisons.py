"""Select which policies of a scenario are compared, beyond every policy with every baseline.

The gap analysis replaces one belief of C-NMT after another by the truth (CNMT-19). Variants of a policy are compared with the
plain one. A load sweep compares a variant over workloads that differ only in the rate of their requests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from simnmt.base.extension import Extended
from simnmt.base.suggestions import format_list
from simnmt.experiment.cases import RunPlan
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
    points = _points(rows, comparisons, workloads, network, policy, baseline)
    known = all(point["low_percent"] is not None for point in points)
    faster_from = None
    for point in reversed(points):
        if point["verdict"] != "faster":
            break
        faster_from = point["load"]
    record: dict[str, Any] = {
        "network": network,
        "policy": policy,
        "baseline": baseline,
        "points": points,
        "never_slower": all(point["verdict"] != "slower" for point in points) if known else None,
        "faster_from": faster_from,
    }
    return record | {"sentence": _describe_sweep(record)}


def _points(
    rows: Sequence[Row], comparisons: Sequence[Row], workloads: Sequence[str], network: str, policy: str, baseline: str
) -> list[Row]:
    """Return one comparison per workload, by rising load."""
    by_place = {(row["workload"], row["network"], row["policy"]): row for row in rows}
    pairs = {(pair["workload"], pair["network"], pair["policy"], pair["baseline"]): pair for pair in comparisons}
    points = []
    for workload in workloads:
        plain, pair = by_place[workload, network, baseline], pairs[workload, network, policy, baseline]
        load = busiest_load(plain)
        if load is None:
            raise KeyError(f"{workload} has no load")
        points.append(
            {
                "workload": workload,
                "load": load,
                "unstable": [name for name in (baseline, policy) if by_place[workload, network, name].get("unstable")],
                **{key: pair[key] for key in ("change_percent", "low_percent", "high_percent", "verdict")},
            }
        )
    return sorted(points, key=lambda point: point["load"])


def _describe_sweep(record: Row) -> str:
    points, policy, baseline = record["points"], record["policy"], record["baseline"]
    place = f"{record['network']}, load {_format_load(points[0])} to {_format_load(points[-1])} under {baseline}: "
    if record["never_slower"] is None:
        return (
            f"{place}{policy} changes the total time by {_format_change(points[0])} at the least load and by "
            f"{_format_change(points[-1])} at the greatest; with one replication this may be chance."
            f"{_describe_unstable(record)}"
        )
    slower = [point for point in points if point["verdict"] == "slower"]
    if slower:
        first = f"{policy} is slower than {baseline} at load {_format_points(slower)}"
    else:
        first = f"{policy} is never slower than {baseline} beyond the interval"
    return f"{place}{first}; {_describe_faster(record)}.{_describe_unstable(record)}"


def _describe_faster(record: Row) -> str:
    points, begin = record["points"], record["faster_from"]
    if begin is not None:
        there = next(point for point in points if point["load"] == begin)
        from_on = "faster at every load" if there is points[0] else f"faster from load {_format_load(there)} on"
        also = [point for point in points if point["load"] < begin and point["verdict"] == "faster"]
        besides = f", and at load {_format_points(also)} below that" if also else ""
        top = "" if there is points[-1] else f", {_format_change(points[-1])} at load {_format_load(points[-1])}"
        return f"{from_on} ({_format_change(there)} at load {_format_load(there)}{top}){besides}"
    faster = [point for point in points if point["verdict"] == "faster"]
    if not faster:
        return "nowhere faster beyond the interval"
    return f"faster at load {_format_points(faster)}, and not at the greatest load"


def _describe_unstable(record: Row) -> str:
    """Describe the loads at which a policy is unstable, so that changes there depend on how long the run lasts."""
    baseline, policy = record["baseline"], record["policy"]
    sentences = ""
    subjects = {f"{baseline} is": [baseline], f"{policy} is": [policy], f"both {baseline} and {policy} are": [baseline, policy]}
    for subject, names in subjects.items():
        loads = ", ".join(_format_load(point) for point in record["points"] if point["unstable"] == names)
        if loads:
            sentences += f" At load {loads} {subject} unstable: the change there depends on how long the run lasts."
    return sentences


def _format_load(point: Row) -> str:
    return f"{point['load']:.2f}"


def _format_points(points: Sequence[Row]) -> str:
    return format_list((f"{_format_load(point)} ({_format_change(point)})" for point in points), ",", most=3)


def _format_change(point: Row) -> str:
    return percent_interval(point["change_percent"], point["low_percent"], point["high_percent"])


_RATES = ("rate_rps", "on_rate_rps", "off_rate_rps", "hourly_rps")
"""Keys of arrivals that hold rates."""


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
            groups.setdefault(_workload_without_rate(scenario, name), []).append(name)
    without_load = {row["workload"] for row in rows if busiest_load(row) is None}
    for workloads in groups.values():
        if len(workloads) > 1 and without_load.isdisjoint(workloads):
            for network in scenario.networks:
                for policy, plain in variants(scenario).items():
                    yield load_sweep(rows, comparisons, workloads, network, policy, plain)


def _workload_without_rate(scenario: Scenario, workload: str) -> str:
    """Return a workload as text without the level of its rate: lengths, shape of its arrivals, device profiles."""
    part = scenario.workloads[workload]
    arrivals = part.arrivals.model_dump(mode="json", exclude={"rate_rps", "speed", "scale_s"})
    greatest_rps = max(_rates(arrivals), default=0.0) or 1.0
    relative = _map_rates(arrivals, lambda rate: round(rate / greatest_rps, 9))
    profiles = [str(scenario.profile_of(device, workload)) for device in scenario.devices]
    return json.dumps([part.model_dump(mode="json", exclude={"arrivals"}), relative, profiles])


def _rates(content: Any, is_rate: bool = False) -> list[float]:
    """Return every rate in the content of arrivals."""
    if isinstance(content, list):
        return [rate for part in content for rate in _rates(part, is_rate)]
    if isinstance(content, dict):
        return [rate for key, part in content.items() for rate in _rates(part, key in _RATES)]
    return [content] if is_rate and content is not None else []


def _map_rates(content: Any, change: Callable[[float], float], is_rate: bool = False) -> Any:
    """Return the content of arrivals with every rate replaced by `change(rate)`."""
    if isinstance(content, list):
        return [_map_rates(part, change, is_rate) for part in content]
    if isinstance(content, dict):
        return {key: _map_rates(part, change, key in _RATES) for key, part in content.items()}
    return change(content) if is_rate and content is not None else content
