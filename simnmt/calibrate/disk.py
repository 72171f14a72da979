"""Cold reads from a disk by size, at its own speed or paced to a slower flash (STI-07)."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import psutil

from simnmt.base.errors import InputError
from simnmt.streaming import page_cache

if TYPE_CHECKING:
    from simnmt.calibrate.harness import Listener

MB = 1_000_000
SIZES_BYTES = tuple(int(mb * MB) for mb in (0.25, 0.5, 1, 2, 4, 8, 16, 32))
"""Sizes from below a 2-bit shard to above a 32-bit shard."""
REPEATS = 9
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


@dataclass(frozen=True, slots=True)
class DiskReads:
    """Cold reads that `measure_disk` timed."""

    read_s: dict[int, list[float]]
    """Seconds of each read that counts, by bytes."""
    doubt: str | None
    """Reason why a part of the file may have been in memory before a read; None if none was. A cache inside the disk stays."""
    file_system: str | None
    """Type and device, such as `ext4 on /dev/nvme0n1p2`."""


def measure_disk(
    folder: str | os.PathLike[str],
    sizes_bytes: Sequence[int] = SIZES_BYTES,
    repeats: int = REPEATS,
    pace: float | None = None,
    *,
    seed: int = 0,
    listener: Listener | None = None,
) -> DiskReads:
    """Write a file without a name into `folder`, read parts of it cold, in rounds of the harness.

    `pace`: bytes per second of a slower flash, None for the speed of the disk. Raises `DiskError` if the folder is missing, not
    writable, in memory, or too full.
    """
    from simnmt.calibrate import harness  # imports pandas, which doctor does not need

    mount, sizes, drawn = refuse_unfit(folder), sorted(set(sizes_bytes)), random.Random(seed)
    left_pages: list[int | None] = []
    buffer = memoryview(bytearray(os.urandom(1) * sizes[-1]))  # written to, so that its pages exist
    try:
        # The system removes a file without a name however the process ends.
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file, ThreadPoolExecutor(1, "simnmt-disk") as reader:
            for _ in range(4):
                file.write(os.urandom(sizes[-1]))
            os.fsync(file.fileno())

            def drop(size: int) -> None:
                file.seek(drawn.randrange((4 * sizes[-1] - size) // ALIGN_BYTES + 1) * ALIGN_BYTES)
                left_pages.append(page_cache.drop(file.fileno()))

            def read(size: int) -> dict[str, float]:
                # On a thread, as in a pipeline that reads weights while it computes.
                return {"seconds": reader.submit(_timed_read, file, buffer[:size], pace).result()}

            cases = {size: harness.Case(partial(read, size), partial(drop, size), prepare=harness.nothing) for size in sizes}
            frame = harness.rounds(cases, repeats, name="disk", shuffle=seed, listener=listener or harness.Silent)
    except OSError as error:
        raise DiskError(error.strerror or str(error), path=folder) from None
    doubt = "parts of the file may not have left the memory before each read" if any(left != 0 for left in left_pages) else None
    if mount is not None and mount.has_own_cache:
        doubt = f"{mount.kind} has a separate cache, which cannot be emptied from here"
    read_s = {size: times_s.tolist() for size, times_s in harness.by_round(frame).items()}
    return DiskReads(read_s, doubt, None if mount is None else str(mount))


def _timed_read(file: IO[bytes], buffer: memoryview, pace: float | None) -> float:
    """Return the seconds of one read into an existing buffer."""
    from simnmt.profile.streaming_cost import TokenBucket  # imports numpy, which doctor does not need

    bucket, chunk_bytes = (None, len(buffer)) if pace is None else (TokenBucket(pace), PACED_CHUNK_BYTES)
    begin_s = time.perf_counter()
    for start in range(0, len(buffer), chunk_bytes):
        chunk = buffer[start : start + chunk_bytes]
        end_s = 0.0 if bucket is None else bucket.end_s(time.perf_counter(), len(chunk))
        while chunk:
            chunk = chunk[file.readinto(chunk) :]  # type: ignore[attr-defined]
        if bucket is not None:
            time.sleep(max(end_s - time.perf_counter(), 0.0))
    return time.perf_counter() - begin_s
