"""Mean RTT levels at which both devices win some requests (CNMT-17).

The paper's traces are not public, and their levels suit the paper's devices alone. So the search keeps the shapes of CP1 and
CP2 and looks for their means. Back to back, the best device of a request depends on that request alone, so each request has one
mean RTT up to which offloading it pays; the share that the oracle offloads at any mean RTT follows by counting.

The verdicts rest on one pair of levels per data set, chosen by a rule that uses no policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.experiment.cases import RunPlan
from simnmt.papers.cnmt import published
from simnmt.papers.cnmt.table_one import Cell, name_cell

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


def within(share: float) -> bool:
    """Return whether both devices win a fair share of the requests if the oracle sends away `share` of them."""
    return LEAST_SHARE <= share <= MOST_SHARE
