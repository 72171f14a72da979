"""Simplicity of policies: fixed ones first, then by the settings that the scenario gives, then by the scenario's order."""

from __future__ import annotations

from simnmt.results.simplicity import is_tie, simplest
from simnmt.scenario.document import Override
from simnmt.scenario.source import open_source


def test_policies_are_simple_by_the_settings_that_the_scenario_gives_them() -> None:
    policies = {
        "aware": {"kind": "cnmt", "sees_backlog": True},
        "cnmt": {},
        "naive": {},
        "own": {"kind": "fixed", "device": "cloud"},
    }
    scenario = open_source("@quickstart", [Override.of("policies", policies)]).scenario
    settings = {name: policy.settings_given for name, policy in scenario.policies.items()}
    assert settings == {"aware": 1, "cnmt": 0, "naive": 0, "own": 1}
    fixed = [name for name, policy in scenario.policies.items() if policy.single_device]
    assert simplest(list(policies), settings, fixed) == ["own", "cnmt", "naive", "aware"]


def test_a_difference_below_a_thousandth_is_none() -> None:
    assert is_tie(0.2002, 0.20009) and is_tie(0.0, 0.0) and not is_tie(0.2003, 0.2) and not is_tie(1e-9, 0.0)
