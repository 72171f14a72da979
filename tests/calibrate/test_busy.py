"""Who else computes here, and how fast the clock runs, from recorded files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from simnmt.calibrate import doctor, profile_assembly
from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.processor_use import BusyWatch, is_busy, own_frequency_mhz
from simnmt.calibrate.round_guard import RoundGuard

HZ = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def stat(root: Path, busy_s: float, *, idle_s: float = 50.0, steal_s: float = 0.0) -> None:
    ticks = [round(each * HZ) for each in (busy_s, 0, 0, idle_s, 7.0, 0, 0, steal_s, 3.0, 0)]
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/stat").write_text(f"cpu  {' '.join(map(str, ticks))}\ncpu0 1 2 3\n", encoding="utf-8")


@pytest.fixture
def watched(tmp_path: Path) -> Callable[..., float | None]:
    """Watch one second in which all processes and this process used some time, and the hypervisor gave `steal_s` away."""

    def watch_one_second(all_s: float, own_s: float, steal_s: float = 0.0) -> float | None:
        stat(tmp_path, 10.0)
        own, now = iter([100.0, 100.0 + own_s]), iter([0.0, 1.0])
        watch = BusyWatch(tmp_path, clock=lambda: next(now), process_s=lambda: next(own))
        stat(tmp_path, 10.0 + all_s, idle_s=51.0, steal_s=steal_s)
        return watch.others_cpus()

    return watch_one_second


@pytest.mark.parametrize(
    ("all_s", "own_s", "steal_s", "others"),
    [(1.9, 1.9, 0.0, 0.0), (1.9, 0.4, 0.0, 1.5), (0.0, 0.0, 0.3, 0.3), (0.5, 0.52, 0.0, 0.0)],
    ids=["our own work", "a neighbour", "a hypervisor's other guests", "accounts that disagree by a tick"],
)
def test_only_the_work_of_others_counts(
    watched: Callable[..., float | None], all_s: float, own_s: float, steal_s: float, others: float
) -> None:
    assert watched(all_s, own_s, steal_s) == pytest.approx(others, abs=0.02)


def test_a_box_that_does_not_count_processor_time_gives_none(tmp_path: Path) -> None:
    assert BusyWatch(tmp_path).others_cpus() is None
    assert own_frequency_mhz(tmp_path) is None


def box_of(cpus: int, allowed: int | None = None, quota: float | None = None) -> BoxDescription:
    numbers = () if allowed is None else tuple(range(allowed))
    return BoxDescription("x86_64", "Linux", logical_cores=cpus, allowed_cpus=numbers, cpu_quota=quota)


def test_busy_is_a_share_of_the_cpus() -> None:
    assert is_busy(0.3, box_of(2))
    assert not is_busy(0.3, box_of(16))


@pytest.mark.parametrize(("others", "busy"), [(0.3, False), (2.0, True)])
def test_a_box_is_busy_everywhere_by_the_same_cpus(monkeypatch: pytest.MonkeyPatch, others: float, busy: bool) -> None:
    """All of 16 CPUs, over which the work of others is counted, though this process may use two of them."""
    box = box_of(16, allowed=2, quota=2.0)
    monkeypatch.setattr("simnmt.calibrate.processor_use.others_cpus", lambda: others)
    assert box.usable_cpus == 2 and profile_assembly.state(box).busy is busy
    [finding] = doctor.load(box, others)
    assert (finding.status == "warning") is busy

    class Watch:
        def others_cpus(self) -> float:
            return others

    guard = RoundGuard(lambda: 1.0, watch=Watch, box=box)  # type: ignore[arg-type]
    assert guard.measure(lambda checkpoint: 0).checks[0].busy is busy


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system binds no process to processors")
def test_the_clock_is_that_of_the_cpus_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2})
    (tmp_path / "proc").mkdir()
    blocks = [f"processor\t: {cpu}\ncpu MHz\t\t: {mhz}\n" for cpu, mhz in enumerate((800.0, 2000.0, 3000.0, 900.0))]
    (tmp_path / "proc/cpuinfo").write_text("\n".join(blocks), encoding="utf-8")
    assert own_frequency_mhz(tmp_path) == 2500.0
    for cpu, khz in enumerate((800_000, 2_100_000, 3_100_000, 900_000)):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text(f"{khz}\n", encoding="utf-8")
    assert own_frequency_mhz(tmp_path) == 2600.0
