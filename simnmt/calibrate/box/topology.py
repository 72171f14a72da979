"""Which logical CPUs are threads of one core, and how fast each is: from the topology in /sys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from simnmt.calibrate.box.tree import Tree, parse_ranges

_CPU = "sys/devices/system/cpu/cpu"


@dataclass(frozen=True, slots=True)
class LogicalCpu:
    """One of the CPUs that the system counts."""

    number: int
    core: tuple[int, ...]
    """Numbers of all threads of its core, its own among them."""
    speed: int
    """Greater is faster, among the CPUs of one box; 0 where it does not tell."""


def logical_cpus(tree: Tree, numbers: Iterable[int]) -> list[LogicalCpu]:
    """These CPUs; where the box does not tell, each is a core of its own and all are as fast as one another."""
    numbers = list(numbers)
    # Arm and newer x86 kernels rate their cores (1,024 the fastest); elsewhere the highest clock tells P- from E-cores.
    speeds = [tree.number(f"{_CPU}{number}/cpu_capacity") for number in numbers]
    if None in speeds:
        speeds = [tree.number(f"{_CPU}{number}/cpufreq/cpuinfo_max_freq") for number in numbers]
    cores = [parse_ranges(tree.text(f"{_CPU}{number}/topology/thread_siblings_list") or "") or (number,) for number in numbers]
    return [LogicalCpu(*cpu) for cpu in zip(numbers, cores, (speed or 0 for speed in speeds), strict=True)]
