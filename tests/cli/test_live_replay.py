"""`simnmt live replay`: what it prints and writes, and that an interrupt leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from simnmt.live import validation
from tests.command_line import Command, Tree, assert_complaint
from tests.live.sleeping_service import sleeping

ARRIVALS = ("--set", "workloads.news.arrivals={kind: poisson, rate_rps: 300}")


def test_a_replay_prints_and_writes_a_run(folder: Path, simnmt: Command) -> None:
    with sleeping(lambda number: 0.001, workers=9) as service:
        outcome = simnmt(
            "live", "replay", "small.yaml", "--gateway", service.url, "--requests", "20", *ARRIVALS, "--out", "run"
        )
        text = simnmt(
            "live", "replay", "small.yaml", "--gateway", service.url, "--text", "news.de", "--requests", "5", "--json"
        )
    assert outcome.status == 0, outcome.err
    assert "measured live: cnmt answered 20 of 20 requests" in outcome.out
    assert "sending 20 requests" in outcome.err
    assert (folder / "run" / "requests.parquet").is_file()
    document = json.loads(text.out)
    assert document["live"]["outcomes"]["done"] == 5 and Path(document["directory"]).is_dir()
    assert simnmt("compare", "run", document["directory"]).status == 0
    again = simnmt("run", "run")
    assert (again.status, again.out) == (2, "")
    assert "simulate its scenario: simnmt run run/scenario.resolved.yaml" in again.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gateway", "127.0.0.1:1"), "is no address of a service"),
        (("--gateway", "http://127.0.0.1:1", "--workload", "olds"), "no workload olds"),
        (("--gateway", "http://127.0.0.1:1", "--text", "blank"), "blank: no sentence"),
    ],
)
def test_bad_input_is_refused(folder: Path, simnmt: Command, arguments: tuple[str, ...], message: str) -> None:
    (folder / "blank").write_text(" \n\n")
    outcome = simnmt("live", "replay", "small.yaml", *arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.err


def test_a_validation_with_a_text_of_blank_lines_is_refused_before_it_starts(folder: Path, simnmt: Command) -> None:
    (folder / "blank").write_text(" \n\n")
    outcome = simnmt("validate", "@live-smoke", "--text", "blank", "--out", "new")
    assert (outcome.status, outcome.out) == (2, "")
    assert "blank: no sentence" in outcome.err


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (b"no place", "prompt.txt: a prompt needs {text} once"),
        (b"\xff {text}", "prompt.txt: no prompt: binary data"),
        (None, "prompt.txt: no prompt: No such file"),
        (b"{text}", "random weights have no use for a prompt"),
    ],
)
def test_a_prompt_that_cannot_be_used_is_refused(folder: Path, simnmt: Command, prompt: bytes | None, message: str) -> None:
    if prompt is not None:
        (folder / "prompt.txt").write_bytes(prompt)
    outcome = simnmt("live", "server", "--model", "llama", "--batching", "slots:2", "--prompt", "prompt.txt")
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.err


def test_an_interrupt_leaves_nothing_half_written(
    folder: Path, start: Callable[..., subprocess.Popen[str]], tree: Tree
) -> None:
    before = tree(folder)
    with sleeping(lambda number: 0.05) as service:
        process = start("live", "replay", "small.yaml", "--gateway", service.url, "--requests", "200", *ARRIVALS)
        assert process.stderr is not None
        announced = process.stderr.readline()
        while not service.executed:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert "sending 200 requests" in announced
    assert (process.returncode, out) == (130, "")
    assert err == "simnmt: interrupted; nothing is left half-written\n"
    assert tree(folder) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("@live-smoke", "--policies", "oracle"),
        ("@live-smok",),
        ("@live-smoke", "--model", "server=small"),
        ("@live-smoke", "--model", "small"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_measured(simnmt: Command, arguments: tuple[str, ...]) -> None:
    done = simnmt("validate", *arguments)
    assert (done.status, done.out) == (2, "")
    assert_complaint(done.err)


@pytest.mark.parametrize(("within", "status"), [("5%", 0), ("1%", 3)])
def test_the_result_is_printed_written_and_judged(
    simnmt: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, within: str, status: int
) -> None:
    live, structural, predicted = (np.array([mean, mean, mean, 0.5, 0.0, np.nan, np.nan]) for mean in (1.0, 1.02, 1.4))
    row = validation.Comparison("lan", "cnmt", "all", live, live, structural, predicted, (1.0,), (), False)
    made = validation.Validation("mine <1>", 1, 10, [row], [validation.Ranking("lan", ("cnmt",), ("cnmt",), ())], 1e9)
    monkeypatch.setattr(validation, "validate", lambda plan, **options: made)
    done = simnmt("validate", "@live-smoke", "--within", within, "--out", str(tmp_path / "out"))
    assert done.status == status
    assert "+2.0" in done.out and "+40.0" in done.out and validation.LEGEND in done.out
    assert "site" not in done.out and "cached" not in done.out, "there is one site, and no cache"
    assert "do not judge the simulation" in done.err
    assert json.loads((tmp_path / "out" / "validation.json").read_text())["rows"][0]["errors"]["structural"]["mean_s"] > 0.019
    page = (tmp_path / "out" / "validation.html").read_text()
    assert "+40.0" in page and "mine &lt;1&gt;" in page
