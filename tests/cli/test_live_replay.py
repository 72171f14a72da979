"""`simnmt live replay`: what it prints and writes, and that an interrupt leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import Outcome
from tests.live.sleeping_service import sleeping

ARRIVALS = ("--set", "workloads.news.arrivals={kind: poisson, rate_rps: 300}")


def test_a_replay_prints_and_writes_a_run(folder: Path, simnmt: Callable[..., Outcome]) -> None:
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
    ],
)
def test_bad_input_is_refused(folder: Path, simnmt: Callable[..., Outcome], arguments: tuple[str, ...], message: str) -> None:
    outcome = simnmt("live", "replay", "small.yaml", *arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.err


def test_an_interrupt_leaves_nothing_half_written(
    folder: Path, start: Callable[..., subprocess.Popen[str]], tree: Callable[..., object]
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
