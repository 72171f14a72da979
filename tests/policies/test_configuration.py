"""What a scenario may say of a policy beyond the paper, in both forms, and what is refused."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from pydantic import TypeAdapter, ValidationError

from simnmt.policies import PolicyConfiguration, TransferEstimate
from simnmt.policies.cnmt import NaivePolicy
from simnmt.policies.decision import Quantile

POLICY: TypeAdapter[Any] = TypeAdapter(PolicyConfiguration)


def test_left_out_everything_is_as_in_the_paper() -> None:
    for kind in ("cnmt", "naive"):
        policy = POLICY.validate_python({"kind": kind})
        assert policy.transfer_estimate.kind == "last"
        assert not policy.sees_backlog
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


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"kind": "cnmt", "minimises": "p95"}, "lengths: distribution"),
        ({"kind": "cnmt", "lengths": "distribution", "len_slope": 1.0}, "len_slope"),
        ({"kind": "cnmt", "transfer_estimate": "newest"}, "last.*smoothed.*quantile"),
        ({"kind": "cnmt", "transfer_estimate": {"kind": "smoothed", "weight": 0.0}}, "greater than 0"),
        ({"kind": "cnmt", "transfer_estimate": {"kind": "smoothed", "weight": 1.5}}, "less than or equal to 1"),
        ({"kind": "cnmt", "transfer_estimate": "probing"}, "last.*smoothed.*quantile"),
        ({"kind": "cnmt", "transfer_estimate": {"kind": "last", "weight": 0.5}}, "not permitted"),
        ({"kind": "cnmt", "transfer_estimate": {"kind": "quantile", "quantile": 25}}, "less than or equal to 1"),
        ({"kind": "cnmt", "transfer_estimate": {"kind": "quantile", "window": 0}}, "greater than or equal to 1"),
        ({"kind": "edge", "sees_backlog": True}, "not permitted"),
        ({"kind": "naive", "lengths": "distribution"}, "not permitted"),
        ({"kind": "fixed"}, "Field required"),
        ({"kind": "fixed", "device": ""}, "at least 1"),
    ],
)
def test_what_contradicts_itself_is_refused(content: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        POLICY.validate_python(content)


@pytest.mark.parametrize(
    ("content", "allowed"),
    [
        ({"kind": "cnmt", "transfer_estimate": "quantile"}, True),
        ({"kind": "cnmt", "transfer_estimate": {"kind": "quantile", "quantile": 0.1, "window": 8}}, True),
        ({"kind": "cnmt", "lengths": "distribution", "minimises": "p95", "sees_backlog": True}, True),
        ({"kind": "fixed", "device": "gateway"}, True),
        ({"kind": "cnmt", "transfer_estimate": "newest"}, False),
        ({"kind": "cnmt", "transfer_estimate": {}}, False),
    ],
)
def test_the_schema_for_editors_says_the_same(content: dict[str, Any], allowed: bool) -> None:
    assert jsonschema.Draft202012Validator(POLICY.json_schema()).is_valid(content) == allowed
    if allowed:
        POLICY.validate_python(content)


def test_a_policy_names_the_devices_on_which_it_may_execute_requests() -> None:
    kinds = ({"kind": "edge"}, {"kind": "cloud"}, {"kind": "fixed", "device": "near"}, {"kind": "cnmt"})
    used = [list(POLICY.validate_python(kind).devices_of(["gateway", "near", "far"])) for kind in kinds]
    assert used == [["gateway"], ["far"], ["near"], ["gateway", "near", "far"]]
