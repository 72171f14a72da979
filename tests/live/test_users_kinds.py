"""What users bring in a live deployment: their policies decide there, their batchers are for the simulation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import simnmt as library
from simnmt.batching import top_up
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.inputs import read_inputs
from simnmt.live.decider import LiveDecider, live_unit
from simnmt.live.deployment import batching_of
from simnmt.profile.profile_file import write_profile
from simnmt.scenario.source import open_source
from tests.command_line import ROOT, Outcome, simnmt  # noqa: F401 - a fixture
from tests.live.fake_engines import ARCHITECTURE
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
    decider.heard(decision, 0, 1.5, transfer_s=0.3, wait_s=0.0)
    assert decider.decide(1, 12, 2.0).target == 0
    decider.heard(decision, 1, 2.5, transfer_s=0.05, wait_s=3.0)
    assert decider.decide(2, 12, 3.0).target == 0
    decider.heard(decision, 2, 3.5, transfer_s=0.05, wait_s=0.1)
    assert decider.decide(3, 12, 4.0).target == 1


def test_a_slip_of_a_policy_is_one_line_live_as_well(make_scenario: Callable[..., dict[str, Any]]) -> None:
    class Wrong(WhenSlow):
        def decide_with_view(self, request: int, view: library.DecisionView) -> int:
            return 7

    decider = LiveDecider(live_unit(plan_of(make_scenario(policies={"mine": Wrong()}))), "mine", {1: 0.05})
    with pytest.raises(library.InputError, match=r"policy mine .*decide_with_view returned 7"):
        decider.decide(0, 12, 1.0)


def test_a_batcher_of_ones_own_is_refused_live(make_scenario: Callable[..., dict[str, Any]]) -> None:
    class Mine(library.Batcher):
        def __init__(self) -> None:
            super().__init__(top_up(4, 2))

    scenario = make_scenario()
    scenario["devices"]["cloud"] = {"profile": "@cpu1-gru", "batching": Mine()}
    scenario["devices"]["gateway"] = {"profile": "@cpu1-gru"}
    (case,) = plan_of(scenario).cases.values()
    with pytest.raises(library.InputError, match=r"the batcher .*Mine of device cloud is simulated alone"):
        batching_of(case.targets[1])


POLICY = """\
print("imported")


class LongAway:
    def __init__(self, threshold):
        self.threshold = threshold

    def prepare(self, src_len):
        print("prepared")
        return lambda request, delay_s: int(src_len[0] > self.threshold) if src_len[0] != 9 else [][request]
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
FAKE_ENGINE = "import simnmt.live.engine_process as process; process.LOOP = 'tests.live.echo_loop'; "
TRAINED = {"backend": "torch", "compute_type": "float32", "device": "cpu", "threads": 1}


@contextmanager
def service(folder: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A live service as a process of its own, whose engine echoes, at its URL."""
    command = [sys.executable, "-c", FAKE_ENGINE + "from simnmt.cli import main; main()", "live", *arguments]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--json"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield json.loads(line)["url"], process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def translated(url: str, text: str) -> Any:
    body = json.dumps({"q": text, "source": "de", "target": "en"}).encode()
    request = urllib.request.Request(f"{url}/translate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())["translatedText"]


@pytest.fixture
def own(tmp_path: Path, make_profile: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a scenario whose policies are code, and that code."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(SCENARIO)
    (tmp_path / "mine.py").write_text(POLICY)
    engine = TRAINED | {"architecture": ARCHITECTURE.model_dump(mode="json")}
    write_profile(tmp_path / "p.json", make_profile(engine=engine))
    return tmp_path


def test_a_gateway_decides_by_the_users_policy_and_survives_its_faults(own: Path) -> None:
    with service(own, "server", "own.yaml", "--allow-code", "--any-model") as (cloud, _):
        options = ("--allow-code", "--any-model", "--server", cloud, "--log", "log.jsonl")
        with service(own, "gateway", "own.yaml", "--policy", "mine", *options) as (url, process):
            for text in ("a b", "a b c d", "a", "a b c d e f"):
                assert translated(url, text)
            with pytest.raises(urllib.error.HTTPError) as failed:
                translated(url, "a b c d e f g h i")
            assert failed.value.code == 500 and "the gateway's policy failed" in failed.value.read().decode()
            assert translated(url, "a b")
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=30)
    assert (process.returncode, json.loads(out)["outcomes"]) == (0, {"done": 5, "failed": 1})  # one line: prints go elsewhere
    assert "imported" in err and "prepared" in err
    (complaint,) = [line for line in err.splitlines() if "policy" in line]
    assert "policy mine (workload news, network cp1" in complaint and "decide raised IndexError" in complaint
    log = [json.loads(line) for line in (own / "log.jsonl").read_text().splitlines()]
    targets = [(line["src_len"], line["target"], line["outcome"]) for line in log if line["event"] == "request"]
    assert targets == [(3, 0, "done"), (5, 1, "done"), (2, 0, "done"), (7, 1, "done"), (10, None, "failed"), (3, 0, "done")]


VERBS = {
    "server": ("live", "server", "own.yaml", "--device", "nope"),
    "gateway": ("live", "gateway", "own.yaml", "--policy", "nope", "--server", "http://127.0.0.1:1"),
    "replay": ("live", "replay", "own.yaml", "--gateway", "http://127.0.0.1:1"),
    "validate": ("validate", "own.yaml", "--policies", "nope"),
    "reproduce": ("reproduce", "cnmt", "--measured", "own.yaml"),
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
