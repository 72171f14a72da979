"""What a world costs follows from its requests, not from the boxes, workers and clients that a scenario may name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import simnmt

MakeScenario = Callable[..., dict[str, Any]]
MOST = 10_000
"""Boxes of a kind, and workers of a box, that a scenario may name."""


@contextmanager
def seconds_at_most(most_s: float) -> Iterator[None]:
    """Of the processor, which other work on the machine does not use up."""
    began_s = time.process_time()
    yield
    assert time.process_time() - began_s < most_s


@pytest.mark.parametrize("balancer", ["attached", "least_work", "two_choices"])
def test_ten_thousand_boxes_of_ten_thousand_workers_take_seconds(make_scenario: MakeScenario, balancer: str) -> None:
    scenario = make_scenario(
        requests=50, replications=1, policies={"cloud": {}, "seen": {"kind": "cnmt", "sees_backlog": True}}
    )
    scenario["workloads"]["de-en"] |= {"end_nodes": MOST, "arrivals": {"kind": "poisson", "rate_rps": 5.0}}
    scenario["devices"]["gateway"] |= {"count": MOST, "workers": MOST}
    scenario["devices"]["cloud"] |= {"count": MOST, "workers": MOST, "balancer": balancer}
    with seconds_at_most(20.0):
        logs = simnmt.run(scenario).cells[0].logs
    assert not any(log["t_queue_s"].any() for log in logs.values())


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_of_a_million_clients_only_those_who_can_ask_cost_anything(make_scenario: MakeScenario, engine: Any) -> None:
    arrivals = {"kind": "clients", "clients": 1_000_000, "think_time": {"mean_s": 1.0}}
    scenario = make_scenario(requests=50, replications=1, policies={"edge": {}})
    scenario["workloads"]["de-en"] |= {"end_nodes": 7, "arrivals": arrivals}
    with seconds_at_most(5.0):
        log = simnmt.run(scenario, engine=engine).cells[0].logs["edge"]
    assert (np.diff(log["arrival_s"]) >= 0.0).all()
    assert log["arrival_s"].max() < 1e-3, "the 50 least of a million thinking times of a mean of 1 s"
