"""Energy and money of whole runs, in both engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.profile.device_profile import DeviceProfile, write_profile
from simnmt.results.device_accounts import RunEnergy
from simnmt.results.requests import RequestLog
from simnmt.world.structures import library

MakeScenario = Callable[..., dict[str, Any]]
GATEWAY_W = {"idle_w": 5.0, "busy_w": 15.0}
CLOUD_W = {"idle_w": 100.0, "busy_w": 150.0}


def powered(scenario: dict[str, Any]) -> dict[str, Any]:
    """The scenario with power and prices everywhere."""
    scenario["devices"]["gateway"]["power"] = GATEWAY_W
    scenario["devices"]["cloud"] |= {"power": CLOUD_W, "price_per_hour": 3.0}
    for network in scenario["networks"].values():
        network |= {"joules_per_byte": 1e-4, "price_per_gb": 0.1}
    return scenario


def energy_of(result: simnmt.Run, policy: str) -> tuple[RunEnergy, RequestLog]:
    cell = result.cells[0]
    assert cell.energies[policy] is not None
    return cell.energies[policy], cell.logs[policy]


@pytest.mark.skipif(library() is None, reason="the compiled world was not compiled")
@pytest.mark.parametrize("kind", ["fifo", "batched", "streamed"])
def test_both_engines_account_for_the_same_bits_and_requests_add_up_to_the_deployment(
    make_batched: MakeScenario, make_streamed: MakeScenario, kind: str
) -> None:
    scenario = powered((make_streamed if kind == "streamed" else make_batched)(policies={"edge": {}, "cloud": {}, "cnmt": {}}))
    if kind == "fifo":
        del scenario["devices"]["cloud"]["batching"]
        scenario["devices"]["cloud"]["workers"] = 3
    engines: tuple[Any, ...] = ("compiled", "reference")
    compiled, reference = (simnmt.run(scenario, requests=200, replications=2, engine=engine) for engine in engines)
    for row, other in zip(compiled.summary_rows, reference.summary_rows, strict=True):
        assert row.keys() == other.keys()
        numbers = [{k: v for k, v in part.items() if isinstance(v, float)} for part in (row, other)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-9, nan_ok=True)
    for policy in ("edge", "cloud", "cnmt"):
        energy, log = energy_of(compiled, policy)
        np.testing.assert_allclose(log["energy_j"], energy_of(reference, policy)[1]["energy_j"], 1e-6)
        assert log["energy_j"].sum() == pytest.approx(energy.sums["energy_j"], rel=1e-9)
        span_s = float((log["arrival_s"] + log["latency_s"]).max())
        for device in energy.parts[:-1]:
            assert device["static_j"] == pytest.approx(device["idle_w"] * device["boxes"] * span_s)
            most_j = (device["busy_w"] - device["idle_w"]) * device["boxes"] * span_s
            assert 0.0 <= device["dynamic_j"] <= most_j * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["fifo", "batched"])
def test_the_work_of_late_answers_is_in_the_energy_of_the_run(make_batched: MakeScenario, kind: str) -> None:
    """No answer comes in time, so every execution of the cloud is in vain."""
    scenario = powered(make_batched(policies={"cloud": {}}))
    scenario["devices"]["cloud"] |= {"power": {"idle_w": 100.0, "busy_w": 150.0}, "count": 4}
    scenario["devices"]["cloud"]["batching"] = {"kind": "top_up", "size": 1}
    if kind == "fifo":
        del scenario["devices"]["cloud"]["batching"]
    late = {**scenario, "late_answers": {"timeout_ms": 1e-3, "leave_out": False}}
    (energy, log), (plain, plain_log) = (
        energy_of(simnmt.run(run, requests=300, replications=1, engine="reference"), "cloud") for run in (late, scenario)
    )
    cloud, plain_cloud = energy.parts[1], plain.parts[1]
    assert plain_log["energy_j"].sum() == pytest.approx(plain.sums["energy_j"], rel=1e-9)
    assert cloud["dynamic_j"] == pytest.approx(plain_cloud["dynamic_j"], rel=0.02)
    assert not log["target"].any(), "the gateway answered all"


def test_a_streaming_box_draws_busy_power_from_its_turn_to_the_end_stalls_included(
    make_streamed: MakeScenario,
) -> None:
    scenario = powered(make_streamed(policies={"edge": {}}))
    energy, log = energy_of(simnmt.run(scenario, requests=100, replications=1), "edge")
    assert (log["stall_s"] > 0.0).any()
    assert energy.parts[0]["dynamic_j"] == pytest.approx(10.0 * log["t_exe_s"].sum())


def test_the_summary_has_joules_and_money_by_request_and_token(make_scenario: MakeScenario) -> None:
    scenario = powered(make_scenario(policies={"edge": {}, "cloud": {}}))
    result = simnmt.run(scenario, requests=200, replications=1)
    for row in result.summary_rows:
        log = result.cells[0].logs[row["policy"]]
        span_s = float((log["arrival_s"] + log["latency_s"]).max())
        watts = {"edge": 10.0, "cloud": 50.0}[row["policy"]]
        dynamic_j, bytes_ = watts * float(log["t_exe_s"].sum()), 0.0
        if row["policy"] == "cloud":
            bytes_ = 2.0 * float((log["src_len"] + log["tgt_len"]).sum())
        joules = 105.0 * span_s + dynamic_j + 1e-4 * bytes_
        money = 3.0 * span_s / 3600.0 + 0.1 * bytes_ / 1e9
        assert row["mean_energy_j"] == pytest.approx(joules / 200) == pytest.approx(float(log["energy_j"].mean()))
        assert row["mean_static_j"] == pytest.approx(105.0 * span_s / 200)
        assert row["mean_dynamic_j"] == pytest.approx(dynamic_j / 200)
        assert row["mean_transfer_j"] == pytest.approx(1e-4 * bytes_ / 200)
        assert row["mean_cost"] == pytest.approx(money / 200)
        assert row["cost_per_thousand_tokens"] == pytest.approx(money / log["tgt_len"].sum() * 1e3)


def test_energy_of_a_profile_is_used_where_the_scenario_gives_none_and_is_labelled(
    make_scenario: MakeScenario, make_profile: Callable[..., DeviceProfile], tmp_path: Path
) -> None:
    scenario = make_scenario(policies={"edge": {}})
    plain = simnmt.run(scenario, requests=50, replications=1).summary_rows[0]
    assert not [name for name in plain if "cost" in name or "static" in name]
    block = {"kind": "measured", "source": "rapl", "idle_w": 10.0, "active_w": 25.0}
    write_profile(tmp_path / "gateway.json", make_profile(name="gateway", energy=block))
    assert simnmt.run(scenario, requests=50, replications=1).summary_rows[0]["mean_energy_j"] is None
    scenario["devices"]["cloud"]["power"] = {"idle_w": 0.0, "busy_w": 1.0}
    result = simnmt.run(scenario, requests=50, replications=1)
    energy, log = energy_of(result, "edge")
    assert [device["power_kind"] for device in energy.parts[:-1]] == ["measured", "given"]
    assert energy.sums["energy_j"] == pytest.approx(25.0 * log["t_exe_s"].sum()), "back to back, the gateway is never idle"
    records = result.document()["energy"]
    assert [(record["device"], record["power_kind"]) for record in records] == [
        ("gateway", "measured"), ("cloud", "given"), ("links", "given"),
    ]  # fmt: skip


def test_a_user_policy_knows_what_requests_cost(make_scenario: MakeScenario) -> None:
    class Frugal:
        def __init__(self, knowledge: simnmt.Knowledge) -> None:
            self.costs, self.planes = knowledge.costs["energy"], knowledge.planes

        def prepare(self, src_len: Any) -> Any:
            taken = [
                cost.of(src_len, src_len, plane.seconds(src_len, src_len))
                for cost, plane in zip(self.costs, self.planes, strict=True)
            ]
            best = np.argmin(taken, axis=0).tolist()
            return lambda request, delay_s: best[request]

    result = simnmt.run(powered(make_scenario(policies={"mine": Frugal, "cnmt": {}})), requests=200, replications=1)
    rows = {row["policy"]: row for row in result.summary_rows}
    assert rows["mine"]["mean_dynamic_j"] < rows["cnmt"]["mean_dynamic_j"]
