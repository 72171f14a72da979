"""Closed forms from which the search for a rate starts: saturation of each device, and waits by Allen and Cunneen.

They need not be exact: every answer is simulated. They save simulated runs, since a bisection is short if it starts near its
root.

Sources: A. O. Allen, Probability, Statistics, and Queueing Theory (1990), section 5.3.5 (the Allen-Cunneen approximation of
M/G/c and G/G/c); the wait is taken as exponential beyond its probability, as it is in M/M/c and in heavy traffic.
"""

from __future__ import annotations

from math import inf, log

import numpy as np

from simnmt.experiment.cases import Case
from simnmt.experiment.plan.trial import Level, Site
from simnmt.experiment.targets import Target
from simnmt.experiment.units import SATURATION_SAMPLE, saturated_s
from simnmt.results.summary import Device, Numbers, known
from simnmt.workload.length_table import LengthTable

STEPPING_SHARE = 0.85
"""Share of its saturation at which a device that batches is assumed to miss a service level: a start for the bisection."""


def erlang_c(servers: int, load: float) -> float:
    """Return the probability that a request of M/M/c has to wait, by Erlang's recursion.

    >>> round(erlang_c(1, 0.8), 6), round(erlang_c(2, 0.75), 6)
    (0.8, 0.642857)
    """
    if load >= 1.0:
        return 1.0
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = servers * load * blocked / (number + servers * load * blocked)
    return blocked / (1.0 - load * (1.0 - blocked))


def waits_s(rate_rps: float, servers: int, mean_s: float, service_cv2: float, arrival_cv2: float = 1.0) -> tuple[float, float]:
    """Return the probability of a wait and its mean if there is one (seconds) of G/G/c by Allen and Cunneen.

    Args:
        rate_rps: of the arrivals.
        servers: requests that are served side by side.
        mean_s: mean service time.
        service_cv2, arrival_cv2: squared coefficients of variation of service times and of gaps.
    """
    load = rate_rps * mean_s / servers
    if load >= 1.0:
        return 1.0, inf
    return erlang_c(servers, load), mean_s / (servers * (1.0 - load)) * (arrival_cv2 + service_cv2) / 2.0


def wait_s(probability: float, mean_s: float, share: float | None) -> float:
    """Return the mean wait (share None), or the wait that this share of the requests does not exceed.

    >>> wait_s(0.5, 2.0, None), wait_s(0.05, 1.0, 0.95)
    (1.0, 0.0)
    """
    if share is None:
        return probability * mean_s
    return 0.0 if probability <= 1.0 - share else mean_s * log(probability / (1.0 - share))


def saturation_rps(case: Case, target: Target, device: Device) -> float:
    """Return how many requests of the workload per second all boxes of a device can serve in the long run.

    Of a device that batches, by its step costs with full batches.
    """
    if target.decoding is not None:
        src_len, tgt_len = _even_sample(case.replayed)
        return device.servers * len(src_len) / saturated_s(target.decoding, src_len, tgt_len)
    return device.servers * device.workers / target.mean_alone_s(case.replayed)


def _even_sample(table: LengthTable) -> tuple[np.ndarray, np.ndarray]:
    rows = np.random.default_rng(0).permutation(SATURATION_SAMPLE)  # not sorted: batches hold sentences of all lengths
    return table.at_quantiles((rows + 0.5) / SATURATION_SAMPLE)


def saturation_of(site: Site, numbers: Numbers) -> dict[str, float]:
    """Return the rate of the workload at which each device would have a load of 1, by the shares of a simulated run.

    Devices that get no requests are left out.
    """
    rates = {}
    for target, device in zip(site.case.targets, site.devices, strict=True):
        share = known(numbers[f"{device.name}_share"])
        if share > 0.0:
            rates[device.name] = saturation_rps(site.case, target, device) / share
    return rates


def start_rps(site: Site, level: Level, saturation: dict[str, float], pilot: Numbers) -> float:
    """Return about the highest rate under the level, by closed forms and a simulated run in which hardly any request waits.

    Args:
        site: the deployment.
        level: the service level.
        saturation: `saturation_of` the pilot.
        pilot: numbers of the run, which give each device's share and the latency without waits.
    """
    bottleneck = min(saturation, key=saturation.__getitem__)
    most_rps = saturation[bottleneck]
    number = [device.name for device in site.devices].index(bottleneck)
    target, device = site.case.targets[number], site.devices[number]
    if target.decoding is not None or target.streaming is not None:
        return STEPPING_SHARE * most_rps
    mean_s, service_cv2 = _service(site.case, target)
    share = known(pilot[f"{bottleneck}_share"])
    starts = [most_rps * 0.99]
    for requirement in level.limits:
        metric = requirement.metric
        is_latency = metric.sample == "latency" and metric.within_s is None
        if not is_latency or pilot.get(metric.column) is None:
            continue
        left_s = requirement.limit / metric.per_si_unit - known(pilot[metric.column])
        low, high = 0.0, most_rps
        for _ in range(40):
            middle = (low + high) / 2.0
            waiting = waits_s(share * middle, device.servers * device.workers, mean_s, service_cv2)
            low, high = (middle, high) if wait_s(*waiting, metric.quantile) <= left_s else (low, middle)
        starts.append(low)
    return max(min(starts), most_rps * 0.01)


def _service(case: Case, target: Target) -> tuple[float, float]:
    """Return the mean service time of a device that executes requests one by one, and its squared coefficient of variation."""
    src_len, tgt_len = _even_sample(case.replayed)
    generator = np.random.default_rng(1)
    seconds = target.in_memory_s(src_len, tgt_len, generator.standard_normal(len(src_len)))
    mean_s = float(seconds.mean())
    return mean_s, float(seconds.var()) / mean_s**2
