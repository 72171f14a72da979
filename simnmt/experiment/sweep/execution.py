"""Run the tasks of a sweep in this process, in further processes of this machine (joblib's loky), or on a cluster.

Tasks are dealt in chunks of about half a second, so that dealing costs little; the tasks of a point stay together, since they
share its inputs. A process that dies loses the tasks that it was running, and these run again, each alone: only a task whose
process dies again has failed.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Generator, Iterator, Sequence

from simnmt.base.compile import NativeLibraryWarning
from simnmt.experiment.processes import interrupts_held, worthwhile_processes
from simnmt.experiment.sweep.tasks import PointTasks, TaskResult, run_point_tasks
from simnmt.results.requests import Engine
from simnmt.world.compiled_library import library

_LOG = logging.getLogger("simnmt.experiment")

CHUNK_S = 0.5
"""Seconds of work that are dealt at a time."""
START_FACTOR = 2.0
"""How many times the start of a process of loky costs that of the processes of a run (`processes.LEAST_WORK_S`)."""
LEAST_POINTS = 8
"""Points per process from which the replications of a point stay together."""
DIED = "its process died twice, perhaps for lack of memory"

Chunk = list[PointTasks]
Results = Generator[list[TaskResult], None, None]


class Dealer:
    """Deals tasks in chunks whose size follows from the time that tasks have taken so far."""

    def __init__(self, waiting: Sequence[PointTasks]) -> None:
        self.waiting = list(reversed(waiting))
        self._alone: Chunk = []
        self.dealt: dict[int, Chunk] = {}
        self._number = 0
        self._seconds, self._tasks = 0.0, 0
        self._lock = threading.Lock()

    def chunks(self) -> Iterator[tuple[int, Chunk]]:
        """Yield the number and the tasks of each chunk until nothing waits."""
        while (dealt := self.next_chunk()) is not None:
            yield dealt

    def next_chunk(self) -> tuple[int, Chunk] | None:
        """Return the number and the tasks of the next chunk; None if nothing waits."""
        with self._lock:
            chunk: Chunk = [self._alone.pop()] if self._alone else []
            expected_s = CHUNK_S if chunk else 0.0
            while self.waiting and (not chunk or expected_s < CHUNK_S):
                chunk.append(self.waiting.pop())
                expected_s += self.task_s * len(chunk[-1].replications)
            if not chunk:
                return None
            self._number += 1
            self.dealt[self._number] = chunk
            return self._number, chunk

    @property
    def task_s(self) -> float:
        """Mean seconds of a task so far; before the first, more than a chunk takes."""
        return self._seconds / self._tasks if self._tasks else CHUNK_S

    def answered(self, number: int, results: Sequence[TaskResult]) -> None:
        """Take note of the results of a chunk."""
        with self._lock:
            self.dealt.pop(number, None)
            self._tasks += len(results)
            self._seconds += sum(result.seconds for result in results)

    def deal_apart(self, chunk: Chunk) -> None:
        """Deal each task of a chunk again, next and alone: which one ended its processes shows then."""
        with self._lock:
            self._alone += _apart(chunk)

    @property
    def is_empty(self) -> bool:
        """Whether no task waits."""
        return not self.waiting and not self._alone

    def take_back(self) -> Chunk:
        """Return the tasks that were dealt and not answered, each apart."""
        with self._lock:
            tasks = [task for chunk in self.dealt.values() for task in _apart(chunk)]
            self.dealt.clear()
            return tasks


def run_here(tasks: Sequence[PointTasks], engine: Engine | None) -> Results:
    """Yield the results of tasks that run in this process."""
    for of_point in tasks:
        for replication in of_point.replications:
            yield run_point_tasks(of_point.only([replication]), engine)


def run_locally(tasks: Sequence[PointTasks], jobs: int | None, engine: Engine | None) -> Results:
    """Yield the results of tasks on `jobs` processes of this machine; None: as many as save time.

    The first point runs here if the number of processes is to be chosen, and its time decides.
    """
    library()  # warns here, and not in every process, if it cannot be used
    if jobs is None:
        started_s = time.process_time()
        yield from run_here(tasks[:1], engine)
        of_first_s, tasks = time.process_time() - started_s, tasks[1:]
        jobs = worthwhile_processes(of_first_s * len(tasks) / START_FACTOR)
    if min(jobs, len(tasks)) < 2:
        yield from run_here(tasks, engine)
    else:
        yield from _run_in_processes(tasks, jobs, engine)


def _run_in_processes(tasks: Sequence[PointTasks], jobs: int, engine: Engine | None) -> Results:
    dealer = Dealer(_fine_enough(tasks, jobs))
    suspects = yield from _round(dealer, jobs, engine)
    while suspects or dealer.waiting:
        for suspect in suspects:
            # Alone in its process: if that dies too, the task is to blame.
            if (yield from _round(Dealer([suspect]), jobs, engine)):
                yield [
                    TaskResult(key, suspect.point, replication, error=DIED)
                    for key, replication in zip(suspect.keys, suspect.replications, strict=True)
                ]
        suspects = yield from _round(dealer, jobs, engine)


def _fine_enough(tasks: Sequence[PointTasks], jobs: int) -> Sequence[PointTasks]:
    """Return the tasks with the replications of a point apart if there are few points for so many processes."""
    if len(tasks) >= LEAST_POINTS * jobs:
        return tasks
    return _apart(tasks)


def _apart(tasks: Sequence[PointTasks]) -> Chunk:
    """Return every replication as a task of its own."""
    return [of_point.only([replication]) for of_point in tasks for replication in of_point.replications]


def _round(dealer: Dealer, jobs: int, engine: Engine | None) -> Generator[list[TaskResult], None, Chunk]:
    """Yield results until all tasks have ended or a process dies; return the tasks that were being run then."""
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import BrokenProcessPool

    with parallel_config("loky", inner_max_num_threads=1, initializer=_prepare_process, initargs=(os.getpid(),)):
        parallel = Parallel(
            n_jobs=jobs, return_as="generator_unordered", batch_size=1, pre_dispatch=f"{jobs + 1}", max_nbytes=None
        )
    run = delayed(run_chunk)
    try:
        with interrupts_held():
            answers = parallel(run(number, chunk, engine) for number, chunk in dealer.chunks())
        try:
            for number, results in answers:
                dealer.answered(number, results)
                yield results
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of tasks that are given up: an interrupt means that
                answers.close()
    except BrokenProcessPool:
        _LOG.warning("a process of the sweep died; its tasks run again")
        return dealer.take_back()
    return []


def run_chunk(number: int, chunk: Chunk, engine: Engine | None) -> tuple[int, list[TaskResult]]:
    """Return the number of a chunk and its results, which this process computes."""
    return number, [result for tasks in chunk for result in run_point_tasks(tasks, engine)]


def _prepare_process(parent: int) -> None:
    """Prepare a process of loky: it leaves interrupts to its parent, and ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.filterwarnings("ignore", category=NativeLibraryWarning)  # the parent warns of it, once
    # Standard output is the parent's: what a user's code prints here must not come between the parent's lines.
    sys.stdout = sys.stderr
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process once its parent has been killed; loky alone would let it work on for half a minute."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def close_processes() -> None:
    """End the processes that wait for further work."""
    if "joblib" in sys.modules:
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)
