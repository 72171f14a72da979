"""Device profiles inferred from Table I: planes and noise whose simulated ratios come nearest to the published ones.

Ratios fix no time scale, so CP1's mean RTT is assumed. At a given level of CP2, both Server/GW ratios of a data set
fix the mean times of its two devices. How these divide over source tokens, target tokens and a fixed part, and the
noise, is searched for on the CP1 columns. CP2's level is the one number that all data sets share. Oracle, Naive and
C-NMT on CP2 enter no objective: they are the test of the fit. It is not a blind one: the length tables, the bounds and
the one weight below were settled while trials that also printed those nine ratios were at hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, differential_evolution

from simnmt import shipped
from simnmt.costs import ExecutionPlane, LognormalResidual
from simnmt.network.connection_profiles import connection_profile
from simnmt.reproduce.cnmt import published
from simnmt.reproduce.cnmt.data_sets import DATA_SETS, DataSet
from simnmt.reproduce.cnmt.experiment import Costs, DeviceCosts, Experiment, draw_experiment
from simnmt.scenario.processes import answers
from simnmt.workload.length_table import LengthTable, read_table

Progress = Callable[[int, int], None]
"""Called with fits done and fits in all."""

CP1_MEAN_RTT_S = 0.080
"""Assumed, since ratios fix no time scale. It puts a sentence of some 20 words on the gateway at 75 to 100 ms, so 3 to
5 ms a word: what one decoder step in PyTorch takes on a small GPU that mostly waits for its kernels to be launched."""

GREATEST_SPEEDUP = 9.2
"""Of the cloud over the gateway, in mean time and per token: a batch of one is bound by memory bandwidth at best, and
the Titan Xp's 547.7 GB/s are 9.2 times the Jetson TX2's 59.7 GB/s (NVIDIA's data sheets)."""

FIXED_SHARE = (0.0, 0.5)
"""Bounds of the part of the gateway's mean time that no length changes."""
RELATIVE_SD = (0.0, 0.6)
"""Bounds of the residual's relative standard deviation."""

FITTED = (("cp1", "cloud"), ("cp1", "oracle"), ("cp1", "naive"), ("cp1", "cnmt"), ("cp2", "cloud"))
"""What the objective looks at, per data set; the other three ratios of CP2 are the test."""

WEIGHTS = {("de-en", "cp1", "naive"): 0.2}
"""1 for the rest. No plane makes DE-EN's Naive 12 % slower than the gateway alone: where source and target lengths grow
together, the requests that Naive sends away gain more than it believes, so in total it does not lose to either device.
At full weight this one ratio would spoil the others in vain."""

SEEDS = (1, 2, 3, 4, 5)
"""Of the requests and the optimiser: as many solutions per data set and level."""
LEVELS = 5
"""Of CP2 that are tried."""
FIT_REQUESTS = 8_000
"""That a solution is judged by; the replay of the table has its own."""

LEAST_OFFLOADED, MOST_OFFLOADED = 0.2, 0.8
"""An oracle outside this range makes the choice nearly trivial; such solutions are avoided where the ratios allow."""
_SHARE_WEIGHT = 0.1
_SHARE_MARGIN = 0.005


@dataclass(frozen=True, slots=True)
class Shape:
    """What is searched for, per data set; with the mean times it gives both planes and the noise."""

    src_over_tgt: float
    """A source token's cost over a target token's; the same on both devices, since it is the model's."""
    fixed_share: float
    """Of the gateway's mean time."""
    cloud_factor: float
    """A token's cost in the cloud over its cost at the gateway."""
    relative_sd: float
    """Of the residual factor, on both devices."""

    def costs(self, experiment: Experiment, gateway_s: float, cloud_s: float) -> Costs:
        """Both devices, with these mean execution times over the experiment's requests."""
        units = self.src_over_tgt * float(experiment.src_len.mean()) + float(experiment.tgt_len.mean())
        token_s = gateway_s * (1 - self.fixed_share) / units
        residual = LognormalResidual(self.relative_sd)

        def device(token_s: float, mean_s: float) -> DeviceCosts:
            fixed_s = max(mean_s - token_s * units, 0.0)
            return DeviceCosts(ExecutionPlane(self.src_over_tgt * token_s, token_s, fixed_s), residual)

        return device(token_s, gateway_s), device(token_s * self.cloud_factor, cloud_s)


@dataclass(frozen=True, slots=True)
class Solution:
    """One data set fitted at one CP2 level on one seed's requests."""

    workload: str
    level: float
    """CP2's mean RTT over CP1's."""
    seed: int
    shape: Shape
    costs: Costs
    objective: float
    """Mean absolute relative error over the fitted ratios, weighted, plus what trivial cells cost."""


@dataclass(frozen=True, slots=True)
class TableOneFit:
    """What the fit found, and what it left open."""

    level: float
    """CP2's mean RTT over CP1's."""
    level_objectives: tuple[tuple[float, float], ...]
    """Every level that was tried, with the mean objective there over data sets and seeds."""
    chosen: dict[str, Solution]
    """Per data set, the solution that does best on all seeds' requests."""
    solutions: dict[str, tuple[Solution, ...]]
    """Per data set, all seeds' solutions at the level: their spread is what the ratios leave open."""

    @property
    def mean_rtt_s(self) -> dict[str, float]:
        """By network; to the tenth of a millisecond."""
        return {"cp1": CP1_MEAN_RTT_S, "cp2": round(self.level * CP1_MEAN_RTT_S, 4)}


def fit_table_one(
    data_sets: Sequence[DataSet] = DATA_SETS,
    *,
    tables: Mapping[str, LengthTable] | None = None,
    seeds: Sequence[int] = SEEDS,
    levels: int = LEVELS,
    requests: int = FIT_REQUESTS,
    jobs: int = 1,
    progress: Progress | None = None,
) -> TableOneFit:
    """Infer every data set's two devices and the level of CP2; the same arguments give the same fit on any `jobs`.

    `tables`: length tables by workload, the shipped ones where it has none. Each seed draws its own requests and starts
    its own optimiser. `levels`: how many of CP2 are tried. Takes about three seconds per data set, seed and level.
    """
    given = tables or {}
    lengths = {each.workload: given.get(each.workload) or shipped_lengths(each) for each in data_sets}
    tried = admissible_levels(levels, [each.workload for each in data_sets])
    work = [(each, lengths[each.workload], level, seed, requests) for level in tried for each in data_sets for seed in seeds]
    found: dict[int, Solution] = {}
    with closing(_solved(work, min(jobs, len(work)))) as solved:
        for index, solution in solved:
            found[index] = solution
            if progress is not None:
                progress(len(found), len(work))
    solutions = [found[index] for index in range(len(work))]
    mean = {level: float(np.mean([s.objective for s in solutions if s.level == level])) for level in tried}
    best = min(tried, key=lambda level: mean[level])
    at_best = {
        each.workload: tuple(s for s in solutions if (s.workload, s.level) == (each.workload, best)) for each in data_sets
    }
    chosen = {
        each.workload: _best_everywhere(each, at_best[each.workload], lengths[each.workload], seeds, requests)
        for each in data_sets
    }
    return TableOneFit(best, tuple(mean.items()), chosen, at_best)


def shipped_lengths(data_set: DataSet) -> LengthTable:
    """The length table that stands in for the paper's corpus."""
    return read_table(shipped.find("traces/lengths", data_set.lengths))


def mean_times_s(workload: str, level: float) -> tuple[float, float]:
    """Mean execution times of gateway and cloud that meet Server/GW on CP1 and on CP2 (payload neglected)."""
    on_cp1, on_cp2 = _server_ratios(workload)
    gateway_s = CP1_MEAN_RTT_S * (1 - level) / (on_cp1 - on_cp2)
    return gateway_s, on_cp1 * gateway_s - CP1_MEAN_RTT_S


def admissible_levels(count: int, workloads: Iterable[str] = published.WORKLOADS) -> list[float]:
    """Levels of CP2 at which no cloud is slower than its gateway on average, nor faster than `GREATEST_SPEEDUP`.

    The Server/GW ratios alone give this interval and no point in it; the levels divide it evenly.
    """
    low, high = 0.0, 1.0
    for workload in workloads:
        on_cp1, on_cp2 = _server_ratios(workload)
        if on_cp1 > 1:
            low = max(low, 1 - (on_cp1 - on_cp2) / (on_cp1 - 1))
        high = min(high, 1 - (on_cp1 - on_cp2) / (on_cp1 - 1 / GREATEST_SPEEDUP))
    return [low + (high - low) * (at + 0.5) / count for at in range(count)]


def fit_data_set(data_set: DataSet, experiment: Experiment, level: float, seed: int) -> Solution:
    """Search a data set's shape by differential evolution; the same arguments give the same solution."""
    gateway_s, cloud_s = mean_times_s(data_set.workload, level)

    def shape(position: NDArray[np.float64]) -> Shape:
        log_ratio, fixed_share, between, relative_sd = (float(value) for value in position)
        # The cloud's fixed part must not fall below zero, so the share of time that tokens may take bounds its factor.
        most = min(1.0, cloud_s / gateway_s / (1 - fixed_share))
        least = min(1 / GREATEST_SPEEDUP, most)
        return Shape(math.exp(log_ratio), fixed_share, least + between * (most - least), relative_sd)

    def at(position: NDArray[np.float64]) -> float:
        return objective(data_set, experiment, shape(position).costs(experiment, gateway_s, cloud_s), level)

    low, high = data_set.src_over_tgt
    bounds = Bounds(*np.array([(math.log(low), math.log(high)), FIXED_SHARE, (0.0, 1.0), RELATIVE_SD]).T)
    # `rng` in place of `seed` would draw otherwise: the shipped profiles could not be found again.
    found = differential_evolution(at, bounds, maxiter=40, popsize=10, tol=1e-8, polish=False, seed=seed)
    best = shape(found.x)
    costs = best.costs(experiment, gateway_s, cloud_s)
    return Solution(data_set.workload, level, seed, best, costs, float(found.fun))


def objective(data_set: DataSet, experiment: Experiment, costs: Costs, level: float) -> float:
    """What the fit makes small: see `Solution.objective`."""
    totals = {
        "cp1": experiment.totals(costs, "cp1", CP1_MEAN_RTT_S),
        "cp2": experiment.totals(costs, "cp2", level * CP1_MEAN_RTT_S, policies=()),
    }
    error = 0.0
    for network, policy in FITTED:
        target = published.implied_ratios(data_set.workload, network).targets[policy]
        weight = WEIGHTS.get((data_set.workload, network, policy), 1.0)
        error += weight * abs(totals[network].over_gateway(policy) / target - 1)
    trivial = 0.0
    for each in totals.values():
        share = each.offloaded_share["oracle"]
        trivial += max(LEAST_OFFLOADED + _SHARE_MARGIN - share, share - (MOST_OFFLOADED - _SHARE_MARGIN), 0.0)
    return error / len(FITTED) + _SHARE_WEIGHT * trivial


def _server_ratios(workload: str) -> tuple[float, float]:
    on_cp1, on_cp2 = (published.implied_ratios(workload, network).targets["cloud"] for network in published.NETWORKS)
    return on_cp1, on_cp2


_Work = tuple[DataSet, LengthTable, float, int, int]


def _solved(work: Sequence[_Work], jobs: int) -> Generator[tuple[int, Solution], None, None]:
    if jobs > 1:
        return answers(_fit_one, work, jobs)
    return ((index, _fit_one(each)) for index, each in enumerate(work))


def _fit_one(work: _Work) -> Solution:
    data_set, table, level, seed, requests = work
    return fit_data_set(data_set, _drawn(data_set, table, seed, requests), level, seed)


def _drawn(data_set: DataSet, table: LengthTable, seed: int, requests: int) -> Experiment:
    # Only the fluctuation is kept of these, which the mean does not change.
    series = {network: connection_profile(network, CP1_MEAN_RTT_S) for network in published.NETWORKS}
    return draw_experiment(data_set.workload, table, series, seed=seed, requests=requests)


def _best_everywhere(
    data_set: DataSet, solutions: Sequence[Solution], table: LengthTable, seeds: Sequence[int], requests: int
) -> Solution:
    """Of the seeds' solutions the one that does best on all seeds' requests, not on those that it was made for."""
    experiments = [_drawn(data_set, table, seed, requests) for seed in seeds]

    def mean(solution: Solution) -> float:
        return float(np.mean([objective(data_set, each, solution.costs, solution.level) for each in experiments]))

    return min(solutions, key=mean)
