"""Cold reads from a disk by size, at its own speed or paced to a slower flash (STI-07)."""

from __future__ import annotations

import errno
import os
import random
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from simnmt.base.errors import InputError
from simnmt.streaming import page_cache

MB = 1_000_000
SIZES_BYTES = tuple(int(mb * MB) for mb in (0.25, 0.5, 1, 2, 4, 8, 16, 32))
"""Sizes from below a 2-bit shard to above a 32-bit shard."""
PACED_CHUNK_BYTES = 64 * 1024
ALIGN_BYTES = 4096
IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
OWN_CACHE = ("zfs", "nfs", "nfs4", "9p", "virtiofs", "fuse", "fuseblk", "cifs", "smb3", "ceph")
"""File systems that keep files outside the page cache, often on another machine."""


class DiskError(InputError):
    """A folder whose disk cannot be measured."""


class Mount(NamedTuple):
    """A mounted file system: its type, such as ext4, and its device."""

    kind: str
    source: str

    def __str__(self) -> str:
        return f"{self.kind} on {self.source}"

    @property
    def is_memory(self) -> bool:
        """True if there is no disk behind it."""
        return self.kind in IN_MEMORY

    @property
    def has_own_cache(self) -> bool:
        """True if dropping files from the page cache does not make reads cold."""
        return self.kind.partition(".")[0] in OWN_CACHE


def mount_of(folder: str | os.PathLike[str]) -> Mount | None:
    """Return the mount of `folder`: the longest path that holds it, and among equals the last, which covers the others."""
    real = Path(os.path.realpath(folder))
    mounts = [part for part in psutil.disk_partitions(all=True) if real.is_relative_to(part.mountpoint)]
    best = max(reversed(mounts), key=lambda part: len(part.mountpoint), default=None)
    return None if best is None else Mount(best.fstype, best.device)


def refuse_unfit(folder: str | os.PathLike[str]) -> Mount | None:
    """Return the mount of the folder. Raises `DiskError` if there is no disk behind it that can be measured."""
    mount = mount_of(folder)
    if not hasattr(os, "posix_fadvise"):
        raise DiskError("cold reads need Linux: this system cannot drop files from memory")
    if not Path(folder).is_dir():
        raise DiskError("no such folder", path=folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DiskError("the folder is not writable", path=folder, remedy="name one on the disk to be measured")
    if mount is not None and mount.is_memory:
        what = f"{mount.kind} is memory: there is no disk behind this folder"
        raise DiskError(what, path=folder, remedy="name a folder on the disk to be measured")
    return mount


class ColdFile:
    """A file without a name, parts of which are read cold. The system removes it however the process ends.

    Raises `DiskError` if the folder is missing, not writable, in memory, or too full.
    """

    def __init__(self, folder: str | os.PathLike[str], most_bytes: int, pace: float | None = None, *, seed: int = 0) -> None:
        """`most_bytes`: of one read; `pace`: bytes per second of a slower flash, None for the speed of the disk."""
        self.mount, self._pace, self._drawn, self._bytes = refuse_unfit(folder), pace, random.Random(seed), 4 * most_bytes
        self._buffer = memoryview(bytearray(os.urandom(1) * most_bytes))  # written to, so that its pages exist
        self._left_pages: int | None = None
        try:
            with ExitStack() as opened:
                self._file = opened.enter_context(tempfile.TemporaryFile(dir=folder, buffering=0))
                for _ in range(4):
                    if self._file.write(os.urandom(most_bytes)) < most_bytes:
                        raise OSError(errno.ENOSPC, "the disk is full")
                os.fsync(self._file.fileno())
                opened.pop_all()
        except OSError as error:
            raise DiskError(error.strerror or str(error), path=folder) from None

    def drop(self, size: int) -> None:
        """Drop the file from memory, and draw the place of the next read."""
        self._file.seek(self._drawn.randrange((self._bytes - size) // ALIGN_BYTES + 1) * ALIGN_BYTES)
        self._left_pages = page_cache.drop(self._file.fileno())

    def read(self, size: int) -> dict[str, Any]:
        """Return the `seconds` of a read, and `is_cold`: whether nothing of the file was in memory. Caches of the disk stay."""
        from simnmt.profile.streaming_cost import TokenBucket  # imports numpy, which doctor does not need

        bucket, chunk_bytes = (None, size) if self._pace is None else (TokenBucket(self._pace), PACED_CHUNK_BYTES)
        begin_s = time.perf_counter()
        for start in range(0, size, chunk_bytes):
            chunk = self._buffer[start : min(start + chunk_bytes, size)]
            end_s = 0.0 if bucket is None else bucket.end_s(time.perf_counter(), len(chunk))
            while chunk:
                if not (read := self._file.readinto(chunk)):
                    raise DiskError("the file ended early")
                chunk = chunk[read:]
            if bucket is not None:
                time.sleep(max(end_s - time.perf_counter(), 0.0))
        has_own_cache = self.mount is not None and self.mount.has_own_cache
        return {"seconds": time.perf_counter() - begin_s, "is_cold": self._left_pages == 0 and not has_own_cache}

    def close(self) -> None:
        """Remove the file."""
        self._file.close()
