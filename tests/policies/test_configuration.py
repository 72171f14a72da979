"""What a scenario may say of a policy beyond the paper, in both forms, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from simnmt.policies import PolicyConfiguration, TransferEstimate
from simnmt.policies.cnmt import NaivePolicy
from simnmt.policies.estimates import Quantile

POLICY: TypeAdapter[Any] = TypeAdapter(PolicyConfiguration)


def test_left_out_everything_is_as_in_the_paper() -> None:
    for kind in ("cnmt", "naive"):
        policy = POLICY.validate_python({"kind": kind})
        assert policy.transfer_estimate.kind == "last"
        assert (policy.sees_backlog, policy.plan_state) == (False, "ignored")
    assert (policy.kind, POLICY.validate_python({"kind": "cnmt"}).minimises) == ("naive", "mean")
    estimate = policy.transfer_estimate.estimate(0.25)
    estimate.learn(0.125, 3.0)
    assert type(estimate) is TransferEstimate
    assert estimate.value_s == 0.125


def test_the_estimate_is_built_as_it_was_configured() -> None:
    smoothed = NaivePolicy.model_validate({"kind": "naive", "transfer_estimate": {"kind": "smoothed", "weight": 0.5}})
    estimate = smoothed.transfer_estimate.estimate(1.0)
    estimate.learn(2.0, 1.0)
    assert estimate.value_s == 1.5
    quantile = Quantile(kind="quantile", quantile=0.0, window=2).estimate(1.0)
    for transfer_s in (3.0, 5.0, 4.0):
        quantile.learn(transfer_s, 1.0)
    assert quantile.value_s == 4.0


REFUSED = [
    ({"kind": "cnmt", "transfer_estimate": "newest"}, "transfer_estimate"),
    ({"kind": "cnmt", "transfer_estimate": {"kind": "smoothed", "weight": 0.0}}, "weight"),
    ({"kind": "cnmt", "transfer_estimate": {"kind": "last", "weight": 0.5}}, "weight"),
    ({"kind": "cnmt", "transfer_estimate": {"kind": "quantile", "quantile": 25}}, "quantile"),
    ({"kind": "cnmt", "transfer_estimate": {"kind": "quantile", "window": 0}}, "window"),
    ({"kind": "cnmt", "plan_state": "guessed"}, "plan_state"),
    ({"kind": "oracle", "plan_state": "known"}, "plan_state"),
    ({"kind": "naive", "lengths": "distribution"}, "lengths"),
    ({"kind": "fixed"}, "device"),
    # Keys that contradict each other.
    ({"kind": "cnmt", "minimises": "p95"}, ""),
    ({"kind": "cnmt", "lengths": "distribution", "len_slope": 1.0}, ""),
]


@pytest.mark.parametrize(("content", "key"), REFUSED)
def test_a_wrong_key_is_refused_at_its_place(content: dict[str, Any], key: str) -> None:
    """`tests/campaigns/test_scenarios.py` compares the schema with the reader."""
    with pytest.raises(ValidationError) as refused:
        POLICY.validate_python(content)
    assert not key or any(key in error["loc"] for error in refused.value.errors())


def test_a_policy_names_the_devices_on_which_it_may_execute_requests() -> None:
    kinds = ({"kind": "edge"}, {"kind": "cloud"}, {"kind": "fixed", "device": "near"}, {"kind": "cnmt"})
    used = [list(POLICY.validate_python(kind).devices_of(["gateway", "near", "far"])) for kind in kinds]
    assert used == [["gateway"], ["far"], ["near"], ["gateway", "near", "far"]]
