"""No policy but the oracle can see the truth: turned to NaN it changes no decision, and nobody hears of it before its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest

from simnmt.policies import CNmt, Decide, Oracle, constant_length
from simnmt.results.requests import Requests, Trail
from simnmt.world.deciders import plain
from simnmt.world.reference import DecideFor, simulate
from tests.campaigns.harness import thinned
from tests.units import Run, plan_of, unit_of, watched

MakeScenario = Callable[..., dict[str, Any]]
DISCIPLINES = {
    "back to back": {"kind": "back_to_back"},
    "open loop": {"kind": "poisson", "rate_rps": 40.0},
    "closed loop": {"kind": "clients", "clients": 30, "think_time": {"mean_s": 0.5}},
}
POLICIES: dict[str, dict[str, Any]] = {
    "edge": {},
    "cloud": {},
    "region": {"kind": "fixed", "device": "region"},
    "naive": {},
    "cnmt": {},
    "smoothed": {"kind": "cnmt", "transfer_estimate": "smoothed"},
    "mean": {"kind": "cnmt", "lengths": "distribution"},
    "p95": {"kind": "cnmt", "lengths": "distribution", "minimises": "p95"},
    "queue-aware": {"kind": "cnmt", "sees_backlog": True},
    "queue-aware naive": {"kind": "naive", "sees_backlog": True, "transfer_estimate": "smoothed"},
    "queue-aware p95": {"kind": "cnmt", "sees_backlog": True, "lengths": "distribution", "minimises": "p95"},
    "oracle": {},
}
BLIND = [name for name in POLICIES if name != "oracle"]
Delays = dict[int, tuple[float, ...]]
"""By request."""


@pytest.fixture(params=DISCIPLINES, scope="session")
def discipline(request: pytest.FixtureRequest) -> str:
    """How requests come."""
    found: str = request.param
    return found


KEPT: dict[str, dict[str, Run]] = {}


@pytest.fixture
def runs(discipline: str, make_tiers: MakeScenario, monkeypatch: pytest.MonkeyPatch) -> dict[str, Run]:
    """Three tiers under all policies, as the product runs them; once for each discipline."""
    if discipline not in KEPT:
        spread = "own" if discipline == "back to back" else None
        scenario = make_tiers(arrivals=DISCIPLINES[discipline], requests=1_000, policies=POLICIES)
        scenario["networks"]["cp1"] |= {"clock": spread} if spread else {}
        for device, busy_w in zip(scenario["devices"].values(), (20.0, 60.0, 120.0), strict=True):
            device["power"] = {"idle_w": 1.0, "busy_w": busy_w}
        found, _ = watched(monkeypatch, unit_of(plan_of(scenario)))
        KEPT[discipline] = dict(zip(POLICIES, found, strict=True))
    return KEPT[discipline]


def again(run: Run, requests: Requests | None = None) -> tuple[Trail, Delays]:
    """The same run once more, maybe with other requests; and the delays that were handed to each decision."""
    handed: Delays = {}

    def decide_for(block: Requests) -> Decide:
        decide = plain(run.decide_for(block))

        def noted(request: int, delay_s: Sequence[float]) -> int:
            handed[block.first + request] = tuple(delay_s)
            return decide(request, delay_s)

        return noted

    pools = deepcopy(run.idle_pools)
    return simulate(requests or run.requests, decide_for, run.beliefs, pools, **run.keywords), handed


def blinded(requests: Requests) -> Requests:
    """All that a policy must not see turned to NaN; source lengths, arrivals and who asks are left."""
    nothing = np.full(len(requests), np.nan)
    hidden: dict[str, Any] = {}
    for field in fields(Requests):
        value = getattr(requests, field.name)
        if field.name in ("execution_s", "uplink_s", "downlink_s"):
            hidden[field.name] = tuple(nothing for _ in value)
        elif field.name not in ("src_len", "arrival_s", "node", "first"):
            hidden[field.name] = nothing
    return replace(requests, **hidden)


def replayed(run: Run, requests: Requests, handed: Delays) -> list[int]:
    """The decisions taken again, block by block, on the delays that were believed in then."""
    decisions = []
    for block in requests.blocks():
        decide = plain(run.decide_for(block))
        decisions += [decide(request, handed[block.first + request]) for request in range(len(block))]
    return decisions


@pytest.mark.parametrize("policy", BLIND)
def test_truth_turned_to_nan_changes_no_decision(runs: dict[str, Run], policy: str) -> None:
    run = runs[policy]
    trail, handed = again(run)
    assert trail.target.tolist() == run.trail.target.tolist()
    assert replayed(run, run.requests, handed) == run.trail.target.tolist()
    assert replayed(run, blinded(run.requests), handed) == run.trail.target.tolist()


def test_what_is_replayed_are_real_choices(runs: dict[str, Run]) -> None:
    for policy in ("cnmt", "smoothed", "mean", "queue-aware"):
        shares = np.bincount(runs[policy].trail.target, minlength=3) / len(runs[policy].trail.target)
        assert (shares > 0.02).all(), policy
    # Back to back nothing waits, so that a policy that sees queues is the one that does not.
    assert len({runs[policy].trail.target.tobytes() for policy in BLIND}) >= 6


def test_the_oracle_lives_by_the_truth(runs: dict[str, Run]) -> None:
    run = runs["oracle"]
    _, handed = again(run)
    assert replayed(run, run.requests, handed) == run.trail.target.tolist()
    assert replayed(run, blinded(run.requests), handed) != run.trail.target.tolist()


@dataclass(frozen=True)
class _Seconds:
    true_s: np.ndarray

    def seconds(self, src_len: np.ndarray, tgt_len: np.ndarray) -> np.ndarray:
        return self.true_s


CHEATS: dict[str, DecideFor] = {
    "execution": lambda block: Oracle(block.execution_s).prepare(block.src_len),
    "gateway alone": lambda block: Oracle(
        (block.execution_s[0], block.src_len * 0.004, block.src_len * 0.002)
    ).prepare(block.src_len),
    "lengths in disguise": lambda block: CNmt(
        tuple(_Seconds(true_s) for true_s in block.execution_s), constant_length(1.0)
    ).prepare(block.src_len),
    "link": lambda block: Oracle(
        (block.src_len * 0.01, block.src_len * 0.004 + block.uplink_s[0], block.src_len * 0.002 + block.uplink_s[1])
    ).prepare(block.src_len),
}  # fmt: skip


@pytest.mark.parametrize("cheat", CHEATS)
def test_the_same_test_catches_a_policy_that_peeps(runs: dict[str, Run], cheat: str) -> None:
    run = replace(runs["cnmt"], decide_for=CHEATS[cheat])
    _, handed = again(run)
    assert replayed(run, blinded(run.requests), handed) != replayed(run, run.requests, handed)


def done_s(run: Run, trail: Trail, request: int) -> float:
    """When an execution ends."""
    target, route = int(trail.target[request]), run.keywords["route"]
    if target == 0:
        way_s = 0.0
    elif route is None:
        way_s = float(run.requests.uplink_s[target - 1][request : request + 1][0])
    else:
        nodes = run.requests.node if trail.node is None else trail.node
        assert nodes is not None
        way_s = route(request, int(nodes[request : request + 1][0]), float(trail.arrival_s[request]))[0][target - 1]
    execution_s = run.requests.execution_s[target][request : request + 1][0]
    return float(trail.decided_s[request] + way_s + trail.queue_s[request] + execution_s)


def changed_before_they_were_known(run: Run) -> int:
    """Decisions that changed, of those taken before anybody could know how long a request takes, as that takes longer."""
    base = again(run)
    return sum(changed_before_it_was_known(run, request, *base) for request in long_ones(run))


def changed_before_it_was_known(run: Run, request: int, trail: Trail, handed: Delays) -> int:
    """Of one request; each is the only one that takes longer."""
    longer = [np.array(column[:]) for column in run.requests.execution_s]
    for column in longer:
        column[request] *= 3.0
    other, other_handed = again(run, replace(run.requests, execution_s=tuple(longer)))
    known_s = min(done_s(run, trail, request), done_s(run, other, request))
    early = np.flatnonzero(trail.decided_s < known_s)
    assert request in early
    assert (trail.decided_s[early] == other.decided_s[early]).all()
    return sum(
        trail.target[number] != other.target[number] or handed[number] != other_handed[number] for number in early.tolist()
    )


def long_ones(run: Run) -> list[int]:
    """Requests that take long on the first device, where they were executed, and on the others; so many decide meanwhile."""
    found = []
    for target in range(3):
        own = np.flatnonzero(run.trail.target == target)
        own = own[(own > 100) & (own < len(run.trail.target) - 100)]
        found += own[np.argsort(np.asarray(run.requests.execution_s[target])[own])[-2:]].tolist()
    return found


@pytest.mark.parametrize("policy", thinned(BLIND, ("queue-aware p95",)))
def test_nobody_hears_how_long_an_execution_takes_before_it_has_ended(runs: dict[str, Run], policy: str) -> None:
    """Not even of its own device's: a translation's length is known when it is done."""
    assert changed_before_they_were_known(runs[policy]) == 0


def test_the_oracle_hears_of_it(runs: dict[str, Run]) -> None:
    assert changed_before_they_were_known(runs["oracle"]) > 0
