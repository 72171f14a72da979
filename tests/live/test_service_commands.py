"""`simnmt live server` and `simnmt live gateway` as commands: what they refuse, print, and leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from simnmt.base.errors import InputError
from simnmt.live.deployment import engine_settings, recommended_policy
from simnmt.nmt.architecture import architecture_of
from simnmt.profile.device_profile import read_profile, write_profile
from tests.command_line import Outcome, assert_one_line, simnmt, start  # noqa: F401 - fixtures
from tests.live.fake_engines import ARCHITECTURE
from tests.live.live_services import unit_of
from tests.live.sleeping_service import sleeping

Start = Callable[..., subprocess.Popen[str]]
COMMAND = [sys.executable, "-c", "from simnmt.cli import main; main()"]
ENGINE = {"backend": "torch", "compute_type": "float32", "device": "cpu", "threads": 1}
ENGINE |= {"architecture": ARCHITECTURE.model_dump(mode="json")}


def ask(url: str, q: Any, **headers: str) -> Any:
    body = json.dumps({"q": q, "source": "de", "target": "en"}).encode()
    request = urllib.request.Request(f"{url}/translate", body, {"Content-Type": "application/json"} | headers)
    with urllib.request.urlopen(request, timeout=50) as answer:
        return json.loads(answer.read())["translatedText"]


def serves_until_sigterm(folder: Path, *command: str) -> dict[str, Any]:
    """Let a command serve until a signal amid 12 texts, and return its first line."""
    options = ["--listen", "127.0.0.1:0", "--log", "log.jsonl", "--json", "--forced-lengths"]
    process = subprocess.Popen(
        [*COMMAND, "live", *command, *options], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    started: dict[str, Any] = json.loads(process.stdout.readline())
    assert len(ask(started["url"], "ein zwei").split()) <= 16
    with ThreadPoolExecutor() as pool:
        client = pool.submit(ask, started["url"], ["w w w"] * 12, **{"Simnmt-Target-Tokens": ",".join(["300"] * 12)})
        while "simnmt_sentences_waiting 12" not in urllib.request.urlopen(started["url"] + "/metrics").read().decode():
            assert not client.done(), "the batch was done before the signal"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        assert len(client.result()) == 12
    assert (process.returncode, err, json.loads(out)["event"]) == (0, "", "stopped")
    assert json.loads(out)["outcomes"] == {"done": 13}
    lines = [json.loads(line)["event"] for line in (folder / "log.jsonl").read_text().splitlines()]
    assert lines[0] == "begin" and lines.count("request") == 13
    return started


def test_a_gateway_before_services_serves_until_sigterm_and_ends_with_a_summary(tmp_path: Path) -> None:
    with sleeping(lambda number: 0.05, facts={}) as service:
        options = ["--policy", "cloud", "--server", service.url, "--local-server", service.url, "--any-model"]
        started = serves_until_sigterm(tmp_path, "gateway", "@open-loop", *options)
    assert (started["event"], started["policy"]) == ("listening", "cloud")


@pytest.mark.deep
def test_a_server_of_a_real_model_serves_until_sigterm_and_ends_with_a_summary(tmp_path: Path) -> None:
    (tmp_path / "tiny.json").write_text(ARCHITECTURE.model_dump_json())
    started = serves_until_sigterm(tmp_path, "server", "--model", "tiny.json", "--threads", "1", "--batching", "top-up:4")
    assert (started["event"], started["model"], started["alive"]) == ("listening", "gru", True)


@pytest.mark.deep
def test_real_models_are_served_until_sigterm(tmp_path: Path, make_scenario: Any, make_profile: Callable[..., Any]) -> None:
    """By the sizes that the scenario states, one of two is in memory."""
    write_profile(tmp_path / "tiny.json", make_profile(engine=ENGINE))
    scenario = make_scenario(policies={"cloud": {}})
    workload = {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 1.0}}
    model = {"profile": str(tmp_path / "tiny.json"), "memory_gb": 1.5, "load_s": 2.0}
    scenario["workloads"] = {"de-en": workload, "fr-en": workload}
    scenario["devices"]["cloud"] = {"models": {"de-en": model, "fr-en": model}, "memory_gb": 2}
    (tmp_path / "scenario.json").write_text(json.dumps(scenario))
    models = serves_until_sigterm(tmp_path, "server", "scenario.json", "--device", "cloud")["models"]
    assert {model: facts["in_memory"] for model, facts in models.items()} == {"de-en": False, "fr-en": False}
    assert all(facts["bytes"] > 1e6 for facts in models.values())


GATEWAY = ["gateway", "@open-loop", "--policy", "edge", "--server", "http://127.0.0.1:9"]


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["server", "@table1"], "titan-xp-bilstm"),
        (["server", "@open-loop", "--device", "clod"], "clod"),
        (["server", "--model", "x", "--batching", "mega:3"], "mega:3"),
        (["server", "--model", "de-en=x", "--model", "fr-en=y", "--model", "de-en=z"], "de-en is given twice"),
        (["server", "--model", "de-en=x", "--model", "y"], "y states no languages"),
        (["server", "--model", "de-en=x", "--source", "fr"], "--source"),
        (["server", "@open-loop", "--model", "de-en=x"], "--model"),
        (["server", "@open-loop", "--memory-gb", "1"], "--memory-gb"),
        (["server", "--model", "x", "--memory-gb", "1"], "--memory-gb"),
        (["gateway", "@open-loop", "--policy", "edge", "--server", "http://127.0.0.1:9", "--model", "de-en=x"], "--model"),
        (["server", "--model", "x", "--listen", "0.0.0.0:0"], "0.0.0.0"),
        (["server", "--model", "x", "--max-body", "0"], "--max-body"),
        (["server", "--model", "x", "--token-file", "/dev/zero"], "/dev/zero"),
        (["server", "--model", "x", "--tls-cert", "empty", "--tls-key", "empty"], "empty"),
        (["gateway", "@open-loop", "--policy", "oracle", "--local-server", "http://127.0.0.1:9"], "oracle"),
        (["gateway", "@three-offices", "--policy", "cnmt"], "which site"),
        (["gateway", "@three-offices", "--policy", "cnmt", "--site", "nowhere"], "nowhere"),
        (["replay", "@three-offices", "--gateway", "http://127.0.0.1:9", "--out", "new"], "sites"),
        ([*GATEWAY, "--server", "http://127.0.0.1:8", "--local-server", "http://127.0.0.1:9"], "cloud has two servers"),
        ([*GATEWAY, "--local-server", "ftp://here"], "ftp://here is no address of a service"),
        ([*GATEWAY, "--local-server", "http://127.0.0.1:9", "--local-unit", "wrod"], "'wrod' (did you mean word?)"),
        (["replay", "@open-loop", "--gateway", "https://127.0.0.1:9", "--ca-file", "/dev/zero", "--out", "new"], "/dev/zero"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(
    simnmt: Callable[..., Outcome],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    place: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").touch()
    outcome = simnmt("live", *arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert place in outcome.err


@pytest.mark.parametrize("verb", ["server @open-loop --device nope", "replay @open-loop --gateway http://127.0.0.1:1"])
def test_no_verb_runs_code_of_a_scenario_without_leave(
    simnmt: Callable[..., Outcome],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    stays = "class Stays:\n    def prepare(self, src_len):\n        return lambda request, delay_s: 0\n"
    (tmp_path / "mine.py").write_text('print("imported")\n' + stays)
    command = ("live", *verb.split(), "--set", 'policies.mine={kind: "mine.py:Stays"}')
    refused = simnmt(*command)
    assert (refused.status, refused.out) == (2, "")
    assert_one_line(refused.err)
    assert "policies.mine.kind: mine.py:Stays is code, which runs only if you allow it" in refused.err
    assert "imported" not in refused.err
    with_leave = simnmt(*command, "--allow-code")
    assert "imported" in with_leave.err and "allow it" not in with_leave.err


@pytest.mark.deep
@pytest.mark.parametrize("after_s", [0.8, 1.4, 2.2])
def test_an_interrupt_while_a_server_starts_ends_it_in_one_line(start: Start, after_s: float, tmp_path: Path) -> None:  # noqa: F811
    """A terminal sends SIGINT to all processes at once; the engine's is then importing, or loading its model."""
    (tmp_path / "tiny.json").write_text(ARCHITECTURE.model_dump_json())
    command = ["live", "server", "--model", "tiny.json", "--threads", "1", "--listen", "127.0.0.1:0"]
    process = start(*command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    time.sleep(after_s)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    # Before it has begun anything there is nothing to say; a server that listens ends well.
    assert (process.returncode, err) in [(130, "simnmt: interrupted; nothing is left half-written\n"), (130, ""), (0, "")]


@pytest.mark.deep
def test_an_interrupted_validation_leaves_nothing(start: Start, tmp_path: Path) -> None:  # noqa: F811
    command = ["validate", "@live-smoke", "--any-model", "--out", "validation"]
    process = start(*command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    assert process.stderr is not None
    while "run 2" not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()[-1:]) == (130, ["simnmt: interrupted; nothing is left half-written"])
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_the_engine_of_a_device_is_that_of_its_profile(make_profile: Callable[..., Any], tmp_path: Path) -> None:
    write_profile(
        tmp_path / "p.json", make_profile(engine=ENGINE | {"backend": "ctranslate2", "compute_type": "int8", "beam": 3})
    )
    profiles = [f"devices.{name}.profile={tmp_path / 'p.json'}" for name in ("gateway", "cloud")]
    unit = unit_of("@open-loop", *profiles)
    settings = engine_settings(unit.case.targets[1], tmp_path, cpus=(1,))
    assert (settings.backend, settings.compute_type, settings.threads, settings.beam) == ("ctranslate2", "int8", 1, 3)
    assert settings.cpus == (1,)
    assert json.loads(Path(settings.model).read_text()) == ARCHITECTURE.model_dump(mode="json")
    assert engine_settings(unit.case.targets[1], tmp_path, model="trained").model == "trained"


def test_the_engine_of_each_shipped_profile_can_be_started() -> None:
    engines = [read_profile(path).engine for path in Path("calibration").glob("*.json")]
    architectures = [engine.architecture for engine in engines if engine is not None and engine.architecture]
    assert len(architectures) > 5
    for architecture in architectures:
        assert architecture_of(architecture).model_dump(mode="json") == architecture


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([("mine", "a", "cnmt"), ("mine", "b", "cnmt"), ("fr-en", "a", "edge")], ""),
        ([("mine", "a", "cnmt"), ("mine", "b", "edge")], "recommends cnmt on a, edge on b for workload"),
        ([("fr-en", "a", "cnmt")], "recommends no policy for workload"),
        ([("mine", "a", None)], "recommends no policy on a for workload"),
        ([("all", "a", "cnmt")], ""),
    ],
)
def test_the_recommended_policy_is_that_of_all_networks(tmp_path: Path, rows: list[Any], fault: str) -> None:
    unit = unit_of("@open-loop")
    document = [
        {"workload": unit.case.name if workload == "mine" else workload, "network": network, "policy": policy}
        for workload, network, policy in rows
    ]
    (tmp_path / "summary.json").write_text(json.dumps({"recommendations": document}))
    if not fault:
        assert recommended_policy(tmp_path, unit) == "cnmt"
    else:
        with pytest.raises(InputError) as caught:
            recommended_policy(tmp_path, unit)
        assert fault in str(caught.value)
