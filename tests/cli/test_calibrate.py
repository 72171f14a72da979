"""`simnmt calibrate`: what a user sees of it, on a box made of numbers and on a tiny real model."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.base.errors import Interrupted
from simnmt.calibrate import calibration as run_module
from simnmt.calibrate.box import BusyWatch
from simnmt.profile.device_profile import read_profile
from tests.calibrate.endpoint_stub import stub_service
from tests.calibrate.engines import FakeEngine
from tests.command_line import Command, assert_one_line
from tests.nmt import toy_language

PARTS = ("--part", "execution", "--part", "step", "--part", "overheads")
QUICK = ("calibrate", "--model", "gru", "--threads", "1", "--quick", *PARTS, "--out", "box.json")
TINY = {
    "kind": "gru", "layers": 1, "hidden": 16, "embedding": 16, "src_vocab": 50, "tgt_vocab": 50,
}  # fmt: skip


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The command measures a box made of numbers, on which nobody else computes."""
    monkeypatch.setattr(BusyWatch, "over_span", lambda: 0.0)
    real = run_module.calibrate

    def put(**engine: Any) -> None:
        monkeypatch.setattr(run_module, "calibrate", lambda *a, **k: real(*a, **k, load=lambda *_, **__: FakeEngine(**engine)))

    put()
    return put


def test_it_ends_with_fit_held_out_errors_and_a_page(folder: Path, simnmt: Command, numbers: Any) -> None:
    done = simnmt(*QUICK, "--device-name", "Abacus 3000")
    assert done.status == 0, done.err
    assert re.search(r"x source \+ 8\.\d+ x target \+ .* ms", done.out)
    assert re.search(r"R2 0\.999\d+; of the means per target length 0\.99\d+; .* % held out", done.out)
    assert "random weights" in done.out and "decode step" in done.out
    shown = simnmt("profile", "inspect", "box.json").out.splitlines()
    assert set(done.out.splitlines()) - set(shown) == {"wrote box.json", "page: box.html"}, "warnings go to standard error"
    assert done.out.endswith("wrote box.json\npage: box.html\n")
    assert "Abacus 3000" in (folder / "box.html").read_text(encoding="utf-8")
    refused = simnmt(*QUICK)
    assert refused.err == "simnmt: box.json: exists already (choose another name, or replace it with --force)\n"
    assert simnmt(*QUICK, "--force").out.endswith("wrote box.json\npage: box.html\n")


def test_json_is_all_there_is_on_standard_output(folder: Path, simnmt: Command, numbers: Any) -> None:
    done = simnmt(*QUICK, "--json")
    printed = json.loads(done.out)
    assert printed["profile"] == json.loads((folder / "box.json").read_text())
    assert printed["warnings"] == [
        line.removeprefix("simnmt: warning: ") for line in done.err.splitlines() if "warning" in line
    ]
    assert (folder / "box.html").is_file()


def test_interrupted_it_says_what_it_kept_and_how_to_go_on(folder: Path, simnmt: Command, numbers: Any) -> None:
    numbers(stop_at=70, stop=Interrupted(signal.SIGINT))
    stopped = simnmt(*QUICK)
    assert stopped.status == 130
    assert "kept what was measured in box.json.journal.jsonl; the same command goes on from there" in stopped.err
    numbers()
    done = simnmt(*QUICK)
    assert (done.status, "going on from box.json.journal.jsonl" in done.err) == (0, True)
    assert not (folder / "box.json.journal.jsonl").exists()


@pytest.mark.deep
def test_without_torch_it_says_how_to_get_it(folder: Path, process: Command) -> None:
    absent = folder / "absent"
    (absent / "torch").mkdir(parents=True)
    (absent / "torch" / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    path = os.pathsep.join([str(absent), str(Path(__file__).parents[2])])
    done = process("calibrate", "--model", "gru", "--quick", "--out", "box.json", env={"PYTHONPATH": path})
    assert (done.status, done.out) == (2, "")
    assert "simnmt[models]" in done.err
    assert done.err.count("\n") == 1


@pytest.fixture
def tiny(folder: Path) -> Path:
    (folder / "tiny.json").write_text(json.dumps(TINY))
    return folder


REAL = ("calibrate", "--model", "tiny.json", "--threads", "1", "--quick", "--unit", "word", "--max-src-len", "41")
EXECUTION = (*REAL, "--max-tgt-len", "46", "--part", "execution", "--out", "box.json")


def test_a_measured_profile_drives_a_scenario_and_its_replay_has_the_same_bytes(tiny: Path, simnmt: Command) -> None:
    """XP-05: one calibration file drives the simulation, and the result names the device."""
    done = simnmt(*EXECUTION, "--device-name", "kitchen laptop")
    assert done.status == 0, done.err
    assert read_profile("box.json").execution.kind == "measured"
    runs = []
    for name in ("one", "two"):
        ran = simnmt("run", "small.yaml", "--set", "devices.gateway.profile=box.json", "--out", name)
        assert ran.status == 0, ran.err
        runs.append({file: (tiny / name / file).read_bytes() for file in ("summary.json", "summary.csv", "requests.parquet")})
    assert runs[0] == runs[1]
    assert b"kitchen laptop" in (tiny / "one" / "summary.json").read_bytes() + (tiny / "one" / "report.html").read_bytes()


def test_an_own_model_is_trained_calibrated_and_run_on_its_own_text(folder: Path, simnmt: Command) -> None:
    """Three commands, and no line on the units beyond the folder of the model."""
    toy_language.write(folder, 300)
    (folder / "tiny.json").write_text(toy_language.GRU.model_dump_json())
    text = ("--src", "one.txt", "--tgt", "other.txt", "--model", "tiny.json", "--heldout", "20", "--batch-tokens", "200")
    assert simnmt("nmt", "train", *text, "--threads", "1", "--steps", "1", "--out", "m").status == 0
    measuring = ("--quick", "--threads", "1", "--part", "execution", "--max-src-len", "40", "--max-tgt-len", "40")
    assert simnmt("calibrate", "--model", "m", *measuring, "--out", "box.json").status == 0
    unit = read_profile(folder / "box.json").length_unit
    assert unit.src.startswith("sentencepiece ") and unit.tgt.startswith("sentencepiece ") and unit.src != unit.tgt
    (folder / "own.yaml").write_text(
        """\
version: 1
name: own
requests: 50
replications: 1
workloads:
  mine: {lengths: {source: one.txt, target: other.txt, src_unit: {sentencepiece: m}, tgt_unit: {sentencepiece: m}}}
networks: {lan: {rtt: {constant_ms: 5}}}
devices: {gateway: {profile: box.json}, cloud: {profile: box.json}}
policies: {edge: {}, cloud: {}, cnmt: {}}
"""
    )
    done = simnmt("run", "own.yaml", "--jobs", "1", "--json")
    assert done.status == 0, done.err
    assert [row["policy"] for row in json.loads(done.out)["rows"]] == ["edge", "cloud", "cnmt"]


def test_a_gap_is_a_condition_of_a_profile(
    folder: Path, simnmt: Command, numbers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simnmt.calibrate.parts.execution.time.sleep", lambda seconds: None)
    done = simnmt(*QUICK, "--gap", "50ms")
    assert done.status == 0, done.err
    conditions = read_profile(Path("box.json")).conditions
    assert conditions is not None and conditions.gap_s == 0.05
    assert "after 50 ms of idling" in simnmt("profile", "inspect", "box.json").out


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ("--model gru --quick --threads 5000", "--threads"),
        ("--model gru --quick --backend jax", "--backend"),
        ("--model gru --quick --max-batch 2000", "--max-batch"),
        ("--model marien --quick", "marien"),
        ("--model gru --quick --backend ctranslate2", "gru"),
        ("--model trained --vocabulary a.clusters --quick", "--text"),
        ("", "--model"),
        ("--endpoint http://127.0.0.1:1 --text text.de --threads 1", "--threads"),
        ("--endpoint http://127.0.0.1:1 --text text.de", "127.0.0.1:1"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    folder: Path, simnmt: Command, texts: None, arguments: str, place: str
) -> None:
    done = simnmt("calibrate", "--out", "box.json", *arguments.split())
    assert (done.status, done.out) == (2, "") and place in done.err
    assert_one_line(done.err)
    assert not list(folder.glob("box*"))


TOKEN = "s3cr3t-t0ken" + 400 * "x"
"""As long as some are: a message is cut before its end."""
APIS = {"libretranslate": (), "openai": ("--api", "openai", "--model", "stub")}
"""Options of each API."""


@pytest.fixture
def texts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BusyWatch, "over_span", lambda: 0.0)
    monkeypatch.delenv("SIMNMT_TOKEN", raising=False)
    (folder / "text.de").write_text("\n".join("w " * (1 + 3 * length) + str(length) for length in range(6)))


def calibrate(simnmt: Command, url: str, *arguments: str) -> Any:
    return simnmt("calibrate", "--endpoint", url, "--text", "text.de", "--quick", "--out", "box.json", *arguments)


def test_a_service_has_a_profile_and_a_page(folder: Path, simnmt: Command, texts: None) -> None:
    with stub_service(pace=0.5) as service:
        done = calibrate(simnmt, service.url, "--device-name", "Stub 3000")
        refused = [calibrate(simnmt, service.url, *options) for options in (("--target", "fr"), ("--out", "text.de"))]
    assert done.status == 0, done.err
    assert "measured through HTTP, round trip of" in done.out and "x target +" in done.out
    assert (folder / "box.html").exists()
    shown = simnmt("profile", "inspect", "box.json")
    assert f"libretranslate; at {service.url}; from de; to en" in shown.out
    assert json.loads((folder / "box.json").read_text())["device"]["name"] == "Stub 3000"
    assert [outcome.status for outcome in refused] == [2, 2]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("html", "is a web page (HTML), not the API"),
        ("break", "closed the connection in the middle of an answer"),
        ("error with status 200", "out of memory\n"),
        ("empty", "with an empty translation (correct --source, --target or --model"),
    ],
)
def test_a_service_that_does_not_translate_is_one_line(
    simnmt: Command, folder: Path, texts: None, api: str, fault: str, complaint: str
) -> None:
    with stub_service(api_fault=fault) as service:
        done = calibrate(simnmt, service.url, *APIS[api], "--timeout", "300ms")
    assert done.status == 2 and complaint in done.err, done.err
    assert_one_line(done.err)
    assert not list(folder.glob("box*"))


@pytest.mark.parametrize("api", APIS)
def test_a_token_comes_from_the_environment_and_is_never_shown(
    simnmt: Command, folder: Path, texts: None, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    outcomes = []
    with stub_service(token=TOKEN, pace=0.02) as service:
        for token in ("", "wr0ng-t0ken", TOKEN):
            monkeypatch.setenv("SIMNMT_TOKEN", token)
            outcomes.append(calibrate(simnmt, service.url, *APIS[api]))
    assert [outcome.status for outcome in outcomes] == [2, 2, 0], outcomes[-1].err
    assert "it asks for a token: put it into $SIMNMT_TOKEN" in outcomes[0].err
    written = "".join([path.read_text() for path in folder.glob("box*")] + [outcome.out + outcome.err for outcome in outcomes])
    for secret in (TOKEN[:12], "wr0ng-t0ken"):  # the stub's complaint repeats the token
        assert secret not in written
