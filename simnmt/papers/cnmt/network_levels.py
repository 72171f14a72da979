"""Mean RTT levels at which both devices win some requests, and the number of them at which each claim holds (CNMT-17).

The paper's traces are not public, and their levels suit the paper's devices alone. So the search keeps the shapes of CP1 and
CP2 and looks for their means. Back to back, the best device of a request depends on that request alone, so each request has one
mean RTT up to which offloading it pays; the share that the oracle offloads at any mean RTT follows by counting.

The verdicts rest on one pair of levels per data set, chosen by a rule that uses no policy. A claim may hold at one pair only,
so several pairs per data set are replayed, and every combination of them is judged by the same functions. A combination picked
because the claims hold there shows that one exists; it tests nothing. Replays have one replication, so claims count by order,
and (e) also by its cause, without noise: alone, such a record is at most "not distinguishable".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.inputs import read_inputs
from simnmt.experiment.run import run_plan
from simnmt.papers.cnmt import claims, published
from simnmt.papers.cnmt.table_one import Cell, TableRun, name_cell
from simnmt.papers.kit.claim import HOLDS, UNCLEAR, ClaimRecord

LEAST_SHARE, MOST_SHARE = 0.2, 0.8
"""Range of the share that the oracle sends away; outside it one device nearly always wins."""
TARGET_SHARES = {"cp1": 0.4, "cp2": 0.6}
"""Preferred shares within the range: they divide it into thirds, with the smaller share on the slower CP1."""
CP2_OVER_CP1 = (0.65, 0.75)
"""Bounds of CP2's mean over CP1's: the rounded interval that Table I leaves for the paper's own (`fit.admissible_levels`)."""
LEVELS_MS = tuple(float(f"{level:.3g}") for level in np.geomspace(1.0, 2000.0, 500).tolist())
"""Mean RTTs that the search tries."""
REQUESTS = 20_000
"""Requests per data set that judge a level; they give a share to 0.4 points."""

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Levels:
    """Mean RTTs for CP1 and CP2, and the oracle's shares at these levels."""

    mean_rtt_ms: dict[str, float]
    """By network."""
    offloaded_share: dict[Cell, float]
    """Share of the requests that the oracle sends away."""

    @property
    def outside(self) -> list[Cell]:
        """Cells whose share lies outside 20 to 80 %."""
        return [cell for cell, share in self.offloaded_share.items() if not within(share)]

    def record(self) -> dict[str, object]:
        """Return the levels of a search for the JSON document."""
        shares = [{"workload": w, "network": n, "offloaded_share": s} for (w, n), s in self.offloaded_share.items()]
        outside = [{"workload": w, "network": n} for w, n in self.outside]
        return {"mean_rtt_ms": self.mean_rtt_ms, "cells": shares, "outside": outside}

    def record_of_replay(self) -> dict[str, object]:
        """Return the levels of one data set's replay for the JSON document."""
        shares = {network: share for (_, network), share in self.offloaded_share.items()}
        return {"mean_rtt_ms": self.mean_rtt_ms, "oracle_offloaded_share": shares}


@dataclass(frozen=True, slots=True)
class NetworkSearch:
    """The levels of a scenario, the best pair for all data sets, and the best pair for each alone."""

    stated: Levels
    common: Levels
    by_workload: dict[str, Levels]
    """The best pair for each data set alone."""

    def document(self) -> dict[str, object]:
        """Return the JSON document of `--find-network`."""
        by_workload = {workload: levels.record() for workload, levels in self.by_workload.items()}
        return {"stated": self.stated.record(), "common": self.common.record(), "own": by_workload}

    def text(self) -> str:
        """Return the search for a terminal."""
        lines = [
            f"Mean RTTs at which the oracle sends {100 * LEAST_SHARE:g} to {100 * MOST_SHARE:g} % of the requests away",
            *_level_lines("the scenario's", self.stated),
            *_level_lines("the best one pair for all", self.common),
        ]
        for workload, levels in self.by_workload.items():
            lines += _level_lines(f"{workload.upper()} alone", levels)
        return "\n".join(lines)


def _level_lines(what: str, levels: Levels) -> list[str]:
    means = ", ".join(f"{network.upper()} {mean:.4g} ms" for network, mean in levels.mean_rtt_ms.items())
    shares = (
        f"  {name_cell(cell)}: {100 * share:.1f} %{', outside' if cell in levels.outside else ''}"
        for cell, share in levels.offloaded_share.items()
    )
    return [f"{what}: {means}", *shares]


def search_networks(plan: RunPlan, requests: int = REQUESTS) -> NetworkSearch:
    """Search levels for the workloads of a plan of Table I with two devices, whose networks give the shapes."""
    worth_ms = {
        (workload, network): worth_sending_up_to_ms(plan, workload, network, requests)
        for workload in plan.cases
        for network in published.NETWORKS
    }
    by_workload = {
        workload: best_levels({cell: values for cell, values in worth_ms.items() if cell[0] == workload})
        for workload in plan.cases
    }
    stated_ms = {network: 1e3 * plan.networks[network].link.rtt.mean_s for network in published.NETWORKS}
    stated = {cell: share_sent(values, stated_ms[cell[1]]) for cell, values in worth_ms.items()}
    return NetworkSearch(Levels(stated_ms, stated), best_levels(worth_ms), by_workload)


def worth_sending_up_to_ms(plan: RunPlan, workload: str, network: str, requests: int = REQUESTS) -> Column:
    """Return, sorted, for each request the greatest mean RTT in ms at which the oracle still sends it away.

    The network is scaled, not shifted, to another mean; payloads, which take microseconds, are left out. A value is negative if
    the gateway is faster with any network. Requests and noise are those of replication 0.
    """
    case, link = plan.cases[workload], plan.networks[network].link
    seed = plan.scenario.seed
    _, pairs = case.table.split(plan.scenario.fit.share, seed)
    src_len, tgt_len = pairs.sample(seed, 0, f"{workload}/lengths", requests)
    gateway_s, cloud_s = (
        profile.execution_s(
            src_len, tgt_len, random_streams.standard_normal(seed, 0, f"{workload}/execution {device}", requests)
        )
        for device, profile in zip(plan.scenario.devices, case.profiles, strict=True)
    )
    moments = (np.arange(requests) + 0.5) / requests * link.rtt.duration_s
    shape = link.rtt.at(moments) / link.rtt.mean_s
    return np.sort((gateway_s - cloud_s) / shape * 1e3)


def share_sent(worth_ms: Column, mean_rtt_ms: float) -> float:
    """Return the share of the requests that the oracle sends away at a mean RTT; ties stay at the gateway."""
    return float(1.0 - np.searchsorted(worth_ms, mean_rtt_ms, side="right") / worth_ms.size)


def best_levels(worth_ms: Mapping[Cell, Column], levels_ms: Sequence[float] = LEVELS_MS) -> Levels:
    """Return the pair of levels that brings most cells within 20 to 80 %, and of several pairs the nearest to the targets.

    `worth_ms`: by cell, the values of `worth_sending_up_to_ms`. Nearest: the least sum of the distances of the shares from the
    targets of their networks.
    """
    tried = np.asarray(levels_ms)
    shares = {cell: np.array([share_sent(values, level) for level in levels_ms]) for cell, values in worth_ms.items()}
    score = dict.fromkeys(published.NETWORKS, np.zeros(tried.size))
    for (_, network), share in shares.items():
        inside = (share >= LEAST_SHARE) & (share <= MOST_SHARE)
        # One cell more within the range counts more than all distances together.
        score[network] = score[network] + 10.0 * inside - np.abs(share - TARGET_SHARES[network])
    slower, faster = published.NETWORKS
    both = score[slower][:, None] + score[faster][None, :]
    ratio = tried[None, :] / tried[:, None]
    both[(ratio < CP2_OVER_CP1[0]) | (ratio > CP2_OVER_CP1[1])] = -np.inf
    at = dict(zip(published.NETWORKS, np.unravel_index(int(both.argmax()), both.shape), strict=True))
    return Levels(
        {network: float(tried[at[network]]) for network in published.NETWORKS},
        {cell: float(share[at[cell[1]]]) for cell, share in shares.items()},
    )


CP1_SHARES = tuple(percent / 100 for percent in range(25, 80, 5))
"""Shares that the oracle sends away on CP1 at the replayed levels."""
RATIOS = (*CP2_OVER_CP1, 0.85)
"""Replayed means of CP2 over CP1: both ends of the search's range, and one beyond it, where the networks are more alike."""
CAUTION = "searched with the claims in sight: it shows that there is one, and tests nothing"
"""Caveat beside every mention of the network found."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One data set replayed at one level of CP1 and one of CP2."""

    levels: Levels
    """Mean RTTs, and the oracle's shares in this replay."""
    run: TableRun
    """The run on networks named as in Table I, with the gap analysis for (e) if one was made."""

    @property
    def distance(self) -> float:
        """Sum of the distances of the oracle's shares from `TARGET_SHARES`."""
        return sum(abs(share - TARGET_SHARES[network]) for (_, network), share in self.levels.offloaded_share.items())


@dataclass(frozen=True, slots=True)
class OverLevels:
    """The claims (a) to (e) over all combinations of one pair of levels per data set."""

    requests: int
    """Requests per replay."""
    tried: dict[str, list[Levels]]
    """Pairs within the range, by workload."""
    combinations: int
    holding: dict[str, int]
    """Number of combinations at which each claim holds."""
    all_hold: int
    """Number of combinations at which all five claims hold."""
    nearest: dict[str, Levels] | None
    """By workload, the levels nearest to the neutral rule at which all five hold; None without such a combination."""
    verdicts: list[ClaimRecord] = field(default_factory=list)
    """Records of the claims at these levels."""

    def document(self) -> dict[str, object]:
        """Return the value of `over_levels` in the JSON document."""
        nearest = None if self.nearest is None else {name: levels.record_of_replay() for name, levels in self.nearest.items()}
        return {
            "requests": self.requests,
            "tried": {workload: [levels.record_of_replay() for levels in tried] for workload, tried in self.tried.items()},
            "combinations": self.combinations,
            "claims": [{"id": name, "holds_in": count} for name, count in self.holding.items()],
            "all_hold_in": self.all_hold,
            "found": nearest,
            "verdicts": [record.record() for record in self.verdicts],
            "caution": CAUTION,
        }

    def text(self) -> str:
        """Return a line for each claim, and one for the network found, for a terminal."""
        pairs = ", ".join(f"{workload.upper()} {len(tried)}" for workload, tried in self.tried.items())
        combinations = f"Over {self.combinations} combinations of RTT levels within the range (pairs: {pairs})"
        lines = [f"{combinations}, by order and (e) by its cause as well, noise not considered:"]
        lines += [f"  {name} holds in {count}" for name, count in self.holding.items()]
        if self.nearest is None:
            return "\n".join([*lines, "  No network among them at which all hold."])
        where = "; ".join(f"{workload.upper()} {_format_levels(levels)}" for workload, levels in self.nearest.items())
        all_hold = f"  All hold in {self.all_hold}, nearest to the neutral rule at {where} ({CAUTION}); there of (e): "
        return "\n".join([*lines, f"{all_hold}{self.verdicts[-1].why}."])


def _format_levels(levels: Levels) -> str:
    return ", ".join(
        f"{network.upper()} {levels.mean_rtt_ms[network]:.4g} ms with {100 * share:.0f} % sent"
        for (_, network), share in levels.offloaded_share.items()
    )


def claims_over_levels(
    plan: RunPlan, folder: Path, jobs: int = 1, progress: Callable[[int, int], None] | None = None
) -> OverLevels:
    """Replay the workloads of a plan of Table I at several levels and judge every combination.

    `folder`: for the columns of the replays; `progress`: called with the number of workloads done and of all workloads.
    """
    requests = min(REQUESTS, plan.scenario.requests)
    pairs = {}
    for number, workload in enumerate(plan.cases, start=1):
        pairs[workload] = replayed_pairs(plan, workload, requests, folder, jobs)
        if progress is not None:
            progress(number, len(plan.cases))
    kinds = [profile.execution.kind for case in plan.cases.values() for profile in case.profiles]
    return over_combinations(pairs, kinds, requests)


def replayed_pairs(plan: RunPlan, workload: str, requests: int, folder: Path, jobs: int = 1) -> list[Pair]:
    """Replay one workload at the pairs of levels at which both of its cells lie within 20 to 80 %."""
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
    result = run_plan(read_inputs(scenario.model_copy(update=changed), Path.cwd()), folder=room, jobs=jobs)
    pairs = []
    for mean in means:
        # The rows of this pair of levels, on networks named as in Table I.
        names = {called[name, mean[name]]: name for name in published.NETWORKS}
        rows, gaps = (
            [row | {"network": names[row["network"]]} for row in kept if row["network"] in names]
            for kept in (result.summary_rows, result.gaps)
        )
        run = TableRun.of(rows, gaps)
        shares = {cell: share for cell, share in run.oracle_share.items() if share is not None}
        if all(map(within, shares.values())):
            pairs.append(Pair(Levels(mean, shares), run))
    return pairs


def _means(plan: RunPlan, workload: str, requests: int) -> list[dict[str, float]]:
    """Return the pairs of mean RTTs, ms, at which the search expects shares within the range."""
    slower, faster = published.NETWORKS
    worth_ms = {name: worth_sending_up_to_ms(plan, workload, name, requests) for name in published.NETWORKS}
    levels_ms = [float(f"{np.quantile(worth_ms[slower], 1 - share):.4g}") for share in CP1_SHARES]
    means = [{slower: level, faster: float(f"{ratio * level:.4g}")} for level in levels_ms if level > 0 for ratio in RATIOS]
    return [mean for mean in means if all(within(share_sent(worth_ms[name], mean[name])) for name in published.NETWORKS)]


def within(share: float) -> bool:
    """Return whether both devices win a fair share of the requests if the oracle sends away `share` of them."""
    return LEAST_SHARE <= share <= MOST_SHARE


def over_combinations(pairs: Mapping[str, Sequence[Pair]], kinds: Collection[str], requests: int) -> OverLevels:
    """Judge every combination of one pair per workload; a claim that cannot be judged does not count as holding."""
    holding = {record.identifier: 0 for record in claims.evaluate(TableRun({}, {}, {}, {}))}
    combinations = list(product(*pairs.values()))
    all_hold: list[tuple[tuple[Pair, ...], list[ClaimRecord]]] = []
    for combination in combinations:
        records = claims.evaluate(TableRun.joined([pair.run for pair in combination]), kinds)
        for record in records:
            holding[record.identifier] += record.verdict in (HOLDS, UNCLEAR)
        if all(record.verdict in (HOLDS, UNCLEAR) for record in records):
            all_hold.append((combination, records))
    best, verdicts = min(all_hold, key=lambda item: sum(pair.distance for pair in item[0]), default=(None, []))
    nearest = None if best is None else {workload: pair.levels for workload, pair in zip(pairs, best, strict=True)}
    tried = {workload: [pair.levels for pair in tried_pairs] for workload, tried_pairs in pairs.items()}
    return OverLevels(requests, tried, len(combinations), holding, len(all_hold), nearest, verdicts)
