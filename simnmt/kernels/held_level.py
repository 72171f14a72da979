"""Another compiled level for a while: what a processor with fewer instructions would run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from simnmt.kernels.levels import VARIABLE
from simnmt.kernels.native_library import library


@contextmanager
def held_level(level: str) -> Iterator[str]:
    """Let every kernel that asks for the library take this level or a narrower one; gives the level that it takes.

    As SIMNMT_KERNELS says it, so never above the processor; `fallback` where no such level is compiled. What was made before,
    packed weights for one, keeps its own.
    """
    native = library()
    if level == ("fallback" if native is None else native.level):
        yield level
        return
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "none" if level == "fallback" else level
    library.cache_clear()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # why there is none was said when it was asked for first
            native = library()
        yield "fallback" if native is None else native.level
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
        library.cache_clear()
