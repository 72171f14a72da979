"""At which mean RTTs there is something to decide: the oracle then sends 20 to 80 % of the requests away (CNMT-17).

The paper's traces are not public, and their levels fit the paper's devices, not other ones. So CP1's and CP2's shapes are kept
and their means searched for. Back to back a request's device hangs on nothing but itself, so each request has one mean RTT up
to which it is worth sending away; the share that the oracle sends at any other mean is a matter of counting those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.reproduce.cnmt import published
from simnmt.scenario.build import Plan
from simnmt.scenario.learning import standard_normal

LEAST_SHARE, MOST_SHARE = 0.2, 0.8
"""Of the requests that the oracle may send away; beyond them one device nearly always wins."""
TARGET_SHARES = {"cp1": 0.4, "cp2": 0.6}
"""Aimed at among the levels within the range: they part it into thirds, the slower CP1 with the smaller share."""
CP2_OVER_CP1 = (0.65, 0.75)
"""Bounds of the one mean over the other: what Table I leaves for the paper's own (`fit.admissible_levels`), rounded."""
LEVELS_MS = tuple(float(f"{level:.3g}") for level in np.geomspace(1.0, 2000.0, 500).tolist())
"""Mean RTTs that are tried."""
REQUESTS = 20_000
"""Per data set that a level is judged by; a share is then known to 0.4 points."""

Column = NDArray[np.float64]
Cell = tuple[str, str]
"""(workload, network)."""


@dataclass(frozen=True, slots=True)
class Levels:
    """Mean RTTs for CP1 and CP2, and what the oracle would do there."""

    mean_rtt_ms: dict[str, float]
    """By network."""
    offloaded_share: dict[Cell, float]
    """Of the requests that the oracle sends away."""

    @property
    def outside(self) -> list[Cell]:
        """Cells whose share lies outside 20 to 80 %."""
        return [cell for cell, share in self.offloaded_share.items() if not LEAST_SHARE <= share <= MOST_SHARE]


@dataclass(frozen=True, slots=True)
class NetworkSearch:
    """The levels that a scenario states, the best pair for all data sets, and a pair for each alone."""

    stated: Levels
    common: Levels
    own: dict[str, Levels]
    """By workload."""

    def document(self) -> dict[str, object]:
        """What `--json` prints."""

        def told(levels: Levels) -> dict[str, object]:
            shares = [{"workload": w, "network": n, "offloaded_share": s} for (w, n), s in levels.offloaded_share.items()]
            outside = [{"workload": w, "network": n} for w, n in levels.outside]
            return {"mean_rtt_ms": levels.mean_rtt_ms, "cells": shares, "outside": outside}

        own = {workload: told(levels) for workload, levels in self.own.items()}
        return {"stated": told(self.stated), "common": told(self.common), "own": own}

    def text(self) -> str:
        """The same for a terminal."""
        lines = [
            f"Mean RTTs at which the oracle sends {100 * LEAST_SHARE:g} to {100 * MOST_SHARE:g} % of the requests away",
            *_told("the scenario's", self.stated),
            *_told("the best one pair for all", self.common),
        ]
        for workload, levels in self.own.items():
            lines += _told(f"{workload.upper()} alone", levels)
        return "\n".join(lines)


def _told(what: str, levels: Levels) -> list[str]:
    means = ", ".join(f"{network.upper()} {mean:.4g} ms" for network, mean in levels.mean_rtt_ms.items())
    shares = (
        f"  {cell[0].upper()} {cell[1].upper()}: {100 * share:.1f} %{', outside' if cell in levels.outside else ''}"
        for cell, share in levels.offloaded_share.items()
    )
    return [f"{what}: {means}", *shares]


def search_networks(plan: Plan, requests: int = REQUESTS) -> NetworkSearch:
    """Search levels for the workloads of a plan of Table I, whose networks give the shapes; needs two devices."""
    worth_ms = {
        (workload, network): worth_sending_up_to_ms(plan, workload, network, requests)
        for workload in plan.cases
        for network in published.NETWORKS
    }
    own = {}
    for workload in plan.cases:
        own[workload] = best_levels({cell: values for cell, values in worth_ms.items() if cell[0] == workload})
    stated_ms = {network: 1e3 * plan.networks[network].link.rtt.mean_s for network in published.NETWORKS}
    stated = {cell: share_sent(values, stated_ms[cell[1]]) for cell, values in worth_ms.items()}
    return NetworkSearch(Levels(stated_ms, stated), best_levels(worth_ms), own)


def worth_sending_up_to_ms(plan: Plan, workload: str, network: str, requests: int = REQUESTS) -> Column:
    """Per request the mean RTT of the network up to which the oracle sends it away, ms; sorted.

    The network is scaled, not moved, to another mean; payloads, microseconds beside it, are left out. Negative where the
    gateway is the faster one whatever the network. Requests and noise are those of replication 0.
    """
    case, link = plan.cases[workload], plan.networks[network].link
    seed = plan.scenario.seed
    _, pairs = case.table.split(plan.scenario.fit.share, seed)
    src_len, tgt_len = pairs.sample(seed, 0, f"{workload}/lengths", requests)
    gateway_s, cloud_s = (
        profile.execution_s(src_len, tgt_len, standard_normal(seed, 0, f"{workload}/execution {device}", requests))
        for device, profile in zip(plan.scenario.devices, case.profiles, strict=True)
    )
    moments = (np.arange(requests) + 0.5) / requests * link.rtt.duration_s
    shape = link.rtt.at(moments) / link.rtt.mean_s
    return np.sort((gateway_s - cloud_s) / shape * 1e3)


def share_sent(worth_ms: Column, mean_rtt_ms: float) -> float:
    """Share of the requests that the oracle sends away at a mean RTT; a tie stays at the gateway."""
    return float(1.0 - np.searchsorted(worth_ms, mean_rtt_ms, side="right") / worth_ms.size)


def best_levels(worth_ms: Mapping[Cell, Column], levels_ms: Sequence[float] = LEVELS_MS) -> Levels:
    """The pair of levels that brings most cells within 20 to 80 %; among equals the nearest to the targets.

    `worth_ms`: per cell the sorted values of `worth_sending_up_to_ms`. Nearest: least sum of the distances of the shares from
    their network's target.
    """
    tried = np.asarray(levels_ms)
    shares = {cell: np.array([share_sent(values, level) for level in levels_ms]) for cell, values in worth_ms.items()}
    score = dict.fromkeys(published.NETWORKS, np.zeros(tried.size))
    for (_, network), share in shares.items():
        within = (share >= LEAST_SHARE) & (share <= MOST_SHARE)
        # One cell more within the range counts more than all distances together.
        score[network] = score[network] + 10.0 * within - np.abs(share - TARGET_SHARES[network])
    slower, faster = published.NETWORKS
    both = score[slower][:, None] + score[faster][None, :]
    ratio = tried[None, :] / tried[:, None]
    both[(ratio < CP2_OVER_CP1[0]) | (ratio > CP2_OVER_CP1[1])] = -np.inf
    at = dict(zip(published.NETWORKS, np.unravel_index(int(both.argmax()), both.shape), strict=True))
    return Levels(
        {network: float(tried[at[network]]) for network in published.NETWORKS},
        {cell: float(share[at[cell[1]]]) for cell, share in shares.items()},
    )
