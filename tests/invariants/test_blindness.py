"""No policy but the oracle can see the truth: with the truth turned to NaN they decide as before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.policies import CNmt, Oracle, constant_length
from simnmt.scenario import unit as unit_module
from simnmt.scenario.build import build
from simnmt.scenario.complaints import validate
from simnmt.scenario.document import document_of
from simnmt.scenario.model import Scenario
from simnmt.scenario.unit import Unit, run_unit
from simnmt.world.requests import Requests
from simnmt.world.simulate import DecideFor, Trail

MakeScenario = Callable[..., dict[str, Any]]
ARRIVALS = {"back to back": {"kind": "back_to_back"}, "open loop": {"kind": "poisson", "rate_rps": 6.0}}


@dataclass(frozen=True)
class Run:
    """What the world was handed for one policy, and what came of it."""

    requests: Requests
    decide_for: DecideFor
    trail: Trail


@pytest.fixture(params=ARRIVALS)
def runs(request: pytest.FixtureRequest, make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch) -> dict[str, Run]:
    """A unit run under the five policies as the product runs them."""
    seen: list[Run] = []
    simulate = unit_module.simulate

    def watched(requests: Requests, decide_for: DecideFor, **keywords: Any) -> Trail:
        trail = simulate(requests, decide_for, **keywords)
        seen.append(Run(requests, decide_for, trail))
        return trail

    monkeypatch.setattr(unit_module, "simulate", watched)
    workloads = {"de-en": {"lengths": "@de-en-news", "arrivals": ARRIVALS[request.param]}}
    plan = build(validate(Scenario, document_of(make_scenario(workloads=workloads, requests=5_000)), []), Path())
    run_unit(Unit(plan.scenario, plan.cases["de-en"], "cp1", plan.links["cp1"], 0))
    return dict(zip(plan.scenario.policies, seen, strict=True))


def blinded(requests: Requests) -> Requests:
    """All that a policy must not see turned to NaN; the source lengths alone are left."""
    truth = [field.name for field in fields(Requests) if field.name not in ("src_len", "arrival_s")]
    hidden: dict[str, Any] = {name: np.full(len(requests), np.nan) for name in truth}
    return replace(requests, **hidden)


def replayed(run: Run, requests: Requests) -> list[int]:
    """The decisions taken again, block by block, on the delays that the gateway believed in then."""
    estimate_s = iter(run.trail.estimate_s.tolist())
    decisions = []
    for block in requests.blocks():
        decide = run.decide_for(block)
        decisions += [decide(request, (0.0, next(estimate_s))) for request in range(len(block))]
    return decisions


@pytest.mark.parametrize("policy", ["edge", "cloud", "naive", "cnmt"])
def test_truth_turned_to_nan_changes_no_decision(runs: dict[str, Run], policy: str) -> None:
    run = runs[policy]
    assert replayed(run, run.requests) == run.trail.target.tolist()
    assert replayed(run, blinded(run.requests)) == run.trail.target.tolist()


def test_what_is_replayed_are_real_choices(runs: dict[str, Run]) -> None:
    assert 0.1 < runs["cnmt"].trail.target.mean() < 0.9


def test_the_oracle_lives_by_the_truth(runs: dict[str, Run]) -> None:
    run = runs["oracle"]
    assert replayed(run, blinded(run.requests)) != replayed(run, run.requests)


CHEATS: dict[str, DecideFor] = {
    "execution": lambda block: Oracle((block.gateway_s, block.cloud_s)).prepare(block.src_len),
    "gateway alone": lambda block: Oracle((block.gateway_s, block.src_len * 0.002)).prepare(block.src_len),
    "lengths in disguise": lambda block: CNmt(
        (_Seconds(block.gateway_s), _Seconds(block.cloud_s)), constant_length(1.0)
    ).prepare(block.src_len),
    "link": lambda block: Oracle((block.src_len * 0.01, block.src_len * 0.002 + block.uplink_s)).prepare(block.src_len),
}


@dataclass(frozen=True)
class _Seconds:
    true_s: np.ndarray

    def seconds(self, src_len: np.ndarray, tgt_len: np.ndarray) -> np.ndarray:
        return self.true_s


@pytest.mark.parametrize("cheat", CHEATS)
def test_the_same_test_catches_a_policy_that_peeps(runs: dict[str, Run], cheat: str) -> None:
    run = replace(runs["cnmt"], decide_for=CHEATS[cheat])
    assert replayed(run, blinded(run.requests)) != replayed(run, run.requests)
