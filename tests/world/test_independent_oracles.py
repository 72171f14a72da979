"""Ciw and an idiomatic SimPy model, which share no code with the world, complete every request at the same moment.

`test_conservation` judges balancers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import ciw_model, idiomatic
from benchmarks.inputs import WorldInputs, cnmt_inputs
from simnmt.policies import Decide, LeastTotal
from simnmt.results.requests import Requests
from tests.worlds import latency_s, run, two_devices

Outcome = tuple[NDArray[np.float64], NDArray[np.int8]]
"""When each request's answer is received, and its target."""
REQUESTS = 3_000


def ours(inputs: WorldInputs, workers: int = 1, back_to_back: bool = False) -> Outcome:
    """Completion times and targets; `src_len` holds the request's number, by which the rule finds its predictions."""

    def decide_for(block: Requests) -> Decide:
        return LeastTotal((inputs.local_predicted_s[block.src_len], inputs.remote_predicted_s[block.src_len]))

    arrival_s, numbers = None if back_to_back else inputs.arrival_s, np.arange(inputs.requests)
    requests = two_devices(numbers, inputs.gateway_s, inputs.cloud_s, inputs.uplink_s, inputs.downlink_s, arrival_s)
    trail = run(requests, decide_for, inputs.initial_transfer_s, workers=workers)
    return trail.arrival_s + latency_s(requests, trail), trail.target


def agree(outcome: Outcome, expected: Outcome) -> None:
    np.testing.assert_array_equal(outcome[1], expected[1])
    np.testing.assert_allclose(outcome[0], expected[0], rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("load", [0.3, 0.95, 1.9])
def test_ciw_and_idiomatic_simpy_complete_every_request_at_the_same_moment(load: float, workers: int) -> None:
    inputs = cnmt_inputs(REQUESTS, load)
    agree(ours(inputs, workers), idiomatic.simulate(inputs, workers))
    if load < 1.0:
        agree(ours(inputs, workers), ciw_model.simulate(inputs, workers))


@pytest.mark.parametrize("workers", [1, 3])
def test_ciw_does_so_where_requests_overtake_each_other_on_the_link(workers: int) -> None:
    inputs = cnmt_inputs(REQUESTS, load=0.9)
    up_s, down_s = np.random.default_rng(5).exponential(0.5, (2, REQUESTS))
    overtaking = replace(inputs, uplink_s=inputs.uplink_s + up_s, downlink_s=inputs.downlink_s + down_s, initial_transfer_s=0.9)
    # A policy that expects a second on the link must save more than that to send anything.
    overtaking = replace(overtaking, local_predicted_s=overtaking.local_predicted_s + 1.0)
    outcome = ours(overtaking, workers)
    agree(outcome, ciw_model.simulate(overtaking, workers))
    assert 0.2 < outcome[1].mean() < 0.8


def test_idiomatic_simpy_does_so_back_to_back() -> None:
    inputs = cnmt_inputs(REQUESTS)
    agree(ours(inputs, back_to_back=True), idiomatic.simulate_back_to_back(inputs))
