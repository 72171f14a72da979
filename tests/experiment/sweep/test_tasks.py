"""The points of a sweep and their tasks: which there are, that they share random numbers, and what their digests cover."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simnmt.base.errors import InputError
from simnmt.experiment.sweep.execution import _run_in_processes
from simnmt.experiment.sweep.tasks import Point, Task, TaskResult, make_points, run_task, tasks_of_points
from simnmt.scenario.source import open_source
from simnmt.scenario.sweep_configuration import Sweep, checked
from simnmt.scenario.varied_keys import parse_varied_key
from simnmt.scenario.yaml_text import write_document

MakeScenario = Callable[..., dict[str, Any]]


@pytest.fixture
def given(make_scenario: MakeScenario, tmp_path: Path) -> str:
    """A scenario file of two policies."""
    path = tmp_path / "small.yaml"
    path.write_text(write_document(make_scenario(requests=200, policies={"edge": {}, "cnmt": {}})))
    return str(path)


def points_of(given: str, *grid: str) -> list[Point]:
    sweep = checked(Sweep(given, (), tuple(parse_varied_key(text, "--grid") for text in grid)))
    return make_points(sweep, open_source(given))


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
    tasks, _ = tasks_of_points(points_of(given, "networks.cp1.rtt_mean_ms=20,80"), {})
    runs = [run_task(task).runs for task in tasks if task.replication == 0]
    edge = [run[0]["numbers"] for run in runs]
    cnmt = [run[1]["numbers"] for run in runs]
    assert edge[0]["total_latency_s"] == edge[1]["total_latency_s"]
    assert cnmt[0]["total_latency_s"] < cnmt[1]["total_latency_s"]


def test_a_digest_covers_scenario_inputs_and_replication(given: str, tmp_path: Path) -> None:
    def keys(*grid: str, code: dict[str, str] | None = None) -> list[str]:
        tasks, _ = tasks_of_points(points_of(given, *grid), code or {})
        return [task.key for task in tasks]

    before = keys("devices.cloud.workers=1,2")
    assert len(set(before)) == 4, "two points of two replications"
    assert keys("devices.cloud.workers=2,1") == before[2:] + before[:2]
    assert not set(keys("devices.cloud.workers=1,2", code={"mine.py": "0"})) & set(before)
    profile = tmp_path / "cloud.json"
    profile.write_text(profile.read_text() + "\n")
    assert not set(keys("devices.cloud.workers=1,2")) & set(before)


def test_equal_points_are_run_once(given: str) -> None:
    points = points_of(given, "devices.cloud.workers=1,2")
    tasks, digests = tasks_of_points([points[0], replace(points[0], number=1), replace(points[1], number=2)], {})
    assert len(tasks) == 2 * 2, "two replications"
    assert digests[0] == digests[1] != digests[2]


def _exit_at_the_third(task: Task) -> TaskResult:
    if task.point == 2:
        os._exit(1)
    return TaskResult(task.key, task.point, task.replication)


@pytest.mark.deep
def test_a_task_that_ends_its_process_fails_and_all_others_end() -> None:
    scenario: Any = None
    tasks = [Task(str(number), number, 0, scenario, {}) for number in range(12)]
    results = list(_run_in_processes(tasks, _exit_at_the_third, 2))
    assert sorted(result.point for result in results) == list(range(12))
    assert [result.point for result in results if result.error] == [2]
