"""`simnmt run`: what it prints, what it leaves behind, and what it makes of a run directory given back to it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import simnmt as library
from simnmt import api
from simnmt.experiment import run as run_module
from simnmt.experiment import units
from simnmt.results import run_directory
from simnmt.scenario.document import read_document
from simnmt.world import compiled_world, structures
from tests.campaigns.harness import deep
from tests.command_line import Command, Tree, assert_one_line

SAME = ("requests.parquet", "summary.json", "summary.csv", "scenario.resolved.yaml", "scenario.input.yaml", "report.html")
WHOLE = {*SAME, "manifest.json"}


@pytest.mark.parametrize("jobs", ["1", deep("2")])
def test_a_run_directory_repeats_byte_for_byte_from_another_folder_on_any_number_of_processes(
    folder: Path, simnmt: Command, monkeypatch: pytest.MonkeyPatch, jobs: str
) -> None:
    """With overrides, and a corpus that the scenario names relative to itself."""
    with monkeypatch.context() as above:
        above.chdir(folder.parent)
        first = simnmt("run", "here/small.yaml", "--set", "policies.cnmt.len_slope=0.8", "--seed", "9")
    assert (first.status, first.err) == (0, "")
    (directory,) = (folder.parent / "reports").iterdir()
    assert directory.name.startswith("small-")
    assert {path.name for path in directory.iterdir()} == WHOLE
    assert f"run directory: reports/{directory.name}\n" in first.out
    again = simnmt("run", str(directory), "--out", "again", "--jobs", jobs)
    assert (again.status, again.err) == (0, "")
    for name in SAME:
        assert (folder / "again" / name).read_bytes() == (directory / name).read_bytes(), name


def test_what_was_overridden_stands_in_the_resolved_scenario_and_in_the_numbers(folder: Path, simnmt: Command) -> None:
    for out, slope in (("plain", ()), ("steep", ("--set", "policies.cnmt.len_slope=2.5"))):
        few = ("--requests", "50", "--replications", "1", "--seed", "5")
        assert simnmt("run", "small.yaml", *slope, *few, "--out", out).status == 0
    resolved = Path("steep/scenario.resolved.yaml").read_text()
    assert "len_slope: 2.5\n" in resolved
    assert {"requests: 50", "replications: 1", "seed: 5"} <= set(resolved.splitlines())
    assert str(folder / "news.de") in resolved
    assert Path("steep/scenario.input.yaml").read_bytes() == Path("small.yaml").read_bytes()
    logs = {out: pd.read_parquet(f"{out}/requests.parquet").query("policy == 'cnmt'") for out in ("plain", "steep")}
    assert (logs["steep"].tgt_len_predicted > logs["plain"].tgt_len_predicted).mean() > 0.9
    assert (logs["steep"].tgt_len == logs["plain"].tgt_len).all()


def test_the_manifest_names_every_input_and_output(folder: Path, simnmt: Command, tree: Tree) -> None:
    assert simnmt("run", "small.yaml", "--out", "run").status == 0
    manifest = json.loads(Path("run/manifest.json").read_text())
    digests = tree(folder)
    assert manifest["outputs"] == {name: digests[f"run/{name}"] for name in sorted(SAME)}
    inputs = ("news.de", "news.en", "office.csv", "gateway.json", "cloud.json")
    assert manifest["inputs"] == {str(folder / name): digests[name] for name in inputs}
    assert manifest["argv"] == ["run", "--jobs", "1", "small.yaml", "--out", "run"]


def test_a_run_of_the_same_second_gets_a_folder_with_the_next_number(
    folder: Path, simnmt: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    monkeypatch.setattr(run_directory, "datetime", SimpleNamespace(now=lambda zone: moment))
    for _ in range(2):
        assert simnmt("run", "small.yaml", "--requests", "20").status == 0
    names = {path.name: {file.name for file in path.iterdir()} for path in Path("reports").iterdir()}
    assert names == {"small-20260102-030405": WHOLE, "small-20260102-030405-2": WHOLE}


def test_the_current_folder_is_not_replaced(folder: Path, simnmt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("empty").mkdir()
    monkeypatch.chdir("empty")
    done = simnmt("run", "../small.yaml", "--out", ".")
    assert (done.status, done.out) == (2, "")
    assert done.err == "simnmt: .: the output folder is the current one (name a new folder in it)\n"


def appended(path: Path) -> None:
    with path.open("a") as file:
        file.write("900,80\n")


NOT_WHOLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "an output is gone": (lambda folder: (folder / "run" / SAME[0]).unlink(), f"run/{SAME[0]}: "),
    "an output changed": (lambda folder: appended(folder / "run" / SAME[-1]), f"run/{SAME[-1]}: "),
    "the manifest is gone": (lambda folder: (folder / "run/manifest.json").unlink(), "run: "),
    "the manifest is none": (lambda folder: (folder / "run/manifest.json").write_text("[]"), "run/manifest.json: "),
    "an input is gone": (lambda folder: (folder / "news.en").unlink(), "news.en: "),
    "an input changed": (lambda folder: appended(folder / "office.csv"), "office.csv: "),
}


@pytest.mark.parametrize("fault", NOT_WHOLE)
def test_a_run_directory_that_is_not_as_it_was_written_is_refused(
    folder: Path, simnmt: Command, tree: Tree, fault: str
) -> None:
    api.run(folder / "small.yaml", requests=20, replications=1, jobs=1, out=folder / "run")
    damage, place = NOT_WHOLE[fault]
    damage(folder)
    before = tree(folder)
    done = simnmt("run", "run")
    assert (done.status, done.out, tree(folder)) == (2, "", before)
    assert_one_line(done.err)
    assert done.err.replace(f"{folder}/", "").startswith(f"simnmt: {place}")
    if fault == "an input is gone":
        Path("news.en").write_bytes(Path("news.de").read_bytes())
        assert simnmt("run", "run/scenario.resolved.yaml", "--out", "new").status == 0, "the remedy helps"


def test_an_input_that_an_override_takes_out_may_be_gone(folder: Path, simnmt: Command) -> None:
    """The override's path starts at the current folder."""
    api.run(folder / "small.yaml", requests=20, replications=1, jobs=1, out=folder / "run")
    (folder / "office.csv").rename("other.csv")
    assert simnmt("run", "run", "--set", "networks.office.rtt=other.csv", "--out", "new").status == 0


def test_a_scenario_from_a_pipe_is_recorded_in_its_own_words(folder: Path, simnmt: Command) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, (folder / "small.yaml").read_bytes())
    os.close(write_end)
    done = simnmt("run", f"/dev/fd/{read_end}", "--out", "run")
    os.close(read_end)
    assert (done.status, done.err) == (0, "")
    assert read_document("run/scenario.input.yaml").data == read_document("small.yaml").data


@pytest.fixture
def run(folder: Path, simnmt: Command) -> Command:
    def check(*arguments: str) -> Any:
        done = simnmt("run", "small.yaml", "--json", *arguments)
        assert (done.status, done.err) == (0, "")
        return json.loads(done.out)

    return check


@pytest.mark.parametrize("policies", ["{oracle: {}}", "{edge: {}}", "{cnmt: {}}", "{cnmt: {}, oracle: {}}"])
def test_few_policies(run: Callable[..., Any], policies: str) -> None:
    document = run("--set", f"policies={policies}", "--replications", "1")
    assert len(document["rows"]) == policies.count("{}")
    assert document["verdicts"][0]["sentence"].startswith("news on office: ")


@pytest.mark.parametrize("replications", ["1", "2"])
def test_one_request(run: Callable[..., Any], replications: str) -> None:
    document = run("--requests", "1", "--replications", replications)
    assert len(document["rows"]) == 5
    for row in document["rows"]:
        assert row["requests"] == 1
        assert row["total_latency_s"] == pytest.approx(row["mean_latency_s"])


def test_a_doubtful_profile_is_warned_of_on_the_console_in_the_summary_and_on_the_page(folder: Path, simnmt: Command) -> None:
    """The busy box has no known effect on the numbers, so that only the error of the plane is printed."""
    profile = json.loads(Path("gateway.json").read_text())
    execution = profile["execution"] | {"kind": "measured", "fit": {"heldout_error": 0.2}}
    profile |= {"schema_version": 2, "execution": execution, "conditions": {"busy": True, "others_cpus": 1.5}}
    Path("gateway.json").write_text(json.dumps(profile))
    done = simnmt("run", "small.yaml", "--out", "made", "--replications", "1")
    doubt = "times of single requests of other lengths err by 20 % on average"
    assert done.err == f"simnmt: warning: profile {profile['name']} (gateway): {doubt}\n"
    assert "device profiles: gateway measured but doubtful, cloud synthetic" in done.out
    summary = json.loads(Path("made/summary.json").read_text())
    assert f"profile {profile['name']} (gateway): {doubt}." in summary["notes"]
    page = Path("made/report.html").read_text()
    assert "gateway: a box, a model" in page and f"<li>{doubt}</li>" in page and "(measured, doubtful)" in page


@pytest.mark.skipif(structures.library() is None, reason="nothing was compiled")
def test_without_a_compiled_world_one_note_says_so(folder: Path, simnmt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (structures, compiled_world, run_module, units):
        monkeypatch.setattr(module, "library", lambda: None)
    done = simnmt("run", "small.yaml", "--requests", "5", "--jobs", "1")
    assert done.status == 0
    assert len(done.err.splitlines()) == 1 and "the reference ran" in done.err
    refused = simnmt("run", "small.yaml", "--engine", "compiled")
    assert refused.status == 2
    assert len(refused.err.splitlines()) == 1


def test_what_intervals_leave_out_and_separate_workloads_are_noted(folder: Path, simnmt: Command) -> None:
    """On the console as on the page."""
    Path("asked.csv").write_text("time_s\n0.0\n0.9\n2.2\n4.1\n")
    lengths = "lengths: {source: news.de, target: news.en, src_unit: word, tgt_unit: word}"
    for count in (1, 2):
        names = ("news", "again")[:count]
        recorded = [f"workloads.{name}={{{lengths}, arrivals: {{kind: recorded, file: asked.csv}}}}" for name in names]
        overrides = [part for setting in (*recorded, "share_devices=false") for part in ("--set", setting)]
        out = f"made{count}"
        done = simnmt("run", "small.yaml", "--out", out, "--requests", "50", "--replications", str(count), *overrides)
        page = Path(f"{out}/report.html").read_text()
        assert [text.count("are separate runs") for text in (done.out, page)] == [count - 1] * 2
        assert [text.count("not the traffic of another time") for text in (done.out, page)] == [count - 1] * 2


def test_the_rows_of_a_run_are_in_the_order_of_its_objective(folder: Path, simnmt: Command) -> None:
    arguments = ("run", "small.yaml", "--set", "objective=p95")
    rows = json.loads(simnmt(*arguments, "--json").out)["rows"]
    table = next(part for part in simnmt(*arguments).out.split("\n\n") if part.startswith("network"))
    lines = [line.split()[1] for line in table.splitlines()[2 : 2 + len(rows)]]
    assert lines == [row["policy"] for row in sorted(rows, key=lambda row: row["p95_latency_s"])]
    marked = [line.split()[1] for line in table.splitlines() if line.split()[2:3] == ["<"]]
    assert len(marked) == 1 and marked[0] in ("edge", "cloud", "naive", "cnmt"), "the recommended policy"


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
