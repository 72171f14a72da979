"""The native kernels at a level that a caller asks for, beside the one chosen for the process."""

from __future__ import annotations

import functools

from simnmt.kernels.native_library import NativeLibrary, library, load


def native_at(level: str | None) -> NativeLibrary | None:
    """The widest library up to `level`, as the variable SIMNMT_KERNELS says it ("none" for none); for None the process's own.

    The process's own is asked for each time: it may be held to another level meanwhile. Raises `KernelError`.
    """
    return library() if level is None else _loaded(level)


@functools.cache
def _loaded(level: str) -> NativeLibrary | None:
    return load(level)
