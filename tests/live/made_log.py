"""Logs of a made-up gateway: known planes, lognormal or heavy-tailed noise, a wandering box, and a change of speed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log1p, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from simnmt.results.live_log import BeginRecord, Record, ReferenceRecord, RequestRecord

Floats = NDArray[np.float64]
PLANES = {"gateway": (0.001, 0.008, 0.010), "cloud": (0.0002, 0.002, 0.005)}


@dataclass(frozen=True)
class Box:
    """Noise of executions."""

    residual_sd: float = 0.15
    tails: str = "lognormal"
    """`lognormal`, `t3` (Student's t with three degrees of freedom), or `outliers` (3 % several times as long)."""
    wander_sd: float = 0.025
    wander_requests: float = 30.0


def log_factors(random: np.random.Generator, requests: int, box: Box) -> Floats:
    """Return logarithms of the factors on a plane of mean times, shape (requests,)."""
    sigma = sqrt(log1p(box.residual_sd**2))
    if box.tails == "t3":
        residual = sigma / sqrt(3.0) * random.standard_t(3, requests)
    else:
        residual = sigma * random.standard_normal(requests) - 0.5 * sigma**2
    if box.tails == "outliers":
        residual += (random.random(requests) < 0.03) * random.exponential(1.0, requests)
    return residual + wander(random, requests, box)


def wander(random: np.random.Generator, requests: int, box: Box) -> Floats:
    """Return an AR(1) of unit steps between requests, stationary from the start."""
    correlation = exp(-1.0 / box.wander_requests)
    steps = box.wander_sd * sqrt(1.0 - correlation**2) * random.standard_normal(requests)
    steps[:1] = box.wander_sd * random.standard_normal()
    walk: Floats = lfilter([1.0], [1.0, -correlation], steps)
    return walk


def made_records(
    requests: int = 2_000,
    *,
    seed: int = 0,
    box: Box | None = None,
    device: str = "gateway",
    planes: Callable[[int], tuple[float, float, float]] | None = None,
    factor: Callable[[int], float] = lambda request: 1.0,
    reference_factor: Callable[[int], float] | None = None,
    batch: int = 1,
) -> list[Record]:
    """Return a log of one device whose requests arrive every 50 ms; lengths of the planes count no end of a sentence.

    `planes` and `factor` give plane and slowdown by request; with `reference_factor` every tenth request is followed by a
    reference execution with that slowdown.
    """
    random = np.random.default_rng(seed)
    box = box or Box()
    noise = np.exp(log_factors(random, requests, box)).tolist()
    src = random.integers(3, 60, requests)
    tgt = np.maximum(1, np.rint(0.9 * src + random.normal(0.0, 4.0, requests))).astype(int)
    of_reference = np.exp(0.05 * random.standard_normal(requests)).tolist()
    records: list[Record] = [BeginRecord("cnmt", ("gateway", "cloud"))]
    target = list(PLANES).index(device)
    for at, (n, m) in enumerate(zip(src.tolist(), tgt.tolist(), strict=True)):
        a, b, c = planes(at) if planes else PLANES[device]
        execution_s = (a * n + b * m + c) * factor(at) * noise[at]
        begin_s = 0.05 * at
        transfer_s = 0.011 if target else 0.0
        end_s = begin_s + execution_s + transfer_s
        records.append(
            RequestRecord(
                at, begin_s, begin_s, n + 1, m + 1, target, device, 0.0, execution_s, transfer_s, end_s, "done", batch
            )
        )
        if reference_factor and at % 10 == 0:
            records.append(ReferenceRecord(device, begin_s + 0.04, 0.005 * reference_factor(at) * of_reference[at]))
    return records


def after(change: int, factor: float) -> Callable[[int], float]:
    """Return a slowdown of `factor` from one request on."""
    return lambda request: factor if request >= change else 1.0
