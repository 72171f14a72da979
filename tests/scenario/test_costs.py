"""Powers and prices in a scenario: what is refused, each fault in one line at its key."""

from __future__ import annotations

from pathlib import Path

import pytest

import simnmt
from simnmt.base.removed import removed_key_remedy
from simnmt.scenario.errors import ScenarioError

TEXT = """\
version: 1
name: x
workloads: {w: {lengths: "@de-en-news"}}
networks: {n: {rtt: "@cp1"}}
devices:
  gateway: {profile: "@tx2-bilstm"}
  cloud: {profile: "@titan-xp-bilstm"}
policies:
  cnmt: {}
"""
POWER = "devices.gateway.power"
BOTH = ("devices.gateway.power={idle_w: 1, busy_w: 2}", "devices.cloud.power={idle_w: 1, busy_w: 2}")

CASES = {
    "negative power": ((f"{POWER}={{idle_w: -5, busy_w: 15}}",), "devices.gateway.power.idle_w: must be >= 0, got -5"),
    "busy below idle": (
        (f"{POWER}={{idle_w: 20, busy_w: 15}}",),
        "devices.gateway.power.busy_w: 15 W while busy is less than the 20 W while idle (give as much or more)",
    ),
    "idle power alone": ((f"{POWER}={{idle_w: 20}}",), "devices.gateway.power.busy_w: missing key"),
    "no idle power": ((f"{POWER}={{busy_w: 20}}",), "devices.gateway.power.idle_w: missing key"),
    "a unit": ((f"{POWER}={{idle_w: 5W, busy_w: 9}}",), "devices.gateway.power.idle_w: expected a number, got the text '5W'"),
    "a negative price": (("devices.cloud.price_per_hour=-1",), "devices.cloud.price_per_hour: must be >= 0, got -1"),
    "a negative energy of a byte": (("networks.n.joules_per_byte=-1",), "networks.n.joules_per_byte: must be >= 0, got -1"),
    "a negative price of a byte": (("networks.n.price_per_gb=-1",), "networks.n.price_per_gb: must be >= 0, got -1"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_fault_is_one_line_at_its_key(tmp_path: Path, case: str) -> None:
    overrides, complaint = CASES[case]
    path = tmp_path / "s.yaml"
    path.write_text(TEXT, encoding="utf-8")
    with pytest.raises(simnmt.InputError) as caught:
        simnmt.run(path, overrides=overrides, requests=10, replications=1)
    message = str(caught.value)
    assert complaint in message and "\n" not in message
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    "override",
    [
        "carbon_intensity=380",
        "devices.cloud.neighbour=busy",
        "devices.cloud.power.load_w=300",
        "workloads.w.characters_per_src_token=6",
        "policies.cnmt.minimises=energy",
        "policies.cnmt.minimises=cost",
        "policies.cnmt.budget={cost: 1}",
    ],
)
def test_a_removed_key_is_refused_at_its_place_with_its_replacement(tmp_path: Path, override: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(TEXT, encoding="utf-8")
    key, _, value = override.partition("=")
    with pytest.raises(ScenarioError) as caught:
        simnmt.run(path, overrides=[override], requests=10, replications=1)
    remedy = removed_key_remedy(key.split("."), value)
    assert f" {key}:" in str(caught.value) and remedy is not None and remedy in str(caught.value)
