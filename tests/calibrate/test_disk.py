"""Cold, paced, and nothing left behind."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from simnmt.calibrate import disk
from simnmt.calibrate.disk import ColdFile, DiskError, Mount, mount_of
from simnmt.streaming import page_cache


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    mount = mount_of(tmp_path)
    if not hasattr(os, "posix_fadvise") or (mount is not None and mount.is_memory):
        pytest.skip("the folder for temporary files is not on a disk of a Linux system")
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


@pytest.mark.parametrize(
    ("left", "kind", "cold"),
    [(0, "ext4", True), (3, "ext4", False), (None, "ext4", False), (0, "zfs", False), (0, "fuse.sshfs", False)],
)
def test_cold_is_claimed_only_where_it_was_seen(
    folder: Path, monkeypatch: pytest.MonkeyPatch, left: int | None, kind: str, cold: bool
) -> None:
    monkeypatch.setattr(page_cache, "drop", lambda file: left)
    monkeypatch.setattr(disk, "mount_of", lambda folder: Mount(kind, "/dev/x"))
    with closing(ColdFile(folder, 8192)) as file:
        file.drop(4096)
        assert file.read(4096)["is_cold"] == cold


def test_a_paced_read_is_never_faster_than_its_pace(folder: Path) -> None:
    with closing(ColdFile(folder, 140_000, pace=5e6)) as file:
        for size in (30_000, 70_000, 140_000):
            file.drop(size)
            assert file.read(size)["seconds"] >= size / 5e6
    with closing(ColdFile(folder, 140_000)) as file:
        seconds = []
        for _ in range(3):
            file.drop(140_000)
            seconds.append(file.read(140_000)["seconds"])
        assert 0.0 < min(seconds) < 140_000 / 5e6


@pytest.mark.parametrize("most_bytes", [14_000, 20_000])
def test_a_disk_that_fills_up_is_refused(folder: Path, most_bytes: int) -> None:
    """Within the last of the four parts, or before it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(DiskError) as caught:
            ColdFile(folder, most_bytes)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.path == str(folder)


def test_memory_is_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "mount_of", lambda folder: Mount("tmpfs", "none"))
    with pytest.raises(DiskError, match="tmpfs is memory"):
        ColdFile(tmp_path, 8192)
