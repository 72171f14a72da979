"""Closed forms of queueing theory, and runs of queues to hold against them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import factorial, sqrt
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import t as student

import simnmt
from simnmt.base.arrays import Floats
from simnmt.devices import Kind
from simnmt.results.requests import Requests, Trail
from tests.worlds import believing, everything_to, simulate_replication

CONFIDENCE = 0.999
REPLICATIONS = 16
WARM_UP = 0.1
"""Share of each run that is left out of a mean: the queue begins empty."""

Draw = Callable[[np.random.Generator, int], Floats]


def exponential(generator: np.random.Generator, size: int) -> Floats:
    """Mean 1."""
    return generator.standard_exponential(size)


def constant(generator: np.random.Generator, size: int) -> Floats:
    """Always 1."""
    return np.ones(size)


def lognormal(cv: float) -> Draw:
    """Mean 1 and a coefficient of variation."""
    variance = np.log1p(cv**2)
    return lambda generator, size: generator.lognormal(-variance / 2, sqrt(variance), size)


def erlang_c(workers: int, load: float) -> float:
    """Probability that a request of M/M/c has to wait."""
    offered = workers * load
    last = offered**workers / factorial(workers) / (1 - load)
    return last / (sum(offered**k / factorial(k) for k in range(workers)) + last)


def m_m_c_wait(workers: int, load: float) -> float:
    """Mean wait, in mean services."""
    return erlang_c(workers, load) / (workers * (1 - load))


def m_g_1_wait(load: float, cv: float) -> float:
    """Mean wait by Pollaczek and Khinchine, in mean services."""
    return load * (1 + cv**2) / 2 / (1 - load)


def erlang_m_1_wait(phases: int, load: float) -> float:
    """Mean wait of E_k/M/1, in mean services: every k-th of a Poisson process, which is what round robin gives each of k."""
    rate = phases * load
    root = brentq(lambda sigma: (rate / (rate + 1 - sigma)) ** phases - sigma, 0.0, 1 - 1e-9)
    return float(root / (1 - root))


def machine_repair(clients: int, think: float, workers: int = 1) -> tuple[float, float]:
    """(throughput, mean response) of M/M/c//k, times in mean services.

    The product form holds for think times of any distribution.
    """
    weight = [1.0]
    for inside in range(1, clients + 1):
        weight.append(weight[-1] * (clients - inside + 1) / think / min(inside, workers))
    share = np.array(weight) / sum(weight)
    throughput = float((share * np.minimum(np.arange(clients + 1), workers)).sum())
    return throughput, clients / throughput - think


def half_width(sample: Sequence[float]) -> float:
    """Of the interval of the mean over replications."""
    return float(student.ppf(0.5 + CONFIDENCE / 2, len(sample) - 1) * np.std(sample, ddof=1) / sqrt(len(sample)))


def assert_mean(values: Sequence[float], expected: float, within: float) -> None:
    """The expectation lies in the 99.9 % interval of the mean, and that interval is narrow enough to mean something."""
    mean, half = float(np.mean(values)), half_width(values)
    assert half < within * expected, f"an interval of {half:.3g} about {mean:.3g} proves nothing"
    assert abs(mean - expected) <= half, f"{mean:.4g} +- {half:.2g} where theory says {expected:.4g}"


def runs(
    requests: int,
    load: float,
    service_s: Draw,
    target: int,
    pool: Callable[[int], Kind],
    workers: int = 1,
    nodes: int = 1,
    deciders: int = 1,
) -> Iterator[tuple[Requests, Trail]]:
    """Replications with Poisson arrivals and services of mean 1 s on one target of two, whatever the pool; links take no time.

    `workers`: of the whole tier; `pool`: makes the second target's servers for a replication.
    """
    for replication in range(REPLICATIONS):
        random = np.random.default_rng([11, replication])
        arrival_s = np.cumsum(random.standard_exponential(requests)) / (load * workers)
        service, never, nothing = service_s(random, requests), np.full(requests, np.nan), np.zeros(requests)
        node = random.integers(0, nodes, requests).astype(np.int32)
        execution_s = (service, never) if target == 0 else (never, service)
        columns = Requests(np.ones(requests, np.int64), execution_s, (nothing,), (nothing,), arrival_s, node)
        settings = {"deciders": deciders, "workers": workers // deciders if target == 0 else 1}
        yield (
            columns,
            simulate_replication(replication, columns, everything_to(target), believing(0.0), [pool(replication)], **settings),
        )


def mean_waits(pairs: Iterator[tuple[Requests, Trail]]) -> list[float]:
    """Of each replication, once it is warm."""
    return [float(trail.queue_s[int(WARM_UP * len(trail.queue_s)) :].mean()) for _, trail in pairs]


SECONDS_A_TOKEN = 1e-4


@cache
def service_lengths(kind: str) -> simnmt.LengthTable:
    """Return target lengths of mean 100 with the distribution of the service times."""
    shares = (np.arange(5_000) + 0.5) / 5_000
    tokens = np.full(len(shares), 100) if kind == "constant" else np.maximum(np.rint(-100 * np.log1p(-shares)), 1)
    return simnmt.LengthTable.of_pairs("queue", "made up", "word", "word", np.ones(len(tokens), int), tokens.astype(int))


def queue_of(workers: int, kind: str, rate_rps: float = 1.0, requests: int = 32_000) -> dict[str, Any]:
    """A scenario of a gateway that takes 10 ms for a request on average, with service times of one distribution."""
    return {
        "version": 1,
        "name": "queue",
        "requests": requests,
        "workloads": {"w": {"lengths": service_lengths(kind), "arrivals": {"kind": "poisson", "rate_rps": rate_rps}}},
        "networks": {"n": {"rtt": {"constant_ms": 0.001}, "uplink_mbps": 1e5, "downlink_mbps": 1e5}},
        "devices": {"gateway": {"profile": lambda src_len, tgt_len: SECONDS_A_TOKEN * tgt_len, "workers": workers}},
        "fit": {"inferences": 0},
        "policies": {"edge": {}},
    }
