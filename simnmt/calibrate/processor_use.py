"""Use of the processors: load by other programs, present clock, and pinning of the measured threads."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.box.processor import LogicalCpu, logical_cpus
from simnmt.calibrate.box.system_files import Tree

SPAN_S = 0.5
"""Seconds of watching. The system counts hundredths of a second: over half a second, a fiftieth of a CPU."""
QUIET_SHARE = 0.1
"""Share of the CPUs in use by other programs above which repeats of a short cell are visibly disturbed."""


def counted_cpus(box: BoxDescription) -> int:
    """Return the CPUs over which `others_cpus` is counted: all CPUs of the box, also those that this process may not use."""
    return box.logical_cores or box.usable_cpus


def is_busy(others_cpus: float, box: BoxDescription) -> bool:
    """Return whether other processes load this box; `others_cpus`: CPUs' worth of time that they use."""
    return others_cpus > QUIET_SHARE * counted_cpus(box)


class BusyWatch:
    """Counter of the processor time that other processes use, from its creation on."""

    def __init__(
        self,
        root: str | os.PathLike[str] = "/",
        *,
        clock: Callable[[], float] = time.monotonic,
        process_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._tree, self._clock, self._process_s = Tree.at(root), clock, process_s
        self._busy_s, self._used_s, self._begin_s = _busy_s(self._tree), process_s(), clock()

    def others_cpus(self) -> float | None:
        """Return the CPUs' worth of time that other processes used; None if the system does not count it.

        Time that a hypervisor gave to its other guests is included.
        """
        busy_s, used_s, now_s = _busy_s(self._tree), self._process_s(), self._clock()
        if self._busy_s is None or busy_s is None or now_s <= self._begin_s:
            return None
        return max((busy_s - self._busy_s - (used_s - self._used_s)) / (now_s - self._begin_s), 0.0)


def others_cpus() -> float | None:
    """Watch for `SPAN_S`; return the CPUs' worth of time that other processes use, None if the system does not count it.

    Unlike the load average, it does not include what this process did before.
    """
    watch = BusyWatch()
    time.sleep(SPAN_S)
    return watch.others_cpus()


def own_frequency_mhz(root: str | os.PathLike[str] = "/") -> float | None:
    """Return the mean clock of the CPUs that this process may run on, or is bound to; None if unknown."""
    tree = Tree.at(root)
    ours = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    khz = [tree.number(f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq") for cpu in sorted(ours)]
    speeds = [speed / 1e3 for speed in khz if speed] or _cpuinfo_mhz(tree, ours)
    return round(sum(speeds) / len(speeds), 1) if speeds else None


def _busy_s(tree: Tree) -> float | None:
    """Return the seconds since boot in which the CPUs were neither idle nor waiting for a disk, over all CPUs."""
    words = (tree.text("proc/stat") or "").partition("\n")[0].split()
    # user nice system idle iowait irq softirq steal; user includes the time of guests
    if len(words) < 8 or words[0] != "cpu" or not all(word.isdecimal() for word in words[1:]):
        return None
    ticks = [int(word) for word in words[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _cpuinfo_mhz(tree: Tree, cpus: set[int]) -> list[float]:
    """Read the clocks from /proc/cpuinfo, for systems without cpufreq."""
    speeds, ours = [], False
    for line in (tree.text("proc/cpuinfo") or "").splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "processor":
            ours = value.isdecimal() and int(value) in cpus
        elif key == "cpu MHz" and ours:
            speeds.append(float(value))
    return speeds


def choose_cpus(cpus: Sequence[LogicalCpu], threads: int) -> list[int]:
    """Choose as many CPUs as threads, ascending: one of each core before a second of any, the fastest first.

    Among equals the last is chosen, because the first CPUs serve most interrupts.
    """
    taken: Counter[tuple[int, ...]] = Counter()
    ranked = []
    for cpu in sorted(cpus, key=lambda cpu: cpu.number, reverse=True):
        ranked.append((taken[cpu.core], -cpu.speed, -cpu.number))
        taken[cpu.core] += 1
    return sorted(-number for *_, number in sorted(ranked)[:threads])


@contextmanager
def pinned(threads: int | None) -> Iterator[tuple[int, ...]]:
    """Bind this process and its later threads to as many CPUs; yield the CPUs, none if nothing is bound.

    Nothing is bound if the threads take all allowed CPUs, on a system without affinity, and for None.
    """
    if threads is None or not hasattr(os, "sched_setaffinity"):
        yield ()
        return
    before = os.sched_getaffinity(0)
    if threads >= len(before):
        yield ()
        return
    cpus = choose_cpus(logical_cpus(Tree.at("/"), before), threads)
    _bind(set(cpus))
    try:
        yield tuple(cpus)
    finally:
        _bind(before)


def _bind(cpus: set[int]) -> None:
    """Bind every thread: affinity belongs to a thread, and existing pools would keep theirs."""
    tasks = Path("/proc/self/task")
    numbers = [int(task.name) for task in tasks.iterdir()] if tasks.is_dir() else [0]
    for number in numbers:
        with suppress(OSError):  # the thread has ended
            os.sched_setaffinity(number, cpus)
