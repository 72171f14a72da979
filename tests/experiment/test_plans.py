"""Plans: the capacity against queueing theory and a fine grid of rates, and the least deployment for a rate."""

from __future__ import annotations

import json
import re
from math import inf, log
from typing import Any

import pytest

import simnmt
from simnmt.cli.scenarios import format_answer
from simnmt.experiment import capacity
from simnmt.experiment.certainty import probability_met
from simnmt.report.study_pages import render_plan
from simnmt.scenario.errors import ScenarioError
from tests.campaigns.harness import deep
from tests.world.theory import m_g_1_wait, m_m_c_wait, queue_of

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


def test_of_two_limits_of_one_metric_the_tighter_one_holds() -> None:
    scenario = queue_of(1, "constant", requests=200)
    for slo in (["mean_ms<=20", "mean_ms<=30"], ["mean_ms<=30", "mean_ms<=20"]):
        assert simnmt.plan(scenario, slo, replications=1, precision=0.5).level == "mean_ms<=20"
    assert simnmt.plan(scenario, ["goodput_rps>=2", "goodput_rps>=1"], replications=1, precision=0.5).level == "goodput_rps>=2"


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


def test_a_plan_warns_of_runs_that_are_too_short_or_too_few() -> None:
    short = simnmt.plan(queue_of(1, "constant", requests=180), "p95_ms<=100", replications=2, precision=0.5)
    assert len(short.warnings) >= 2 and short.document()["warnings"] == short.warnings
    long = simnmt.plan(queue_of(1, "constant", requests=2_000), "p95_ms<=100", replications=3, precision=0.5)
    assert long.warnings == []
    assert long.certainty is None, "the error of no calibration is known"


def test_runs_and_plans_warn_of_requests_that_end_before_a_period_of_the_rate() -> None:
    """Steps of a mean of 20 requests a second for 100 s, so of 2,000 requests; a plan's rate changes that number."""
    steps = [{"for_s": 50.0, "rate_rps": 10.0}, {"for_s": 50.0, "rate_rps": 30.0}]
    varying = queue_of(1, "constant", requests=1_999)
    for workload in varying["workloads"].values():
        workload["arrivals"] = {"kind": "varying", "steps": steps}

    def given(result: Any) -> list[str]:
        return [text for warning in result.warnings for text in re.findall(r"may miss the peak \(give (\S+) requests", warning)]

    assert given(simnmt.run(varying)) == ["2,000"] and given(simnmt.run(varying, requests=2_000)) == []
    levels = {"slo": "mean_ms<=60000", "vary": [f"{WORKERS}=1"], "requests": 1_999}
    assert given(simnmt.plan(varying, rate=40.0, **levels)) == ["4,000"]
    assert given(simnmt.plan(varying, rate=10.0, **levels)) == []


WORKERS = "devices.gateway.workers"


def least(**options: Any) -> Any:
    """The plan of a queue at 200 requests a second, with 1 to 6 workers of 100 a second each."""
    given = {"rate": 200.0, "vary": [f"{WORKERS}=1:6"], "requests": 1_000} | options
    return simnmt.plan(queue_of(1, "exponential"), given.pop("slo", "mean_ms<=16"), **given)


def test_the_least_latency_is_that_of_most_workers_and_stands_in_json_with_its_runner_up() -> None:
    document = least(slo="mean_ms<=18", vary=[f"{WORKERS}=2:6"], minimise="latency").document()
    assert document["choice"] == {WORKERS: 6} and document["runner_up"]["choice"] == {WORKERS: 5}
    assert document["latency_change_percent"]["low"] > 0.0
    assert 0.95 <= document["p_slo"] <= 1.0 and document["chosen"]["certainty"]["over"] == "replications alone"


@pytest.fixture
def shared() -> dict[str, Any]:
    """Boxes of one worker that share a queue."""
    scenario = queue_of(1, "exponential", requests=1_000)
    scenario["devices"] = {"gateway": scenario["devices"]["gateway"], "cloud": {**scenario["devices"]["gateway"]}}
    scenario["devices"]["cloud"]["balancer"] = "least_work"
    return {**scenario, "policies": {"cloud": {}}}


@pytest.fixture
def priced(shared: dict[str, Any]) -> dict[str, Any]:
    """The same, with the price and the power of a box."""
    shared["devices"]["gateway"] |= {"power": {"idle_w": 0.0, "busy_w": 0.0}}
    shared["devices"]["cloud"] |= {"price_per_hour": 3.6, "power": {"idle_w": 5.0, "busy_w": 15.0}}
    return shared


def test_the_least_number_of_boxes_is_that_of_theory(shared: dict[str, Any]) -> None:
    """M/M/c takes 10 ms and waits 4.4 ms with three boxes; two are saturated."""
    plan = simnmt.plan(shared, "mean_ms<=22", rate=200.0)
    assert len(plan.candidates) == 6 and plan.choice.choice == {"devices.cloud.count": 3}
    assert plan.choice.servers == 3 and plan.runner_up.servers == 4 and plan.is_sure
    with pytest.raises(simnmt.InputError):
        simnmt.plan(shared, "mean_ms<=22", rate=1e8)  # at once, since no device can have so many boxes
    assert plan.scenario.slo == {"mean_ms": 22.0}, "so a run of the choice is judged by the same level"


def test_a_deployment_that_often_misses_the_level_is_called_unsure() -> None:
    given = {"vary": [f"{WORKERS}=3"], "minimise": "latency"}
    (value,) = least(slo="mean_ms<=100", **given).choice.outcome.values.values()
    close = least(slo=f"mean_ms<={1.01 * value}", **given)
    assert close.is_met and not close.is_sure and close.choice.probability < 0.95
    assert close.choice.certainty.runs == 40, "the probability of an unsure choice is that of all runs"


def test_without_a_deployment_that_keeps_the_level_the_nearest_miss_is_named() -> None:
    plan = least(slo="mean_ms<=9", vary=[f"{WORKERS}=3:5"], minimise="latency")
    assert not plan.is_met and plan.document()["choice"] is None
    assert plan.nearest_miss.choice == {WORKERS: 5}
    assert plan.nearest_miss.outcome.excess > 0.0


def test_the_least_cost_is_that_of_few_boxes(priced: dict[str, Any]) -> None:
    """Boxes of 3.6 an hour cost a thousandth a second: three of them at 200 requests a second 15 per million requests."""
    plan = simnmt.plan(priced, "mean_ms<=22", rate=200.0, vary=["devices.cloud.count=3:4"], minimise="cost")
    assert plan.choice.choice == {"devices.cloud.count": 3}
    assert 1e6 * plan.document()["chosen"]["objective"] == pytest.approx(15.0, rel=0.05)
    with pytest.raises(simnmt.InputError, match="minimise cost"):
        least(minimise="cost")


GATEWAY = queue_of(1, "constant")["devices"]["gateway"]
FAILING: dict[str, Any] = {
    "version": 1,
    "name": "failing",
    "requests": 800,
    "replications": 2,
    "workloads": {"w": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 20.0}}},
    "networks": {"n": {"rtt": {"constant_ms": 20.0}}},
    "devices": {
        "gateway": GATEWAY,
        "cloud": {**GATEWAY, "failures": {"mttf_s": 1.0, "mttr_s": 1.0}},
    },
    "fit": {"inferences": 0},
    "policies": {"cloud": {}},
}
"""A cloud that is down for half of the time, and loses what it is sent then."""


def test_a_deployment_that_loses_requests_misses_a_latency_and_states_their_share() -> None:
    plan = simnmt.plan(FAILING, "p95_ms<=60000", rate=20.0, vary=["devices.cloud.count=1"])
    assert plan.choice is None and plan.nearest_miss.outcome.lost_share >= 0.05
    assert list(plan.nearest_miss.outcome.values.values()) == [inf]
    assert plan.document()["nearest_miss"]["values"] == {"p95_ms<=60000": None}
    json.dumps(plan.document(), allow_nan=False)


def test_a_deployment_behind_a_link_that_is_always_down_is_the_nearest_miss() -> None:
    networks = {"n": {"rtt": {"constant_ms": 20.0}, "outages": {"intervals_s": [[0.0, 1e6]]}}}
    scenario = TIERS | {"networks": networks, "policies": {"cloud": {}}, "requests": 100, "replications": 1}
    plan = simnmt.plan(scenario, "p95_ms<=300", rate=5.0, vary=["devices.cloud.count=1,2"])
    assert plan.choice is None and plan.nearest_miss.outcome.lost_share == 1.0


def test_the_probability_of_a_plan_counts_the_runs_in_which_a_box_is_down() -> None:
    """A box is down in a sixth of the runs from begin to end; the chance that both of two are is 3 %."""
    down = {"failures": {"mttf_s": 3_000.0, "mttr_s": 600.0}, "balancer": "least_work"}
    scenario = {**FAILING, "devices": {"gateway": GATEWAY, "cloud": {**GATEWAY, **down}}}
    one = simnmt.plan(scenario, "p95_ms<=60000", rate=20.0, vary=["devices.cloud.count=1"], requests=100)
    several = simnmt.plan(scenario, "p95_ms<=60000", rate=20.0, vary=["devices.cloud.count=1:3"], requests=100)
    assert not one.is_sure and several.is_sure and several.choice.servers > 1


@pytest.mark.parametrize("rate", [20.0, None])
def test_a_plan_without_failures_in_its_runs_says_so_in_its_answer_and_its_warnings(rate: float | None) -> None:
    rare = {"gateway": GATEWAY, "cloud": {**GATEWAY, "failures": {"mttf_s": 1e6, "mttr_s": 1.0}}}
    vary = ["devices.cloud.count=1"] if rate else []
    width = {} if rate else {"precision": 0.5, "replications": 2}
    plan = simnmt.plan({**FAILING, "devices": rare}, "p95_ms<=60000", rate=rate, vary=vary, requests=100, **width)
    (warning,) = [warning for warning in plan.warnings if "no failure of cloud" in warning]
    document = plan.document()
    assert warning in document["warnings"] and document["sources"].endswith(f"; {warning}")
    assert render_plan(plan).count(warning) == 2 and warning in format_answer(plan, "a.yaml", None)


def offices(gateway_s: float) -> dict[str, Any]:
    """Three gateways that are there, before a cloud that is to be bought: 1 ms there, or `gateway_s` at the gateway."""
    queue = queue_of(1, "constant", requests=400)
    queue["workloads"]["w"]["end_nodes"] = 3
    return queue | {
        "replications": 2,
        "networks": {"n": {"rtt": {"constant_ms": 5.0}}},
        "devices": {
            "gateway": {"profile": lambda src_len, tgt_len: 0.0 * tgt_len + gateway_s, "count": 3},
            "cloud": {"profile": lambda src_len, tgt_len: 0.0 * tgt_len + 1e-3},
        },
        "policies": {"aware": {"kind": "cnmt", "sees_backlog": True}, "cnmt": {}, "cloud": {}, "edge": {}},
    }


def test_boxes_that_are_given_count_in_no_plan() -> None:
    plan = simnmt.plan(offices(0.004), "mean_ms<=100", rate=20.0, vary=["devices.cloud.count=1:2"])
    assert (plan.choice.policy, plan.choice.servers, plan.choice.boxes) == ("edge", 0, {})
    of_one = [candidate for candidate in plan.candidates if candidate.choice["devices.cloud.count"] == 1]
    servers = {candidate.policy: candidate.servers for candidate in of_one}
    assert servers == {"edge": 0, "cnmt": 1, "aware": 1, "cloud": 1}
    assert plan.runner_up.policy != "edge", "boxes of a device that a policy does not use make no other deployment"


def test_of_policies_that_are_tied_a_fixed_one_is_chosen_and_another_is_the_runner_up() -> None:
    """No policy but `edge` sends anything to gateways that take 10 s."""
    plan = simnmt.plan(offices(10.0), "mean_ms<=100", rate=20.0, vary=["devices.cloud.count=1:2"])
    assert (plan.choice.policy, plan.choice.boxes) == ("cloud", {"cloud": 1})
    assert (plan.runner_up.policy, plan.runner_up.boxes) == ("aware", {"cloud": 1})


def test_probability_counts_misses_and_spread() -> None:
    assert probability_met([-1.0] * 40) == pytest.approx(41 / 42)
    assert probability_met([-1.0] * 38 + [0.5] * 2) < 0.95
    assert probability_met([-0.01, -0.02, 0.01, -0.01, 0.0]) < 0.8


@pytest.mark.parametrize(
    "text",
    [
        "seed=1,2",
        "workloads.w.arrivals.rate_rps=1,2",
        "devices.gateway.workers=1:20000000",
        "devices.gateway.outside_range_share=0.1:0.2",
        "workloads.w.arrivals={kind: back_to_back},{kind: poisson, rate_rps: 1}",
    ],
)
def test_a_key_that_no_deployment_has_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ScenarioError, match="^" + re.escape(text)):
        least(vary=[text])


@pytest.mark.parametrize("slip", [{"minimise": "nonsense"}, {"rate": "500 a day"}, {"certainty": "95%"}])
def test_a_wrong_argument_of_python_is_refused(slip: dict[str, Any]) -> None:
    with pytest.raises(simnmt.InputError, match=next(iter(slip))):
        least(**slip)
