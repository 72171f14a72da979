"""Query and drop the cached pages of a file, and disable its read-ahead (Linux; no effect on other systems)."""

from __future__ import annotations

import ctypes
import mmap
import os
import time

import numpy as np

DROP_ATTEMPTS = 20
"""Most attempts of `drop` to free pages that are under read-ahead."""


def disable_read_ahead(file: int) -> None:
    """Disable the read-ahead of an open file if the system supports it.

    Other fidelities of the same shards follow each record: measured, the first read of a layer waited for megabytes of them.
    """
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)


def drop(file: int) -> int | None:
    """Drop an open file from memory; return the number of pages that remain, or None if the system cannot report it.

    Unwritten pages stay, so flush the file first. Pages under read-ahead stay too, so the call is repeated.
    """
    if not hasattr(os, "posix_fadvise"):
        return None
    size = os.fstat(file).st_size
    left: int | None = None
    for attempt in range(DROP_ATTEMPTS):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        left = resident_pages(file, size)
        if not left:
            break
        time.sleep(1e-3 * attempt)
    return left


def resident_pages(file: int, size: int) -> int | None:
    """Return how many pages of the first `size` bytes of an open file are in memory; None if mincore cannot report it.

    The query loads no page. The kernel answers correctly for files that we own or may write to.
    """
    try:
        mincore, mapped = ctypes.CDLL(None).mincore, mmap.mmap(file, size, prot=mmap.PROT_READ)
    except (OSError, AttributeError, ValueError):
        return None
    pages = (ctypes.c_ubyte * (-(-size // mmap.PAGESIZE)))()
    address = np.frombuffer(mapped, np.uint8).ctypes.data  # the array is gone at once: it would keep the map open
    failed = mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages)
    mapped.close()
    return None if failed else sum(page & 1 for page in pages)
