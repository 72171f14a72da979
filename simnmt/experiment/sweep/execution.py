"""Run the tasks of a sweep in this process, in further processes of this machine (joblib), or on a Dask cluster.

A process that dies takes no other task with it: the tasks that it may have been running run again, each alone.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

from simnmt.base.compile import NativeLibraryWarning
from simnmt.base.errors import InputError, SimnmtError, describe_error
from simnmt.base.packages import named_if_missing
from simnmt.experiment.processes import interrupts_held, worthwhile_processes
from simnmt.experiment.sweep.tasks import Task, TaskResult, run_task
from simnmt.results.requests import Engine
from simnmt.world.structures import library

START_FACTOR = 2.0
"""How many times the start of a process of joblib costs that of the processes of a run (`processes.LEAST_WORK_S`)."""
CONNECT_S = 10.0
"""Most seconds until a scheduler answers, and until it has a worker."""

RunTask = Callable[[Task], TaskResult]
Results = Generator[TaskResult, None, None]


class ClusterError(InputError):
    """A cluster that cannot be used."""


class ClusterLost(SimnmtError):
    """A cluster that was lost during a sweep; the finished tasks are stored."""

    exit_status = 4


def run_tasks(tasks: Sequence[Task], jobs: int | None, engine: Engine | None, cluster: str | None) -> Results:
    """Yield the results of tasks as they end.

    Args:
        tasks: the replications of each point one after another, since they share its inputs.
        jobs: processes of this machine; None: as many as save time.
        engine: of the world; None: the compiled one where it covers a unit.
        cluster: address of a Dask scheduler whose workers run the tasks; None: this machine runs them.
    """
    run = partial(run_task, engine=engine)
    if cluster is not None:
        yield from _run_on_cluster(tasks, run, cluster)
        return
    library()  # warns here, and not in every process, if it cannot be used
    if jobs is None:
        started_s = time.process_time()
        yield from map(run, tasks[:1])
        of_first_s, tasks = time.process_time() - started_s, tasks[1:]
        jobs = worthwhile_processes(of_first_s * len(tasks) / START_FACTOR)
    if min(jobs, len(tasks)) < 2:
        yield from map(run, tasks)
    else:
        yield from _run_in_processes(tasks, run, jobs)


def _run_in_processes(tasks: Sequence[Task], run: RunTask, jobs: int) -> Results:
    from joblib import parallel_config

    waiting = {task.key: task for task in tasks}
    with parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1, initializer=_prepare_process):
        while waiting:
            for result in _in_parallel(list(waiting.values()), run):
                del waiting[result.key]
                yield result
            # A process died. joblib hands out twice as many tasks as there are processes, in their order.
            for task in [waiting.pop(key) for key in list(waiting)[: 2 * jobs]]:
                died = TaskResult(task.key, task.point, task.replication, error="its process died, perhaps for lack of memory")
                yield next(_in_parallel([task], run), died)


def _in_parallel(tasks: Iterable[Task], run: RunTask) -> Results:
    """Yield results until all tasks have ended or a process dies."""
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import BrokenProcessPool

    with interrupts_held():
        results = Parallel(return_as="generator_unordered", batch_size=1)(delayed(run)(task) for task in tasks)
    try:
        with suppress(BrokenProcessPool):
            yield from results
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of tasks that are given up: an interrupt means that
            results.close()


def _prepare_process() -> None:
    """Leave interrupts and standard output to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.filterwarnings("ignore", category=NativeLibraryWarning)  # the parent warns of it, once
    sys.stdout = sys.stderr


def check_address(address: str) -> str:
    """Return the address of a scheduler that is on this machine or has TLS, since it executes what it is sent.

    Raises `ClusterError`.
    """
    match = re.fullmatch(r"(tcp|tls)://(\[[0-9a-fA-F:]+\]|[^\s:/\[\]]+):([0-9]{1,5})", address)
    if match is None or not 1 <= int(match[3]) <= 65_535:
        raise ClusterError(f"cluster {address}: no address of a scheduler", remedy="write tcp://127.0.0.1:8786")
    is_loopback = match[2] == "localhost"
    with suppress(ValueError):
        is_loopback = ipaddress.ip_address(match[2].strip("[]")).is_loopback
    if match[1] == "tcp" and not is_loopback:
        what = f"cluster {address}: a scheduler executes what it is sent, so another machine needs TLS"
        raise ClusterError(what, remedy="write tls://HOST:PORT, or ssh -L 8786:HOST:8786 and tcp://127.0.0.1:8786")
    return address


def _run_on_cluster(tasks: Sequence[Task], run: RunTask, address: str) -> Results:
    """Yield the results of tasks that workers run; if one dies, Dask gives its tasks to others.

    Not by joblib's backend for Dask, which waits for ever for a task whose workers died (joblib 1.6).
    """
    with named_if_missing("cluster"):
        distributed: Any = import_module("distributed")
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # a lost connection is reported here, in one line
    lost = f"cluster {address}: its scheduler is gone; what was finished is kept"
    unreachable = "start one (docs/reference/sweep.md#run-it-on-a-cluster), or name no cluster"
    try:
        client = distributed.Client(check_address(address), timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError, RuntimeError, TypeError) as error:
        what = f"cluster {address}: no scheduler answers ({describe_error(error, most=80)})"
        raise ClusterError(what, remedy=unreachable) from None
    try:
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
        except (OSError, TimeoutError) as error:
            what = f"cluster {address}: no workers ({describe_error(error, most=80)})"
            raise ClusterError(what, remedy=unreachable) from None
        tasks_of_futures = {client.submit(run, task, pure=False): task for task in tasks}
        for future in distributed.as_completed(tasks_of_futures, loop=client.loop):
            if future.status == "finished":
                yield future.result()
            elif future.status == "error":
                task, raised = tasks_of_futures[future], future.exception()
                line = f"{type(raised).__name__}: {describe_error(raised)}"
                yield TaskResult(task.key, task.point, task.replication, error=line)
            else:
                raise ClusterLost(lost)
    except OSError:
        raise ClusterLost(lost) from None
    finally:
        with suppress(Exception):  # the scheduler may be gone
            client.close(timeout=2.0)
