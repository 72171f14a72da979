"""A policy that hears of batches hears of nothing else: no lengths that nobody knows yet, no batch before its report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.invariants.test_blindness import again, blinded, replayed
from tests.units import Run, plan_of, unit_of, watched

MakeScenario = Callable[..., dict[str, Any]]
POLICIES: dict[str, dict[str, Any]] = {
    "plain": {"kind": "cnmt"},
    "reported": {"kind": "cnmt", "batch": "reported"},
    "distribution": {"kind": "cnmt", "batch": "reported", "lengths": "distribution"},
    "queue-aware": {"kind": "cnmt", "batch": "reported", "sees_backlog": True},
    "oracle": {"kind": "oracle"},
}
BLIND = [name for name in POLICIES if name != "oracle"]
ARRIVALS = {
    "open loop": {"kind": "poisson", "rate_rps": 90.0},
    "closed loop": {"kind": "clients", "clients": 40, "think_time": {"mean_s": 0.2}},
}
KEPT: dict[str, dict[str, Run]] = {}


@pytest.fixture(params=ARRIVALS)
def runs(request: pytest.FixtureRequest, make_batched: MakeScenario, monkeypatch: pytest.MonkeyPatch) -> dict[str, Run]:
    """A cloud that batches, before forty gateways; once for each discipline."""
    if request.param not in KEPT:
        scenario = make_batched(arrivals=ARRIVALS[request.param], requests=500, policies=POLICIES)
        scenario["workloads"]["de-en"]["end_nodes"] = scenario["devices"]["gateway"]["count"] = 40
        found, _ = watched(monkeypatch, unit_of(plan_of(scenario)))
        KEPT[request.param] = dict(zip(POLICIES, found, strict=True))
    return KEPT[request.param]


@pytest.mark.parametrize("policy", BLIND)
def test_truth_turned_to_nan_changes_no_decision(runs: dict[str, Run], policy: str) -> None:
    run = runs[policy]
    trail, handed = again(run)
    assert trail.target.tolist() == run.trail.target.tolist()
    assert replayed(run, blinded(run.requests), handed) == run.trail.target.tolist()


def test_what_is_replayed_are_real_choices(runs: dict[str, Run]) -> None:
    targets = [runs[policy].trail.target for policy in BLIND]
    assert all(0.02 < target.mean() < 0.98 for target in targets)
    assert len({target.tobytes() for target in targets}) >= 3  # forty gateways hardly queue in a closed loop


def changed_before_it_was_known(run: Run, request: int) -> int:
    """Decisions that changed, of those taken before anybody could know that one request has three times its length."""
    (trail, handed), tgt_len = again(run), run.requests.tgt_len
    assert tgt_len is not None
    assert trail.execution_s is not None
    longer, many = np.array(tgt_len[:]), np.array([column[:] for column in run.requests.execution_s])
    longer[request] *= 3
    many[:, request] *= 3.0
    other, other_handed = again(run, replace(run.requests, tgt_len=longer, execution_s=tuple(many)))
    target = int(trail.target[request])
    way_s = 0.0 if target == 0 else float(np.asarray(run.requests.uplink_s[0])[request])
    if run.keywords["route"] is not None and target:
        node = 0 if trail.node is None else int(trail.node[request])
        way_s = run.keywords["route"](request, node, float(trail.arrival_s[request]))[0][0]
    execution_s = trail.execution_s[request] if target else run.requests.execution_s[0][request : request + 1][0]
    known_s = float(trail.decided_s[request] + way_s + trail.queue_s[request] + execution_s)
    early = np.flatnonzero(trail.decided_s < known_s)
    assert request in early
    return sum(trail.target[n] != other.target[n] or handed[n] != other_handed[n] for n in early.tolist())


def long_ones(run: Run) -> list[int]:
    """Requests that take long, where they were executed, in the middle of the run."""
    found = []
    for target in (0, 1):
        own = np.flatnonzero(run.trail.target == target)
        own = own[(own > 50) & (own < 450)]
        assert run.requests.tgt_len is not None
        found += own[np.argsort(np.asarray(run.requests.tgt_len)[own])[-2:]].tolist()
    return found


@pytest.mark.parametrize("policy", BLIND)
def test_nobody_hears_how_long_a_sentence_is_before_it_has_ended(runs: dict[str, Run], policy: str) -> None:
    assert sum(changed_before_it_was_known(runs[policy], request) for request in long_ones(runs[policy])) == 0


def test_the_oracle_hears_of_it(runs: dict[str, Run]) -> None:
    assert sum(changed_before_it_was_known(runs["oracle"], request) for request in long_ones(runs["oracle"])) > 0
