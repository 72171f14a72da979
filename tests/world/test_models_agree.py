"""The independent models of the benchmarks agree with each other and, back to back, with a recursion by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import ciw_model, idiomatic
from benchmarks.inputs import WorldInputs, cnmt_inputs
from tests.campaigns.harness import deep

REQUESTS = 2_000


def columns(inputs: WorldInputs) -> dict[str, np.ndarray]:
    return {name: getattr(inputs, name) for name in WorldInputs.__slots__ if name != "initial_transfer_s"}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("load", [deep(0.3), deep(0.6), 0.95])
def test_ciw_and_idiomatic_simpy_complete_every_request_at_the_same_moment(load: float, workers: int) -> None:
    inputs = cnmt_inputs(REQUESTS, load)
    completion_s, target = idiomatic.simulate(inputs, workers)
    ciw_completion_s, ciw_target = ciw_model.simulate(inputs, workers)
    np.testing.assert_array_equal(target, ciw_target)
    np.testing.assert_allclose(completion_s, ciw_completion_s, rtol=0.0, atol=1e-9)
    assert 0.4 < target.mean() < 0.8


@pytest.mark.parametrize("workers", [1, 3])
def test_both_models_agree_where_requests_overtake_each_other_on_the_uplink(workers: int) -> None:
    """The cloud serves in order of reaching it, not of arrival at the gateway."""
    inputs = cnmt_inputs(REQUESTS, load=0.9)
    slow = np.random.default_rng(5).exponential(0.5, REQUESTS)
    overtaking = replace(inputs, uplink_s=inputs.uplink_s + slow)
    completion_s, target = idiomatic.simulate(overtaking, workers)
    ciw_completion_s, ciw_target = ciw_model.simulate(overtaking, workers)
    reached_s = (overtaking.arrival_s + overtaking.uplink_s)[target == 1]
    assert (np.diff(reached_s) < 0).any()
    np.testing.assert_array_equal(target, ciw_target)
    np.testing.assert_allclose(completion_s, ciw_completion_s, rtol=0.0, atol=1e-9)


def test_three_requests_by_hand() -> None:
    """All sent away, 1 s apart, some 2 s up, 5 s of service, 3 s down: one worker queues them, three none."""
    three = np.ones(3)
    inputs = WorldInputs(
        arrival_s=np.array([1.0, 2.0, 3.0]),
        gateway_s=9.0 * three,
        cloud_s=5.0 * three,
        uplink_s=np.array([2.0, 2.25, 2.5]),
        downlink_s=3.0 * three,
        local_predicted_s=99.0 * three,
        remote_predicted_s=three,
        initial_transfer_s=4.0,
    )
    for model in (idiomatic, ciw_model):
        assert model.simulate(inputs, workers=1)[0].tolist() == [11.0, 16.0, 21.0]
        assert model.simulate(inputs, workers=3)[0].tolist() == [11.0, 12.25, 13.5]
    assert idiomatic.simulate_back_to_back(inputs)[0].tolist() == [10.0, 20.25, 30.75]


def test_the_estimate_leaves_out_the_wait_at_the_cloud_and_comes_with_the_response() -> None:
    """Request 2 decides by the answer to request 0, request 3 by that to request 1.

    An estimate from 4 s on keeps a request local. Request 0 is answered at 10.5 s and measures 5.5 s.
    Request 1, 4 s of waiting included, is away for 11 s and answered at 12 s: it measures 2 s.
    """
    four = np.ones(4)
    inputs = WorldInputs(
        arrival_s=np.array([0.0, 1.0, 11.5, 30.0]),
        gateway_s=9.0 * four,
        cloud_s=5.0 * four,
        uplink_s=np.array([1.0, 1.0, 1.0, 1.0]),
        downlink_s=np.array([4.5, 1.0, 1.0, 1.0]),
        local_predicted_s=9.0 * four,
        remote_predicted_s=5.0 * four,
        initial_transfer_s=3.0,
    )
    for model in (idiomatic, ciw_model):
        completion_s, target = model.simulate(inputs)
        assert target.tolist() == [1, 1, 0, 1]
        assert completion_s.tolist() == [10.5, 12.0, 20.5, 37.0]


def test_back_to_back_follows_the_recursion() -> None:
    inputs = cnmt_inputs(REQUESTS)
    now_s, estimate_s = 0.0, inputs.initial_transfer_s
    completion_s, target = [], []
    for i in range(REQUESTS):
        local = inputs.local_predicted_s[i] <= inputs.remote_predicted_s[i] + estimate_s
        transfer_s = inputs.uplink_s[i] + inputs.downlink_s[i]
        now_s += inputs.gateway_s[i] if local else transfer_s + inputs.cloud_s[i]
        estimate_s = estimate_s if local else transfer_s
        completion_s.append(now_s)
        target.append(int(not local))
    simulated_s, simulated_target = idiomatic.simulate_back_to_back(inputs)
    np.testing.assert_allclose(simulated_s, completion_s, rtol=0.0, atol=1e-9)
    np.testing.assert_array_equal(simulated_target, target)


def test_no_two_events_of_the_inputs_share_a_moment() -> None:
    """Ciw draws lots among events of one moment, so a tie would make the comparison a matter of luck."""
    inputs = cnmt_inputs(REQUESTS, load=0.95)
    completion_s, target = idiomatic.simulate(inputs)
    reached_s = (inputs.arrival_s + inputs.uplink_s)[target == 1]
    finished_s = (completion_s - inputs.downlink_s)[target == 1]
    moments_s = np.concatenate([inputs.arrival_s, completion_s, reached_s, finished_s])
    assert len(np.unique(moments_s)) == len(moments_s)


@pytest.mark.parametrize("load", [deep(0.3), 0.6, deep(0.95), 1.9])
def test_the_busier_server_is_offered_the_load_asked_for(load: float) -> None:
    inputs = cnmt_inputs(20_000, load)
    _, target = idiomatic.simulate(inputs)
    per_second = 1 / inputs.arrival_s[-1]
    gateway_load = inputs.gateway_s[target == 0].sum() * per_second
    cloud_load = inputs.cloud_s[target == 1].sum() * per_second
    assert max(gateway_load, cloud_load) == pytest.approx(load, rel=0.05)
    assert target.mean() == pytest.approx(0.6, abs=0.02)


def test_a_longer_world_begins_with_the_shorter_one() -> None:
    shorter, longer = cnmt_inputs(500), cnmt_inputs(1_000)
    for name, column in columns(shorter).items():
        np.testing.assert_array_equal(column, columns(longer)[name][:500])
