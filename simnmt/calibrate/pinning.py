"""Keeps the measured threads on processors of their own choice, where the system lets us."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from simnmt.calibrate.box.topology import LogicalCpu, logical_cpus
from simnmt.calibrate.box.tree import Tree


def chosen(cpus: Sequence[LogicalCpu], threads: int) -> list[int]:
    """As many CPUs, ascending: one of each core before a second of any, the fastest first, among equals the last.

    The first CPUs serve most interrupts.
    """
    taken: Counter[tuple[int, ...]] = Counter()
    ranked = []
    for cpu in sorted(cpus, key=lambda cpu: cpu.number, reverse=True):
        ranked.append((taken[cpu.core], -cpu.speed, -cpu.number))
        taken[cpu.core] += 1
    return sorted(-number for *_, number in sorted(ranked)[:threads])


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
    cpus = chosen(logical_cpus(Tree.at("/"), before), threads)
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
