"""The C-NMT world as a competent user of SimPy would write it: a process per request, `Resource` servers.

It is the yardstick of speed, so nothing in it is slower than the style asks for: the columns are plain
lists, each request reads its own entries, and nothing is recorded but completion times and targets. Inputs:
`WorldInputs`.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import simpy
from numpy.typing import NDArray

from benchmarks.inputs import WorldInputs

Answer = tuple[NDArray[np.float64], NDArray[np.int8]]
"""Completion times (s) and targets (0 gateway, 1 cloud), each of shape (requests,)."""


def simulate(inputs: WorldInputs, workers: int = 1) -> Answer:
    """Open loop: requests arrive at their moments and queue at the gateway and at the cloud's workers."""
    return _simulate(inputs, workers, back_to_back=False)


def simulate_back_to_back(inputs: WorldInputs) -> Answer:
    """Closed loop: each request is issued when the one before completes, so nothing ever queues."""
    return _simulate(inputs, workers=1, back_to_back=True)


def _simulate(inputs: WorldInputs, workers: int, back_to_back: bool) -> Answer:
    env = simpy.Environment()
    gateway = simpy.Resource(env, capacity=1)
    cloud = simpy.Resource(env, capacity=workers)

    arrival_s = inputs.arrival_s.tolist()
    gateway_s = inputs.gateway_s.tolist()
    cloud_s = inputs.cloud_s.tolist()
    uplink_s = inputs.uplink_s.tolist()
    downlink_s = inputs.downlink_s.tolist()
    local_predicted_s = inputs.local_predicted_s.tolist()
    remote_predicted_s = inputs.remote_predicted_s.tolist()
    estimate_s = inputs.initial_transfer_s

    completion_s = [0.0] * inputs.requests
    target = [0] * inputs.requests

    def request(i: int) -> Generator[simpy.Event, None, None]:
        nonlocal estimate_s
        if local_predicted_s[i] <= remote_predicted_s[i] + estimate_s:
            with gateway.request() as turn:
                yield turn
                yield env.timeout(gateway_s[i])
        else:
            target[i] = 1
            sent_s = env.now
            yield env.timeout(uplink_s[i])
            reached_s = env.now
            with cloud.request() as turn:
                yield turn
                yield env.timeout(cloud_s[i])
            finished_s = env.now
            yield env.timeout(downlink_s[i])
            estimate_s = (env.now - sent_s) - (finished_s - reached_s)
        completion_s[i] = env.now

    def arrivals() -> Generator[simpy.Event, None, None]:
        for i, moment_s in enumerate(arrival_s):
            yield env.timeout(moment_s - env.now)
            env.process(request(i))

    def one_after_another() -> Generator[simpy.Event, None, None]:
        for i in range(inputs.requests):
            yield env.process(request(i))

    env.process(one_after_another() if back_to_back else arrivals())
    env.run()
    return np.array(completion_s), np.array(target, dtype=np.int8)
