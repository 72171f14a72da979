"""Tasks on several processes: every answer once, every failure told, no process left."""

from __future__ import annotations

import math
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simnmt.base.errors import SimnmtError
from simnmt.experiment import processes, run
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.inputs import read_inputs
from simnmt.experiment.processes import run_in_processes, worthwhile_processes
from simnmt.experiment.run import run_plan
from simnmt.experiment.units import expected_s
from simnmt.scenario.source import open_source
from simnmt.workload.errors import CorpusError
from simnmt.workload.length_table import read_table
from simnmt.world.compiled_library import library
from tests.campaigns.harness import deep
from tests.units import plan_of, unit_of


@pytest.fixture(autouse=True)
def none_is_left() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


def test_every_task_is_answered_once() -> None:
    assert sorted(run_in_processes(math.factorial, range(9), 2)) == [(n, math.factorial(n)) for n in range(9)]


def test_no_process_starts_without_a_task() -> None:
    with closing(run_in_processes(math.factorial, [3, 4], 1000)) as finished:
        next(finished)
        assert len(multiprocessing.active_children()) == 2


def test_tasks_and_answers_may_be_larger_than_any_buffer() -> None:
    tasks = [bytes([n]) * 3_000_000 for n in range(5)]
    assert dict(run_in_processes(bytearray, tasks, 2)) == dict(enumerate(tasks))


def test_a_thread_may_ask_too() -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(run_in_processes(math.factorial, [3, 4], 2)))
    thread.start()
    thread.join()
    assert sorted(found) == [(0, 6), (1, 24)]


def test_what_a_task_raises_is_raised_here_with_its_place_there() -> None:
    with pytest.raises(ValueError, match="math domain") as caught:
        list(run_in_processes(math.sqrt, [4.0, -1.0, 9.0], 2))
    assert "Traceback" in str(caught.value.__cause__)
    assert "processes.py" in str(caught.value.__cause__)


def test_an_input_error_keeps_its_place_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("no table\n")
    with pytest.raises(CorpusError) as caught:
        list(run_in_processes(read_table, [tmp_path / "t.csv"], 1))
    assert (caught.value.path, caught.value.line) == (str(tmp_path / "t.csv"), 1)
    assert str(caught.value).startswith(f"{tmp_path}/t.csv:1: not a length table")


def test_a_process_that_ends_is_told_even_when_others_go_on() -> None:
    begun = time.monotonic()
    with pytest.raises(SimnmtError, match="a process of the run died"):
        list(run_in_processes(eval, ["__import__('os')._exit(1)", "__import__('time').sleep(60)"], 2))
    assert time.monotonic() - begun < 30


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
    assert multiprocessing.active_children() == []
    assert time.monotonic() - begun < 30


def test_processes_are_started_only_for_work_that_outlasts_their_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    seconds = [0.0, processes.LEAST_WORK_S * 1.9, processes.LEAST_WORK_S * 2.1, processes.LEAST_WORK_S * 100.0]
    assert [worthwhile_processes(work_s) for work_s in seconds] == [1, 1, 2, 4]


def test_work_is_expected_by_engine_and_by_what_a_policy_foresees(make_scenario: Callable[..., dict[str, Any]]) -> None:
    unit = unit_of(plan_of(make_scenario(requests=1_000)))
    simpy_s = expected_s(replace(unit, engine="simpy"))
    assert expected_s(unit) < simpy_s if library() is not None else expected_s(unit) == simpy_s
    longer = unit_of(plan_of(make_scenario(requests=3_000)))
    assert expected_s(longer) == pytest.approx(3 * expected_s(unit))
    queued = {"de-en": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 6.0}}}
    assert expected_s(unit_of(plan_of(make_scenario(requests=1_000, workloads=queued)))) > expected_s(unit)


def opened(scenario: dict[str, Any]) -> RunPlan:
    source = open_source(scenario)
    return read_inputs(source.scenario, Path.cwd(), source.document)


def test_work_of_a_users_policy_is_expected_at_the_pace_of_simpy(make_scenario: Callable[..., dict[str, Any]]) -> None:
    class Stay:
        def prepare(self, src_len: Any) -> Any:
            return lambda request, delay_s: 0

    shipped = unit_of(plan_of(make_scenario(requests=1_000, policies={"edge": {}, "cnmt": {}})))
    mixed = unit_of(opened(make_scenario(requests=1_000, policies={"edge": {}, "mine": Stay()})))
    in_simpy_s = expected_s(replace(shipped, engine="simpy"))
    assert expected_s(mixed) == pytest.approx((expected_s(shipped) + in_simpy_s) / 2)


@pytest.mark.parametrize(("least_work_s", "asked"), [(1e9, []), (1e-9, [2])])
def test_a_run_without_a_number_of_processes_asks_for_as_many_as_its_work_is_worth(
    make_scenario: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, least_work_s: float, asked: list[int]
) -> None:
    jobs_asked = list[int]()

    def run_here(work: Callable[[Any], Any], tasks: Sequence[Any], jobs: int) -> Iterator[tuple[int, Any]]:
        jobs_asked.append(jobs)
        yield from ((index, work(task)) for index, task in enumerate(tasks))

    monkeypatch.setattr(run, "run_in_processes", run_here)
    monkeypatch.setattr(processes, "LEAST_WORK_S", least_work_s)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    result = run_plan(plan_of(make_scenario(requests=50, replications=3)), jobs=None)
    assert jobs_asked == asked
    assert len(result.cells) == 1


@pytest.mark.parametrize(("least_work_s", "started"), [(1e9, 0), deep(1e-9, 2)])
def test_a_run_without_a_number_of_processes_starts_as_many_as_its_work_asks_for(
    make_scenario: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, least_work_s: float, started: int
) -> None:
    monkeypatch.setattr(processes, "LEAST_WORK_S", least_work_s)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    plan, active = plan_of(make_scenario(requests=200, replications=3)), list[int]()
    result = run_plan(plan, jobs=None, progress=lambda done, of: active.append(len(multiprocessing.active_children())))
    assert max(active) == started
    assert result.summary_rows == run_plan(plan, jobs=1).summary_rows
