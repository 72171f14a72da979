"""Cold reads from a disk by size, at its own speed or paced to a slower flash (STI-07)."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from simnmt.base.errors import InputError
from simnmt.base.files import NO_ROOM
from simnmt.calibrate.box.system_files import IN_MEMORY, OWN_CACHE, Mount, mount_of
from simnmt.streaming import page_cache

MB = 1_000_000
SIZES_BYTES = tuple(int(mb * MB) for mb in (0.25, 0.5, 1, 2, 4, 8, 16, 32))
"""Sizes from below a 2-bit shard to above a 32-bit shard."""
REPEATS = 9
PACED_CHUNK_BYTES = 64 * 1024
ALIGN_BYTES = 4096
SPARE_BYTES = 64 * MB
"""Bytes left free on the disk beside the file."""


class DiskError(InputError):
    """A folder whose disk cannot be measured."""


@dataclass(frozen=True, slots=True)
class DiskReads:
    """Cold reads that `measure_disk` timed."""

    read_s: dict[int, list[float]]
    """Seconds of each read in the order of measuring, by bytes, ascending."""
    cold: bool
    """True if no byte of any read was in this system's memory beforehand."""
    cold_check: str
    """Evidence for cold reads, or the reason for doubt."""
    file_system: str | None
    """Type and device, such as `ext4 on /dev/nvme0n1p2`."""


def measure_disk(
    folder: str | os.PathLike[str],
    sizes_bytes: Sequence[int] = SIZES_BYTES,
    repeats: int = REPEATS,
    pace: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    *,
    seed: int = 0,
) -> DiskReads:
    """Write a file into `folder`, read parts of it cold in a random interleaved order, and leave nothing behind.

    `pace`: bytes per second of a slower flash, None for the speed of the disk. `progress(done, total)` counts reads. Raises
    `DiskError` if the folder is missing, not writable, in memory, or too full, and for invalid sizes.
    """
    sizes = sorted(set(sizes_bytes))
    if not sizes or sizes[0] < 1 or repeats < 1:
        raise DiskError("nothing to read", remedy="give sizes and repeats of 1 or more")
    if pace is not None and not 0.0 < pace < float("inf"):
        raise DiskError(f"a pace of {pace} bytes a second", remedy="give a positive number")
    mount = refuse_unfit(folder, 4 * sizes[-1])
    drawn = random.Random(seed)
    order = [size for size in sizes for _ in range(repeats)]
    drawn.shuffle(order)
    read_s: dict[int, list[float]] = {size: [] for size in sizes}
    warm_reads, unknown = 0, False
    file_bytes = 4 * sizes[-1]
    buffer = memoryview(bytearray(os.urandom(1) * sizes[-1]))  # written to, so that its pages exist
    with _file_of(folder, file_bytes) as file, ThreadPoolExecutor(1, "simnmt-disk") as reader:
        for done, size in enumerate(order):
            offset = drawn.randrange((file_bytes - size) // ALIGN_BYTES + 1) * ALIGN_BYTES
            with _blamed(folder):
                resident = page_cache.drop(file)
                # On a thread, as in a pipeline that reads weights while it computes.
                read_s[size].append(reader.submit(_timed_read, file, buffer[:size], offset, pace).result())
            unknown |= resident is None
            warm_reads += bool(resident)
            if progress is not None:
                progress(done + 1, len(order))
    doubt = _doubt(mount, warm_reads, len(order), unknown)
    return DiskReads(
        read_s=read_s,
        cold=doubt is None,
        cold_check=doubt or "mincore found nothing of the file in memory before each read; a cache inside the disk stays",
        file_system=None if mount is None else str(mount),
    )


def refuse_unfit(folder: str | os.PathLike[str], file_bytes: int) -> Mount | None:
    """Return the mount of the folder. Raises `DiskError` if its disk cannot be measured with a file of that size."""
    if not hasattr(os, "posix_fadvise") or not hasattr(os, "preadv"):
        raise DiskError("cold reads need Linux: this system cannot drop files from memory")
    if not Path(folder).is_dir():
        raise DiskError("no such folder", path=folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DiskError("the folder is not writable", path=folder, remedy="name one on the disk to be measured")
    mount = mount_of(folder)
    if mount is not None and mount.kind in IN_MEMORY:
        remedy = "name a folder on the disk to be measured"
        raise DiskError(f"{mount.kind} is memory: there is no disk behind this folder", path=folder, remedy=remedy)
    free = shutil.disk_usage(folder).free
    if free < file_bytes + SPARE_BYTES:
        what = f"{free / MB:,.0f} MB free, {(file_bytes + SPARE_BYTES) / MB:,.0f} needed"
        raise DiskError(what, path=folder, remedy="make room or name another folder")
    return mount


@contextlib.contextmanager
def _file_of(folder: str | os.PathLike[str], file_bytes: int) -> Iterator[int]:
    """Open a file of random bytes without a name, which the system removes however the process ends."""
    with _blamed(folder):
        file, name = tempfile.mkstemp(prefix=".simnmt-disk-", dir=folder)
        Path(name).unlink()
    try:
        with _blamed(folder):
            for start in range(0, file_bytes, 4 * MB):
                _write(file, os.urandom(min(4 * MB, file_bytes - start)))
            os.fsync(file)
        yield file
    finally:
        os.close(file)


def _write(file: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]


@contextlib.contextmanager
def _blamed(folder: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in NO_ROOM
        remedy = "make room or name another folder" if full else None
        raise DiskError(error.strerror or str(error), path=folder, remedy=remedy) from None


def _timed_read(file: int, buffer: memoryview, offset: int, pace: float | None) -> float:
    """Return the seconds of one read into an existing buffer."""
    if pace is None:
        begin_s = time.perf_counter()
        _fill(file, buffer, offset)
        return time.perf_counter() - begin_s
    from simnmt.profile.streaming_cost import TokenBucket  # imports numpy, which doctor does not need

    bucket = TokenBucket(pace)
    begin_s = time.perf_counter()
    for start in range(0, len(buffer), PACED_CHUNK_BYTES):
        chunk = buffer[start : start + PACED_CHUNK_BYTES]
        end_s = bucket.end_s(time.perf_counter(), len(chunk))
        _fill(file, chunk, offset + start)
        while (left_s := end_s - time.perf_counter()) > 0.0:
            time.sleep(left_s)
    return time.perf_counter() - begin_s


def _fill(file: int, buffer: memoryview, offset: int) -> None:
    got = 0
    while got < len(buffer):
        step = os.preadv(file, [buffer[got:]], offset + got)
        if step == 0:
            raise OSError(errno.EIO, "the file ends too early")
        got += step


def _doubt(mount: Mount | None, warm_reads: int, reads: int, unknown: bool) -> str | None:
    if mount is not None and mount.kind.partition(".")[0] in OWN_CACHE:
        return f"{mount.kind} has a separate cache, which cannot be emptied from here"
    if warm_reads:
        return f"before {warm_reads} of {reads} reads, parts of the file would not leave the memory"
    return "it is unknown whether the file had left the memory" if unknown else None
