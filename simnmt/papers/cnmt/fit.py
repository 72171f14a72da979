"""Infer device profiles from Table I: the planes and noise whose simulated ratios are nearest to the published ones.

Ratios fix no time scale, so CP1's mean RTT is assumed. At a given level of CP2, both Server/GW ratios of a data set fix the
mean times of its two devices. The fit searches on the CP1 columns for the noise, and for the parts of these times per source
token, per target token and fixed. CP2's level is the one number that all data sets share. Oracle, Naive and C-NMT on CP2 enter
no objective: they test the fit. The test is not blind: the length tables, the bounds and the one weight below were settled
after trials that also printed those nine ratios.

`Experiment` is the protocol of Table I as columns, which the fit evaluates thousands of times (CNMT-09 to 11, CNMT-14).
Back to back nothing waits, so a total is a sum over requests; only C-NMT's and Naive's held transfer estimate needs a loop.
Random streams, split and regression are those of a scenario's run with the same seed: both give the same totals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, differential_evolution

from simnmt.base import random_streams, shipped_files
from simnmt.base.arrays import Floats
from simnmt.experiment.processes import run_tasks
from simnmt.network.connection_profiles import connection_profile
from simnmt.network.series import RttSeries
from simnmt.papers.cnmt import published
from simnmt.papers.cnmt.published import DATA_SETS, DataSet
from simnmt.papers.cnmt.table_one import FITTED
from simnmt.profile.cost import LognormalResidual, Plane
from simnmt.scenario.configuration import FitConfiguration
from simnmt.workload.length_regression import fit_lengths
from simnmt.workload.length_table import LengthTable, read_table

BANDWIDTH_BPS = 100e6
"""Bandwidth each way (CNMT-03)."""
TOKEN_BYTES = 2
FIT = FitConfiguration()
"""Share of the pairs to fit on and inferences per device: the defaults of a scenario (CNMT-05)."""


@dataclass(frozen=True, slots=True)
class DeviceCosts:
    """The true costs of one device with one model."""

    plane: Plane
    residual: LognormalResidual


Costs = tuple[DeviceCosts, DeviceCosts]
"""Gateway and cloud."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Mean latency per request under each policy, and the shares sent to the cloud."""

    latency_s: dict[str, float]
    """By policy."""
    offloaded_share: dict[str, float]
    """By policy, without edge and cloud."""

    def over_gateway(self, policy: str) -> float:
        """Return the total time over that of the gateway alone."""
        return self.latency_s[policy] / self.latency_s["edge"]


@dataclass(frozen=True, slots=True)
class _Calibration:
    """The simulated calibration of a device: its lengths and noise, and the least-squares projection of the lengths."""

    src_len: Floats
    tgt_len: Floats
    noise: Floats
    projection: Floats
    """Matrix of shape (3, inferences) that maps measured seconds to the plane's coefficients."""

    def believed(self, costs: DeviceCosts) -> Plane:
        time_s = costs.plane.seconds(self.src_len, self.tgt_len) * costs.residual.factor(self.noise)
        return Plane(*(float(c) for c in self.projection @ time_s))


@dataclass(frozen=True, slots=True)
class Experiment:
    """One data set's requests, with all columns that depend neither on the devices nor on the RTT's level."""

    src_len: Floats
    tgt_len: Floats
    predicted_tgt_len: Floats
    """Prediction of the regression over the fit pairs (CNMT-07)."""
    mean_tgt_len: float
    """Mean of the fit pairs, which Naive assumes for every request."""
    noise: tuple[Floats, Floats]
    """Standard normal, per device."""
    payload_s: Floats
    rtt_s: dict[str, tuple[Floats, float]]
    """By network, the RTT at each request and at the trace's start, both minus the trace's mean."""
    calibrations: tuple[_Calibration, _Calibration]

    def totals(self, costs: Costs, network: str, mean_rtt_s: float, policies: Sequence[str] = ("naive", "cnmt")) -> Totals:
        """Run edge, cloud, oracle and `policies`; `mean_rtt_s` is the level to which the trace is moved."""
        gateway_s, execution_s = (
            device.plane.seconds(self.src_len, self.tgt_len) * device.residual.factor(noise)
            for device, noise in zip(costs, self.noise, strict=True)
        )
        fluctuation_s, first_s = self.rtt_s[network]
        transfer_s = fluctuation_s + (mean_rtt_s + self.payload_s)
        cloud_s = execution_s + transfer_s
        offloaded = {"oracle": gateway_s > cloud_s}
        if policies:
            held_s = transfer_s.tolist()
            planes = [calibration.believed(device) for calibration, device in zip(self.calibrations, costs, strict=True)]
            tgt_len: dict[str, float | Floats] = {"naive": self.mean_tgt_len, "cnmt": self.predicted_tgt_len}
            for policy in policies:
                gateway_hat_s, cloud_hat_s = (plane.seconds(self.src_len, tgt_len[policy]) for plane in planes)
                gain_s = (gateway_hat_s - cloud_hat_s).tolist()
                offloaded[policy] = _decisions(gain_s, held_s, first_s + mean_rtt_s)
        latency_s = {"edge": float(gateway_s.mean()), "cloud": float(cloud_s.mean())}
        for policy, sent in offloaded.items():
            latency_s[policy] = float(np.where(sent, cloud_s, gateway_s).mean())
        return Totals(latency_s, {policy: float(sent.mean()) for policy, sent in offloaded.items()})


def draw_experiment(name: str, table: LengthTable, series: Mapping[str, RttSeries], *, seed: int, requests: int) -> Experiment:
    """Draw the requests of replication 0 of a scenario with this seed and workload name.

    `series`: RTT by network, of which only the fluctuation about the mean is used. Raises `CorpusError` for a table that cannot
    be split.
    """
    fit_pairs, evaluated = table.split(FIT.share, seed)
    src_len, tgt_len = evaluated.sample(seed, 0, f"{name}/lengths", requests)
    moments = (np.arange(requests) + 0.5) / requests
    rtt_s = {
        network: (rtt.at(moments * rtt.duration_s) - rtt.mean_s, rtt.at_one(0.0) - rtt.mean_s)
        for network, rtt in series.items()
    }
    return Experiment(
        src_len=src_len.astype(np.float64),
        tgt_len=tgt_len.astype(np.float64),
        predicted_tgt_len=fit_lengths(fit_pairs).regression.predict(src_len),
        mean_tgt_len=fit_pairs.mean_tgt_len,
        noise=(
            random_streams.standard_normal(seed, 0, f"{name}/execution gateway", requests),
            random_streams.standard_normal(seed, 0, f"{name}/execution cloud", requests),
        ),
        payload_s=8 * TOKEN_BYTES * (src_len + tgt_len) / BANDWIDTH_BPS,
        rtt_s=rtt_s,
        calibrations=(_calibration(name, "gateway", fit_pairs, seed), _calibration(name, "cloud", fit_pairs, seed)),
    )


def _calibration(name: str, device: str, fit_pairs: LengthTable, seed: int) -> _Calibration:
    src_len, tgt_len = fit_pairs.sample(seed, 0, f"{name}/calibration {device} lengths", FIT.inferences)
    noise = random_streams.standard_normal(seed, 0, f"{name}/calibration {device}", FIT.inferences)
    src, tgt = src_len.astype(np.float64), tgt_len.astype(np.float64)
    return _Calibration(src, tgt, noise, np.linalg.pinv(np.column_stack([src, tgt, np.ones_like(src)])))


def _decisions(gain_s: list[float], transfer_s: list[float], initial_s: float) -> NDArray[np.bool_]:
    """Return which requests are sent away by CNMT-09 and CNMT-11: those whose gain exceeds the last measured transfer."""
    held_s = initial_s
    sent = []
    for gain, transfer in zip(gain_s, transfer_s, strict=True):
        away = gain > held_s
        if away:
            held_s = transfer
        sent.append(away)
    return np.array(sent)


Progress = Callable[[int, int], None]
"""Called with the number of fits done and the number of all fits."""

CP1_MEAN_RTT_S = 0.080
"""Assumed mean, since ratios fix no time scale. With it a sentence of some 20 words takes 75 to 100 ms on the gateway, 3 to 5
ms a word, like one decoder step in PyTorch on a small GPU that mostly waits for its kernels to be launched."""

GREATEST_SPEEDUP = 9.2
"""Bound of the cloud's speed over the gateway's, in mean time and per token: memory bandwidth bounds a batch of one, and
the Titan Xp's 547.7 GB/s are 9.2 times the Jetson TX2's 59.7 GB/s (NVIDIA's data sheets)."""

FIXED_SHARE = (0.0, 0.5)
"""Bounds of the fixed part of the gateway's mean time."""
RELATIVE_SD = (0.0, 0.6)
"""Bounds of the residual's relative standard deviation."""

WEIGHTS = {("de-en", "cp1", "naive"): 0.2}
"""Weights other than 1. No plane makes DE-EN's Naive 12 % slower than the gateway alone: where source and target lengths grow
together, the requests that Naive sends away gain more than it believes, so in total it does not lose to either device.
At full weight this one ratio would only spoil the others."""

SEEDS = (1, 2, 3, 4, 5)
"""Seeds of the requests and the optimiser: one solution each per data set and level."""
LEVELS = 5
"""Number of CP2 levels that are tried."""
GENERATIONS = 40
"""Most generations of the search for a data set's shape."""
FIT_REQUESTS = 8_000
"""Requests that a solution is judged by; the replay of the table has another number."""

LEAST_OFFLOADED, MOST_OFFLOADED = 0.2, 0.8
"""Range of the oracle's offloaded share. Outside it the choice is nearly trivial; such solutions are avoided where possible."""
_SHARE_WEIGHT = 0.1
_SHARE_MARGIN = 0.005


@dataclass(frozen=True, slots=True)
class Shape:
    """The searched parameters of one data set; with the mean times they give both planes and the noise."""

    src_over_tgt: float
    """Cost of a source token over that of a target token; a property of the model, so the same on both devices."""
    fixed_share: float
    """Fixed share of the gateway's mean time."""
    cloud_factor: float
    """Cost of a token in the cloud over its cost at the gateway."""
    relative_sd: float
    """Relative standard deviation of the residual factor on both devices."""

    def costs(self, experiment: Experiment, gateway_s: float, cloud_s: float) -> Costs:
        """Return the costs of both devices with these mean execution times over the experiment's requests."""
        units = self.src_over_tgt * float(experiment.src_len.mean()) + float(experiment.tgt_len.mean())
        token_s = gateway_s * (1 - self.fixed_share) / units
        residual = LognormalResidual(self.relative_sd)

        def device(token_s: float, mean_s: float) -> DeviceCosts:
            fixed_s = max(mean_s - token_s * units, 0.0)
            return DeviceCosts(Plane(self.src_over_tgt * token_s, token_s, fixed_s), residual)

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
    """Weighted mean absolute relative error of the fitted ratios, plus a penalty for trivial cells."""


@dataclass(frozen=True, slots=True)
class TableOneFit:
    """The result of the fit, and its spread over seeds."""

    level: float
    """CP2's mean RTT over CP1's."""
    level_objectives: tuple[tuple[float, float], ...]
    """Every tried level with its mean objective over data sets and seeds."""
    chosen: dict[str, Solution]
    """By data set, the solution with the least mean objective on all seeds' requests."""
    solutions: dict[str, tuple[Solution, ...]]
    """By data set, all seeds' solutions at the level; the ratios leave their spread open."""

    @property
    def mean_rtt_s(self) -> dict[str, float]:
        """Mean RTT by network, rounded to a tenth of a millisecond."""
        return {"cp1": CP1_MEAN_RTT_S, "cp2": round(self.level * CP1_MEAN_RTT_S, 4)}


def fit_table_one(
    data_sets: Sequence[DataSet] = DATA_SETS,
    *,
    seeds: Sequence[int] = SEEDS,
    levels: int = LEVELS,
    requests: int = FIT_REQUESTS,
    jobs: int = 1,
    progress: Progress | None = None,
) -> TableOneFit:
    """Infer every data set's two devices and the level of CP2; the same arguments give the same fit on any `jobs`.

    `levels`: number of CP2 levels that are tried. Each seed draws its own requests and starts its own optimiser. Takes about
    three seconds per data set, seed and level.
    """
    lengths = {data_set.workload: shipped_lengths(data_set) for data_set in data_sets}
    tried = admissible_levels(levels, [data_set.workload for data_set in data_sets])
    work = [
        (data_set, lengths[data_set.workload], level, seed, requests)
        for level in tried
        for data_set in data_sets
        for seed in seeds
    ]
    solutions = run_tasks(_fit_one, work, jobs, progress)
    mean = {level: float(np.mean([s.objective for s in solutions if s.level == level])) for level in tried}
    best = min(tried, key=lambda level: mean[level])
    at_best = {
        data_set.workload: tuple(s for s in solutions if (s.workload, s.level) == (data_set.workload, best))
        for data_set in data_sets
    }
    chosen = {
        data_set.workload: _best_everywhere(data_set, at_best[data_set.workload], lengths[data_set.workload], seeds, requests)
        for data_set in data_sets
    }
    return TableOneFit(best, tuple(mean.items()), chosen, at_best)


def shipped_lengths(data_set: DataSet) -> LengthTable:
    """Return the length table that replaces the paper's corpus."""
    return read_table(shipped_files.find("traces/lengths", data_set.lengths))


def mean_times_s(workload: str, level: float) -> tuple[float, float]:
    """Return the mean execution times of gateway and cloud that give Server/GW on CP1 and on CP2 (payload neglected)."""
    on_cp1, on_cp2 = _server_ratios(workload)
    gateway_s = CP1_MEAN_RTT_S * (1 - level) / (on_cp1 - on_cp2)
    return gateway_s, on_cp1 * gateway_s - CP1_MEAN_RTT_S


def admissible_levels(count: int, workloads: Iterable[str] = published.WORKLOADS) -> list[float]:
    """Return levels of CP2 at which no cloud is slower than its gateway on average, nor faster than `GREATEST_SPEEDUP`.

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
    optimum = differential_evolution(at, bounds, maxiter=GENERATIONS, popsize=10, tol=1e-8, polish=False, seed=seed)
    best = shape(optimum.x)
    costs = best.costs(experiment, gateway_s, cloud_s)
    return Solution(data_set.workload, level, seed, best, costs, float(optimum.fun))


def objective(data_set: DataSet, experiment: Experiment, costs: Costs, level: float) -> float:
    """Return the value that the fit minimises, see `Solution.objective`."""
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
    for network_totals in totals.values():
        share = network_totals.offloaded_share["oracle"]
        trivial += max(LEAST_OFFLOADED + _SHARE_MARGIN - share, share - (MOST_OFFLOADED - _SHARE_MARGIN), 0.0)
    return error / len(FITTED) + _SHARE_WEIGHT * trivial


def _server_ratios(workload: str) -> tuple[float, float]:
    on_cp1, on_cp2 = (published.implied_ratios(workload, network).targets["cloud"] for network in published.NETWORKS)
    return on_cp1, on_cp2


def _fit_one(work: tuple[DataSet, LengthTable, float, int, int]) -> Solution:
    data_set, table, level, seed, requests = work
    return fit_data_set(data_set, _drawn(data_set, table, seed, requests), level, seed)


def _drawn(data_set: DataSet, table: LengthTable, seed: int, requests: int) -> Experiment:
    # The experiment uses only the fluctuation, which the mean does not change.
    series = {network: connection_profile(network, CP1_MEAN_RTT_S) for network in published.NETWORKS}
    return draw_experiment(data_set.workload, table, series, seed=seed, requests=requests)


def _best_everywhere(
    data_set: DataSet, solutions: Sequence[Solution], table: LengthTable, seeds: Sequence[int], requests: int
) -> Solution:
    """Return the seeds' solution with the least mean objective on the requests of all seeds."""
    experiments = [_drawn(data_set, table, seed, requests) for seed in seeds]

    def mean(solution: Solution) -> float:
        return float(np.mean([objective(data_set, experiment, solution.costs, solution.level) for experiment in experiments]))

    return min(solutions, key=mean)
