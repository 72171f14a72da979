"""End nodes with links and devices of their own, several gateways, any number of tiers: what each may and may not change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import simnmt
from simnmt.profile.device_profile import write_profile
from simnmt.results.requests import RequestLog
from tests.invariants.conftest import DISCIPLINES
from tests.units import plan_of, unit_of, watched
from tests.worlds import needs_compiled

MakeScenario = Callable[..., dict[str, Any]]
BACK_TO_BACK, POISSON, CLIENTS = DISCIPLINES.values()
WIDE = {"uplink_mbps": 1e6, "downlink_mbps": 1e6}
"""So wide that payloads take less than a nanosecond a token."""


def logs_of(scenario: dict[str, Any]) -> dict[str, RequestLog]:
    return dict(simnmt.run(scenario).cells[0].logs)


def test_a_link_of_each_end_node_begins_at_a_moment_of_its_own(make_tiers: MakeScenario, tmp_path: Path) -> None:
    """All at the gateway, so that the way there and back is all the transfer there is; a link for all begins at once."""
    tells_time = tmp_path / "ramp.csv"
    tells_time.write_text("time_s,rtt_ms\n" + "".join(f"{second},{10 + second}\n" for second in range(200)), encoding="utf-8")
    scenario, link = make_tiers(end_nodes=8, requests=2_000, policies={"edge": {}}), {"rtt": str(tells_time), **WIDE}
    scenario["networks"]["cp1"]["hops"]["gateway"] = link
    log = logs_of(scenario)["edge"]
    np.testing.assert_allclose(log["t_tx_s"], (10 + np.floor(np.mod(log["arrival_s"], 200.0))) / 1e3, rtol=0, atol=1e-8)
    scenario["networks"]["cp1"]["hops"]["gateway"] = [link]
    log, begins_s = logs_of(scenario)["edge"], []
    for node in range(8):
        met = log["node"] == node
        # The second met is the floor of begin plus arrival, so begin lies at most one second above every lag.
        lag_s = (np.rint(1e3 * log["t_tx_s"] - 10) - log["arrival_s"])[met]
        around_s = np.mod(lag_s - lag_s[0] + 100.0, 200.0)
        assert 0.8 < np.ptp(around_s) <= 1.0
        begins_s.append(np.mod(lag_s[0] + around_s.max() - 100.0, 200.0))
    assert np.diff(sorted(begins_s)).min() > 0.5
    assert np.ptp(begins_s) > 80.0


@pytest.mark.parametrize(("arrivals", "access_ms"), [(POISSON, 100), (BACK_TO_BACK, 1)], ids=["open loop", "back to back"])
def test_a_constant_access_link_adds_itself_to_every_latency_and_changes_no_decision(
    make_tiers: MakeScenario, arrivals: dict[str, Any], access_ms: float
) -> None:
    """Where the gateway decides: all that it can choose from lies behind that link."""
    scenario = make_tiers(arrivals=arrivals, requests=1_500, replications=1)
    if arrivals is BACK_TO_BACK:
        scenario["networks"]["cp1"]["pace_s"] = 5.0  # the computed one counts the access link, too
    del scenario["networks"]["cp1"]["hops"]["gateway"]
    near = logs_of(scenario)
    scenario["networks"]["cp1"]["hops"]["gateway"] = {"rtt": {"constant_ms": access_ms}, **WIDE}
    far = logs_of(scenario)
    for policy, log in far.items():
        np.testing.assert_array_equal(log["target"], near[policy]["target"], err_msg=policy)
        np.testing.assert_allclose(log["latency_s"], near[policy]["latency_s"] + access_ms / 1e3, rtol=0, atol=1e-8)
        np.testing.assert_allclose(log["t_queue_s"], near[policy]["t_queue_s"], rtol=0, atol=1e-8)
    assert (np.bincount(near["cnmt"]["target"], minlength=3) > 30).all()


@pytest.mark.parametrize("clock", ["pace", "spread", "own"])
def test_back_to_back_a_request_is_issued_when_its_end_node_has_the_answer_before(make_tiers: MakeScenario, clock: str) -> None:
    """Over the access link, there and back; so the latencies still add up to the makespan."""
    scenario = make_tiers(arrivals=BACK_TO_BACK, requests=1_000, replications=1)
    scenario["networks"]["cp1"]["clock"] = clock
    for policy, log in logs_of(scenario).items():
        np.testing.assert_allclose(np.diff(log["arrival_s"]), log["latency_s"][:-1], rtol=0, atol=1e-8, err_msg=policy)
        assert (log["t_tx_s"] > 0.003).all()


def of_end_nodes(make_tiers: MakeScenario, tmp_path: Path, **keys: Any) -> dict[str, Any]:
    """End nodes that execute themselves, before a gateway each is attached to, and a cloud."""
    scenario = make_tiers(**keys)
    hops = scenario["networks"]["cp1"]["hops"]
    scenario["networks"]["cp1"]["hops"] = {"gateway": hops["gateway"]}
    devices = scenario["devices"]
    scenario["devices"] = {
        "end_node": {"profile": str(tmp_path / "gateway.json")},
        "gateway": {"profile": str(tmp_path / "region.json"), "count": 3},
        "cloud": devices["cloud"],
    }
    return scenario


class TestEndNodesWithADevice:
    POLICIES: ClassVar = {name: {"kind": "fixed", "device": name} for name in ("end_node", "gateway", "cloud")}

    @pytest.fixture
    def logs(self, make_tiers: MakeScenario, tmp_path: Path) -> dict[str, RequestLog]:
        policies = {**self.POLICIES, "oracle": {}, "cnmt": {}}
        scenario = of_end_nodes(make_tiers, tmp_path, arrivals=BACK_TO_BACK, requests=3_000, policies=policies)
        scenario["networks"]["cp1"]["pace_s"] = 60.0  # meets many samples, which come each four minutes
        return logs_of(scenario)

    def test_the_oracle_takes_the_least_of_three_request_by_request(self, logs: dict[str, RequestLog]) -> None:
        latencies_s = np.stack([logs[name]["latency_s"] for name in self.POLICIES])
        np.testing.assert_array_equal(logs["oracle"]["target"], latencies_s.argmin(axis=0))
        np.testing.assert_array_equal(logs["oracle"]["latency_s"], latencies_s.min(axis=0))
        assert (np.bincount(logs["oracle"]["target"], minlength=3) > 100).all()

    def test_each_measures_its_own_link_alone(self, make_tiers: MakeScenario, tmp_path: Path) -> None:
        """The estimate of a request's decider is one that this very end node met before."""
        scenario = of_end_nodes(make_tiers, tmp_path, requests=3_000, arrivals=POISSON, policies={"cloud": {}, "cnmt": {}})
        scenario["networks"]["cp1"]["hops"]["gateway"] = [{"rtt": {"constant_ms": 20 * n}, **WIDE} for n in range(1, 13)]
        scenario["networks"]["cp1"] |= WIDE | {"rtt": {"constant_ms": 50}}
        for log in logs_of(scenario).values():
            expected_s = (20 * (1 + log["node"]) + 50) / 1e3
            np.testing.assert_allclose(log["rtt_estimate_s"], expected_s, rtol=0, atol=1e-7)


def test_a_decider_alone_at_its_attached_box_sees_that_box_s_queue(
    make_tiers: MakeScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three end nodes, three gateways, each with one of its own; exact times and still links, so nothing is left to guess."""
    (tmp_path / "pairs.tsv").write_text("".join(f"{'w ' * n}\t{'v ' * n}\n" for n in range(1, 41)) * 20, encoding="utf-8")
    lengths = {"tsv": str(tmp_path / "pairs.tsv"), "src_unit": "word", "tgt_unit": "word"}
    policies: dict[str, Any] = {"oracle": {}, "queue": {"kind": "cnmt", "sees_backlog": True}, "cnmt": {}}
    workloads = {"same": {"lengths": lengths, "end_nodes": 3, "arrivals": {"kind": "poisson", "rate_rps": 30.0}}}
    scenario = of_end_nodes(
        make_tiers, tmp_path, relative_sd=0.0, fit={"inferences": 0}, workloads=workloads, requests=3_000, policies=policies
    )
    scenario["networks"]["cp1"] = {
        "rtt": {"constant_ms": 300},
        **WIDE,
        "hops": {"gateway": {"rtt": {"constant_ms": 30}, **WIDE}},
    }
    scenario["devices"]["cloud"] = {"profile": scenario["devices"]["cloud"]["profile"], "workers": 10_000}
    runs, _ = watched(monkeypatch, unit_of(plan_of(scenario)))
    oracle, queue, blind = (run.trail.target for run in runs)
    assert (queue != oracle).mean() < 0.002
    assert (blind != oracle).mean() > 0.2
    assert (np.bincount(oracle, minlength=3) > 30).all()


@pytest.mark.parametrize("arrivals", [POISSON, CLIENTS, BACK_TO_BACK], ids=["open loop", "closed loop", "back to back"])
def test_a_tier_that_is_slower_and_further_than_another_is_never_used(
    make_tiers: MakeScenario, make_profile: Callable[..., Any], tmp_path: Path, arrivals: dict[str, Any]
) -> None:
    """Slower than the gateway before it; or, the second time, a cloud slower than the region on the way there."""
    policies = {"oracle": {}, "cnmt": {}, "mean": {"kind": "cnmt", "lengths": "distribution"}}
    known = {"relative_sd": 0.0, "fit": {"inferences": 0}}
    scenario = make_tiers(requests=1_500, arrivals=arrivals, policies=policies, **known)
    slower = {"region": (0.002, 0.009, 0.011), "cloud": (0.0006, 0.005, 0.009)}
    for useless, device in enumerate(slower, start=1):
        make_tiers(relative_sd=0.0)  # its profiles
        write_profile(tmp_path / f"{device}.json", make_profile(slower[device], 0.0, name=device))
        for policy, log in logs_of(scenario).items():
            if policy == "oracle" and arrivals is not BACK_TO_BACK:
                continue  # knows when all others are busy
            used = np.bincount(log["target"], minlength=3)
            assert used[useless] == 0, (policy, device)
            assert np.count_nonzero(used) == 2, (policy, device)


MOST = 10_000
"""Boxes of a kind, and workers of a box, that a scenario may name."""


@contextmanager
def seconds_at_most(most_s: float) -> Iterator[None]:
    """Of the processor, which other work on the machine does not use up."""
    began_s = time.process_time()
    yield
    assert time.process_time() - began_s < most_s


@pytest.mark.parametrize("balancer", ["attached", pytest.param("least_work", marks=needs_compiled), "two_choices"])
def test_ten_thousand_boxes_of_ten_thousand_workers_take_seconds(make_scenario: MakeScenario, balancer: str) -> None:
    scenario = make_scenario(
        requests=50, replications=1, policies={"cloud": {}, "seen": {"kind": "cnmt", "sees_backlog": True}}
    )
    scenario["workloads"]["de-en"] |= {"end_nodes": MOST, "arrivals": {"kind": "poisson", "rate_rps": 5.0}}
    scenario["devices"]["gateway"] |= {"count": MOST, "workers": MOST}
    scenario["devices"]["cloud"] |= {"count": MOST, "workers": MOST, "balancer": balancer}
    with seconds_at_most(20.0):
        logs = simnmt.run(scenario).cells[0].logs
    assert not any(log["t_queue_s"].any() for log in logs.values())


@pytest.mark.parametrize("engine", [pytest.param("compiled", marks=needs_compiled), "reference"])
def test_of_a_million_clients_only_those_who_can_ask_cost_anything(make_scenario: MakeScenario, engine: Any) -> None:
    arrivals = {"kind": "clients", "clients": 1_000_000, "think_time": {"mean_s": 1.0}}
    scenario = make_scenario(requests=50, replications=1, policies={"edge": {}})
    scenario["workloads"]["de-en"] |= {"end_nodes": 7, "arrivals": arrivals}
    with seconds_at_most(5.0):
        log = simnmt.run(scenario, engine=engine).cells[0].logs["edge"]
    assert (np.diff(log["arrival_s"]) >= 0.0).all()
    assert log["arrival_s"].max() < 1e-3, "the 50 least of a million thinking times of a mean of 1 s"
