"""Tasks on several processes: every answer once, nothing lost, no process left."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from simnmt.base.errors import SimnmtError
from simnmt.experiment import processes
from simnmt.experiment.processes import run_in_processes, worthwhile_processes
from simnmt.experiment.run import run_plan
from simnmt.workload import CorpusError
from simnmt.workload.length_table import read_table
from tests.units import plan_of


@pytest.fixture(autouse=True)
def none_is_left() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


def test_every_task_is_answered_once() -> None:
    assert sorted(run_in_processes(math.factorial, range(9), 2)) == [(n, math.factorial(n)) for n in range(9)]


def test_tasks_and_answers_may_be_larger_than_any_buffer() -> None:
    tasks = [bytes([n]) * 3_000_000 for n in range(5)]
    assert dict(run_in_processes(bytearray, tasks, 2)) == dict(enumerate(tasks))


def test_an_error_of_a_task_is_raised_by_the_caller_with_its_place() -> None:
    with pytest.raises(ValueError, match="math domain") as caught:
        list(run_in_processes(math.sqrt, [4.0, -1.0, 9.0], 2))
    assert "Traceback" in str(caught.value.__cause__)
    assert "processes.py" in str(caught.value.__cause__)


def test_an_input_error_keeps_its_place_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("no table\n")
    with pytest.raises(CorpusError) as caught:
        list(run_in_processes(read_table, [tmp_path / "t.csv"], 1))
    assert (caught.value.path, caught.value.line) == (str(tmp_path / "t.csv"), 1)


def test_a_process_that_dies_ends_the_run_while_others_go_on() -> None:
    begun = time.monotonic()
    with pytest.raises(SimnmtError, match="process died"):
        list(run_in_processes(eval, ["__import__('os')._exit(1)", "__import__('time').sleep(60)"], 2))
    assert time.monotonic() - begun < 30


def test_a_process_that_dies_fails_its_task_alone_where_failures_are_answers() -> None:
    tasks = ["0", "1", "__import__('os')._exit(1)", "3", "4"]
    answers = run_in_processes(eval, tasks, 2, lambda task, error: f"{type(error).__name__} of {tasks.index(task)}")
    assert dict(answers) == {0: 0, 1: 1, 2: "SimnmtError of 2", 3: 3, 4: 4}


def test_an_interrupt_during_the_start_of_a_process_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(process: BaseProcess) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        BaseProcess.start(process)

    monkeypatch.setattr(SpawnProcess, "start", start)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore the signal
    try:
        with pytest.raises(KeyboardInterrupt):
            list(run_in_processes(math.factorial, range(9), 2))
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_caller_that_has_enough_leaves_no_process(handler: signal.Handlers) -> None:
    begun = time.monotonic()
    before = signal.signal(signal.SIGTERM, handler)  # the processes inherit that it is ignored
    try:
        asked = run_in_processes(time.sleep, [0.0, 60.0, 60.0], 2)
        assert next(asked) == (0, None)
        asked.close()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert time.monotonic() - begun < 30


def test_processes_are_started_only_for_work_that_outlasts_their_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    seconds = [0.0, processes.LEAST_WORK_S * 1.9, processes.LEAST_WORK_S * 2.1, processes.LEAST_WORK_S * 100.0]
    assert [worthwhile_processes(work_s) for work_s in seconds] == [1, 1, 2, 4]


@pytest.mark.parametrize(("least_work_s", "asked"), [(1e9, []), (1e-9, [2])])
def test_a_run_without_a_number_of_processes_asks_for_as_many_as_its_work_is_worth(
    make_scenario: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, least_work_s: float, asked: list[int]
) -> None:
    jobs_asked = list[int]()

    def run_here(work: Callable[[Any], Any], tasks: Sequence[Any], jobs: int) -> Iterator[tuple[int, Any]]:
        jobs_asked.append(jobs)
        yield from ((index, work(task)) for index, task in enumerate(tasks))

    monkeypatch.setattr(processes, "run_in_processes", run_here)
    monkeypatch.setattr(processes, "LEAST_WORK_S", least_work_s)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    result = run_plan(plan_of(make_scenario(requests=50, replications=3)), jobs=None)
    assert jobs_asked == asked
    assert len(result.cells) == 1
