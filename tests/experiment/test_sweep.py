"""The points of a sweep: which there are, that they share random numbers, and which fail."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import simnmt
from simnmt.base.errors import InputError, SimnmtError
from simnmt.experiment.sweep import Point, make_points, run_point, run_points
from simnmt.results.sweep_table import TABLE
from simnmt.scenario.source import open_source
from simnmt.scenario.varied_keys import check_grid, parse_varied_key
from simnmt.scenario.yaml_text import write_document

MakeScenario = Callable[..., dict[str, Any]]


@pytest.fixture
def given(make_scenario: MakeScenario, tmp_path: Path) -> str:
    """A scenario file of two policies."""
    path = tmp_path / "small.yaml"
    path.write_text(write_document(make_scenario(requests=200, policies={"edge": {}, "cnmt": {}})))
    return str(path)


def points_of(given: str, *grid: str) -> list[Point]:
    keys = [parse_varied_key(text, "--grid") for text in grid]
    check_grid(keys, ())
    return make_points(keys, open_source(given))


def test_a_grid_has_every_combination_in_the_order_of_its_keys(given: str) -> None:
    points = points_of(given, "networks.cp1.rtt_mean_ms=20,80", "devices.cloud.workers=1:3:3")
    assert [point.values for point in points] == [(rtt, workers) for rtt in (20, 80) for workers in (1, 2, 3)]
    assert [point.number for point in points] == list(range(6))
    assert {(point.scenario.networks["cp1"].rtt_mean_ms, point.scenario.devices["cloud"].workers) for point in points} == {
        point.values for point in points
    }


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (("devices.cloud.workers=1,x",), "--grid devices.cloud.workers=1,x: devices.cloud.workers: "),
        (("devices.cloud.worker=1,2",), "devices.cloud.worker: "),
        (("devices.cloud.profile=@none,@tx2-gru",), "devices.cloud.profile: @none"),
        (("networks.cp1.rtt=@cp1,no.csv",), "no.csv"),
        (("devices.gateway.count=1,2", "workloads.de-en.end_nodes=1,2"), "devices.gateway.count: "),
    ],
)
def test_every_value_is_checked_before_anything_runs(given: str, grid: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError) as refused:
        points_of(given, *grid)
    assert message in str(refused.value)


def test_points_that_differ_in_the_network_alone_meet_the_same_requests(given: str) -> None:
    edge, cnmt = zip(*(run_point(point).rows for point in points_of(given, "networks.cp1.rtt_mean_ms=20,80")), strict=True)
    assert edge[0]["total_latency_s"] == edge[1]["total_latency_s"]
    assert cnmt[0]["total_latency_s"] < cnmt[1]["total_latency_s"]


def test_the_objective_of_a_workload_is_that_of_the_table_or_is_named(given: str, tmp_path: Path) -> None:
    lines: list[str] = []
    first, second = (
        simnmt.sweep(
            given,
            grid=["requests=100,200"],
            overrides=["workloads.de-en.objective=p90", *overrides],
            out=tmp_path / name,
            jobs=1,
            announce=lines.append,
        )
        for name, overrides in {"one": [], "two": ["workloads.en-de={lengths: '@de-en-news'}"]}.items()
    )
    assert (first.table.objective, second.table.objective) == ("p90_ms", "mean_ms")
    assert [line for line in lines if "judged" in line] == ["the policies of de-en are judged by its own objective, p90"]


def test_few_points_share_all_processes_among_their_replications(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs_of_points: list[int] = []

    def recorded(work: Any, tasks: Any, jobs: int) -> list[Any]:
        jobs_of_points.append(jobs)
        return [work(task) for task in tasks]

    monkeypatch.setattr("simnmt.experiment.sweep.answers_of", recorded)
    points = points_of(given, "networks.cp1.rtt_mean_ms=20")
    assert [result.error for _, result in run_points(points, 2, None)] == [""]
    assert jobs_of_points == [2]


@pytest.mark.parametrize("changed", ["cloud.json", "mine.py"])
def test_a_point_whose_input_or_code_has_changed_since_the_sweep_began_fails(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("class Mine:\n    def prepare(self, src_len):\n        return lambda request, delay_s: 0\n")

    def change(done: float, total: int) -> None:
        if done == 1:
            Path(changed).write_text(Path(changed).read_text() + "\n")

    options = {"grid": ["devices.cloud.workers=1,2,3"], "overrides": ["policies={mine: {kind: 'mine.py:Mine'}}"]}
    result = simnmt.sweep(given, **options, jobs=1, out="out", allow_code=True, progress=change)
    assert [failure.point for failure in result.failures] == [1, 2]
    assert all(changed in failure.error for failure in result.failures)
    with pytest.raises(InputError, match=changed):
        simnmt.sweep("out", jobs=1, allow_code=True)


def test_a_cluster_without_an_address_is_refused_before_a_folder_is_written(given: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no address of a scheduler"):
        simnmt.sweep(given, grid=["requests=100,200"], out=tmp_path / "out", cluster="foo")
    assert not (tmp_path / "out").exists()


@pytest.mark.deep
def test_a_cluster_gives_the_bytes_of_this_machine(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import LocalCluster

    monkeypatch.chdir(tmp_path)
    grid = ["networks.cp1.rtt_mean_ms=20,200"]
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        result = simnmt.sweep(given, grid=grid, out="there", cluster=cluster.scheduler_address)
    assert (result.failures, result.ran) == ([], 2)
    simnmt.sweep(given, grid=grid, out="here", jobs=1)
    assert Path("there", TABLE).read_bytes() == Path("here", TABLE).read_bytes()
    monkeypatch.setattr("simnmt.experiment.processes.CONNECT_S", 0.5)
    with pytest.raises(SimnmtError, match="cluster"):
        simnmt.sweep(given, grid=grid, out="lost", cluster=cluster.scheduler_address)


@pytest.mark.deep
def test_a_script_that_starts_processes_without_a_guard_is_named(given: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import simnmt\nresult = simnmt.sweep({given!r}, grid=['devices.cloud.workers=1,2'], jobs=2, out='out')\n"
        "print(result.failures[0].error)\n"
    )
    ended = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "__name__" in ended.stdout
