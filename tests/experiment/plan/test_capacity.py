"""The capacity of a deployment: against queueing theory, and against runs on a fine grid of rates."""

from __future__ import annotations

from math import exp, log
from typing import Any

import numpy as np
import pytest

import simnmt
from tests.campaigns.harness import deep
from tests.world.theory import erlang_c, m_g_1_wait, m_m_c_wait

SECONDS_A_TOKEN = 1e-5


def queue_of(workers: int, kind: str, rate_rps: float = 1.0, requests: int = 40_000) -> dict[str, Any]:
    """A gateway that takes 10 ms for a request on average, with service times of one distribution."""
    shares = (np.arange(50_000) + 0.5) / 50_000
    tokens = np.full(len(shares), 1000) if kind == "constant" else np.maximum(np.rint(-1000 * np.log1p(-shares)), 1)
    table = simnmt.LengthTable.of_pairs("queue", "made up", "word", "word", np.ones(len(tokens), int), tokens.astype(int))
    return {
        "version": 1,
        "name": "queue",
        "requests": requests,
        "workloads": {"w": {"lengths": table, "arrivals": {"kind": "poisson", "rate_rps": rate_rps}}},
        "networks": {"n": {"rtt": {"constant_ms": 1.0}}},
        "devices": {"gateway": {"profile": lambda src_len, tgt_len: SECONDS_A_TOKEN * tgt_len, "workers": workers}},
        "fit": {"inferences": 0},
        "policies": {"edge": {}},
    }


@pytest.mark.parametrize(("workers", "load"), [(1, 0.8), deep(2, 0.8), (4, 0.85), deep(16, 0.9)])
def test_capacity_by_the_mean_is_that_of_m_m_c(workers: int, load: float) -> None:
    limit_ms = 10.0 * (1.0 + m_m_c_wait(workers, load))
    best = simnmt.plan(queue_of(workers, "exponential"), f"mean_ms<={limit_ms}").best
    assert best.rate_rps == pytest.approx(100.0 * workers * load, rel=0.02)
    assert best.low <= best.rate_rps <= best.high
    assert best.binding.resource == "gateway"


def test_capacity_by_the_95th_percentile_is_that_of_m_m_1() -> None:
    best = simnmt.plan(queue_of(1, "exponential"), f"p95_ms<={10.0 * log(20.0) / 0.2}").best
    assert best.rate_rps == pytest.approx(80.0, rel=0.02)


@pytest.mark.parametrize("load", [0.85, deep(0.7)])
def test_capacity_by_the_mean_is_that_of_m_d_1(load: float) -> None:
    best = simnmt.plan(queue_of(1, "constant"), f"mean_ms<={10.0 * (1.0 + m_g_1_wait(load, 0.0))}").best
    assert best.rate_rps == pytest.approx(100.0 * load, rel=0.02)


def test_erlang_recursion_and_waits_are_those_of_theory() -> None:
    from simnmt.experiment.plan import analytic

    for servers, load in ((1, 0.5), (3, 0.8), (16, 0.95)):
        assert analytic.erlang_c(servers, load) == pytest.approx(erlang_c(servers, load))
        probability, mean_s = analytic.waits_s(servers * load, servers, 1.0, 1.0)
        assert analytic.wait_s(probability, mean_s, None) == pytest.approx(m_m_c_wait(servers, load))
        beyond = analytic.wait_s(probability, mean_s, 0.99)
        assert probability * exp(-beyond / mean_s) == pytest.approx(0.01)
