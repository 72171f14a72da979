"""Cold, paced, and nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simnmt.calibrate import disk
from simnmt.calibrate.disk import Mount, measure_disk, mount_of
from simnmt.streaming import page_cache

SIZES = (5_000, 20_000, 80_000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    mount = mount_of(tmp_path)
    if not hasattr(os, "posix_fadvise") or (mount is not None and mount.is_memory):
        pytest.skip("the folder for temporary files is not on a disk of a Linux system")
    return tmp_path


def test_every_size_is_read_as_often_as_asked_and_nothing_stays(folder: Path) -> None:
    reads = measure_disk(folder, SIZES, repeats=4)
    assert {size: len(times_s) for size, times_s in reads.read_s.items()} == dict.fromkeys(SIZES, 4)
    assert min(min(times_s) for times_s in reads.read_s.values()) > 0.0
    if reads.file_system is not None and reads.file_system.startswith(("ext4", "xfs", "btrfs", "overlay")):
        assert reads.doubt is None
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("left", "kind", "cold"),
    [
        (0, "ext4", True),
        (3, "ext4", False),
        (None, "ext4", False),
        (0, "zfs", False),
        (0, "fuse.sshfs", False),
    ],
)
def test_cold_is_claimed_only_where_it_was_seen(
    folder: Path, monkeypatch: pytest.MonkeyPatch, left: int | None, kind: str, cold: bool
) -> None:
    monkeypatch.setattr(page_cache, "drop", lambda file: left)
    monkeypatch.setattr(disk, "mount_of", lambda folder: Mount(kind, "/dev/x"))
    reads = measure_disk(folder, (4096, 8192), repeats=2)
    assert (reads.doubt is None) == cold
    assert reads.file_system == f"{kind} on /dev/x"


def test_a_paced_read_is_never_faster_than_its_pace(folder: Path) -> None:
    reads = measure_disk(folder, (30_000, 70_000, 140_000), repeats=2, pace=5e6)
    for size, times_s in reads.read_s.items():
        assert min(times_s) >= size / 5e6
    free = measure_disk(folder, (140_000,), repeats=3)
    assert min(free.read_s[140_000]) < 140_000 / 5e6


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_leaves_neither_file_nor_descriptor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(page_cache, "drop", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure_disk(folder, SIZES, repeats=4)
    assert list(folder.iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before
