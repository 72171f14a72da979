"""Use of this box's processors: load by other programs, clock at this moment, and pinning of the measured threads."""

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
"""A processor's account advances by hundredths of a second: over half a second, a fiftieth of a CPU."""
QUIET_SHARE = 0.1
"""Above this share of the CPUs in use by others, repeats of a short cell are visibly disturbed."""


def counted_cpus(box: BoxDescription) -> int:
    """Return the CPUs over which `others_cpus` is counted: all of the box, though this process may be allowed fewer of them."""
    return box.logical_cores or box.usable_cpus


def is_busy(others_cpus: float, box: BoxDescription) -> bool:
    """Return whether other processes compute on this box; `others_cpus`: CPUs' worth of time that they use."""
    return others_cpus > QUIET_SHARE * counted_cpus(box)


class BusyWatch:
    """Processor time that other processes use, counted from the moment when the watch is made."""

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
        """Return the CPUs' worth of time that all but this process used; None if the box keeps no account of it.

        Time that a hypervisor gave to its other guests counts.
        """
        busy_s, used_s, now_s = _busy_s(self._tree), self._process_s(), self._clock()
        if self._busy_s is None or busy_s is None or now_s <= self._begin_s:
            return None
        return max((busy_s - self._busy_s - (used_s - self._used_s)) / (now_s - self._begin_s), 0.0)


def others_cpus(
    root: str | os.PathLike[str] = "/",
    *,
    span_s: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    own_s: Callable[[], float] = time.process_time,
) -> float | None:
    """CPUs' worth of time that all but this process use, watched for `span_s`; None where the box does not tell.

    Unlike the load average it forgets at once what we ourselves have just done.
    """
    watch = BusyWatch(root, clock=clock, process_s=own_s)
    sleep(SPAN_S if span_s is None else span_s)
    return watch.others_cpus()


def own_frequency_mhz(root: str | os.PathLike[str] = "/") -> float | None:
    """Mean clock of the CPUs that this process may run on, while it is bound those; None where the box does not tell."""
    tree = Tree.at(root)
    ours = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    khz = [tree.number(f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq") for cpu in sorted(ours)]
    speeds = [speed / 1e3 for speed in khz if speed] or _cpuinfo_mhz(tree, ours)
    return round(sum(speeds) / len(speeds), 1) if speeds else None


def _busy_s(tree: Tree) -> float | None:
    """Seconds of all CPUs in which they were neither idle nor waiting for a disk, since the box was started."""
    words = (tree.text("proc/stat") or "").partition("\n")[0].split()
    # user nice system idle iowait irq softirq steal; what guests had is within user already
    if len(words) < 8 or words[0] != "cpu" or not all(word.isdecimal() for word in words[1:]):
        return None
    ticks = [int(word) for word in words[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _cpuinfo_mhz(tree: Tree, cpus: set[int]) -> list[float]:
    """From /proc/cpuinfo, where there is no cpufreq."""
    speeds, ours = [], False
    for line in (tree.text("proc/cpuinfo") or "").splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "processor":
            ours = value.isdecimal() and int(value) in cpus
        elif key == "cpu MHz" and ours:
            speeds.append(float(value))
    return speeds


def choose_cpus(cpus: Sequence[LogicalCpu], threads: int) -> list[int]:
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
    cpus = choose_cpus(logical_cpus(Tree.at("/"), before), threads)
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
