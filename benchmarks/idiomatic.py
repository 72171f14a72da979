"""The C-NMT world as a competent user of SimPy would write it: a process per request, `Resource` servers.

It is the yardstick of speed, so nothing in it is slower than the style asks for: the columns are plain
lists, each request reads its own entries, and nothing is recorded but completion times and targets. Inputs:
`WorldInputs`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Generator

import numpy as np
import simpy
from numpy.typing import NDArray

from benchmarks.inputs import WorldInputs, cnmt_inputs

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


def main() -> None:
    """Run one world as a whole process and print what it cost."""
    parser = argparse.ArgumentParser(description="One C-NMT world in idiomatic SimPy; prints JSON.")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--load", type=float, default=0.6, help="of the busier server (default: 0.6)")
    parser.add_argument("--workers", type=int, default=1, help="cloud workers (default: 1)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    inputs = cnmt_inputs(arguments.requests, arguments.load, arguments.seed)
    start_s = time.process_time()
    completion_s, target = simulate(inputs, arguments.workers)
    end_s = time.process_time()
    answer = {
        **vars(arguments),
        "offloaded_share": float(target.mean()),
        "mean_latency_s": float((completion_s - inputs.arrival_s).mean()),
        "simulate_cpu_s": end_s - start_s,
        "simulate_cpu_us_per_request": 1e6 * (end_s - start_s) / arguments.requests,
        "process_cpu_s": end_s,
    }
    print(json.dumps(answer, indent=2))


if __name__ == "__main__":
    main()
