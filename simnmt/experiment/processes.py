"""Run tasks in parallel processes, each connected by its own pipe, or on the workers of a Dask cluster.

`concurrent.futures` shares its queues among all processes: one that dies in the middle of an answer, killed for its memory or
by an interrupt, leaves their reader waiting for ever (seen in one interrupt of thirty). Here its pipe ends. joblib's loky was
tried: importing it and starting two workers took 3 to 4 s where this takes 1 s, every interrupt of six printed tracebacks of
its workers, and when the parent was killed they worked on for more than 25 s, where these end at once.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager, nullcontext, suppress
from importlib import import_module
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from simnmt.base.compile import NativeLibraryWarning
from simnmt.base.errors import SimnmtError, describe_error

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Answers = Generator[tuple[int, Answer], None, None]
"""Index and answer of every task, in the order in which they finish."""
Failed = Callable[[Task, BaseException], Answer]
"""Returns the answer of a task that could not be run, from the error."""

LEAST_WORK_S = 3.0
"""Seconds of work per process from which it is started: the start alone takes 1 s of processor time, mostly for imports."""
CONNECT_S = 10.0
"""Seconds within which a scheduler and a worker of a cluster must answer."""
DIED = (
    "a process died, perhaps for lack of memory (give fewer jobs or requests; a script must call simnmt below "
    "`if __name__ == '__main__':`)"
)
_LOG = logging.getLogger("simnmt.experiment")
SIGNALS = [getattr(signal, name) for name in ("SIGHUP", "SIGINT") if hasattr(signal, name)]
"""Signals that reach all processes of a terminal: a terminal that closes, and Ctrl-C."""


def worthwhile_processes(work_s: float) -> int:
    """Return how many processes shorten work of so many seconds of processor time: at most one per processor.

    >>> worthwhile_processes(2.0)
    1
    """
    return max(1, min(os.cpu_count() or 1, int(work_s / LEAST_WORK_S)))


def run_in_processes(
    work: Callable[[Task], Answer], tasks: Sequence[Task], jobs: int, failed: Failed[Task, Answer] | None = None
) -> Answers[Answer]:
    """Run `work(task)` for every task on `jobs` processes, at most one per task. No process is left, however this ends.

    `work`, tasks and answers must be picklable. `failed`: of a task that raises an error or whose process died; if None, that
    is raised here, a death as `SimnmtError`.
    """
    # Spawned, not forked: a notebook's threads would make a fork unsafe.
    context = multiprocessing.get_context("spawn")
    processes: dict[Any, Any] = {}
    at_work: dict[Any, int] = {}
    waiting = enumerate(tasks)

    def start() -> Any:
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(work, theirs), daemon=True)
        processes[ours] = process
        with _signals_blocked() if hasattr(signal, "pthread_sigmask") else nullcontext():
            process.start()
        theirs.close()
        return ours

    def hand_out(pipe: Any) -> None:
        # One task at a time for each: a second in the pipe could block us while an answer blocks the other side.
        index, task = next(waiting, (-1, None))
        if index >= 0:
            pipe = pipe or start()
            at_work[pipe] = index
            with suppress(OSError):  # of a process that died, which its end of the pipe shows
                pipe.send(task)

    try:
        for _ in range(min(jobs, len(tasks))):
            hand_out(None)
        while at_work:
            pipe: Any
            for pipe in wait(list(at_work)):
                index, idle = at_work.pop(pipe), pipe
                try:
                    answer, error, trace = pipe.recv()
                except (EOFError, OSError):
                    answer, error, trace, idle = None, SimnmtError(DIED), "", None
                    processes.pop(pipe).join()
                if error is not None:
                    error.__cause__ = RuntimeError(f"in another process:\n{trace}") if trace else None
                    if failed is None:
                        _LOG.info("a task raised %s", type(error).__name__, exc_info=error)
                        raise error
                    answer = failed(tasks[index], error)
                hand_out(idle)
                yield index, answer
    finally:
        for ours, process in processes.items():
            ours.close()
            if process.pid is not None:
                if at_work:
                    process.kill()  # SIGTERM is ignored where our parent ignores it
                process.join()


def answers_of(
    work: Callable[[Task], Answer], tasks: Sequence[Task], jobs: int, progress: Callable[[float, int], None] | None = None
) -> list[Answer]:
    """Return the answers of all tasks in their order, computed in this process or on `jobs` others.

    `progress`: called after each task with the tasks done and the number of all tasks.
    """
    several = min(jobs, len(tasks)) > 1
    answers: dict[int, Answer] = {}
    with closing(run_in_processes(work, tasks, jobs) if several else run_here(work, tasks)) as finished:
        for index, answer in finished:
            answers[index] = answer
            if progress is not None:
                progress(len(answers), len(tasks))
    return [answers[index] for index in range(len(tasks))]


def run_here(work: Callable[[Task], Answer], tasks: Sequence[Task]) -> Answers[Answer]:
    """Run `work(task)` for every task in this process."""
    for index, task in enumerate(tasks):
        yield index, work(task)


def run_on_cluster(
    work: Callable[[Task], Answer], tasks: Sequence[Task], address: str, failed: Failed[Task, Answer]
) -> Answers[Answer]:
    """Run `work(task)` for every task on the workers of the Dask scheduler at `address`; `failed` as of `run_in_processes`.

    joblib's backend for Dask is not used: it runs all tasks here if there is one worker, and waits for ever if a worker dies.
    Raises `SimnmtError` if the cluster cannot be reached, or is lost.
    """
    distributed: Any = import_module("distributed")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # a lost connection is reported here, in one line
    try:
        with distributed.Client(address, timeout=CONNECT_S, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=CONNECT_S)
            indices = {client.submit(work, task, pure=False): index for index, task in enumerate(tasks)}
            for future in distributed.as_completed(indices, loop=client.loop):
                index, error = indices[future], future.exception()
                yield index, future.result() if error is None else failed(tasks[index], error)
    except (OSError, TypeError, ValueError, CancelledError) as error:
        raise SimnmtError(f"cluster {address}: {describe_error(error)}; finished points are kept") from None


def _serve(work: Callable[[Task], Answer], pipe: Connection) -> None:
    """Answer tasks until the pipe ends, which it also does when the parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.filterwarnings("ignore", category=NativeLibraryWarning)  # the parent warns of it, once
    # Standard output is the parent's: what a user's code prints here must not come between the parent's lines.
    sys.stdout = sys.stderr
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            content = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            # Unpickling a task may load a user's code, whose errors are answers too.
            answer = (work(pickle.loads(content)), None, None)
        except Exception as error:
            answer = (None, error, traceback.format_exc())  # type: ignore[assignment]
        pipe.send(answer)


def _end_with_parent() -> None:
    """End at once when the parent ends, even within a task, which may take minutes."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block Ctrl-C and a closing terminal: a process that starts here inherits that, so that its parent alone ends it."""
    resource_tracker.ensure_running()  # else the first start starts it, which lets SIGINT through again
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
