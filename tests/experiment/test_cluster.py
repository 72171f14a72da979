"""A sweep on a Dask scheduler on loopback: the same bytes, nothing lost when a worker dies, and going on without it."""

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
from simnmt.experiment import processes
from simnmt.experiment.sweep import run_points
from simnmt.results.sweep_table import TABLE
from simnmt.scenario.yaml_text import write_document

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
