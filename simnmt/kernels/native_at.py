"""The native kernels at a level that a caller asks for, beside the one chosen for the process."""

from __future__ import annotations

from simnmt.kernels.levels import NONE
from simnmt.kernels.native_library import NativeLibrary, library, library_of


def native_at(level: str | None) -> NativeLibrary | None:
    """The widest library up to `level`, never above the processor ("none" for none); for None the process's own.

    Raises `KernelLevelError` for a level that there is not.
    """
    return library() if level is None else library_of(level)


def level_name(level: str | None = None) -> str:
    """The level that `native_at` gives, "none" where kernels then take their fallbacks."""
    native = native_at(level)
    return NONE if native is None else native.level
