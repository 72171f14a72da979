"""Tasks on several processes or a Dask cluster: every answer once, nothing lost, no process left."""

from __future__ import annotations

import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

import simnmt
from simnmt.base.errors import SimnmtError
from simnmt.experiment import processes
from simnmt.experiment.processes import run_in_processes, worthwhile_processes
from simnmt.experiment.run import run_plan
from simnmt.experiment.sweep import run_points
from simnmt.results.sweep_table import TABLE
from simnmt.scenario.yaml_text import write_document
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


ROOT = Path(__file__).parents[2]
STARTED_S = 60.0


@dataclass
class Cluster:
    """Processes of a scheduler and its workers."""

    folder: Path
    address: str = ""
    scheduler: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "", "OMP_NUM_THREADS": "1"}
        with (self.folder / f"{name}.log").open("wb") as log:
            command = [sys.executable, "-m", *arguments, "--no-dashboard"]
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=self.folder)

    def wait_for(self, name: str, pattern: str) -> str:
        until_s = time.monotonic() + STARTED_S
        log = ""
        while time.monotonic() < until_s:
            log = (self.folder / f"{name}.log").read_text(errors="replace")
            if match := re.search(pattern, log):
                return match[1]
            time.sleep(0.05)
        raise AssertionError(log)


@pytest.fixture
def dask(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A scheduler and its workers (two, or the fixture's parameter) without nannies, so that a dead one stays dead."""
    started = Cluster(tmp_path)
    workers = range(getattr(request, "param", 2))
    try:
        host = ("--host", "127.0.0.1", "--port", "0")
        started.scheduler = started.start("scheduler", "distributed.cli.dask_scheduler", *host)
        started.address = started.wait_for("scheduler", r"Scheduler at: +(tcp://127\.0\.0\.1:\d+)")
        for number in workers:
            alone = ("--no-nanny", "--nthreads", "1")
            started.workers.append(started.start(f"worker {number}", "distributed.cli.dask_worker", started.address, *alone))
        for number in workers:
            started.wait_for(f"worker {number}", r"(Registered to)")
        yield started
    finally:
        for process in (*started.workers, started.scheduler):
            if process is not None:
                process.kill()
                process.wait()


@pytest.mark.parametrize("dask", [1], indirect=True)
def test_a_cluster_gives_the_bytes_of_this_machine(
    dask: Cluster, make_scenario: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(dask.folder)
    Path("small.yaml").write_text(write_document(make_scenario(requests=50, policies={"edge": {}, "cnmt": {}})))
    grid = ["networks.cp1.rtt_mean_ms=20,200"]
    simnmt.sweep("small.yaml", grid=grid, out="here", jobs=1)
    on_cluster = simnmt.sweep("small.yaml", grid=grid, out="there", cluster=dask.address)
    assert (on_cluster.failures, on_cluster.ran) == ([], 2)
    assert Path("there", TABLE).read_bytes() == Path("here", TABLE).read_bytes()


@pytest.mark.deep
def test_a_cluster_loses_nothing_when_a_worker_or_the_scheduler_dies(
    dask: Cluster, make_scenario: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(dask.folder)
    Path("small.yaml").write_text(write_document(make_scenario(requests=200, policies={"edge": {}, "cnmt": {}})))

    def sweep(out: str, **options: Any) -> Any:
        return simnmt.sweep("small.yaml", grid=["networks.cp1.rtt_mean_ms=20:200:20"], out=out, **options)

    assert sweep("here", jobs=1).ran == 20

    def kill_a_worker(done: float, total: int) -> None:
        if done and dask.workers[0].poll() is None:
            os.kill(dask.workers[0].pid, signal.SIGKILL)

    on_cluster = sweep("there", cluster=dask.address, progress=kill_a_worker)
    assert (on_cluster.failures, on_cluster.ran, dask.workers[0].wait()) == ([], 20, -signal.SIGKILL)
    assert Path("there", TABLE).read_bytes() == Path("here", TABLE).read_bytes()

    def kill_the_scheduler(done: float, total: int) -> None:
        assert dask.scheduler is not None
        if done and dask.scheduler.poll() is None:
            os.kill(dask.scheduler.pid, signal.SIGKILL)
            dask.scheduler.wait()

    with pytest.raises(processes.ClusterLost) as lost:
        sweep("left", cluster=dask.address, progress=kill_the_scheduler)
    assert lost.value.exit_status == 4
    finished = len(list(Path("left/points").glob("*.json")))
    assert 0 < finished < 20
    monkeypatch.setattr(processes, "CONNECT_S", 0.5)
    with pytest.raises(processes.ClusterError):
        simnmt.sweep("left", cluster=dask.address)
    assert simnmt.sweep("left", jobs=1).ran == 20 - finished
    assert Path("left", TABLE).read_bytes() == Path("here", TABLE).read_bytes()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:8786", "tcp://localhost:1", "tcp://[::1]:8786", "tls://far.example:8786"])
def test_a_scheduler_on_this_machine_or_with_tls_is_taken(address: str) -> None:
    assert processes.check_address(address) == address


@pytest.mark.parametrize(
    "address",
    ["tcp://10.0.0.1:8786", "tcp://far.example:8786", "http://127.0.0.1:1", "tcp://127.0.0.1:0", "127.0.0.1:8786"],
)
def test_any_other_scheduler_is_refused(address: str) -> None:
    with pytest.raises(processes.ClusterError):
        processes.check_address(address)


def test_tls_without_certificates_is_refused() -> None:
    with pytest.raises(processes.ClusterError):
        list(run_points([], None, None, "tls://127.0.0.1:1"))
