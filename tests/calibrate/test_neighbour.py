"""Neighbours: real processes that run, are bound to their processor, and end however the measurement ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from simnmt.calibrate.box.processor import LogicalCpu
from simnmt.calibrate.neighbour import choose_neighbour_cpu, running_neighbour
from simnmt.calibrate.settings import CalibrationError

linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system has no /proc")


def cpu_s(number: int) -> float:
    words = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def within(seconds: float, happens: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        if happens():
            return True
        time.sleep(0.01)
    return False


def alive(number: int) -> bool:
    stat = Path(f"/proc/{number}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@linux
@pytest.mark.parametrize("kind", ["busy", "memory"])
def test_a_neighbour_computes_on_its_processor_until_the_end(kind: str) -> None:
    cpu = max(os.sched_getaffinity(0))
    with running_neighbour(kind, cpu) as neighbour:  # type: ignore[arg-type]
        number = neighbour.process.pid
        assert os.sched_getaffinity(number) == {cpu}
        assert within(10.0, lambda: cpu_s(number) >= 0.03), "it computes"
        neighbour.check()
    assert not alive(number)
    assert neighbour.cpus_used > 0.0


@linux
def test_a_neighbour_ends_with_a_measurement_that_fails() -> None:
    with pytest.raises(ZeroDivisionError), running_neighbour("busy", None) as neighbour:
        number = neighbour.process.pid
        raise ZeroDivisionError
    assert not alive(number)


@linux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_neighbour_ends_with_a_program_that_is_killed(number: int) -> None:
    program = (
        "import time\n"
        "from simnmt.calibrate.neighbour import running_neighbour\n"
        "with running_neighbour('busy', None) as neighbour:\n"
        "    print(neighbour.process.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.send_signal(number)
    assert within(5.0, lambda: not alive(child))


@linux
def test_a_neighbour_that_is_killed_meanwhile_spoils_the_measurement() -> None:
    with (
        pytest.raises(CalibrationError, match=r"the neighbour \(busy\) ended during the measurement"),
        running_neighbour("busy", None) as neighbour,
    ):
        neighbour.process.kill()
        neighbour.process.wait()


def test_an_idle_neighbour_is_no_process() -> None:
    with running_neighbour("idle", None) as neighbour:
        assert neighbour.process is None
        neighbour.check()
    assert neighbour.cpus_used is None


def test_a_neighbour_that_does_not_start_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with (
        pytest.raises(CalibrationError, match="does not start"),
        running_neighbour("memory", None),
    ):
        pass


def test_the_neighbour_takes_a_core_of_its_own() -> None:
    """Two hardware threads of one core share its units: that is no neighbour on another core."""
    cpus = [LogicalCpu(number, core, 0) for number, core in enumerate(((0, 2), (1, 3), (0, 2), (1, 3)))]
    assert choose_neighbour_cpu(cpus, [3]) == 0
    assert choose_neighbour_cpu(cpus, [0]) == 1
    assert choose_neighbour_cpu(cpus, []) == 0
    with pytest.raises(CalibrationError, match=r"the engine uses all 2 \(give --threads 1 or fewer\)"):
        choose_neighbour_cpu(cpus, [2, 3])
    with pytest.raises(CalibrationError, match=r"the only one \(leave --neighbour out\)"):
        choose_neighbour_cpu([LogicalCpu(0, (0,), 0)], [0])
