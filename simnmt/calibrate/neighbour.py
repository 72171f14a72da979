"""A neighbour during a measurement: a second process that computes, or streams memory, on another core.

In service the other cores work too: with gateway and server on one box, executions took 10 to 19 % longer. The neighbour is a
process of its own, started before the measurement and stopped after it, on errors and signals too. If its parent is killed, it
notices within a tenth of a second and ends.
"""

from __future__ import annotations

import inspect
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from simnmt.calibrate.box.processor import LogicalCpu
from simnmt.calibrate.settings import CalibrationError
from simnmt.profile.service_block import NeighbourKind

START_WITHIN_S = 20.0
"""Longest time that a neighbour may need to start; a fraction of a second on an idle box."""
STOP_WITHIN_S = 5.0
"""Time to end after a request, before it is killed."""


def choose_neighbour_cpu(cpus: Sequence[LogicalCpu], engine_cpus: Collection[int]) -> int:
    """Return a processor of a core on which the engine does not run, the first of them.

    Raises `CalibrationError` if the engine uses every core.
    """
    taken = set(engine_cpus)
    free = [cpu.number for cpu in cpus if not taken & {cpu.number, *cpu.core}]
    if not free:
        cores = len({cpu.core for cpu in cpus})
        what = f"no core is left for the neighbour: the engine uses {'the only one' if cores == 1 else f'all {cores}'}"
        remedy = f"give --threads {cores - 1} or fewer" if cores > 1 else "leave --neighbour out"
        raise CalibrationError(what, remedy=remedy)
    return min(free)


@dataclass
class Neighbour:
    """A running neighbour."""

    kind: NeighbourKind
    cpu: int | None
    """Processor to which it is bound; None: not bound."""
    process: subprocess.Popen[bytes] | None = None
    cpus_used: float | None = None
    """Its processor time over the time that it ran, once it has ended: 1 if it was never held up. None if unknown."""

    def check(self) -> None:
        """Raise `CalibrationError` if the process has ended: what was measured since then had no neighbour."""
        if self.process is not None and self.process.poll() is not None:
            what = f"the neighbour ({self.kind}) ended during the measurement, with status {self.process.returncode}"
            raise CalibrationError(what, remedy="measure again; with --neighbour memory, free 200 MB of memory")


@contextmanager
def running_neighbour(kind: NeighbourKind, cpu: int | None) -> Iterator[Neighbour]:
    """Run a neighbour for as long as the block; with `idle` there is no process.

    Args:
        kind: `busy` computes, `memory` copies blocks that fit into no cache.
        cpu: processor to bind it to; None where processes cannot be bound.

    Raises:
        CalibrationError: if it does not start, and at the end if it ended too early.
    """
    neighbour = Neighbour(kind, cpu if kind != "idle" else None)
    if kind == "idle":
        yield neighbour
        return
    # The source of one function, run by an isolated interpreter: it starts in 20 ms and needs no import path.
    program = f"{inspect.getsource(_work)}\n_work({kind!r}, {cpu!r}, {os.getpid()})"
    command = [sys.executable, "-I", "-S", "-c", "from __future__ import annotations\n" + program]
    before_s = _children_s()
    # A session of its own: Ctrl-C reaches it through this process alone.
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        assert process.stdout is not None
        _wait_until_ready(process.stdout, kind)
        neighbour.process, begin_s = process, time.monotonic()
        yield neighbour
        neighbour.check()
        seconds = time.monotonic() - begin_s
    finally:
        _stop(process)
    used_s = _children_s()
    if before_s is not None and used_s is not None and seconds > 0.0:
        neighbour.cpus_used = (used_s - before_s) / seconds


def _wait_until_ready(stdout: IO[bytes], kind: str) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        ready = bool(selector.select(START_WITHIN_S)) and stdout.readline() == b"ready\n"
    if not ready:
        remedy = "free 200 MB of memory" if kind == "memory" else "measure again on a less busy box"
        raise CalibrationError(f"the neighbour ({kind}) does not start", remedy=f"{remedy}, or leave --neighbour out")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:
        if process.stdout is not None:
            process.stdout.close()


def _children_s() -> float | None:
    """Return the processor seconds of all ended children; None on a system that does not count them."""
    try:
        import resource
    except ImportError:
        return None
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _work(kind: str, cpu: int | None, parent: int) -> None:
    """Compute or copy memory on one processor until the parent has ended. Runs alone, in another interpreter."""
    import os
    import time

    if cpu is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cpu})
    # Blocks of 64 MB fit into no cache of a core.
    size = 64 << 20 if kind == "memory" else 1
    # Written once: pages that were never written all lie in one cached page of zeros.
    source, copy = bytearray(b"\1") * size, bytearray(b"\2") * size
    os.write(1, b"ready\n")
    while os.getppid() == parent:
        until_s = time.monotonic() + 0.1
        while time.monotonic() < until_s:
            if kind == "memory":
                copy[:] = source
            else:
                sum(range(1000))
