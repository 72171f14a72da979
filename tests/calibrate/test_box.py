"""The box at hand against an independent reader, recorded files of other boxes, and the doctor's findings."""

from __future__ import annotations

import json
import os
import platform
import sys
import threading
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from simnmt.calibrate import box
from simnmt.calibrate.box import BoxDescription, BusyWatch, choose_cpus, describe, pinned
from simnmt.calibrate.doctor import examine, hardware_findings

needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system binds no process to processors")
CPU = "sys/devices/system/cpu/cpu"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of the system's files, empty."""
    monkeypatch.setattr(box, "ROOT", tmp_path)
    return tmp_path


def plant(root: Path, files: dict[str, object]) -> None:
    """Write each file under `root`."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n", encoding="utf-8")


def test_the_box_at_hand_agrees_with_an_independent_reader() -> None:
    here = describe()
    assert here.machine == platform.machine()
    assert here.logical_cores == os.cpu_count()
    assert here.memory_bytes == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if hasattr(os, "sched_getaffinity"):
        assert set(here.allowed_cpus) == os.sched_getaffinity(0)
    assert here.load_average is not None and here.load_average[0] == pytest.approx(os.getloadavg()[0], abs=2.0)
    json.dumps(here.as_json(), allow_nan=False)


def test_a_container_is_bound_by_its_limits_and_named(root: Path) -> None:
    plant(
        root,
        {
            "sys/fs/cgroup/memory.max": 1_500_000,
            "sys/fs/cgroup/cpu.max": "50000 100000",
            "proc/1/cgroup": "0::/kubepods/pod1/box",
        },
    )
    described = describe()
    assert (described.memory_available_bytes, described.cpu_quota) == (1_500_000, 0.5)
    assert described.virtualisation is not None and described.virtualisation.endswith("container")


Times = namedtuple("Times", "user nice system idle iowait steal guest")


@pytest.mark.parametrize(
    ("all_s", "own_s", "steal_s", "others"),
    [(1.9, 1.9, 0.0, 0.0), (1.9, 0.4, 0.0, 1.5), (0.0, 0.0, 0.3, 0.3), (0.5, 0.52, 0.0, 0.0)],
    ids=["our own work", "a neighbour", "a hypervisor's other guests", "accounts that disagree by a tick"],
)
def test_only_the_work_of_others_counts(
    monkeypatch: pytest.MonkeyPatch, all_s: float, own_s: float, steal_s: float, others: float
) -> None:
    monkeypatch.undo()  # the fixture of this room hides other programs
    states = iter([Times(9.0, 0.0, 1.0, 50.0, 7.0, 0.0, 3.0), Times(9.0 + all_s, 0.0, 1.0, 51.0, 8.0, steal_s, 3.5)])
    own_times, clock = iter([100.0, 100.0 + own_s]), iter([0.0, 1.0])
    monkeypatch.setattr(psutil, "cpu_times", lambda: states.__next__())
    times = SimpleNamespace(process_time=lambda: next(own_times), monotonic=lambda: next(clock))
    monkeypatch.setattr(box, "time", times)
    assert BusyWatch().others_cpus() == pytest.approx(others, abs=0.02)


def test_no_two_threads_share_a_core_as_long_as_there_are_others(root: Path) -> None:
    """Numbered as Linux numbers them: neighbours on one box, halves on another."""
    plant(root, {f"{CPU}{cpu}/topology/thread_siblings_list": f"{cpu & ~1}-{cpu | 1}" for cpu in range(8)})
    assert choose_cpus(range(8), 3) == [3, 5, 7]
    plant(root, {f"{CPU}{cpu}/topology/thread_siblings_list": f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)})
    assert choose_cpus(range(8), 4) == [4, 5, 6, 7]
    assert choose_cpus(range(8), 5) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("file", ["cpu_capacity", "cpufreq/cpuinfo_max_freq"])
def test_the_fast_cores_of_two_kinds_are_taken_first(root: Path, file: str) -> None:
    """An Intel hybrid: two P-cores of two threads, then four E-cores of one."""
    plant(root, {f"{CPU}{cpu}/{file}": 1024 if cpu < 4 else 600 for cpu in range(8)})
    plant(root, {f"{CPU}{cpu}/topology/thread_siblings_list": f"{cpu & ~1}-{cpu | 1}" for cpu in range(4)})
    hybrid = range(8)
    assert [choose_cpus(hybrid, threads) for threads in (1, 2, 3)] == [[3], [1, 3], [1, 3, 7]]
    assert choose_cpus(hybrid, 7) == [1, 2, 3, 4, 5, 6, 7]


@needs_affinity
def test_threads_are_bound_while_measuring_and_free_again_afterwards() -> None:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("needs two processors")
    release = threading.Event()
    older = threading.Thread(target=release.wait)
    older.start()
    try:
        with pinned(1) as cpus:
            assert set(cpus) == os.sched_getaffinity(0) == os.sched_getaffinity(older.native_id or 0)
            assert len(cpus) == 1
        assert os.sched_getaffinity(0) == os.sched_getaffinity(older.native_id or 0) == before
        with pinned(len(before)) as all_cpus, pinned(None) as none:
            assert (all_cpus, none, os.sched_getaffinity(0)) == ((), (), before)
    finally:
        release.set()
        older.join()


SERVER = BoxDescription(
    *("x86_64", "Linux 6.8"),
    cpu_model="Intel(R) Xeon(R) Gold 6430",
    logical_cores=8,
    allowed_cpus=tuple(range(8)),
    allowed_cores=4,
    simd=("avx2", "avx512_vnni"),
    memory_available_bytes=120 * 10**9,
    governor="performance",
)


def statuses(described: BoxDescription, topic: str) -> list[str]:
    return [finding.status for finding in hardware_findings(described, 0.0) if finding.topic == topic]


@pytest.mark.parametrize(
    ("facts", "topic", "expected"),
    [
        ({}, "clock", ["can"]),
        ({}, "box", []),
        ({"allowed_cpus": (0, 1, 2), "cpu_quota": 2.5}, "threads", ["can", "warning", "warning"]),
        ({"memory_available_bytes": 1_500_000_000}, "memory", ["warning"]),
        ({"simd": ()}, "simd", ["warning"]),
        ({"governor": None}, "clock", ["cannot"]),
        ({"governor": "powersave"}, "clock", ["warning"]),
        ({"jetson": "L4T 36.4.3, power mode MAXN"}, "clock", ["can", "warning"]),
        ({"virtualisation": "container (kubepods)"}, "box", ["warning"]),
    ],
)
def test_hardware_is_fit_or_warned_of(facts: dict[str, object], topic: str, expected: list[str]) -> None:
    assert statuses(replace(SERVER, **facts), topic) == expected  # type: ignore[arg-type]


def test_the_box_at_hand_gets_all_findings_in_single_lines_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    _, findings = examine()
    topics = {"threads", "simd", "memory", "clock", "load", "torch", "ctranslate2", "gpu", "energy"}
    assert {finding.topic for finding in findings} >= topics
    assert not any("\n" in str(finding) for finding in findings)
    assert list(tmp_path.iterdir()) == []
