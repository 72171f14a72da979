"""`simnmt sweep` as a user meets it: one table, going on after a stop, points that fail, and what is refused in one line."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import simnmt as package
from simnmt.cli import app
from simnmt.experiment.sweep import run_point
from simnmt.profile.device_profile import write_profile
from simnmt.results.sweep_table import TABLE
from tests.command_line import Command, Tree, assert_one_line, filled_folder

GRID = ("--grid", "networks.office.rtt_mean_ms=20,200", "--grid", "devices.cloud.workers=1,2")
SMALL = ("sweep", "small.yaml", *GRID, "--requests", "100", "--jobs", "1")


@pytest.fixture(scope="module")
def swept(make_profile: Callable[..., Any]) -> Iterator[Path]:
    """A folder with a finished sweep of four points, `done`."""
    with filled_folder(make_profile) as place, pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr("sys.argv", ["simnmt", *SMALL, "--out", "done"])
        assert app._status() == 0
        yield place


@pytest.fixture
def here(swept: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(swept)
    return swept


def assert_refused(outcome: Any, message: str) -> None:
    assert outcome.status == 2
    assert_one_line(outcome.err)
    assert message in outcome.err


def test_a_sweep_writes_one_table_with_a_row_for_each_point_and_policy(here: Path) -> None:
    table = package.load_sweep("done")
    assert table.attrs["keys"] == ["networks.office.rtt_mean_ms", "devices.cloud.workers"]
    assert len(table) == 4 * 5
    first = table[table["policy"] == "cnmt"].iloc[0]
    assert (first["workload"], first["network"], first["replications"], first["requests"]) == ("news", "office", 2, 100)
    assert first["mean_ms_low"] < first["mean_ms"] < first["mean_ms_high"]
    cloud = table[(table["policy"] == "cloud") & (table["devices.cloud.workers"] == 1)].set_index("networks.office.rtt_mean_ms")
    assert cloud.loc[200, "mean_ms"] - cloud.loc[20, "mean_ms"] == pytest.approx(180.0, abs=15.0), (
        "100 requests meet a part of the series"
    )
    assert set(table[table["policy"] == "oracle"]["standing"]) == {"bound"}
    assert (table.groupby("point")["standing"].apply(lambda standings: (standings == "best").sum()) == 1).all()


def test_the_rows_of_a_point_are_those_of_its_run(here: Path) -> None:
    result = package.run(
        "small.yaml", requests=100, overrides=["networks.office.rtt_mean_ms=200", "devices.cloud.workers=2"], jobs=1
    )
    table = package.load_sweep("done")
    last = table[table["point"] == 3].set_index("policy")
    for row in result.summary_rows:
        of_sweep = last.loc[row["policy"]]
        assert of_sweep["p95_ms"] == pytest.approx(1e3 * row["p95_latency_s"], rel=1e-12)
        assert of_sweep["mean_ms_high"] == pytest.approx(1e3 * row["mean_latency_s_high"], rel=1e-9)
        assert of_sweep["total_latency_s"] == row["total_latency_s"]
    assert last[last["standing"] == "best"].index[0] == result.best()["policy"]


def test_a_finished_sweep_says_where_policies_are_best(here: Path, simnmt: Command) -> None:
    before = (here / "done" / TABLE).read_bytes()
    outcome = simnmt("sweep", "done")
    assert outcome.status == 0
    assert "4 points of networks.office.rtt_mean_ms, devices.cloud.workers" in outcome.out
    assert "\noracle " not in outcome.out
    assert "\nLeft out: oracle, a bound that cannot be deployed (the table has its numbers).\n" in outcome.out
    assert outcome.out.endswith("table: done/sweep.parquet\npage: done/sweep.html\n")
    assert (here / "done" / TABLE).read_bytes() == before
    document = json.loads(simnmt("sweep", "done", "--json").out)
    assert (document["points"], document["points_run"], len(document["rows"])) == (4, 0, 20)


def test_hits_are_printed_by_point_where_there_is_a_cache(here: Path, simnmt: Command) -> None:
    repeats = ("--set", "workloads.news.repeats={zipf: 1.0, over: 50}")
    grid = ("--grid", "devices.gateway.cache={entries: 1},{entries: 50}")
    outcome = simnmt(*SMALL[:2], *repeats, *grid, *SMALL[-4:], "--out", "cached")
    table = outcome.out[outcome.out.index("\npoint ") :].splitlines()
    heads = ["point", "gateway.cache", "workload and network", "best policy", "mean_ms", "cached %"]
    assert re.split(" {2,}", table[1]) == heads
    few, many = (float(line.split()[-1]) for line in table[3:5])
    assert few < 20.0 < many and "cached %" not in simnmt("sweep", "done").out


def test_points_whose_best_policy_misses_the_service_level_are_counted(here: Path, simnmt: Command) -> None:
    outcome = simnmt(*SMALL[:2], "--grid", "networks.office.rtt_mean_ms=20,200", "--set", "slo={mean_ms: 0.001}", *SMALL[-4:])
    assert "In 2 of 2 cases the best policy misses the service level, as all do." in outcome.out
    (folder,) = (here / "reports").glob("*-sweep-*")
    table = package.load_sweep(folder)
    assert set(table[table["standing"] == "best"]["slo_met"]) == {0.0}
    assert package.load_sweep("done")["slo_met"].isna().all()


def test_an_interrupted_sweep_loses_no_finished_point(folder: Path, simnmt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = simnmt(*SMALL, "--out", "whole")
    assert whole.status == 0
    ran: list[int] = []

    def interrupted_at_the_third(point: Any, engine: Any = None) -> Any:
        if len(ran) == 2:
            raise app.Interrupted(2)
        ran.append(point.number)
        return run_point(point, engine)

    monkeypatch.setattr("simnmt.experiment.sweep.run_point", interrupted_at_the_third)
    stopped = simnmt(*SMALL, "--out", "parts")
    assert (stopped.status, stopped.err.splitlines()[-1]) == (130, "simnmt: interrupted; nothing is left half-written")
    assert {path.name for path in Path("parts/points").glob("*.json")} == {f"{number}.json" for number in ran}
    for name, why in (("parts", "parts: the sweep has not ended"), ("nowhere", "no table of a sweep")):
        with pytest.raises(package.InputError, match=why):
            package.load_sweep(name)
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    document = json.loads(simnmt("sweep", "parts", "--json", "--jobs", "1").out)
    assert document["points_run"] == 4 - 2
    assert Path("parts", TABLE).read_bytes() == Path("whole", TABLE).read_bytes()


@pytest.mark.parametrize(
    "damage",
    ["{", "[" * 100_000, {"rows": [1]}, {"rows": []}, {"rows": [{}]}, {"error": "x"}, {"point": 7}, {"metrics": ["no"]}],
    ids=lambda damage: str(damage)[:20],
)
def test_a_damaged_result_is_computed_again(here: Path, simnmt: Command, tmp_path: Path, damage: Any) -> None:
    folder = tmp_path / "changed"
    shutil.copytree("done", folder)
    result = folder / "points" / "0.json"
    result.write_text(damage if isinstance(damage, str) else json.dumps(json.loads(result.read_text()) | damage))
    outcome = simnmt("sweep", str(folder), "--json", "--jobs", "1")
    assert json.loads(outcome.out)["points_run"] == 1
    assert (folder / TABLE).read_bytes() == Path("done", TABLE).read_bytes()


@pytest.mark.parametrize("damage", [{"overrides": None}, {"overrides": [["x"]]}, {"inputs": []}, {"keys": 5}, {"base": 5}])
def test_a_damaged_header_is_one_line(here: Path, simnmt: Command, tmp_path: Path, damage: dict[str, Any]) -> None:
    header = json.loads(Path("done", "sweep.json").read_text())
    (tmp_path / "sweep.json").write_text(json.dumps(header | damage))
    assert_refused(simnmt("sweep", str(tmp_path)), "no sweep: sweep.json is missing or damaged")
    (tmp_path / "sweep.json").write_text(json.dumps(header | {"format": 3}))
    assert_refused(simnmt("sweep", str(tmp_path)), "in format 3")


def test_points_that_fail_are_recorded_and_the_others_are_in_the_table(
    folder: Path, simnmt: Command, make_profile: Callable[..., Any]
) -> None:
    narrow = make_profile((0.0002, 0.002, 0.005), name="narrow", valid_range={"src_len": (0, 20), "tgt_len": (0, 20)})
    write_profile(folder / "narrow.json", narrow)
    grid = ("--grid", "devices.cloud.profile=cloud.json,narrow.json", "--grid", "devices.cloud.outside_range_share=1.0,0.0")
    outcome = simnmt("sweep", "small.yaml", *grid, "--requests", "50", "--jobs", "1", "--out", "partly")
    assert outcome.status == 4
    assert "1 of 4 points failed; the others are in the table (try again: simnmt sweep partly)" in outcome.err
    assert "point 3: " in outcome.err
    assert "lies outside the profile's range" in outcome.err
    assert set(package.load_sweep("partly")["point"]) == {0, 1, 2}
    failed = json.loads((folder / "partly" / "failed.json").read_text())
    assert [record["point"] for record in failed] == [3]
    again = simnmt("sweep", "partly", "--json", "--jobs", "1")
    assert again.status == 4
    assert json.loads(again.out)["points_run"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("small.yaml", "nothing is swept"),
        ("small.yaml --grid devices.cloud.workers=1,2 --out done", "another sweep is there (go on with it: simnmt sweep done"),
        ("done --requests 7", "a sweep goes on as it was begun"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    here: Path, simnmt: Command, tree: Tree, arguments: str, message: str
) -> None:
    before = tree(here)
    outcome = simnmt("sweep", *arguments.split())
    assert_refused(outcome, message)
    assert tree(here) == before


def test_an_input_that_changed_ends_a_sweep_in_one_line(folder: Path, simnmt: Command) -> None:
    assert simnmt(*SMALL, "--out", "done").status == 0
    (folder / "office.csv").write_text("time_s,rtt_ms\n0,50\n60,60\n")
    assert_refused(simnmt("sweep", "done"), "office.csv has changed since the sweep began")


def test_a_scenario_from_a_pipe_is_swept_and_goes_on(here: Path, simnmt: Command) -> None:
    os.mkfifo("pipe.yaml")
    content = Path("small.yaml").read_text()
    threading.Thread(target=lambda: Path("pipe.yaml").write_text(content), daemon=True).start()
    assert simnmt("sweep", "pipe.yaml", *SMALL[2:], "--out", "piped").status == 0
    Path("pipe.yaml").unlink()
    assert Path("piped", TABLE).read_bytes() == Path("done", TABLE).read_bytes()
    assert json.loads(simnmt("sweep", "piped", "--json").out)["points_run"] == 0


def test_processes_give_the_bytes_of_one(here: Path) -> None:
    begun = package.sweep("small.yaml", grid=GRID[1::2], requests=100, jobs=2, out="two")
    assert (begun.failures, begun.ran) == ([], 4)
    assert Path("two", TABLE).read_bytes() == Path("done", TABLE).read_bytes()
