"""Keeps the measured threads on processors of their own choice, where the system lets us."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def chosen(allowed: list[int], threads: int) -> list[int]:
    """The last `threads` of the allowed CPUs: the first ones serve most interrupts."""
    return sorted(allowed)[-threads:]


@contextmanager
def pinned(threads: int | None) -> Iterator[tuple[int, ...]]:
    """Bind this process, its threads to come too, to as many CPUs; gives them, empty where nothing is bound.

    Nothing is where the threads take all CPUs that are allowed, on a system without affinity, and for None.
    """
    if threads is None or not hasattr(os, "sched_setaffinity"):
        yield ()
        return
    before = os.sched_getaffinity(0)
    if threads >= len(before):
        yield ()
        return
    cpus = chosen(list(before), threads)
    _bind(set(cpus))
    try:
        yield tuple(cpus)
    finally:
        _bind(before)


def _bind(cpus: set[int]) -> None:
    """Of every thread: affinity is a thread's, and pools that stand already would keep theirs."""
    tasks = Path("/proc/self/task")
    numbers = [int(task.name) for task in tasks.iterdir()] if tasks.is_dir() else [0]
    for number in numbers:
        with suppress(OSError):  # it ended meanwhile
            os.sched_setaffinity(number, cpus)
