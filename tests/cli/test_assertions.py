"""`simnmt run --assert`: a demanded level is stated in one line and ends the command with status 3 if it is missed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import simnmt as library
from tests.command_line import Outcome
from tests.refusals import assert_one_line

Command = Callable[..., Outcome]


def test_a_run_that_meets_what_is_asserted_says_so_and_ends_with_status_0(folder: Path, simnmt: Command) -> None:
    done = simnmt("run", "small.yaml", "--out", "run", "--assert", "p95_ms <= 1e6", "--assert", "edge: mean_ms<=1e6")
    assert done.status == 0
    first, second = [line for line in done.out.splitlines() if line.startswith("assert ")]
    assert first.startswith("assert p95_ms<=1000000: ") and " ms: met (" in first and "in 2 of 2 replications" in first
    assert second.startswith("assert mean_ms<=1000000: edge for news on office: ")


def test_a_missed_assertion_ends_with_status_3_and_leaves_the_whole_run(folder: Path, simnmt: Command) -> None:
    done = simnmt("run", "small.yaml", "--out", "run", "--assert", "p95_ms<=1", "--assert", "mean_ms<=1e6")
    assert (done.status, done.err) == (3, "")
    assert ["missed" in line for line in done.out.splitlines() if line.startswith("assert ")] == [True, False]
    run = library.load("run")
    assert not run.meets("p95_ms<=1") and run.meets("mean_ms<=1e6")
    again = simnmt("run", "run", "--out", "again", "--json", "--assert", "p95_ms<=1")
    assert again.status == 3
    (assertion,) = json.loads(again.out)["assertions"]
    assert (assertion["requirement"], assertion["met"], assertion["unit"]) == ("p95_ms<=1", False, "ms")
    assert assertion["value"] == pytest.approx(1e3 * run.best()["p95_latency_s"])
    assert (folder / "again" / "summary.json").read_bytes() == (folder / "run" / "summary.json").read_bytes()


@pytest.mark.parametrize(
    ("assertion", "complaint"),
    [
        ("p95_ms<300", "p95_ms has no limit <"),
        ("clout: p95_ms<=300", "unknown policy clout in 'clout: p95_ms<=300' (did you mean cloud?)"),
    ],
)
def test_an_assertion_that_cannot_be_judged_is_refused_before_the_run(
    folder: Path, simnmt: Command, assertion: str, complaint: str
) -> None:
    done = simnmt("run", "small.yaml", "--out", "run", "--assert", assertion)
    assert (done.status, done.out) == (2, "")
    assert_one_line(done.err)
    assert complaint in done.err
    assert not (folder / "run").exists()
