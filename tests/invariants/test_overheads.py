"""Overheads of devices in whole runs: what requests pay, what policies learn of it, and what they do not change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simnmt
from simnmt.base import random_streams
from simnmt.network.link import LognormalOverhead
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.source import open_source
from tests.experiment.streamed_profile import TEXT
from tests.units import digest, plan_of, unit_of, watched

Scenario = dict[str, Any]
MakeScenario = Callable[..., Scenario]
GATEWAY_MS, CLOUD_MS = {"mean_ms": 3.0, "sd_ms": 1.0}, {"mean_ms": 8.0, "sd_ms": 12.0}
REQUESTS = 500

DISCIPLINES: dict[str, tuple[Scenario, Scenario]] = {
    "back to back, pace": ({"kind": "back_to_back"}, {}),
    "back to back, spread": ({"kind": "back_to_back"}, {"clock": "spread"}),
    "back to back, own clock": ({"kind": "back_to_back"}, {"clock": "own"}),
    "open loop": ({"kind": "poisson", "rate_rps": 6.0}, {}),
    "closed loop": ({"kind": "clients", "clients": 4, "think_time": {"mean_s": 0.2}}, {}),
}
"""Arrivals, and settings of the network."""


def with_overheads(scenario: Scenario, **by_device: Any) -> Scenario:
    devices = {name: part | {"overhead": by_device.get(name)} for name, part in scenario["devices"].items()}
    return scenario | {"devices": devices}


def of_discipline(make_scenario: MakeScenario, discipline: str, **keys: Any) -> Scenario:
    """Return a scenario on a constant RTT, so that transfer times do not depend on the moment."""
    arrivals, network = DISCIPLINES[discipline]
    return make_scenario(
        workloads={"de-en": {"lengths": "@de-en-news", "arrivals": arrivals, "end_nodes": 3}},
        networks={"n": {"rtt": {"constant_ms": 80}, **network}},
        requests=REQUESTS,
        replications=1,
    ) | keys  # fmt: skip


def drawn_s(scenario: Scenario, device: str, stated: Scenario) -> np.ndarray:
    """Draw the overheads as DESIGN says: one stream per quantity, keyed by seed, replication and name."""
    generator = random_streams.stream(scenario["seed"], 0, f"de-en/overhead {device}")
    return LognormalOverhead(**stated).draw_s(generator, scenario["requests"])


@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_latency_is_queue_execution_link_and_the_overheads_of_the_path(make_scenario: MakeScenario, discipline: str) -> None:
    scenario = of_discipline(make_scenario, discipline)
    loaded = with_overheads(scenario, gateway=GATEWAY_MS, cloud=CLOUD_MS)
    bare, result = simnmt.run(scenario).cells[0].logs, simnmt.run(loaded)
    own_s, cloud_s = drawn_s(scenario, "gateway", GATEWAY_MS), drawn_s(scenario, "cloud", CLOUD_MS)
    for policy, log in result.cells[0].logs.items():
        away = log["target"] == 1
        link_s = np.where(away, bare["cloud"]["t_tx_s"], 0.0)
        np.testing.assert_allclose(log["t_tx_s"], link_s + own_s + away * cloud_s, rtol=0, atol=1e-12, err_msg=policy)
        np.testing.assert_array_equal(log["latency_s"], log["t_queue_s"] + log["t_exe_s"] + log["t_tx_s"])
        np.testing.assert_array_equal(log["t_exe_s"], np.where(away, bare["cloud"]["t_exe_s"], bare["edge"]["t_exe_s"]))


def test_all_policies_meet_the_same_overheads_and_nothing_else_changes(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = of_discipline(make_scenario, "open loop")
    loaded = with_overheads(scenario, gateway=GATEWAY_MS, cloud=CLOUD_MS)
    runs = watched(monkeypatch, unit_of(plan_of(loaded)))[0]
    assert len(runs) == 5
    assert len({digest(run.world.requests) for run in runs}) == 1
    bare, logs = (simnmt.run(content).cells[0].logs for content in (scenario, loaded))
    for column in ("node", "arrival_s", "src_len", "tgt_len", "rtt_time_s"):
        assert digest(logs["cloud"][column]) == digest(bare["cloud"][column]), column
    # Another device's overhead, or none, leaves a device's draws alone.
    alone = simnmt.run(with_overheads(scenario, cloud=CLOUD_MS)).cells[0].logs["cloud"]
    np.testing.assert_allclose(
        logs["cloud"]["t_tx_s"] - alone["t_tx_s"], drawn_s(scenario, "gateway", GATEWAY_MS), rtol=0, atol=1e-12
    )


@pytest.fixture
def deployments(
    make_scenario: MakeScenario, make_batched: MakeScenario, make_tiers: MakeScenario, make_streamed: MakeScenario
) -> dict[str, Scenario]:
    """Return open loops of each kind of device, with an access link or without."""
    knowing = {"kind": "cnmt", "plan_state": "known"}
    policies = {"edge": {}, "cloud": {}, "cnmt": {}, "queue-aware": {"kind": "cnmt", "sees_backlog": True}}
    small = {"requests": 300, "policies": policies, "replications": 1}
    return {
        "plain": of_discipline(make_scenario, "open loop", **small),
        "batched": make_batched(rate_rps=50.0, **small),
        "tiers": make_tiers(**small),
        "streamed": make_streamed(policies={"edge": {}, "cnmt": {}, "knowing": knowing}, requests=150, replications=1),
    }


@pytest.mark.parametrize("kind", ["plain", "batched", "tiers", "streamed"])
def test_a_constant_overhead_of_the_first_device_only_adds_itself(deployments: dict[str, Scenario], kind: str) -> None:
    """In the open loop: to the latency of every request, whatever its target; nobody decides or waits otherwise."""
    scenario = deployments[kind]
    bare = simnmt.run(scenario).cells[0].logs

    @settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow])
    @given(st.floats(0.01, 200.0))
    def adds_itself(constant_ms: float) -> None:
        logs = simnmt.run(with_overheads(scenario, gateway=constant_ms)).cells[0].logs
        for policy, log in logs.items():
            np.testing.assert_array_equal(log["target"], bare[policy]["target"], err_msg=policy)
            added_s = log["latency_s"] - bare[policy]["latency_s"]
            np.testing.assert_allclose(added_s, constant_ms / 1e3, rtol=0, atol=1e-8, err_msg=policy)

    adds_itself()


def test_the_learnt_transfer_time_contains_the_remote_overheads_alone(make_scenario: MakeScenario) -> None:
    """CNMT-11: before any measurement their mean, afterwards those of the last answer; never the decider's own."""
    scenario = of_discipline(make_scenario, "back to back, pace")
    loaded = with_overheads(scenario, gateway=50.0, cloud=CLOUD_MS)
    log = simnmt.run(loaded).cells[0].logs["cloud"]
    assert log["rtt_estimate_s"][0] == pytest.approx(0.080 + CLOUD_MS["mean_ms"] / 1e3)
    np.testing.assert_allclose(log["rtt_estimate_s"][1:], log["t_tx_s"][:-1] - 0.050, rtol=0, atol=1e-12)


def test_a_request_passes_and_pays_the_devices_on_its_way(make_tiers: MakeScenario) -> None:
    links = {"rtt": {"constant_ms": 40}, "hops": {"region": {"rtt": {"constant_ms": 60}}}}
    policies = {"gateway": {"kind": "edge"}, "region": {"kind": "fixed", "device": "region"}, "cloud": {}}
    scenario = make_tiers(networks={"n": links}, policies=policies, requests=200, replications=1)
    bare = simnmt.run(scenario).cells[0].logs
    logs = simnmt.run(with_overheads(scenario, gateway=1, region=2, cloud=4)).cells[0].logs
    for device, path_ms in {"gateway": 1, "region": 3, "cloud": 7}.items():
        np.testing.assert_allclose(logs[device]["t_tx_s"] - bare[device]["t_tx_s"], path_ms / 1e3, rtol=0, atol=1e-12)
    assert logs["cloud"]["rtt_estimate_s"][0] == pytest.approx(0.1 + 0.006)


@pytest.mark.parametrize(
    ("overhead", "complaint"),
    [
        ('"0.8 ms"', "s.yaml:17:15: devices.gateway.overhead: "),
        ("{mean_ms: 1}", "s.yaml:17:5: devices.gateway.overhead.sd_ms: "),
        ("{quantiles_ms: [2, 1]}", "s.yaml:17:30: devices.gateway.overhead.quantiles_ms: "),
    ],
)
def test_a_wrong_overhead_is_refused_at_its_place(tmp_path: Path, overhead: str, complaint: str) -> None:
    text = TEXT.replace("    sti: {", f"    overhead: {overhead}\n    sti: {{")
    (tmp_path / "s.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        open_source(tmp_path / "s.yaml")
    assert str(caught.value).removeprefix(f"{tmp_path}/").startswith(complaint)
