"""Ciw and an idiomatic SimPy model, which share no code with the world, complete every request at the same moment."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import ciw_model, idiomatic
from benchmarks.inputs import WorldInputs, cnmt_inputs
from simnmt.policies import CLOUD, Decide, least_total
from simnmt.world.requests import Requests
from simnmt.world.simulate import simulate

REQUESTS = 3_000


def ours(inputs: WorldInputs, workers: int = 1, back_to_back: bool = False) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
    """Completion times and targets; `src_len` holds the request's number, by which the rule finds what it reckons with."""

    def decide_for(block: Requests) -> Decide:
        return least_total((inputs.local_predicted_s[block.src_len], inputs.remote_predicted_s[block.src_len]))

    requests = Requests(
        src_len=np.arange(inputs.requests),
        gateway_s=inputs.gateway_s,
        cloud_s=inputs.cloud_s,
        uplink_s=inputs.uplink_s,
        downlink_s=inputs.downlink_s,
        arrival_s=None if back_to_back else inputs.arrival_s,
    )
    trail = simulate(requests, decide_for, initial_transfer_s=inputs.initial_transfer_s, workers=workers)
    away_s = inputs.cloud_s + inputs.uplink_s + inputs.downlink_s
    return trail.arrival_s + trail.queue_s + np.where(trail.target == CLOUD, away_s, inputs.gateway_s), trail.target


def agree(found: tuple[NDArray[np.float64], NDArray[np.int8]], expected: tuple[NDArray[np.float64], NDArray[np.int8]]) -> None:
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[0], expected[0], rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("load", [0.3, 0.6, 0.95])
def test_ciw_completes_every_request_at_the_same_moment(load: float, workers: int) -> None:
    inputs = cnmt_inputs(REQUESTS, load)
    agree(ours(inputs, workers), ciw_model.simulate(inputs, workers))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("load", [0.3, 0.6, 0.95, 1.9])
def test_idiomatic_simpy_completes_every_request_at_the_same_moment(load: float, workers: int) -> None:
    inputs = cnmt_inputs(REQUESTS, load, seed=2)
    agree(ours(inputs, workers), idiomatic.simulate(inputs, workers))


@pytest.mark.parametrize("workers", [1, 3])
def test_so_it_does_where_requests_overtake_each_other_on_the_link(workers: int) -> None:
    inputs = cnmt_inputs(REQUESTS, load=0.9)
    up_s, down_s = np.random.default_rng(5).exponential(0.5, (2, REQUESTS))
    overtaking = replace(inputs, uplink_s=inputs.uplink_s + up_s, downlink_s=inputs.downlink_s + down_s, initial_transfer_s=0.9)
    # Whoever reckons with a second on the link must save more than that to send anything.
    overtaking = replace(overtaking, local_predicted_s=overtaking.local_predicted_s + 1.0)
    found = ours(overtaking, workers)
    agree(found, ciw_model.simulate(overtaking, workers))
    assert 0.2 < found[1].mean() < 0.8


def test_back_to_back_too() -> None:
    inputs = cnmt_inputs(REQUESTS)
    agree(ours(inputs, back_to_back=True), idiomatic.simulate_back_to_back(inputs))


def test_the_comparison_tells_worlds_apart() -> None:
    inputs = cnmt_inputs(REQUESTS, 0.95)
    with pytest.raises(AssertionError):
        agree(ours(inputs, workers=2), idiomatic.simulate(inputs, workers=1))
