"""Run tasks in parallel processes, each connected by its own pipe.

`concurrent.futures` shares its queues among all processes: one that dies in the middle of an answer, killed for its memory or
by an interrupt, leaves their reader waiting for ever (seen in one interrupt of thirty). Here its pipe ends. joblib's loky was
tried: importing it and starting two workers took 3 to 4 s where this takes 1 s, every interrupt of six printed tracebacks of
its workers, and when the parent was killed they worked on for more than 25 s, where these end at once.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from simnmt.base.compile import NativeLibraryWarning
from simnmt.base.errors import SimnmtError
from simnmt.base.signals import signals_held

Task = TypeVar("Task")
Answer = TypeVar("Answer")


LEAST_WORK_S = 3.0
"""Seconds of work per process from which it is started: the start alone takes 1 s of processor time, mostly for imports."""


def worthwhile_processes(work_s: float) -> int:
    """Return how many processes shorten work of so many seconds of processor time: at most one per processor.

    >>> worthwhile_processes(2.0)
    1
    """
    return max(1, min(os.cpu_count() or 1, int(work_s / LEAST_WORK_S)))


def run_in_processes(
    work: Callable[[Task], Answer], tasks: Sequence[Task], jobs: int
) -> Generator[tuple[int, Answer], None, None]:
    """Yield (index, work(task)) of every task in the order in which they finish, on `jobs` processes, at most one per task.

    `work`, tasks and answers must be picklable. An error of `work` is raised here. Raises `SimnmtError` if a process dies. No
    process is left, however the generator ends.
    """
    # Spawned, not forked: a notebook's threads would make a fork unsafe.
    context = multiprocessing.get_context("spawn")
    processes = {}
    waiting = enumerate(tasks)
    at_work: dict[Any, int] = {}
    try:
        with interrupts_held():
            for _ in range(min(jobs, len(tasks))):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(work, theirs), daemon=True)
                process.start()
                theirs.close()
                processes[ours] = process
        # One task at a time for each: a second in the pipe could block us while an answer blocks the other side.
        for pipe, (index, task) in zip(processes, waiting, strict=False):
            _send(pipe, task)
            at_work[pipe] = index
        while at_work:
            for ready in wait(list(at_work)):
                answer, error, trace = _receive(ready)
                if error is not None:
                    raise error from RuntimeError(f"in another process:\n{trace}")
                index = at_work.pop(ready)
                for following, task in itertools.islice(waiting, 1):
                    _send(ready, task)
                    at_work[ready] = following
                yield index, answer
    finally:
        for ours, process in processes.items():
            if at_work:
                process.kill()  # SIGTERM is ignored where our parent ignores it
            ours.close()
            process.join()


def _send(pipe: Any, task: Any) -> None:
    with suppress(OSError):  # of a process that died, which `_receive` finds
        pipe.send(task)


def _receive(pipe: Any) -> tuple[Any, Exception | None, str]:
    try:
        content: tuple[Any, Exception | None, str] = pipe.recv()
        return content
    except (EOFError, OSError):
        raise SimnmtError(
            "a process of the run died, perhaps for lack of memory (give fewer jobs or requests; a script must call "
            "simnmt.run below `if __name__ == '__main__':`)"
        ) from None


def run_tasks(
    work: Callable[[Task], Answer], tasks: Sequence[Task], jobs: int, progress: Callable[[int, int], None] | None = None
) -> list[Answer]:
    """Return the answers of all tasks in their order, computed in this process or on `jobs` others.

    `progress` is called after each task with the tasks done and the number of all tasks.
    """
    several = min(jobs, len(tasks)) > 1
    finished = run_in_processes(work, tasks, jobs) if several else ((at, work(task)) for at, task in enumerate(tasks))
    answers: dict[int, Answer] = {}
    with closing(finished):
        for index, answer in finished:
            answers[index] = answer
            if progress is not None:
                progress(len(answers), len(tasks))
    return [answers[index] for index in range(len(tasks))]


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


_OF_GROUP = (signal.SIGINT, signal.SIGHUP) if hasattr(signal, "SIGHUP") else (signal.SIGINT,)
"""Signals that reach all processes of a terminal."""


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Shield the processes started in this block from Ctrl-C and a closing terminal, which reach the whole group: the parent
    handles them.

    The processes inherit the mask, so it holds from their first moment, before Python itself runs. The parent handles signals
    after the block: during a start it would leave a process with half of its instructions.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    # The mask is this thread's alone; numpy's threads take the signal, and Python then handles it here.
    with signals_held():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_GROUP)
        try:
            # A process of multiprocessing's own; started with the first of ours, it would let SIGINT through again on its way.
            resource_tracker.ensure_running()
            signal.pthread_sigmask(signal.SIG_BLOCK, _OF_GROUP)
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
