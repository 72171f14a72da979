"""Run the tasks of a sweep on the workers of a Dask scheduler (`pip install 'simnmt[cluster]'`).

A scheduler and its workers execute whatever they are sent. So an address is taken only on this machine (loopback, also as the
end of a tunnel of ssh) or with TLS, for which Dask's own configuration names the certificates. The workers must have the same
version of simnmt, and find the input files by the same paths; both are checked. Results are stored by this process alone.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from simnmt.base import VERSION
from simnmt.base.errors import InputError, SimnmtError, describe_error
from simnmt.base.packages import MissingPackage, named_if_missing
from simnmt.experiment.sweep.execution import DIED, Chunk, Dealer, Results, run_chunk, run_locally
from simnmt.experiment.sweep.tasks import PointTasks, TaskResult
from simnmt.results.requests import Engine

CONNECT_S = 10.0
"""Most seconds until a scheduler answers, and until it has a worker."""
WORKERLESS_S = 30.0
"""Seconds without any worker after which a cluster is lost."""
CHUNKS_PER_THREAD = 3
"""Chunks that each thread of a worker has at hand, so that it never waits for the next."""
_ADDRESS = re.compile(r"(tcp|tls)://(\[[0-9a-fA-F:]+\]|[^\s:/\[\]]+):([0-9]{1,5})")


class ClusterError(InputError):
    """A cluster that cannot be used."""


class ClusterLost(SimnmtError):
    """A cluster that was lost during a sweep; the finished tasks are stored."""

    exit_status = 4


def check_address(address: str) -> str:
    """Return the address of a scheduler that is on this machine or has TLS. Raises `ClusterError`."""
    match = _ADDRESS.fullmatch(address)
    if match is None or not 1 <= int(match[3]) <= 65_535:
        raise ClusterError(f"cluster {address}: no address of a scheduler", remedy="write tcp://127.0.0.1:8786")
    if match[1] == "tcp" and not _is_loopback(match[2].strip("[]")):
        what = f"cluster {address}: a scheduler executes what it is sent, so another machine needs TLS"
        raise ClusterError(what, remedy="write tls://HOST:PORT, or ssh -L 8786:HOST:8786 and tcp://127.0.0.1:8786")
    return address


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def run_on_cluster(tasks: Sequence[PointTasks], address: str, engine: Engine | None) -> Results:
    """Yield the results of tasks that run on a cluster; a worker that dies loses nothing, since others run its tasks.

    Raises `ClusterError` if the cluster cannot be used, and `ClusterLost` if it is lost meanwhile.
    """
    check_address(address)
    if not tasks:
        return
    with _quiet_loggers():
        client = _connect(address)
        try:
            yield from _run(client, Dealer(tasks), engine, address)
        finally:
            with suppress(Exception):  # a scheduler that is gone cannot be told of it
                client.close(timeout=2.0)


@contextmanager
def _quiet_loggers() -> Iterator[None]:
    """Let Dask report nothing meanwhile: a lost connection is reported here, in one line."""
    with named_if_missing("cluster"):
        import_module("distributed")
    loggers = [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _connect(address: str) -> Any:
    """Return a client of a scheduler whose workers have this version of simnmt."""
    with named_if_missing("cluster"):
        distributed: Any = import_module("distributed")
    if address.startswith("tls:") and distributed.Security().get_connection_args("client").get("ssl_context") is None:
        what = f"cluster {address}: Dask's configuration names no certificates"
        raise ClusterError(what, remedy="set distributed.comm.tls.ca-file and client.cert (docs/how-to/run-on-a-cluster.md)")
    unreachable = "start one (docs/how-to/run-on-a-cluster.md), or name no cluster"
    try:
        client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError, RuntimeError, TypeError) as error:
        what = f"cluster {address}: no scheduler answers ({describe_error(error, most=80)})"
        raise ClusterError(what, remedy=unreachable) from None
    try:
        client.wait_for_workers(1, timeout=CONNECT_S)
        versions = set(client.run(worker_version).values())
    except (OSError, TimeoutError):
        _close_quickly(client)
        raise ClusterError(f"cluster {address}: the scheduler has no workers", remedy=unreachable) from None
    except Exception as error:
        _close_quickly(client)
        what = f"cluster {address}: its workers cannot run simnmt ({describe_error(error, most=80)})"
        raise ClusterError(what, remedy="install the same simnmt there") from None
    if versions != {VERSION}:
        _close_quickly(client)
        what = f"cluster {address}: its workers have simnmt {', '.join(sorted(versions))}, and this is {VERSION}"
        raise ClusterError(what, remedy="install the same version there")
    return client


def _close_quickly(client: Any) -> None:
    with suppress(Exception):
        client.close(timeout=2.0)


def worker_version() -> str:
    """Return the version of simnmt in the process that calls this."""
    return VERSION


def run_with_version(number: int, chunk: Chunk, engine: Engine | None) -> tuple[str, list[TaskResult]]:
    """Return the version of simnmt in the process that calls this, and the results of a chunk."""
    return VERSION, run_chunk(number, chunk, engine)[1]


def _run(client: Any, dealer: Dealer, engine: Engine | None, address: str) -> Results:
    running: dict[Any, int] = {}
    has_ended = threading.Event()
    workers = _Workers(client)
    while True:
        while len(running) < CHUNKS_PER_THREAD * workers.threads() and (dealt := dealer.next_chunk()) is not None:
            future = client.submit(run_with_version, *dealt, engine, pure=False)
            running[future] = dealt[0]
            future.add_done_callback(lambda _: has_ended.set())
        if not running and dealer.is_empty:
            return
        has_ended.wait(1.0)
        has_ended.clear()
        for future in [future for future in running if future.status != "pending"]:
            number = running.pop(future)
            chunk = dealer.dealt[number]
            results = _results(future, chunk, address)
            dealer.answered(number, results)
            if results:
                yield results
            else:
                dealer.deal_apart(chunk)
        workers.check(address)


class _Workers:
    """The workers of a cluster, asked for once a second."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._threads, self._asked_s = 0, -math.inf
        self._seen_s = time.monotonic()

    def threads(self) -> int:
        """Return how many tasks the workers run side by side."""
        now_s = time.monotonic()
        if now_s - self._asked_s > 1.0:
            try:
                self._threads = sum(self._client.nthreads().values())
            except Exception:  # the scheduler is gone, which the states of the futures tell too
                self._threads = 0
            self._asked_s = now_s
            self._seen_s = now_s if self._threads else self._seen_s
        return self._threads

    def check(self, address: str) -> None:
        """Raise `ClusterLost` if scheduler or workers are gone."""
        if self._client.status != "running":
            raise _lost(address, "its scheduler is gone")
        if time.monotonic() - self._seen_s > WORKERLESS_S:
            raise _lost(address, f"it has had no worker for {WORKERLESS_S:.0f} s")


def _results(future: Any, chunk: Chunk, address: str) -> list[TaskResult]:
    """Return the results of a chunk that has ended; empty if its processes died and its tasks must run apart."""
    if future.status == "finished":
        version, results = future.result()
        if version != VERSION:
            what = f"cluster {address}: a worker that joined later has simnmt {version}, and this is {VERSION}"
            raise ClusterError(what, remedy="install the same version there")
        return results  # type: ignore[no-any-return]
    if future.status != "error":
        raise _lost(address, "its scheduler is gone")
    error = future.exception()
    died = type(error).__name__ == "KilledWorker"
    single = len(chunk) == 1 and len(chunk[0].replications) == 1
    if died and not single:
        return []
    line = DIED if died else f"{type(error).__name__}: {describe_error(error)}"
    return [
        TaskResult(key, of_point.point, replication, error=line)
        for of_point in chunk
        for key, replication in zip(of_point.keys, of_point.replications, strict=True)
    ]


def _lost(address: str, reason: str) -> ClusterLost:
    return ClusterLost(f"the cluster {address} was lost: {reason}; what was finished is kept")


def run_on_cluster_or_here(
    tasks: Sequence[PointTasks],
    address: str,
    jobs: int | None,
    engine: Engine | None,
    announce: Callable[[str], None],
) -> Results:
    """Yield the results of tasks that run on a cluster, and on this machine once the cluster fails, which is announced."""
    left = {key for of_point in tasks for key in of_point.keys}
    try:
        for results in run_on_cluster(tasks, address, engine):
            left.difference_update(result.key for result in results)
            yield results
    except (ClusterError, ClusterLost, MissingPackage) as error:
        announce(f"{error}; going on on this machine")
        waiting = [
            of_point.only([part for key, part in zip(of_point.keys, of_point.replications, strict=True) if key in left])
            for of_point in tasks
        ]
        yield from run_locally([of_point for of_point in waiting if of_point.replications], jobs, engine)
