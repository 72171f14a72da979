"""What a whole command costs: processor time, and the memory of all its processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


def simnmt_command() -> str:
    """Return the command of the environment whose Python runs."""
    return shutil.which("simnmt", path=str(Path(sys.executable).parent)) or "simnmt"


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one command, with all the processes that it started."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    """Most memory at a time; sampled, but never less than what a single process ever had up to the last look at it."""


def cost(command: list[str], every_s: float = 0.1) -> Cost:
    """Run a command and look at its memory every so often."""
    started, peak_kib = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while True:
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
        processes = list(tree(process.pid))
        # Not the system's own `ru_maxrss`, which begins with the memory of whoever started the process.
        peak_kib = max(peak_kib, sum(map(memory_kib, processes)), *map(most_kib, processes))
        time.sleep(every_s)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Cost(time.perf_counter() - started, usage.ru_utime + usage.ru_stime, peak_kib / 1024)


def tree(process: int) -> Iterator[int]:
    """A process and all that descend from it, as long as they live."""
    yield process
    try:
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            for child in children.read_text().split():
                yield from tree(int(child))
    except OSError:
        return


def memory_kib(process: int) -> int:
    """Its share of the memory, each page divided by the processes that have it mapped; 0 for one that has ended."""
    return _kib(Path(f"/proc/{process}/smaps_rollup"), "Pss:")


def most_kib(process: int) -> int:
    """The most memory that it ever had, pages shared with others in full."""
    return _kib(Path(f"/proc/{process}/status"), "VmHWM:")


def _kib(path: Path, key: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(key))
