"""Policies of users decide in a live deployment."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import simnmt as library
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.inputs import read_inputs
from simnmt.live.decider import LiveDecider, live_unit
from simnmt.live.engine_process import EngineProcess
from simnmt.live.gateway import GatewaySettings
from simnmt.profile.profile_file import write_profile
from simnmt.scenario.source import open_source
from simnmt.service.client import Exchange
from simnmt.service.messages import ServiceError
from tests.command_line import Outcome, simnmt  # noqa: F401 - a fixture
from tests.live.fake_engines import ARCHITECTURE
from tests.live.live_services import FRONT, Services, ask, unit_of
from tests.refusals import assert_one_line


def plan_of(scenario: dict[str, Any]) -> RunPlan:
    source = open_source(scenario)
    return read_inputs(source.scenario, Path(), source.document)


class WhenSlow:
    """Stays at the gateway while the last transfer took longer than the limit, or queues were reported."""

    def prepare(self, src_len: Any) -> None:
        pass

    def decide_with_view(self, request: int, view: library.DecisionView) -> int:
        return 0 if view.rtt_s[1] > 0.1 or (view.reports[1] or 0.0) > 1.0 else 1


def test_a_policy_with_a_view_decides_live_by_what_was_measured(make_scenario: Callable[..., dict[str, Any]]) -> None:
    decider = LiveDecider(live_unit(plan_of(make_scenario(policies={"mine": WhenSlow()}))), "mine", {1: 0.05})
    decision = decider.decide(0, 12, 1.0)
    assert decision.target == 1
    decider.heard(decision, 1.5, transfer_s=0.3, wait_s=0.0)
    assert decider.decide(1, 12, 2.0).target == 0
    decider.heard(decision, 2.5, transfer_s=0.05, wait_s=3.0)
    assert decider.decide(2, 12, 3.0).target == 0
    decider.heard(decision, 3.5, transfer_s=0.05, wait_s=0.1)
    assert decider.decide(3, 12, 4.0).target == 1


def test_a_slip_of_a_policy_is_one_line_live_as_well(make_scenario: Callable[..., dict[str, Any]]) -> None:
    class Wrong(WhenSlow):
        def decide_with_view(self, request: int, view: library.DecisionView) -> int:
            return 7

    decider = LiveDecider(live_unit(plan_of(make_scenario(policies={"mine": Wrong()}))), "mine", {1: 0.05})
    with pytest.raises(library.InputError, match=r"policy mine .*decide_with_view returned 7"):
        decider.decide(0, 12, 1.0)


POLICY = """\
print("imported")


class LongAway:
    def __init__(self, threshold):
        self.threshold = threshold

    def prepare(self, src_len):
        return lambda request, delay_s: int(src_len[0] > self.threshold)
"""
SCENARIO = """\
version: 1
name: own
workloads: {news: {lengths: "@de-en-news", arrivals: {kind: poisson, rate_rps: 1}}}
networks: {cp1: {rtt: "@cp1"}}
devices:
  gateway: {profile: p.json}
  cloud: {profile: p.json}
fit: {inferences: 0}
policies:
  mine: {kind: "mine.py:LongAway", threshold: 3}
"""
TRAINED = {"backend": "torch", "compute_type": "float32", "device": "cpu", "threads": 1}


@pytest.fixture
def own(tmp_path: Path, make_profile: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a scenario whose policies are code, and that code."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(SCENARIO)
    (tmp_path / "mine.py").write_text(POLICY)
    engine = TRAINED | {"architecture": ARCHITECTURE.model_dump(mode="json")}
    write_profile(tmp_path / "p.json", make_profile(engine=engine))
    return tmp_path


class LongAway:
    """Sends sources of more than three words away, and fails for nine."""

    def prepare(self, src_len: Any) -> Any:
        return lambda request, delay_s: int(src_len[0] > 3) if src_len[0] != 9 else [][request]


def test_a_gateway_decides_by_the_users_policy_and_survives_its_faults(
    services: Services, faulty: EngineProcess, make_scenario: Callable[..., dict[str, Any]]
) -> None:
    server, log = services.server(faulty), io.StringIO()
    unit = unit_of(make_scenario(policies={"mine": LongAway()}), "fit.inferences=0")
    servers = {"cloud": server.front.service.url}
    gateway = services.gateway(GatewaySettings(unit, "mine", servers, FRONT, any_model=True), log, faulty)
    url = gateway.front.service.url
    *answers, failed, after = [
        services.translate(url, ask(text))[0] for text in ("a b", "a b c d", "a", "a b c d e f", "a b c d e f g h i", "a b")
    ]
    assert all(isinstance(answer, Exchange) for answer in (*answers, after))
    assert isinstance(failed, ServiceError) and failed.status == 500
    services.stop(gateway)
    assert gateway.front.outcomes == {"done": 5, "failed": 1}
    (complaint,) = services.errors
    assert "policy mine" in complaint and "IndexError" in complaint
    services.errors.clear()
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    targets = [(line["src_len"], line["target"], line["outcome"]) for line in lines if line["event"] == "request"]
    assert targets == [(3, 0, "done"), (5, 1, "done"), (2, 0, "done"), (7, 1, "done"), (10, None, "failed"), (3, 0, "done")]


VERBS = {
    "server": ("live", "server", "own.yaml", "--device", "nope"),
    "replay": ("live", "replay", "own.yaml", "--gateway", "http://127.0.0.1:1"),
    "run": ("run", "own.yaml", "--requests", "100", "--replications", "2"),
}
"""Every verb that takes a scenario, with options for which all but `run` end as soon as they have read it."""


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_runs_code_of_a_scenario_without_leave(
    own: Path,
    simnmt: Callable[..., Outcome],  # noqa: F811
    verb: str,
) -> None:
    refused = simnmt(*VERBS[verb])
    assert (refused.status, refused.out) == (2, "")
    assert_one_line(refused.err)
    assert "own.yaml:10:16: policies.mine.kind: mine.py:LongAway is code, which runs only if you allow it" in refused.err
    assert "imported" not in refused.err
    with_leave = simnmt(*VERBS[verb], "--allow-code")
    assert "imported" not in with_leave.out and "allow it" not in with_leave.err
