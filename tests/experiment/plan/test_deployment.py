"""The least deployment for a rate: the choice, how sure it is, what would change it, and what is refused."""

from __future__ import annotations

import json
import re
from math import inf
from typing import Any

import pytest

import simnmt
from simnmt.experiment.plan import candidates
from simnmt.experiment.plan.messages import describe_plan, format_probability
from simnmt.experiment.plan.search import is_close, is_hopeless, probability_met
from simnmt.experiment.plan.trial import MOST_EXCESS, Level
from simnmt.results.service_level import Requirement
from simnmt.scenario.errors import ScenarioError
from tests.plans import queue_of

WORKERS = "devices.gateway.workers"


def least(**options: Any) -> Any:
    """The plan of a queue at 200 requests a second, with 1 to 6 workers of 100 a second each."""
    given = {"rate": 200.0, "vary": [f"{WORKERS}=1:6"], "requests": 1_000} | options
    return simnmt.plan(queue_of(1, "exponential"), given.pop("slo", "mean_ms<=16"), **given)


@pytest.fixture(scope="module")
def plan() -> Any:
    """Of three to six workers, the least for 18 ms: three wait 4.4 ms on average."""
    scenario = {**queue_of(1, "exponential", requests=1_000)}
    return simnmt.plan(scenario, "mean_ms<=18", rate=200.0, vary=[f"{WORKERS}=2:6"], minimise="latency")


def test_the_least_latency_is_that_of_most_workers_and_what_cannot_serve_the_rate_is_out_without_a_run(plan: Any) -> None:
    """Two workers serve 200 a second at most, which is no run's doing; whether they keep 18 ms is."""
    assert plan.choice.choice == {WORKERS: 6}
    wide = least(minimise="latency", vary=[f"{WORKERS}=1,6"])
    assert [described.choice[WORKERS] for described, _ in wide.judged] == [6]


def test_a_plan_has_its_choice_runner_up_difference_and_probability_in_json(plan: Any) -> None:
    document = plan.document()
    assert document["choice"] == {WORKERS: 6}
    assert document["runner_up"]["choice"] == {WORKERS: 5}
    assert document["difference"]["objective"]["low"] > 0.0
    assert 0.95 <= document["p_slo"] <= 1.0 and document["p_over"] == "replications alone"
    assert document["requests_simulated"] > 40 * 1_000


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
    assert plan.candidates == 6 and plan.choice.choice == {"devices.cloud.count": 3}
    assert plan.choice.servers == 3 and plan.runner_up.servers == 4 and plan.is_sure


def test_a_deployment_that_often_misses_the_level_is_called_unsure() -> None:
    given = {"vary": [f"{WORKERS}=3"], "minimise": "latency"}
    (value,) = least(slo="mean_ms<=100", **given).choice.values.values()
    close = least(slo=f"mean_ms<={1.01 * value}", **given)
    assert close.is_met and not close.is_sure and close.choice.p_slo < 0.95


def test_without_a_deployment_that_keeps_the_level_the_nearest_miss_is_named() -> None:
    plan = least(slo="mean_ms<=9", vary=[f"{WORKERS}=3:5"], minimise="latency")
    assert not plan.is_met and plan.document()["choice"] is None
    assert plan.nearest_miss.choice == {WORKERS: 5}
    assert plan.nearest_miss.excess > 0.0


def test_the_least_cost_and_energy_are_those_of_few_boxes_and_are_stated(priced: dict[str, Any]) -> None:
    """Boxes of 3.6 an hour cost a thousandth a second: three of them at 200 requests a second 15 per million requests."""
    plan = simnmt.plan(priced, "mean_ms<=22", rate=200.0, vary=["devices.cloud.count=3:4"], minimise="cost")
    assert plan.choice.choice == {"devices.cloud.count": 3}
    assert 1e6 * plan.choice.objective == pytest.approx(15.0, rel=0.05)
    spent = plan.document()["chosen"]["spending"]
    assert spent["energy_j"] == pytest.approx(spent["static_j"] + spent["dynamic_j"] + spent["transfer_j"])


def test_a_plan_without_prices_has_no_least_cost() -> None:
    with pytest.raises(simnmt.InputError, match="the scenario gives no prices"):
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


def test_a_deployment_that_loses_requests_misses_a_latency_and_says_what_it_loses() -> None:
    plan = simnmt.plan(FAILING, "p95_ms<=60000", rate=20.0, vary=["devices.cloud.count=1:2"])
    assert plan.choice is None and plan.nearest_miss.lost_share > 0.05
    assert plan.nearest_miss.values == {"p95_ms<=60000": inf}
    assert plan.document()["nearest_miss"]["values"] == {"p95_ms<=60000": None}
    json.dumps(plan.document(), allow_nan=False)
    assert "% of the requests lost, which count as infinitely late" in " ".join(describe_plan(plan))
    answered = simnmt.plan(FAILING, "answered_within_60000ms>=0.2", rate=20.0, vary=["devices.cloud.count=1:2"])
    assert answered.choice is not None


@pytest.mark.parametrize("rate", [20.0, None])
@pytest.mark.parametrize("place", ["device", "link"])
def test_a_plan_whose_runs_hold_too_few_failures_is_refused_with_the_requests_that_would(place: str, rate: Any) -> None:
    """A box that is down ten minutes an hour is up in most runs of 40 s."""
    down = {"mttf_s": 3_000.0, "mttr_s": 600.0}
    seldom = {**FAILING, "devices": {"gateway": GATEWAY, "cloud": {**GATEWAY, "failures": down if place == "device" else None}}}
    if place == "link":
        seldom["networks"] = {
            "n": {"rtt": {"constant_ms": 20.0}, "outages": {"mean_between_s": 3_000.0, "mean_duration_s": 600.0}}
        }
    vary = ["devices.cloud.count=1:2"] if rate else []
    with pytest.raises(simnmt.InputError) as caught:
        simnmt.plan(seldom, "p95_ms<=60000", rate=rate, vary=vary)
    assert "requests or more" in caught.value.remedy and (rate is None or "1,500,000" in caught.value.remedy)


def test_failures_that_are_too_rare_for_a_level_need_fall_into_no_run() -> None:
    rare = {"gateway": GATEWAY, "cloud": {**GATEWAY, "failures": {"mttf_s": 1e6, "mttr_s": 1.0}}}
    plan = simnmt.plan({**FAILING, "devices": rare}, "p95_ms<=60000", rate=20.0, vary=["devices.cloud.count=1"], requests=100)
    assert plan.is_sure
    assert [warning for warning in plan.basis.warnings if "no failure of cloud" in warning]
    with pytest.raises(simnmt.InputError):
        simnmt.plan({**FAILING, "devices": rare}, "mean_ms<=60000", rate=20.0, vary=["devices.cloud.count=1"])


def test_an_outage_beyond_the_runs_of_a_plan_is_named() -> None:
    later = {"n": {"rtt": {"constant_ms": 20.0}, "outages": {"intervals_s": [[1e6, 2e6]]}}}
    up = {**FAILING, "networks": later, "devices": {"gateway": GATEWAY, "cloud": GATEWAY}}
    plan = simnmt.plan(up, "p95_ms<=60000", rate=20.0, vary=["devices.cloud.count=1"], requests=100)
    assert [warning for warning in plan.basis.warnings if "no outage of the link to cloud" in warning]


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
    servers = {
        described.policy: described.servers for described, _ in plan.judged if described.choice["devices.cloud.count"] == 1
    }
    assert servers == {"edge": 0} | {policy: 1 for policy in servers if policy != "edge"}


def test_of_policies_that_are_tied_the_simplest_is_chosen_and_the_others_are_named() -> None:
    """No policy but `edge` sends anything to gateways that take 10 s."""
    plan = simnmt.plan(offices(10.0), "mean_ms<=100", rate=20.0, vary=["devices.cloud.count=1:2"])
    assert (plan.choice.policy, plan.choice.boxes) == ("cloud", {"cloud": 1})
    assert plan.document()["as_good"] == [
        {"devices.cloud.count": 1, "policy": "aware"},
        {"devices.cloud.count": 1, "policy": "cnmt"},
    ]
    sentences = list(describe_plan(plan))
    assert "1 cloud server, policy cloud" in sentences[0] and "1 cloud server, policy cnmt" in sentences[1]
    assert not [sentence for sentence in sentences if "devices.cloud.count" in sentence]
    assert plan.runner_up.servers == 2


def test_of_policies_that_take_the_same_rate_the_simplest_is_the_best() -> None:
    scenario = offices(10.0)
    del scenario["policies"]["edge"]
    capacities = simnmt.plan(scenario, "mean_ms<=100", precision=0.5)
    assert (capacities.best.policy, capacities.as_good) == ("cloud", ["cnmt", "aware"])
    assert capacities.document()["capacity"]["as_good"] == ["cnmt", "aware"]


def test_any_lost_request_makes_a_mean_infinite() -> None:
    numbers = {"mean_latency_s": 0.1, "p95_latency_s": 0.2, "p99_latency_s": 0.3, "lost_share": 0.001}
    mean_ms, p95_ms = Requirement.parse("mean_ms<=300"), Requirement.parse("p95_ms<=300")
    assert (Level.value(mean_ms, numbers), Level.value(p95_ms, numbers)) == (inf, 300.0)
    assert Level.value(p95_ms, numbers | {"lost_share": 0.051}) == inf


def test_a_run_that_is_lost_counts_once_against_the_probability() -> None:
    assert probability_met([-0.5] * 39 + [MOST_EXCESS]) == pytest.approx(40 / 42)


def test_a_candidate_that_loses_every_request_is_out_and_the_others_are_judged() -> None:
    devices = {**FAILING["devices"], "cloud": {**GATEWAY, "failures": {"intervals_s": [[0.0, 1e6]]}}}
    scenario = {**FAILING, "devices": devices, "policies": {"cloud": {}, "edge": {}}}
    plan = simnmt.plan(scenario, "p95_ms<=60000", rate=1.0, vary=["devices.cloud.count=1"])
    assert plan.choice.policy == "edge"


def test_a_level_that_no_request_meets_is_a_number_in_json() -> None:
    answer = simnmt.plan(queue_of(1, "constant", requests=500), "answered_within_1ms>=0.5", replications=2)
    assert not answer.is_met
    json.dumps(answer.document(), allow_nan=False)


def test_a_great_certainty_is_reached_by_more_runs() -> None:
    plan = least(vary=[f"{WORKERS}=5:6"], certainty=0.99)
    assert plan.is_sure and plan.choice.p_slo >= 0.99
    with pytest.raises(simnmt.InputError, match="certainty"):
        least(certainty=0.9999)


def test_a_warm_up_is_the_same_share_of_shorter_runs() -> None:
    plan = least(requests=500, slo="mean_ms<=40", overrides=["warm_up={requests: 100}"], vary=[f"{WORKERS}=4:5"])
    assert plan.is_sure and plan.choice.choice[WORKERS] in (4, 5)


def test_a_percentile_that_needs_ten_thousand_requests_is_planned_with_runs_of_as_many() -> None:
    plan = least(slo="p99.9_ms<=200", requests=10_000, replications=1, vary=[f"{WORKERS}=4:5"])
    assert plan.is_sure and plan.choice.choice[WORKERS] in (4, 5)
    capacity = simnmt.plan(queue_of(1, "constant", requests=10_000), "p99.9_ms<=100", replications=1)
    assert 50.0 < capacity.best.rate_rps < 100.0


def test_a_probability_below_the_certainty_is_never_printed_as_the_certainty() -> None:
    assert format_probability(0.9496, 0.95) == "94.9 %" and format_probability(0.9899, 0.99) == "98.9 %"
    assert format_probability(0.99896, 0.999) == "99.8 %" and format_probability(0.9524, 0.95) == "95 %"


def test_a_probability_is_close_within_a_standard_error_of_the_certainty() -> None:
    assert is_close([-1.0] * 39 + [0.1], 0.95) and not is_close([-1.0] * 39 + [-0.9], 0.95)
    assert not is_close([-1.0] * 30 + [0.1] * 10, 0.95)
    assert not is_close([-1.0 - 0.01 * number for number in range(159)] + [0.01], 0.95), "160 runs decide what 40 leave open"


def test_few_misses_are_not_hopeless_and_many_are() -> None:
    assert not is_hopeless([0.1], 0.95, 160) and is_hopeless([0.1] * 3, 0.95, 160)
    assert is_hopeless([-0.1] * 151 + [0.1] * 9, 0.95, 160)


def test_a_close_choice_is_judged_by_more_runs_and_called_close() -> None:
    """A limit that about a twentieth of the runs miss."""
    plan = least(vary=[f"{WORKERS}=3"], slo="mean_ms<=19", requests=300, minimise="latency")
    assert plan.choice.certainty.runs == 160
    assert plan.document()["close"] == [plan.choice.choice]
    assert any(line.startswith(f"Close: {WORKERS}=3 ") for line in describe_plan(plan))


def test_probability_counts_misses_and_spread() -> None:
    assert probability_met([-1.0] * 40) == pytest.approx(41 / 42)
    assert probability_met([-1.0] * 38 + [0.5] * 2) < 0.95
    assert probability_met([-0.01, -0.02, 0.01, -0.01, 0.0]) < 0.8


@pytest.mark.parametrize(
    "text",
    [
        "seed=1,2",
        "warm_up=none,mser5",
        "metrics=[p97_ms],[p98_ms]",
        "workloads.w.deadline_ms=100,200",
        "workloads.w.arrivals.rate_rps=1,2",
        "devices.gateway.workers=1:20000000",
        "devices.gateway.outside_range_share=0.1:0.2",
        "workloads.w.arrivals={kind: back_to_back},{kind: poisson, rate_rps: 1}",
    ],
)
def test_a_key_that_no_deployment_has_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ScenarioError, match="^" + re.escape(text)):
        least(vary=[text])


def test_without_varied_keys_a_great_rate_is_planned_in_steps(shared: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """One to six boxes are too many to try each number, if no more than three candidates are."""
    monkeypatch.setattr(candidates, "MOST_DEFAULT_CANDIDATES", 3)
    plan = simnmt.plan(shared, "mean_ms<=18", rate=200.0, requests=500, replications=1)
    assert plan.candidates == 3 and plan.choice.choice == {"devices.cloud.count": 4}
    assert plan.basis.warnings[0].startswith("devices.cloud.count is varied in steps of 2, from 2 to 6 (vary ")


def test_two_keys_that_set_the_same_part_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"devices\.gateway\.workers"):
        least(vary=["devices.gateway={profile: a},{profile: b}", f"{WORKERS}=1,2"])


def test_arrivals_without_a_rate_are_refused_in_a_candidate_too() -> None:
    workload = "workloads.de-en={{lengths: '@de-en-news', arrivals: {{kind: {}}}}}"
    text = f"{workload.format('poisson, rate_rps: 1')},{workload.format('back_to_back').partition('=')[2]}"
    with pytest.raises(ScenarioError, match="arrivals of kind back_to_back have no rate that a plan could set"):
        simnmt.plan("@capacity", "mean_ms<=18", rate=200.0, vary=[text])


def test_a_rate_for_more_boxes_than_a_device_can_have_is_refused_at_once(shared: dict[str, Any]) -> None:
    with pytest.raises(simnmt.InputError, match=r"saturate more boxes of cloud than a device can have, 10,000 \(give a lower"):
        simnmt.plan(shared, "mean_ms<=18", rate=1e8)


@pytest.mark.parametrize(
    "call",
    [
        lambda: simnmt.plan("@capacity"),
        lambda: simnmt.plan("@capacity", "p95_ms<=300", vary=["devices.cloud.count=1,2"]),
        lambda: simnmt.plan("@capacity", "p95_ms<=300", rate=1.0, vary=["workloads.de-en.arrivals.rate_rps=1,2"]),
        lambda: simnmt.sweep("@open-loop", grid=["devices.cloud.workers=1,2"], cluster="tcp://10.1.2.3:8786"),
        lambda: simnmt.sweep("@open-loop"),
    ],
)
def test_messages_to_python_name_arguments_and_no_options(call: Any) -> None:
    with pytest.raises(simnmt.InputError) as refused:
        call()
    assert "--" not in str(refused.value)
