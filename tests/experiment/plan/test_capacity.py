"""The capacity of a deployment: against queueing theory, and against runs on a fine grid of rates."""

from __future__ import annotations

from math import log
from typing import Any

import pytest

import simnmt
from simnmt.experiment import capacity
from tests.campaigns.harness import deep
from tests.plans import queue_of
from tests.world.theory import m_g_1_wait, m_m_c_wait

CASES = [
    ("constant", 1, 0.85),
    ("exponential", 4, 0.85),
    deep("constant", 1, 0.7),
    deep("exponential", 1, 0.8),
    deep("exponential", 2, 0.8),
    deep("exponential", 16, 0.9),
]


@pytest.mark.parametrize(("kind", "workers", "load"), CASES)
def test_capacity_by_the_mean_is_that_of_m_m_c_or_m_d_1(kind: str, workers: int, load: float) -> None:
    wait = m_m_c_wait(workers, load) if kind == "exponential" else m_g_1_wait(load, 0.0)
    best = simnmt.plan(queue_of(workers, kind), f"mean_ms<={10.0 * (1.0 + wait)}").best
    assert best.rate_rps == pytest.approx(100.0 * workers * load, rel=0.02)
    # The rate lies between the ends by construction; theory does not.
    assert best.low <= 100.0 * workers * load <= best.high
    assert best.outcome.resource == "gateway"


@pytest.mark.deep
def test_capacity_by_the_95th_percentile_is_that_of_m_m_1() -> None:
    best = simnmt.plan(queue_of(1, "exponential"), f"p95_ms<={10.0 * log(20.0) / 0.2}").best
    assert best.rate_rps == pytest.approx(80.0, rel=0.02)


TIERS: dict[str, Any] = {
    "version": 1,
    "name": "tiers",
    "requests": 4_000,
    "workloads": {"w": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 1.0}, "end_nodes": 20}},
    "networks": {"n": {"rtt": {"constant_ms": 20.0}}},
    "devices": {"gateway": {"profile": "@cpu1-gru", "count": 20}, "cloud": {"profile": "@cpu2-gru"}},
    "fit": {"inferences": 0},
}
"""Gateways and a cloud that batches."""


QUEUE_AWARE = {"kind": "cnmt", "batch": "reported", "sees_backlog": True}


@pytest.mark.parametrize(
    ("batching", "policy", "requests"),
    [
        deep({"kind": "top_up", "size": 32, "refill": "free"}, {"kind": "cloud"}, 10_000),
        deep({"kind": "mini", "size": 32}, {"kind": "cloud"}, 10_000),
        deep({"kind": "mini", "size": 16}, QUEUE_AWARE, 10_000),
        ({"kind": "mini", "size": 16}, {"kind": "cloud"}, 2_000),
    ],
)
def test_the_interval_of_a_capacity_holds_that_of_a_fine_grid_of_rates(
    batching: Any, policy: Any, requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "SURE_STEPS", 1)
    devices = TIERS["devices"] | {"cloud": TIERS["devices"]["cloud"] | {"batching": batching}}
    scenario = TIERS | {"devices": devices, "policies": {"p": policy}, "requests": requests}
    best = simnmt.plan(scenario, "p95_ms<=300", precision=0.04).best
    step, kept = 0.02, []
    for number in (-1, 0, 1):
        rate_rps = best.rate_rps * (1.0 + step * number)
        row = simnmt.run(scenario, overrides=[f"workloads.w.arrivals.rate_rps={rate_rps}"], replications=6).summary_rows[0]
        if row["p95_latency_s"] <= 0.3 and not row["unstable"]:
            kept.append(rate_rps)
    assert kept, "the grid begins where the level is kept"
    assert best.low / (1.0 + step) <= max(kept) <= best.high


def test_a_level_that_no_rate_keeps_has_no_capacity_but_the_value_that_misses_it() -> None:
    capacities = simnmt.plan(queue_of(1, "constant", requests=2_000), "mean_ms<=5", replications=2)
    assert not capacities.is_met and capacities.best.rate_rps == 0.0
    assert list(capacities.best.outcome.values.values()) == [pytest.approx(10.0, rel=0.01)]


def test_a_goodput_that_low_rates_cannot_reach_is_kept_at_higher_ones() -> None:
    scenario = queue_of(1, "constant", requests=4_000)
    best = simnmt.plan(scenario, ["mean_ms<=40", "goodput_rps>=70"], replications=2, precision=0.1).best
    assert best.rate_rps == pytest.approx(100.0 * 6 / 7, rel=0.04), "of M/D/1: a wait of 30 ms at a load of 6/7"
    assert not simnmt.plan(scenario, ["mean_ms<=40", "goodput_rps>=120"], replications=2).is_met


def test_a_device_is_named_that_is_saturated_before_a_latency_misses_its_limit() -> None:
    best = simnmt.plan(queue_of(1, "constant", requests=2_000), "mean_ms<=100000", replications=2).best
    assert "saturated" in best.outcome.binding and best.outcome.resource == "gateway"
    assert best.rate_rps == pytest.approx(100.0, rel=0.04)
    assert best.outcome.loads == {"gateway": pytest.approx(1.0, abs=0.04)}, "that of the rate"


def test_a_share_as_a_text_is_refused() -> None:
    with pytest.raises(simnmt.InputError, match="precision"):
        simnmt.plan(queue_of(1, "constant"), "p95_ms<=100", precision="5%")


def test_a_plan_does_not_warn_of_the_replications_of_a_level_that_no_rate_keeps() -> None:
    plan = simnmt.plan(queue_of(1, "constant", requests=2_000), "mean_ms<=0.1")
    assert not plan.is_met and not any("replications" in warning for warning in plan.warnings)


def test_a_plan_warns_of_runs_that_are_too_short_or_too_few() -> None:
    short = simnmt.plan(queue_of(1, "constant", requests=180), "p95_ms<=100", replications=2, precision=0.5)
    assert len(short.warnings) >= 2 and short.document()["warnings"] == short.warnings
    long = simnmt.plan(queue_of(1, "constant", requests=2_000), "p95_ms<=100", replications=3, precision=0.5)
    assert long.warnings == []
    assert long.certainty is None, "the error of no calibration is known"
