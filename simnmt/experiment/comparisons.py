"""Select which policies of a scenario are compared, beyond every policy with every baseline.

The gap analysis replaces one belief of C-NMT after another by the truth (CNMT-19). Variants of a policy are compared with the
plain one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from simnmt.experiment.policy_setup import Truths
from simnmt.policies.cnmt import CNmtPolicy
from simnmt.policies.decision import Estimation
from simnmt.results.statistics import change_columns, change_percent, interval_columns, over_replications
from simnmt.results.summary import Row
from simnmt.scenario.configuration import ScenarioConfiguration

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


def variants(scenario: ScenarioConfiguration) -> dict[str, str]:
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


def baselines(scenario: ScenarioConfiguration) -> list[str]:
    """Return the policies that all others are compared with: all but C-NMT's, and those that variants are compared with."""
    plain = set(variants(scenario).values())
    return [name for name, policy in scenario.policies.items() if not isinstance(policy, CNmtPolicy) or name in plain]
