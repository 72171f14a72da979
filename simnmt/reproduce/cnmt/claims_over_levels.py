"""Of how many RTT levels each claim holds, and whether there is a network at which all of them do (CNMT-17).

The verdicts rest on one pair of levels per data set, taken by a rule that looks at no policy. Whether a claim holds may hang on
that pair. So several pairs per data set are replayed and every combination of them judged by the same functions. A combination
picked from these because the claims hold there shows that there is one; it tests nothing. Replays have one replication, so that
claims count by order, and (e) by its cause as well, noise not considered: by itself a record is at most "not distinguishable".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from simnmt.reproduce.cnmt import claims, published
from simnmt.reproduce.cnmt.network_search import (
    CP2_OVER_CP1,
    LEAST_SHARE,
    MOST_SHARE,
    TARGET_SHARES,
    Levels,
    share_sent,
    worth_sending_up_to_ms,
)
from simnmt.reproduce.verdicts import HOLDS, UNCLEAR
from simnmt.results.summary import Row
from simnmt.scenario.build import Plan, build
from simnmt.scenario.run import run_plan

CP1_SHARES = tuple(percent / 100 for percent in range(25, 80, 5))
"""Of the requests that the oracle sends away on CP1 at the levels tried."""
RATIOS = (*CP2_OVER_CP1, 0.85)
"""Means of CP2 over that of CP1: the ends of what the neutral rule admits, and one beyond, where they lie closer together."""
REQUESTS = 20_000
"""Per replay, at most."""
CAUTION = "searched with the claims in sight: it shows that there is one, and tests nothing"
"""Goes with every word of the network found."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One data set replayed at one level of CP1 and one of CP2."""

    levels: Levels
    """The shares are what the oracle did in this replay."""
    rows: list[Row]
    """Of the policies, on networks called as in Table I."""
    gaps: list[Row] = field(default_factory=list)
    """The gap analysis on these networks, by which (e) is judged; empty where none was made."""

    @property
    def distance(self) -> float:
        """Sum of the distances of the oracle's shares from those that the neutral rule aims at."""
        return sum(abs(share - TARGET_SHARES[network]) for (_, network), share in self.levels.offloaded_share.items())


@dataclass(frozen=True, slots=True)
class OverLevels:
    """What the claims (a) to (e) say over all combinations of one pair of levels per data set."""

    requests: int
    """Per replay."""
    tried: dict[str, list[Levels]]
    """By workload, the pairs within the range."""
    combinations: int
    holding: dict[str, int]
    """By claim, of how many combinations it holds."""
    all_hold: int
    """Of how many combinations all five hold."""
    found: dict[str, Levels] | None
    """By workload, where all five hold nearest to the neutral rule; None where there is no such combination."""
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    """The claims' records at the network found."""

    def document(self) -> dict[str, Any]:
        """What stands under `over_levels` in the JSON."""

        def told(levels: Levels) -> dict[str, Any]:
            shares = {network: share for (_, network), share in levels.offloaded_share.items()}
            return {"mean_rtt_ms": levels.mean_rtt_ms, "oracle_offloaded_share": shares}

        return {
            "requests": self.requests,
            "tried": {workload: [told(levels) for levels in own] for workload, own in self.tried.items()},
            "combinations": self.combinations,
            "claims": [{"id": name, "holds_in": count} for name, count in self.holding.items()],
            "all_hold_in": self.all_hold,
            "found": None if self.found is None else {workload: told(levels) for workload, levels in self.found.items()},
            "verdicts": self.verdicts,
            "caution": CAUTION,
        }

    def text(self) -> str:
        """One line a claim, and one for the network found."""
        pairs = ", ".join(f"{workload.upper()} {len(own)}" for workload, own in self.tried.items())
        combinations = f"Over {self.combinations} combinations of RTT levels within the range (pairs: {pairs})"
        lines = [f"{combinations}, by order and (e) by its cause as well, noise not considered:"]
        lines += [f"  {name} holds in {count}" for name, count in self.holding.items()]
        if self.found is None:
            return "\n".join([*lines, "  No network among them at which all hold."])
        where = "; ".join(f"{workload.upper()} {_told(levels)}" for workload, levels in self.found.items())
        told = f"  All hold in {self.all_hold}, nearest to the neutral rule at {where} ({CAUTION}); there of (e): "
        return "\n".join([*lines, f"{told}{self.verdicts[-1]['why']}."])


def _told(levels: Levels) -> str:
    return ", ".join(
        f"{network.upper()} {levels.mean_rtt_ms[network]:.4g} ms with {100 * share:.0f} % sent"
        for (_, network), share in levels.offloaded_share.items()
    )


def claims_over_levels(
    plan: Plan, folder: Path, jobs: int = 1, progress: Callable[[int, int], None] | None = None
) -> OverLevels:
    """Replay the workloads of a plan of Table I at several levels and judge every combination.

    Columns lie in `folder` meanwhile; `progress` is called with workloads done and workloads in all.
    """
    requests = min(REQUESTS, plan.scenario.requests)
    pairs = {}
    for number, workload in enumerate(plan.cases, start=1):
        pairs[workload] = replayed_pairs(plan, workload, requests, folder, jobs)
        if progress is not None:
            progress(number, len(plan.cases))
    kinds = [profile.execution.kind for case in plan.cases.values() for profile in case.profiles]
    return over_combinations(pairs, kinds, requests)


def replayed_pairs(plan: Plan, workload: str, requests: int, folder: Path, jobs: int = 1) -> list[Pair]:
    """One workload at the pairs of levels at which both of its cells lie within 20 to 80 %."""
    scenario = plan.scenario
    means = _means(plan, workload, requests)
    called = {(name, mean[name]): f"{name} at {mean[name]!r} ms" for mean in means for name in published.NETWORKS}
    if not called:
        return []
    changed = {
        "workloads": {workload: scenario.workloads[workload]},
        "networks": {
            label: scenario.networks[name].model_copy(update={"rtt_mean_ms": mean}) for (name, mean), label in called.items()
        },
        "requests": requests,
        "replications": 1,
        "gap_analysis": workload == claims.TRANSFORMER,
    }
    room = folder / f"levels {workload}"
    room.mkdir()
    result = run_plan(build(scenario.model_copy(update=changed), Path.cwd()), folder=room, jobs=jobs)
    rows_at, gaps_at = _by_network(result.rows), _by_network(result.gaps)
    pairs = []
    for mean in means:
        rows, gaps = (
            [row | {"network": name} for name in published.NETWORKS for row in at.get(called[name, mean[name]], [])]
            for at in (rows_at, gaps_at)
        )
        shares = {(workload, row["network"]): row["offloaded_share"] for row in rows if row["policy"] == "oracle"}
        if all(map(_within, shares.values())):
            pairs.append(Pair(Levels(mean, shares), rows, gaps))
    return pairs


def _by_network(rows: Sequence[Row]) -> dict[str, list[Row]]:
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row["network"], []).append(row)
    return grouped


def _means(plan: Plan, workload: str, requests: int) -> list[dict[str, float]]:
    """Pairs of mean RTTs, ms, that are worth a replay: those that the search says to lie within the range."""
    slower, faster = published.NETWORKS
    worth_ms = {name: worth_sending_up_to_ms(plan, workload, name, requests) for name in published.NETWORKS}
    levels_ms = [float(f"{np.quantile(worth_ms[slower], 1 - share):.4g}") for share in CP1_SHARES]
    means = [{slower: level, faster: float(f"{ratio * level:.4g}")} for level in levels_ms if level > 0 for ratio in RATIOS]
    return [mean for mean in means if all(_within(share_sent(worth_ms[name], mean[name])) for name in published.NETWORKS)]


def _within(share: float) -> bool:
    return LEAST_SHARE <= share <= MOST_SHARE


def over_combinations(pairs: Mapping[str, Sequence[Pair]], kinds: Collection[str], requests: int) -> OverLevels:
    """Judge every combination of one pair per workload; a claim that cannot be told there does not count as holding."""
    holding = {record["id"]: 0 for record in claims.evaluate([])}
    combinations = all_hold = 0
    best: tuple[Pair, ...] | None = None
    verdicts: list[dict[str, Any]] = []
    for combination in product(*pairs.values()):
        gaps = [row for pair in combination for row in pair.gaps]
        records = claims.evaluate([row for pair in combination for row in pair.rows], kinds, gaps)
        holds = [record["verdict"] in (HOLDS, UNCLEAR) for record in records]
        combinations += 1
        for record, is_so in zip(records, holds, strict=True):
            holding[record["id"]] += is_so
        if all(holds):
            all_hold += 1
            if best is None or _distance(combination) < _distance(best):
                best, verdicts = combination, records
    found = None if best is None else {workload: pair.levels for workload, pair in zip(pairs, best, strict=True)}
    tried = {workload: [pair.levels for pair in own] for workload, own in pairs.items()}
    return OverLevels(requests, tried, combinations, holding, all_hold, found, verdicts)


def _distance(combination: Sequence[Pair]) -> float:
    return sum(pair.distance for pair in combination)
