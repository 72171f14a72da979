"""A sweep on a Dask scheduler with two workers on loopback: the same bytes, and nothing lost when one of them dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import simnmt
from simnmt.base.errors import SimnmtError
from simnmt.experiment.sweep import cluster, execution
from simnmt.experiment.sweep.tasks import PointTasks, TaskResult
from simnmt.results.sweep_table import TABLE
from simnmt.scenario.yaml_text import write_document
from tests.optional_packages import skip_file_without

skip_file_without("distributed", extra="cluster")
ROOT = Path(__file__).parents[3]
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

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait_for(self, name: str, pattern: str) -> str:
        until_s = time.monotonic() + STARTED_S
        while time.monotonic() < until_s:
            if match := re.search(pattern, self.log(name)):
                return match[1]
            time.sleep(0.05)
        raise AssertionError(self.log(name))


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
    assert (on_cluster.failures, on_cluster.ran) == ([], 4)
    assert Path("there", TABLE).read_bytes() == Path("here", TABLE).read_bytes()


@pytest.mark.deep
def test_a_cluster_loses_nothing_when_a_worker_or_the_scheduler_dies(
    dask: Cluster, make_scenario: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(dask.folder)
    Path("small.yaml").write_text(write_document(make_scenario(requests=200, policies={"edge": {}, "cnmt": {}})))

    def sweep(out: str, **options: Any) -> Any:
        return simnmt.sweep("small.yaml", grid=["networks.cp1.rtt_mean_ms=20:200:10"], out=out, **options)

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

    with pytest.raises(SimnmtError, match=r"was lost: its scheduler is gone; what was finished is kept") as lost:
        sweep("left", cluster=dask.address, progress=kill_the_scheduler)
    assert lost.value.exit_status == 4
    finished = len(list(Path("left/tasks").glob("*/*.json")))
    assert 0 < finished < 20
    monkeypatch.setattr(cluster, "CONNECT_S", 0.5)
    with pytest.raises(simnmt.InputError, match="no scheduler answers"):
        simnmt.sweep("left", cluster=dask.address)
    lines: list[str] = []
    gone_on = simnmt.sweep("left", cluster=dask.address, local_if_cluster_fails=True, jobs=1, announce=lines.append)
    assert gone_on.ran == 20 - finished
    assert "no scheduler answers" in lines[1] and "going on on this machine" in lines[1]
    assert Path("left", TABLE).read_bytes() == Path("here", TABLE).read_bytes()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:8786", "tcp://localhost:1", "tcp://[::1]:8786", "tls://far.example:8786"])
def test_a_scheduler_on_this_machine_or_with_tls_is_taken(address: str) -> None:
    assert cluster.check_address(address) == address


@pytest.mark.parametrize(
    "address", ["tcp://10.0.0.1:8786", "tcp://far.example:8786", "http://127.0.0.1:1", "tcp://127.0.0.1:0"]
)
def test_any_other_scheduler_is_refused(address: str) -> None:
    with pytest.raises(simnmt.InputError):
        cluster.check_address(address)


def test_tls_without_certificates_is_one_line() -> None:
    with pytest.raises(simnmt.InputError, match="Dask's configuration names no certificates"):
        cluster._connect("tls://127.0.0.1:1")


@dataclass(eq=False)
class StubFuture:
    """A task of the stub of a client, which has ended already."""

    status: str
    value: Any

    def result(self) -> Any:
        return self.value

    def exception(self) -> Any:
        return self.value

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        callback(self)


class KilledWorker(Exception):
    """The error of Dask, by its name, of a task whose workers died."""


class StubClient:
    """A client whose only worker runs a task at once, and dies of a chunk that contains `deadly`."""

    status = "running"

    def __init__(self, deadly: tuple[int, int]) -> None:
        self.deadly = deadly
        self.submitted: list[list[tuple[int, int]]] = []

    def nthreads(self) -> dict[str, int]:
        return {"worker": 1}

    def close(self, timeout: float) -> None:
        pass

    def submit(self, function: Callable[..., Any], *arguments: Any, pure: bool) -> StubFuture:
        (chunk,) = (argument for argument in arguments if isinstance(argument, list))
        self.submitted.append([(of_point.point, number) for of_point in chunk for number in of_point.replications])
        if self.deadly in self.submitted[-1]:
            return StubFuture("error", KilledWorker("run_chunk"))
        return StubFuture("finished", function(*arguments))


def results_of_nothing(of_point: PointTasks, engine: Any = None) -> list[TaskResult]:
    return [TaskResult(key, of_point.point, number) for key, number in zip(of_point.keys, of_point.replications, strict=True)]


@pytest.fixture
def three_points(monkeypatch: pytest.MonkeyPatch) -> list[PointTasks]:
    """Three points of two replications that take no time."""
    monkeypatch.setattr(execution, "run_point_tasks", results_of_nothing)
    scenario: Any = None
    return [PointTasks(point, f"{point}" * 40, scenario, {}, (0, 1)) for point in range(3)]


def test_a_worker_of_another_version_that_joins_later_is_refused(
    three_points: list[PointTasks], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = StubClient(deadly=(-1, -1))
    monkeypatch.setattr(client, "submit", lambda *_, **__: StubFuture("finished", ("0.0.9", [])))
    monkeypatch.setattr(cluster, "_connect", lambda address: client)
    with pytest.raises(cluster.ClusterError, match=r"a worker that joined later has simnmt 0\.0\.9"):
        list(cluster.run_on_cluster(three_points, "tcp://127.0.0.1:1", None))


def test_tasks_of_processes_that_died_run_apart_so_that_only_the_deadly_one_fails(three_points: list[PointTasks]) -> None:
    dealer = execution.Dealer(three_points)
    dealer.next_chunk()
    assert [task.replications for task in dealer.take_back()] == [(0,), (1,)]


def test_a_task_that_kills_its_workers_fails_and_all_others_end(
    three_points: list[PointTasks], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = StubClient(deadly=(2, 1))
    monkeypatch.setattr(cluster, "_connect", lambda address: client)
    monkeypatch.setattr(execution, "CHUNK_S", 1e9)
    answers = cluster.run_on_cluster(three_points, "tcp://127.0.0.1:1", None)
    results = [result for of_chunk in answers for result in of_chunk]
    assert sorted((result.point, result.replication) for result in results) == [
        (point, n) for point in range(3) for n in (0, 1)
    ]
    assert [(result.point, result.replication, result.error) for result in results if result.error] == [(2, 1, execution.DIED)]
    assert all(len(chunk) == 1 for chunk in client.submitted[client.submitted.index([(2, 1)]) :]), "each alone"
