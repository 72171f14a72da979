"""Where the requests of a run lie: in files while it runs, and nowhere to be seen afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from simnmt.base.random_streams import BLOCK
from simnmt.experiment.run import run_plan
from simnmt.experiment.units import run_unit
from simnmt.world.structures import library
from tests.units import plan_of, unit_of

MakeScenario = Callable[..., dict[str, Any]]
REQUESTS = BLOCK + 1_000
"""More than one block of draws."""


def workload(**arrivals: Any) -> dict[str, Any]:
    return {"de-en": {"lengths": "@de-en-news", "arrivals": arrivals}}


OPEN = workload(kind="poisson", rate_rps=6.0)


DISCIPLINES: dict[str, dict[str, Any]] = {
    "back to back": {"workloads": workload(kind="back_to_back")},
    "back to back, own clock": {
        "workloads": workload(kind="back_to_back"),
        "networks": {"cp1": {"rtt": "@cp1", "clock": "own"}},
        "requests": 3_000,
    },
    "open": {"workloads": OPEN},
    "open, over access links": {
        "workloads": {"de-en": {**OPEN["de-en"], "end_nodes": 5}},
        "networks": {"cp1": {"rtt": "@cp1", "hops": {"gateway": {"rtt": {"constant_ms": 400}}}}},
    },
    "closed": {"workloads": workload(kind="clients", clients=9, think_time={"mean_s": 0.5}), "requests": 3_000},
}


@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_a_longer_run_begins_with_the_shorter_one(make_scenario: MakeScenario, discipline: str) -> None:
    """Drawn block by block: all that is drawn of a request is the same, however many follow it."""
    keys = {"requests": REQUESTS, "policies": {"edge": {}}} | DISCIPLINES[discipline]
    fewer = keys | {"requests": keys["requests"] * 9 // 10}
    longer, shorter = (run_unit(unit_of(plan_of(make_scenario(**scenario)))) for scenario in (keys, fewer))
    assert longer.truth is not None and shorter.truth is not None
    same = [(longer.truth.src_len, shorter.truth.src_len), (longer.truth.tgt_len, shorter.truth.tgt_len)]
    same += [*zip(longer.truth.execution_s, shorter.truth.execution_s, strict=True), (longer.truth.node, shorter.truth.node)]
    if "poisson" in str(keys["workloads"]):
        same.append((longer.trails["edge"].arrival_s, shorter.trails["edge"].arrival_s))
        same += zip(longer.truth.transfer_s, shorter.truth.transfer_s, strict=True)
    for ours, theirs in same:
        np.testing.assert_array_equal(ours[: fewer["requests"]], theirs[:])


def test_a_long_unit_reports_what_is_done_block_by_block(make_scenario: MakeScenario) -> None:
    """Each policy is a stage; between its blocks an interrupt ends the run."""
    plan = plan_of(make_scenario(workloads=OPEN, requests=REQUESTS, replications=1, policies={"edge": {}, "cnmt": {}}))
    done: list[float] = []
    run_plan(plan, progress=lambda runs, of: done.append(runs / of))
    assert done == sorted(done)
    assert {0.0, 1 / 2, 1.0} <= set(done)
    assert sum(0.0 < share < 1 / 2 for share in done) == (library() is not None)
