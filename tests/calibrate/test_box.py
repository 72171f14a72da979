"""Recorded trees of five boxes, and the box at hand."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from simnmt.calibrate.box import JetsonDescription, describe
from simnmt.calibrate.box.system_files import mount_of
from tests.calibrate.trees import container, laptop, orin, plant, x86_server


def test_a_server_with_two_sockets_and_threads(tmp_path: Path) -> None:
    box = describe(x86_server(tmp_path))
    assert (box.machine, box.cpu_model, box.system) == ("x86_64", "Intel(R) Xeon(R) Gold 6430", "Linux 6.8.0-45-generic")
    assert (box.physical_cores, box.logical_cores, box.usable_cpus, box.usable_cores) == (4, 8, 8, 4)
    assert {"avx2", "avx512_vnni", "amx_int8"} <= set(box.simd)
    assert (box.governor, box.frequency_mhz, box.frequency_max_mhz) == ("performance", 3350.0, 3400.0)
    assert (box.memory_bytes, box.load_average) == (131072000 * 1024, (0.04, 0.10, 0.20))
    assert (box.virtualisation, box.jetson, box.cpu_quota) == (None, None, None)


def test_cores_are_counted_without_the_topology_folder_too(tmp_path: Path) -> None:
    root = x86_server(tmp_path)
    for cpu in range(8):
        (root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").unlink()
    assert describe(root).physical_cores == 4


def test_only_cores_that_we_may_run_on_can_be_used(tmp_path: Path) -> None:
    root = plant(x86_server(tmp_path), {"proc/self/status": "Cpus_allowed_list:\t0,1,4\n"})
    assert (describe(root).usable_cpus, describe(root).usable_cores) == (3, 2)
    plant(root, {"sys/fs/cgroup/user.slice/cpu.max": "150000 100000\n"})
    assert (describe(root).usable_cpus, describe(root).usable_cores) == (1, 1)


def test_a_jetson(tmp_path: Path) -> None:
    box = describe(orin(tmp_path))
    assert (box.board, box.cpu_model) == ("NVIDIA Jetson AGX Orin Developer Kit", "Arm Cortex-A78AE")
    assert box.jetson == JetsonDescription(l4t="36.4.3", jetpack="6.2", power_mode="MODE_30W")
    assert (box.logical_cores, box.usable_cpus) == (12, 8)


def test_a_laptop_on_battery_has_an_unknown_clock(tmp_path: Path) -> None:
    box = describe(laptop(tmp_path))
    assert (box.on_battery, box.governor, box.frequency_mhz, box.load_average) == (True, "powersave", None, None)
    plant(tmp_path, {"sys/class/power_supply/AC/online": "1\n"})
    assert describe(tmp_path).on_battery is False
    assert describe(container(tmp_path / "other")).on_battery is None


def test_only_what_every_core_has_counts(tmp_path: Path) -> None:
    big, little = ("processor : 0\nFeatures : asimd asimddp sve\n", "processor : 1\nFeatures : asimd asimddp\n")
    assert describe(plant(tmp_path, {"proc/cpuinfo": f"{big}\n{little}"})).simd == ("asimd", "asimddp")


def test_a_container_is_bound_by_affinity_quota_and_limit(tmp_path: Path) -> None:
    box = describe(container(tmp_path))
    assert box.allowed_cpus == (0, 1, 2, 3, 8)
    assert (box.cpu_quota, box.usable_cpus) == (2.5, 2)
    assert box.memory_limit_bytes == 1_500_000_000
    assert box.virtualisation == "container (kubepods)"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"sys/fs/cgroup/a/cpu.max": "max 100000\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 0.5),
        ({"sys/fs/cgroup/a/cpu.max": "max 100000\n"}, None),
        ({"sys/fs/cgroup/a/cpu.max": "300000 100000\n", "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n"}, 3.0),
    ],
    ids=["the parent's", "none", "the tighter of two"],
)
def test_the_quota_is_the_least_on_the_way_up(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    assert describe(plant(tmp_path, files | {"proc/self/cgroup": "0::/a/b\n"})).cpu_quota == quota


@pytest.mark.parametrize("boxes", [x86_server, orin, laptop, container, lambda root: root])
def test_every_box_goes_into_json_whatever_it_lacks_or_garbles(tmp_path: Path, boxes: Callable[[Path], Path]) -> None:
    root = boxes(tmp_path)
    json.dumps(describe(root).as_json(), allow_nan=False)
    for path in root.rglob("*"):
        if path.is_file():
            path.write_bytes(b"\xff\x00 : nonsense\n\n- (,")
    garbled = describe(root)
    assert garbled.usable_cpus >= 1
    assert garbled.cpu_quota is None


def test_the_box_at_hand_agrees_with_an_independent_reader() -> None:
    box = describe(libraries=False)
    assert (box.machine, box.versions["python"]) == (platform.machine(), platform.python_version())
    assert box.logical_cores == os.cpu_count()
    assert box.memory_bytes == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if hasattr(os, "sched_getaffinity"):
        assert set(box.allowed_cpus) == os.sched_getaffinity(0)
    assert box.load_average is not None and box.load_average[0] == pytest.approx(os.getloadavg()[0], abs=2.0)
    assert box.gpus == ()


def test_the_mount_of_a_folder_is_the_innermost_and_the_last(tmp_path: Path) -> None:
    lines = [
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw",
        "23 22 0:5 / /data rw shared:3 - tmpfs none rw",
        "24 22 8:2 / /data rw - xfs /dev/sdb1 rw",
        "25 24 0:9 / /data/with\\040blank rw - nfs4 host:/x rw",
    ]
    root = plant(tmp_path, {"proc/self/mountinfo": "\n".join(lines)})
    assert str(mount_of("/data/sub", root)) == "xfs on /dev/sdb1"
    assert str(mount_of("/data2", root)) == "ext4 on /dev/sda1"
    assert str(mount_of("/data/with blank", root)) == "nfs4 on host:/x"
