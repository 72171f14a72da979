"""What a world costs follows from its requests, not from the boxes, workers and clients that a scenario may name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.base.errors import InputError
from simnmt.policies.views import BacklogView
from simnmt.scenario.document import MAX_BYTES

MakeScenario = Callable[..., dict[str, Any]]
MOST = 10_000
"""Boxes of a kind, and workers of a box, that a scenario may name."""


@contextmanager
def seconds_at_most(most_s: float) -> Iterator[None]:
    """Of the processor, which other work on the machine does not use up."""
    began_s = time.process_time()
    yield
    assert time.process_time() - began_s < most_s


def entries(size: int, seed: int) -> list[tuple[float, float]]:
    """Times of entry, in order, and of service: in bursts, so that servers fill and run empty."""
    generator = np.random.default_rng(seed)
    gaps_s = generator.exponential(0.2, size) * (generator.random(size) < 0.3)
    return list(zip(np.cumsum(gaps_s).tolist(), generator.exponential(1.0, size).tolist(), strict=True))


def test_a_view_of_a_hundred_million_workers_is_small_and_believes_in_no_wait() -> None:
    with seconds_at_most(1.0):
        view = BacklogView(MOST * MOST)
        for at_s, service_s in entries(100, 1):
            assert view.added_s(at_s) == 0.0
            view.sent(at_s, service_s)


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


def test_a_file_full_of_unknown_keys_is_refused_in_seconds(tmp_path: Any) -> None:
    unknown = MAX_BYTES // 40
    lines = (f"key_{number}: {number}" for number in range(unknown))
    path = tmp_path / "s.yaml"
    path.write_text("version: 1\nname: x\n" + "\n".join(lines) + "\n", encoding="utf-8")
    with seconds_at_most(8.0), pytest.raises(InputError) as caught:
        simnmt.run(path)
    assert "key_0: unknown key" in "\n".join(map(str, [caught.value, *caught.value.others]))
    assert len(caught.value.others) < 100
