"""Use of the processors: load by other programs, and pinning of the measured threads."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from simnmt.calibrate.box import BoxDescription, core_of, system_number

SPAN_S = 0.5
"""Seconds of watching. The system counts hundredths of a second: over half a second, a fiftieth of a CPU."""
QUIET_SHARE = 0.1
"""Share of the CPUs in use by other programs above which repeats of a short cell are visibly disturbed."""


def is_busy(others_cpus: float, box: BoxDescription) -> bool:
    """Return whether other processes load this box; `others_cpus`: time that they use of all its CPUs, ours or not."""
    return others_cpus > QUIET_SHARE * (box.logical_cores or box.usable_cpus)


class BusyWatch:
    """Counter of the processor time that other processes use, from its creation on."""

    def __init__(self) -> None:
        self._others_s, self._begin_s = _others_s(), time.monotonic()

    def others_cpus(self) -> float | None:
        """Return the CPUs' worth of time that other processes, and other guests of a hypervisor, used meanwhile."""
        others_s, spent_s = _others_s() - self._others_s, time.monotonic() - self._begin_s
        return max(others_s / spent_s, 0.0) if spent_s > 0.0 else None


def _others_s() -> float:
    """Return the seconds in which the CPUs were neither idle nor waiting for a disk nor working for this process."""
    times = psutil.cpu_times()._asdict()
    # The time of guests is a part of user.
    busy_s = sum(seconds for name, seconds in times.items() if name not in ("idle", "iowait", "guest", "guest_nice"))
    return float(busy_s) - time.process_time()


def others_cpus() -> float | None:
    """Watch for `SPAN_S`; return the CPUs' worth of time that other processes use.

    Unlike the load average, it does not include what this process did before.
    """
    watch = BusyWatch()
    time.sleep(SPAN_S)
    return watch.others_cpus()


def choose_cpus(cpus: Iterable[int], threads: int) -> list[int]:
    """Choose as many CPUs as threads, ascending: one of each core before a second of any, the fastest first.

    Among equals the last is chosen, because the first CPUs serve most interrupts.
    """
    taken: Counter[str] = Counter()
    ranked = []
    for cpu in sorted(cpus, reverse=True):
        # Arm and newer x86 kernels rate their cores (1,024 the fastest); otherwise the highest clock separates P- from E-cores.
        folder = f"sys/devices/system/cpu/cpu{cpu}"
        speed = system_number(f"{folder}/cpu_capacity") or system_number(f"{folder}/cpufreq/cpuinfo_max_freq") or 0
        ranked.append((taken[core_of(cpu)], -speed, -cpu))
        taken[core_of(cpu)] += 1
    return sorted(-number for *_, number in sorted(ranked)[:threads])


@contextmanager
def pinned(threads: int | None) -> Iterator[tuple[int, ...]]:
    """Bind this process and its later threads to as many CPUs; yield the CPUs, none if nothing is bound.

    Nothing is bound if the threads take all allowed CPUs, on a system without affinity, and for None.
    """
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if threads is None or threads >= len(before):
        yield ()
        return
    cpus = choose_cpus(before, threads)
    _bind(set(cpus))
    try:
        yield tuple(cpus)
    finally:
        _bind(before)


def _bind(cpus: set[int]) -> None:
    """Bind every thread: affinity belongs to a thread, and existing pools would keep theirs."""
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended
            os.sched_setaffinity(int(task.name), cpus)
