"""The gap analysis: which of C-NMT's beliefs costs it how much, one replaced by the truth at a time (CNMT-19)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from simnmt.policies.configuration import CNmtPolicy
from simnmt.results.statistics import change_percent, over_replications
from simnmt.results.summary import Row
from simnmt.scenario.deciding import Truths
from simnmt.scenario.model import Scenario

QUEUES = "unseen queues"
SOURCES: dict[str, Truths] = {
    "length regression": frozenset({"lengths"}),
    "scatter of execution times": frozenset({"times"}),
    "stale transfer time": frozenset({"transfer"}),
    QUEUES: frozenset({"backlog"}),
}
"""Sources of loss, and the truth that removes each; queues, which back to back do not exist, beside the paper's three.

The paper's "linear time model" is a scatter here: true times are a plane plus noise, so that what the plane misses is noise.
"""


def subject(scenario: Scenario) -> str | None:
    """The policy that is analysed: the first of kind cnmt."""
    return next((name for name, policy in scenario.policies.items() if isinstance(policy, CNmtPolicy)), None)


def truths_told(queues: bool, streams: bool = False) -> dict[str, Truths]:
    """What the subject is told, by the name of the source of loss that this removes; `nothing` and `everything` beside them."""
    sources = {name: told for name, told in SOURCES.items() if queues or name != QUEUES}
    if streams:
        # What a streamed model's state adds is told as a wait is, back to back too.
        sources.pop(QUEUES, None)
        sources["unseen queues and states" if queues else "unseen states"] = SOURCES[QUEUES]
    return {"nothing": frozenset(), **sources, "everything": frozenset().union(*sources.values())}


def gap_rows(workload: str, network: str, policy: str, totals_s: Mapping[str, list[float]]) -> Iterator[Row]:
    """One row per variant: total latency, its paired change with its 95 % interval, and that change as a share of the gap.

    `totals_s`: by variant, the total latency of every replication. The gap is the change of `everything`; each change is the
    ratio of the totals' means. A share may be negative, or more than all, where one wrong belief makes up for
    another; it is None where there is no gap, which queues may do: the truth is greedy there.
    """
    as_it_is = totals_s["nothing"]
    of_all = change_percent(totals_s["everything"], as_it_is).mean
    for removed, totals in totals_s.items():
        total = over_replications(totals, positive=True)
        change = change_percent(totals, as_it_is)
        yield {
            "workload": workload,
            "network": network,
            "policy": policy,
            "removed": removed,
            "replications": len(totals),
            "total_latency_s": total.mean,
            "total_latency_s_low": total.low,
            "total_latency_s_high": total.high,
            "change_percent": change.mean,
            "low_percent": change.low,
            "high_percent": change.high,
            "share_of_gap_percent": 100.0 * (change.mean / of_all) + 0.0 if of_all < 0.0 else None,
        }
