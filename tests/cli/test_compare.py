"""`simnmt compare` as a user meets it: tables, JSON, page, and the runs that it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simnmt.cli import app
from tests.command_line import Command, Tree, assert_one_line, filled_folder


@pytest.fixture(scope="module")
def finished(make_profile: Callable[..., Any]) -> Iterator[Path]:
    """A folder with the runs first, far (a longer round trip, one policy less) and reseeded."""
    with filled_folder(make_profile) as place, pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        far = (place / "small.yaml").read_text().replace("naive: {}, ", "")
        (place / "far.yaml").write_text(far.replace("rtt: office.csv", "rtt: office.csv, rtt_mean_ms: 250"))
        for arguments in ("small.yaml --out first", "far.yaml --out far", "small.yaml --seed 9 --out reseeded"):
            patch.setattr("sys.argv", ["simnmt", "run", "--jobs", "1", *arguments.split()])
            assert app._status() == 0
        yield place


@pytest.fixture
def runs(finished: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(finished)
    return finished


def table(out: str, head: str) -> list[list[str]]:
    """The cells of the table whose head line begins with these words, without its policies' spaces."""
    lines = out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.split()[: len(head.split())] == head.split())
    return [line.split() for line in lines[at + 2 : lines.index("", at)]]


def test_compare_prints_keys_changes_best_policies_and_what_is_missing(runs: Path, simnmt: Command) -> None:
    done = simnmt("compare", "first", "far")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("far against first:\n")
    keys = {row[0]: row[1:] for row in table(done.out, "key first far")}
    assert set(keys) == {"networks.office.rtt_mean_ms", "policies.naive"}
    assert keys["networks.office.rtt_mean_ms"] == ["-", "250.0"]
    assert keys["policies.naive"][:2] == ['{"kind":', '"naive",'] and keys["policies.naive"][-1] == "-"
    assert "…" not in done.out, "a pipe has room for the whole mapping"
    changes = {row[1]: row for row in table(done.out, "network policy first ms far ms")}
    assert set(changes) == {"edge", "cloud", "oracle", "cnmt"}
    assert changes["edge"][4:] == ["0.00", "[0.00,", "0.00]", "paired", "same"]
    assert changes["cloud"][4].startswith("+") and changes["cloud"][-2:] == ["paired", "slower"]
    (best,) = table(done.out, "network first far")
    assert best[0] == "office" and best.count("latency") == 2
    assert "\nfar against first: paired by replication.\n" in done.out
    assert done.out.splitlines()[-1].startswith("policy naive: in first, not in far")


def test_json_holds_the_comparison_and_nothing_else(runs: Path, simnmt: Command) -> None:
    done = simnmt("compare", "first", "reseeded", "--json")
    document = json.loads(done.out)
    assert document["names"] == ["first", "reseeded"]
    assert document["scenario_differences"] == [{"key": "seed", "first": 3, "reseeded": 9}]
    assert [run["seed"] for run in document["runs"]] == [3, 9]
    assert {tuple(row["unpaired_because"]) for row in document["changes"]} == {("seed 9 instead of 3",)}
    assert {row["run"] for row in document["best"]} == {"first", "reseeded"}


def test_the_page_is_written_and_named(runs: Path, simnmt: Command) -> None:
    done = simnmt("compare", "first", "far", "--page", "pair.html")
    assert done.out.endswith("\npage: pair.html\n")
    page = (runs / "pair.html").read_text(encoding="utf-8")
    assert "networks.office.rtt_mean_ms" in page and "<script src" not in page


@pytest.mark.parametrize(
    ("arguments", "place"),
    [("first", "two runs"), ("first small.yaml", "small.yaml: "), ("first far --page far/summary.json", "far/summary.json ")],
)
def test_bad_input_is_one_line(runs: Path, simnmt: Command, tree: Tree, arguments: str, place: str) -> None:
    before = tree(runs)
    done = simnmt("compare", *arguments.split())
    assert (done.status, done.out) == (2, "") and place in done.err
    assert_one_line(done.err)
    assert tree(runs) == before


def test_a_run_without_its_scenario_is_refused_in_one_line(runs: Path, simnmt: Command, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(runs / "far", damaged)
    (damaged / "scenario.resolved.yaml").unlink()
    done = simnmt("compare", "first", str(damaged), "--page", "never.html")
    assert (done.status, done.out) == (2, "") and "damaged/scenario.resolved.yaml: no such file (run" in done.err
    assert_one_line(done.err)
    assert not (runs / "never.html").exists()
