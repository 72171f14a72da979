"""Tasks on several processes: every answer once, every failure told, no process left."""

from __future__ import annotations

import math
import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from simnmt.base.errors import SimnmtError
from simnmt.experiment.processes import run_in_processes
from simnmt.workload.errors import CorpusError
from simnmt.workload.length_table import read_table


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


def test_a_caller_that_has_enough_leaves_no_process() -> None:
    begun = time.monotonic()
    asked = run_in_processes(time.sleep, [0.0, 60.0, 60.0], 2)
    assert next(asked) == (0, None)
    asked.close()
    assert multiprocessing.active_children() == []
    assert time.monotonic() - begun < 30
