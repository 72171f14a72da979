"""Compare the conditions of a run with those under which its profiles were measured in service.

An execution after an idle gap takes longer. A profile that was measured in service therefore holds for its own gaps; the gaps
of a run follow from its summary: how many requests a box executes, and how long they take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simnmt.experiment.cases import Case, RunPlan
from simnmt.experiment.targets import Target
from simnmt.results.number_text import duration
from simnmt.results.summary import Row, by_cell

OTHER_GAPS = 4.0
"""Ratio of the mean idle gaps of run and profile from which they differ: 5 to 100 ms of idling slowed executions alike."""
SHORTEST_GAP_S = 0.002
"""Mean gaps below this count as equal: executions follow each other almost at once."""
LEAST_SHARE = 0.05
"""Share of the requests below which a device is not judged under a policy: it hardly enters the latencies."""


def describe_service(target: Target) -> str:
    """Describe the conditions for which a device's times hold, and their level against the bench; no full stop."""
    assert target.service is not None
    conditions, level = target.service.conditions, target.service_level
    times = "" if level is None else f"; executions take {level:.3g} times as long as in the bench"
    if target.decoding is not None and level is not None:
        times += f", and costs of batches, which were measured in the bench alone, are multiplied by {level:.3g}"
    return f"charged as in service: {conditions.describe_gaps()}{times}"


def describe_other_conditions(plan: RunPlan, rows: Sequence[Row]) -> Iterator[str]:
    """Yield a warning for each device whose gaps in this run are not those of its profile; no full stops.

    `rows`: the rows of the summary.
    """
    cells = by_cell(rows)
    for (workload, network), of_cell in cells.items():
        case = plan.cases[workload]
        for target in case.targets:
            if target.service is not None and target.decoding is None:
                message = _other_gaps(plan, case, target, of_cell)
                if message is not None:
                    yield f"{workload} on {network}, {message}"


def _other_gaps(plan: RunPlan, case: Case, target: Target, rows: Sequence[Row]) -> str | None:
    """Return the warning of a device that idles otherwise than in its measurement, with the range over the policies."""
    assert target.service is not None
    boxes = plan.scenario.count_of(target.device, case.name) * plan.scenario.devices[target.device].workers
    execution_s = target.mean_alone_s(case.replayed)
    gaps_s: dict[str, float] = {}
    for row in rows:
        executions_per_s = row["throughput_rps"] * row[f"{target.device}_share"] / boxes
        if row[f"{target.device}_share"] >= LEAST_SHARE and executions_per_s > 0.0:
            gaps_s[row["policy"]] = max(1.0 / executions_per_s - execution_s, 0.0)
    measured_s = max(target.service.conditions.mean_gap_s, SHORTEST_GAP_S)
    others = {
        policy: gap_s
        for policy, gap_s in gaps_s.items()
        if not 1.0 / OTHER_GAPS <= max(gap_s, SHORTEST_GAP_S) / measured_s <= OTHER_GAPS
    }
    if not others:
        return None
    least, most = min(others.values()), max(others.values())
    span = duration(least) if duration(least) == duration(most) else f"{duration(least)} to {duration(most)}"
    held = target.service.conditions.describe_gaps()
    rate_rps = 1.0 / (most + execution_s)
    return (
        f"{target.device}: a box idles {span} on average before an execution under {', '.join(others)}, but profile "
        f"{target.profile.name} was measured in service with {held} (calibrate with --gaps poisson:{rate_rps:.3g})"
    )
