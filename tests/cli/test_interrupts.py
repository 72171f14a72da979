"""Whatever ends a run early: no traceback, nothing half-written, no process left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns.harness import deep
from tests.command_line import Tree

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system has no /proc")


def living(group: int) -> list[int]:
    """Processes of a group that still run."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            pids.append(int(stat.parent.name))
    return sorted(pids)


def eventually(met: Callable[[], Any], seconds: float = 20.0) -> Any:
    end = time.monotonic() + seconds
    while not (value := met()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.03)
    return value


Process = subprocess.Popen[str]
MESSAGE = "simnmt: interrupted; nothing is left half-written\n"


@pytest.fixture
def begun(folder: Path, start: Callable[..., Process]) -> Iterator[Callable[..., Process]]:
    """Starts a command, and ends what is left of it and of its processes; with `pattern`, waits for such a file."""
    started = list[Process]()

    def begin(*command: str, pattern: str = "", **options: Any) -> Process:
        started.append(start(*command, **options))
        if pattern:
            eventually(lambda: list(folder.glob(pattern)))
        return started[-1]

    yield begin
    for process in started:
        if living(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def long_run(begun: Callable[..., Process]) -> Callable[..., Process]:
    """A run that has begun: its folder is reserved, its processes are starting."""

    def begin(jobs: int, *more: str) -> Process:
        command = ("run", "small.yaml", "--requests", "200000", "--replications", "400", "--jobs", str(jobs), *more)
        return begun(*command, pattern="reports/small-*")

    return begin


def ended(process: Process) -> tuple[int, str, str]:
    """Status and output of a process that is about to end."""
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("jobs", "number", "delay_s"),
    [
        deep(1, signal.SIGINT, 1.0),
        deep(2, signal.SIGINT, 0.0),
        deep(2, signal.SIGINT, 0.2),
        deep(2, signal.SIGINT, 1.2),
        (2, signal.SIGTERM, 0.7),
        deep(2, signal.SIGHUP, 0.3),
    ],
)
def test_a_signal_to_all_processes_at_once(
    folder: Path, long_run: Callable[..., Any], tree: Tree, jobs: int, number: int, delay_s: float
) -> None:
    """As a terminal sends it; also while the processes start, when Python in them has no handler yet."""
    before = tree(folder)
    process = long_run(jobs)
    time.sleep(delay_s)
    os.killpg(process.pid, number)
    assert ended(process) == (128 + number, "", MESSAGE)
    assert tree(folder) == before
    eventually(lambda: not living(process.pid))


LONG_UNIT = """\
version: 1
name: long
requests: 300000
replications: 1
workloads:
  w: {lengths: "@de-en-news", arrivals: {kind: poisson, rate_rps: 3000}, end_nodes: 40}
networks: {n: {rtt: {constant_ms: 2000}}}
devices:
  gateway: {profile: "@cpu1-gru", count: 40}
  cloud: {profile: "@cpu2-gru", count: 100}
policies: {oracle: {}}
"""
"""One simulation whose oracle foresees at every decision all requests on their way: many minutes in either engine."""
TRIES, MOST_S = 3, 0.5


@pytest.mark.deep
@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_an_interrupt_ends_a_long_unit_within_half_a_second(
    folder: Path, begun: Callable[..., Process], tree: Tree, engine: str
) -> None:
    """From the signal to the message, which ends the work; the best of three tries, since a busy machine delays some."""
    (folder / "long.yaml").write_text(LONG_UNIT)
    before, delays_s = tree(folder), []
    while len(delays_s) < TRIES and min(delays_s, default=MOST_S) >= MOST_S:
        process = begun("run", "long.yaml", "--jobs", "1", "--engine", engine, pattern="reports/long-*")
        time.sleep(2.5)  # to read the inputs and draw the requests
        assert process.poll() is None and process.stderr is not None
        sent_s = time.monotonic()
        os.kill(process.pid, signal.SIGINT)
        first_line = process.stderr.readline()
        delays_s.append(time.monotonic() - sent_s)
        status, out, err = ended(process)
        assert (status, out, first_line + err) == (130, "", MESSAGE)
        assert tree(folder) == before
    assert min(delays_s) < MOST_S, delays_s


SIGNALLED = """\
import os
import signal


def at(place):
    if place == "PLACE":
        os.kill(os.getpid(), signal.SIGTERM)


at("import")


class Mine:
    def __init__(self):
        at("make")

    def prepare(self, src_len):
        at("prepare")
        return self.decide

    def decide(self, request, delay_s):
        at("decide")
        return 0
"""
"""A policy in whose code the signal arrives."""


@pytest.mark.deep
@pytest.mark.parametrize("place", ["import", "make", "prepare", "decide"])
def test_a_signal_while_code_of_the_user_runs_is_no_fault_of_it(
    folder: Path, start: Callable[..., Any], tree: Tree, place: str
) -> None:
    (folder / "mine.py").write_text(SIGNALLED.replace("PLACE", place))
    before = tree(folder)
    mine = 'policies={mine: {kind: "mine.py:Mine"}}'
    process = start("run", "small.yaml", "--requests", "200000", "--set", mine, "--allow-code", "--jobs", "1")
    assert ended(process) == (143, "", MESSAGE)
    assert tree(folder) == before


@pytest.mark.deep
def test_impatience_changes_nothing(folder: Path, long_run: Callable[..., Any], tree: Tree) -> None:
    before = tree(folder)
    process = long_run(2)
    eventually(lambda: len(living(process.pid)) > 2)
    for _ in range(3):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.02)
    assert ended(process) == (130, "", MESSAGE)
    assert tree(folder) == before


@pytest.mark.deep
def test_its_processes_follow_a_run_that_was_killed(long_run: Callable[..., Any]) -> None:
    """At once, not when they have done what they were at."""
    many = ", ".join(f"p{number}: {{kind: cnmt}}" for number in range(240))  # makes a task of a minute
    process = long_run(2, "--set", f"policies={{{many}}}")
    eventually(lambda: len(living(process.pid)) > 3)  # two at work, and multiprocessing's resource tracker
    time.sleep(0.7)
    process.kill()
    eventually(lambda: not living(process.pid))  # about 0.2 s on an idle machine; their tasks take longer than the limit


@pytest.mark.deep
def test_a_process_of_the_run_that_was_killed_is_told(folder: Path, long_run: Callable[..., Any], tree: Tree) -> None:
    before = tree(folder)
    process = long_run(2)
    newest = eventually(lambda: living(process.pid)[3:])[-1]
    os.kill(newest, signal.SIGKILL)
    status, out, err = ended(process)
    assert (status, out, err.count("\n")) == (1, "", 1) and err.startswith("simnmt: a process died")
    assert tree(folder) == before
    eventually(lambda: not living(process.pid))
