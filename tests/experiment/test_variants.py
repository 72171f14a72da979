"""Which policies are compared with which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simnmt.experiment.comparisons import variants
from simnmt.scenario.configuration import ScenarioConfiguration

MakeScenario = Callable[..., dict[str, Any]]


def test_every_policy_that_estimates_is_held_against_the_plain_one_of_its_kind(make_scenario: MakeScenario) -> None:
    policies = {
        "edge": {}, "oracle": {}, "cnmt": {}, "naive": {}, "smoothed": {"kind": "cnmt", "transfer_estimate": "smoothed"},
        "queue": {"kind": "cnmt", "transfer_estimate": "smoothed", "sees_backlog": True},
        "naive-queue": {"kind": "naive", "sees_backlog": True},
    }  # fmt: skip
    baselines = variants(ScenarioConfiguration.model_validate(make_scenario(policies=policies)))
    assert baselines == {"smoothed": "cnmt", "queue": "smoothed", "naive-queue": "naive"}
