"""Reads that say where they begin, so that threads share no position in a file."""

from __future__ import annotations

import os
import sys
from threading import Lock

_one = Lock()


def read_at(file: int, out: memoryview, offset: int) -> int:
    """Bytes read from `offset` of an open file to the beginning of `out`, which is not empty; 0 at the end of the file.

    Straight to its place where the system can, else by way of a copy. Raises `OSError`.
    """
    if sys.platform != "win32" and hasattr(os, "preadv"):
        return os.preadv(file, [out], offset)
    if sys.platform != "win32":
        content = os.pread(file, len(out), offset)
    else:
        with _one:
            os.lseek(file, offset, os.SEEK_SET)
            content = os.read(file, len(out))
    out[: len(content)] = content
    return len(content)
