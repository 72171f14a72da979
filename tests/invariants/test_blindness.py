"""No policy but the oracle can see the truth: turned to NaN it changes no decision, and nobody hears of it before its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest

from simnmt.policies import CNmt, Decide, LeastTotal, constant_length
from simnmt.results.requests import Requests, Trail
from simnmt.world.inputs import DecideFor
from simnmt.world.reference import simulate_reference
from tests.campaigns.harness import thinned
from tests.invariants.conftest import DISCIPLINES
from tests.units import Run, plan_of, unit_of, watched
from tests.worlds import assert_agree

MakeScenario = Callable[..., dict[str, Any]]
BATCHED = {
    "batched, open loop": {"kind": "poisson", "rate_rps": 90.0},
    "batched, closed loop": {"kind": "clients", "clients": 40, "think_time": {"mean_s": 0.2}},
}
STREAMED = ("streamed, engagements",)
TIERS_POLICIES: dict[str, dict[str, Any]] = {
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
BATCHED_POLICIES: dict[str, dict[str, Any]] = {
    "cnmt": {},
    "reported": {"kind": "cnmt", "batch": "reported"},
    "distribution": {"kind": "cnmt", "batch": "reported", "lengths": "distribution"},
    "queue-aware": {"kind": "cnmt", "batch": "reported", "sees_backlog": True},
    "oracle": {},
}
STREAMED_POLICIES: dict[str, dict[str, Any]] = {
    "cnmt": {},
    "knowing": {"kind": "cnmt", "plan_state": "known"},
    "queue-aware": {"kind": "cnmt", "plan_state": "known", "sees_backlog": True},
    "oracle": {},
}
POLICIES = (
    dict.fromkeys(DISCIPLINES, TIERS_POLICIES)
    | dict.fromkeys(BATCHED, BATCHED_POLICIES)
    | dict.fromkeys(STREAMED, STREAMED_POLICIES)
)
BLIND = [(discipline, policy) for discipline, policies in POLICIES.items() for policy in policies if policy != "oracle"]
"""Discipline and policy."""
HEARING = [(discipline, "queue-aware p95" if discipline in DISCIPLINES else "queue-aware") for discipline in POLICIES]
Delays = dict[int, tuple[float, ...]]
"""By request."""
KEPT: dict[str, dict[str, Run]] = {}
"""Three tiers, a cloud that batches behind forty gateways, or a gateway that streams; run once for each discipline."""


@pytest.fixture
def runs(
    request: pytest.FixtureRequest,
    make_tiers: MakeScenario,
    make_batched: MakeScenario,
    make_streamed: MakeScenario,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Run]:
    """The runs of a discipline (the parameter), by policy."""
    discipline: str = request.param
    if discipline not in KEPT:
        policies = POLICIES[discipline]
        if discipline in DISCIPLINES:
            scenario = make_tiers(arrivals=DISCIPLINES[discipline], requests=1_000, policies=policies)
            scenario["networks"]["cp1"] |= {"clock": "own"} if discipline == "back to back" else {}
            for device, busy_w in zip(scenario["devices"].values(), (20.0, 60.0, 120.0), strict=True):
                device["power"] = {"idle_w": 1.0, "busy_w": busy_w}
        elif discipline in STREAMED:
            scenario = make_streamed(requests=300, policies=policies, networks={"n": {"rtt": {"constant_ms": 400}}})
        else:
            scenario = make_batched(arrivals=BATCHED[discipline], requests=500, policies=policies)
            scenario["workloads"]["de-en"]["end_nodes"] = scenario["devices"]["gateway"]["count"] = 40
        watched_runs, _ = watched(monkeypatch, unit_of(plan_of(scenario)))
        KEPT[discipline] = dict(zip(policies, watched_runs, strict=True))
    return KEPT[discipline]


of_every_discipline = pytest.mark.parametrize("runs", POLICIES, indirect=True)


def again(run: Run, requests: Requests | None = None) -> tuple[Trail, Delays]:
    """The same run once more, maybe with other requests; and the delays that were handed to each decision."""
    handed: Delays = {}

    def decide_for(block: Requests) -> Decide:
        decide = run.policy.decide_for(block)

        def noted(request: int, delay_s: Sequence[float]) -> int:
            handed[block.first + request] = tuple(delay_s)
            return decide(request, delay_s)

        return noted

    world = replace(run.world, requests=requests or run.world.requests, kinds=deepcopy(run.world.kinds))
    return simulate_reference(world, replace(run.policy, decide_for=decide_for), run.judged_share), handed


def blinded(requests: Requests) -> Requests:
    """All that a policy must not see turned to NaN; source lengths, arrivals and who asks are left."""
    nothing = np.full(len(requests), np.nan)
    hidden: dict[str, Any] = {}
    for field in fields(Requests):
        value = getattr(requests, field.name)
        if isinstance(value, tuple) and field.name != "transfer_s":
            hidden[field.name] = tuple(nothing for _ in value)
        elif field.name not in ("src_len", "arrival_s", "node", "first"):
            hidden[field.name] = nothing
    return replace(requests, **hidden)


def replayed(run: Run, requests: Requests, handed: Delays) -> list[int]:
    """The decisions taken again, block by block, on the delays that were believed in then."""
    decisions = []
    for block in requests.blocks(1_000):
        decide = run.policy.decide_for(block)
        decisions += [decide(request, handed[block.first + request]) for request in range(len(block))]
    return decisions


@pytest.mark.parametrize(("runs", "policy"), BLIND, indirect=["runs"])
def test_truth_turned_to_nan_changes_no_decision(runs: dict[str, Run], policy: str) -> None:
    """The run is that of the compiled engine, and again that of the reference."""
    run = runs[policy]
    trail, handed = again(run)
    assert_agree(run.trail, trail)
    assert replayed(run, run.world.requests, handed) == run.trail.target.tolist()
    assert replayed(run, blinded(run.world.requests), handed) == run.trail.target.tolist()


@of_every_discipline
def test_the_choices_that_are_replayed_are_real(runs: dict[str, Run]) -> None:
    for policy in {"cnmt", "smoothed", "mean", "reported", "queue-aware"} & set(runs):
        targets = runs[policy].trail.target
        assert (np.bincount(targets, minlength=len(runs[policy].world.requests.execution_s)) > 0.02 * len(targets)).all(), (
            policy
        )
    # Back to back, and at forty gateways, hardly anything waits: a policy that sees queues decides as one that does not.
    different = {run.trail.target.tobytes() for policy, run in runs.items() if policy != "oracle"}
    assert len(different) >= (6 if "edge" in runs else 3)


@pytest.mark.parametrize("runs", DISCIPLINES, indirect=True)
def test_the_oracle_lives_by_the_truth(runs: dict[str, Run]) -> None:
    run = runs["oracle"]
    _, handed = again(run)
    assert replayed(run, run.world.requests, handed) == run.trail.target.tolist()
    assert replayed(run, blinded(run.world.requests), handed) != run.trail.target.tolist()


@dataclass(frozen=True)
class _Seconds:
    true_s: np.ndarray

    def seconds(self, src_len: np.ndarray, tgt_len: np.ndarray) -> np.ndarray:
        return self.true_s


CHEATS: dict[str, DecideFor] = {
    "execution": lambda block: LeastTotal(block.execution_s),
    "gateway alone": lambda block: LeastTotal(
        (block.execution_s[0], block.src_len * 0.004, block.src_len * 0.002)
    ),
    "lengths in disguise": lambda block: CNmt(
        tuple(_Seconds(true_s) for true_s in block.execution_s), constant_length(1.0)
    ).prepare(block.src_len),
    "link": lambda block: LeastTotal(
        (block.src_len * 0.01, block.src_len * 0.004 + block.uplink_s[0], block.src_len * 0.002 + block.uplink_s[1])
    ),
}  # fmt: skip


@pytest.mark.parametrize("cheat", CHEATS)
@pytest.mark.parametrize("runs", DISCIPLINES, indirect=True)
def test_the_same_test_catches_a_policy_that_peeps(runs: dict[str, Run], cheat: str) -> None:
    run = replace(runs["cnmt"], policy=replace(runs["cnmt"].policy, decide_for=CHEATS[cheat]))
    _, handed = again(run)
    assert replayed(run, blinded(run.world.requests), handed) != replayed(run, run.world.requests, handed)


def done_s(run: Run, trail: Trail, request: int) -> float:
    """When an execution ends."""
    target, route = int(trail.target[request]), run.world.route
    if target == 0:
        way_s = 0.0
    elif route is None:
        way_s = float(run.world.requests.uplink_s[target - 1][request : request + 1][0])
    else:
        nodes = run.world.requests.node if trail.node is None else trail.node
        assert nodes is not None
        way_s = route(request, int(nodes[request : request + 1][0]), float(trail.arrival_s[request]))[0][target - 1]
    in_batch = trail.execution_s is not None and np.isfinite(trail.execution_s[request])
    execution_s = trail.execution_s[request] if in_batch else run.world.requests.execution_s[target][request : request + 1][0]
    return float(trail.decided_s[request] + way_s + trail.queue_s[request] + execution_s)


def changed_before_they_were_known(run: Run) -> int:
    """Decisions that changed, of those taken before anybody could know how long a request takes, when it alone takes longer."""
    (trail, handed), changed = again(run), 0
    for request in long_ones(run):
        longer, tgt_len = [np.array(column) for column in run.world.requests.execution_s], np.array(run.world.requests.tgt_len)
        for column in (*longer, tgt_len):
            column[request] *= 3
        other, other_handed = again(run, replace(run.world.requests, tgt_len=tgt_len, execution_s=tuple(longer)))
        early = np.flatnonzero(trail.decided_s < min(done_s(run, trail, request), done_s(run, other, request)))
        assert request in early
        changed += sum(
            trail.decided_s[n] != other.decided_s[n] or trail.target[n] != other.target[n] or handed[n] != other_handed[n]
            for n in early.tolist()
        )
    return changed


def long_ones(run: Run) -> list[int]:
    """Requests that take long on the first device, where they were executed, and on the others; so many decide meanwhile."""
    requests = []
    margin = len(run.trail.target) // 10
    for target in range(len(run.world.requests.execution_s)):
        rows = np.flatnonzero(run.trail.target == target)
        rows = rows[(rows > margin) & (rows < len(run.trail.target) - margin)]
        requests += rows[np.argsort(np.asarray(run.world.requests.execution_s[target])[rows])[-2:]].tolist()
    return requests


@pytest.mark.parametrize(("runs", "policy"), thinned(BLIND, HEARING), indirect=["runs"])
def test_no_policy_learns_how_long_an_execution_takes_before_it_has_ended(runs: dict[str, Run], policy: str) -> None:
    """Not even of its own device's: a translation's length is known when it is done."""
    assert changed_before_they_were_known(runs[policy]) == 0


@of_every_discipline
def test_the_oracle_knows_how_long_it_takes(runs: dict[str, Run]) -> None:
    assert changed_before_they_were_known(runs["oracle"]) > 0
