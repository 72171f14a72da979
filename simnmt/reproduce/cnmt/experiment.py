"""The protocol of Table I as fast columns: what a fit evaluates thousands of times (CNMT-09 to CNMT-11, CNMT-14).

Back to back nothing waits, so a total is a sum over requests and only C-NMT's and Naive's held transfer estimate needs a loop.
Streams, split and regression are those of a scenario's run with the same seed: both give the same totals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.costs import ExecutionPlane, LognormalResidual
from simnmt.network.rtt_series import RttSeries
from simnmt.scenario.learning import standard_normal
from simnmt.scenario.model import FitConfiguration
from simnmt.workload.length_regression import fit_lengths
from simnmt.workload.length_table import LengthTable

Column = NDArray[np.float64]

BANDWIDTH_BPS = 100e6
"""Each way (CNMT-03)."""
FIT = FitConfiguration()
"""Share of the pairs to fit on and inferences per device: what a scenario takes that says nothing else (CNMT-05)."""


@dataclass(frozen=True, slots=True)
class DeviceCosts:
    """The truth about one device running one model."""

    plane: ExecutionPlane
    residual: LognormalResidual


Costs = tuple[DeviceCosts, DeviceCosts]
"""Gateway and cloud."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Mean latency per request under each policy, and the shares sent to the cloud."""

    latency_s: dict[str, float]
    """By policy."""
    offloaded_share: dict[str, float]
    """By policy; edge and cloud are left out."""

    def over_gateway(self, policy: str) -> float:
        """Total time over that of the gateway alone."""
        return self.latency_s[policy] / self.latency_s["edge"]


@dataclass(frozen=True, slots=True)
class _Calibration:
    """What a device's simulated calibration needs: the noise, and the least-squares projection of its lengths."""

    src_len: Column
    tgt_len: Column
    noise: Column
    projection: Column
    """Shape (3, inferences): times the measured seconds gives the plane's coefficients."""

    def believed(self, costs: DeviceCosts) -> ExecutionPlane:
        time_s = costs.plane.seconds(self.src_len, self.tgt_len) * costs.residual.factor(self.noise)
        return ExecutionPlane(*(float(c) for c in self.projection @ time_s))


@dataclass(frozen=True, slots=True)
class Experiment:
    """One data set's requests with all that depends neither on the devices nor on the RTT's level."""

    src_len: Column
    tgt_len: Column
    predicted_tgt_len: Column
    """By the regression over the fit pairs (CNMT-07)."""
    mean_tgt_len: float
    """Of the fit pairs: what Naive takes for every request."""
    noise: tuple[Column, Column]
    """Standard normal, per device."""
    payload_s: Column
    rtt_s: dict[str, tuple[Column, float]]
    """Per network: at each request and at the trace's start, both less the trace's mean."""
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
            planes = [own.believed(device) for own, device in zip(self.calibrations, costs, strict=True)]
            tgt_len: dict[str, float | Column] = {"naive": self.mean_tgt_len, "cnmt": self.predicted_tgt_len}
            for policy in policies:
                gateway_hat_s, cloud_hat_s = (plane.seconds(self.src_len, tgt_len[policy]) for plane in planes)
                gain_s = (gateway_hat_s - cloud_hat_s).tolist()
                offloaded[policy] = _decisions(gain_s, held_s, first_s + mean_rtt_s)
        latency_s = {"edge": float(gateway_s.mean()), "cloud": float(cloud_s.mean())}
        for policy, sent in offloaded.items():
            latency_s[policy] = float(np.where(sent, cloud_s, gateway_s).mean())
        return Totals(latency_s, {policy: float(sent.mean()) for policy, sent in offloaded.items()})


def draw_experiment(
    name: str, table: LengthTable, series: Mapping[str, RttSeries], *, seed: int, requests: int, token_bytes: int = 2
) -> Experiment:
    """Draw a data set's requests as replication 0 of a scenario with this seed and workload name would.

    `series`: RTT by network, of which only the fluctuation about the mean is kept. Raises `CorpusError` for a table that
    cannot be split.
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
            standard_normal(seed, 0, f"{name}/execution gateway", requests),
            standard_normal(seed, 0, f"{name}/execution cloud", requests),
        ),
        payload_s=8 * token_bytes * (src_len + tgt_len) / BANDWIDTH_BPS,
        rtt_s=rtt_s,
        calibrations=(_calibration(name, "gateway", fit_pairs, seed), _calibration(name, "cloud", fit_pairs, seed)),
    )


def _calibration(name: str, device: str, fit_pairs: LengthTable, seed: int) -> _Calibration:
    src_len, tgt_len = fit_pairs.sample(seed, 0, f"{name}/calibration {device} lengths", FIT.inferences)
    noise = standard_normal(seed, 0, f"{name}/calibration {device}", FIT.inferences)
    src, tgt = src_len.astype(np.float64), tgt_len.astype(np.float64)
    return _Calibration(src, tgt, noise, np.linalg.pinv(np.column_stack([src, tgt, np.ones_like(src)])))


def _decisions(gain_s: list[float], transfer_s: list[float], initial_s: float) -> NDArray[np.bool_]:
    """Rule CNMT-09 with the estimate of CNMT-11: away if the gain exceeds the last transfer that was measured."""
    held_s = initial_s
    sent = []
    for gain, transfer in zip(gain_s, transfer_s, strict=True):
        away = gain > held_s
        if away:
            held_s = transfer
        sent.append(away)
    return np.array(sent)
