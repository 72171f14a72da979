"""The error of the kernels, checks of numpy arrays whose addresses go to C, and memory on huge pages."""

from __future__ import annotations

import contextlib
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray


class KernelError(ValueError):
    """An array that a kernel cannot work on; the message names the array and the reason."""


CACHE_LINE = 64
HUGE_PAGE = 1 << 21
_ADVICE = getattr(mmap, "MADV_HUGEPAGE", None)
"""None on systems without huge pages."""


def checked(name: str, array: NDArray[Any], dtype: type[np.generic], shape: tuple[int | None, ...]) -> NDArray[Any]:
    """Return the array if it is contiguous and has this type and shape; None in `shape` allows any size.

    Raises `KernelError`, which names the array.
    """
    fits = isinstance(array, np.ndarray) and array.dtype == dtype and array.ndim == len(shape) and array.flags.c_contiguous
    if not fits or any(size not in (None, given) for size, given in zip(shape, array.shape, strict=True)):
        needed = ", ".join("any" if size is None else str(size) for size in shape)
        given_array = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
        raise KernelError(f"{name} is {given_array}: contiguous {np.dtype(dtype)} [{needed}] is needed")
    return array


def checked_out(name: str, out: NDArray[np.float32] | None, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return `out` if it is a writeable float32 array of this shape, a new array for None. Raises `KernelError`."""
    if out is None:
        return np.empty(shape, np.float32)
    if not checked(name, out, np.float32, shape).flags.writeable:
        raise KernelError(f"{name} cannot be written to")
    return out


def huge_pages(elements: int, dtype: type[np.generic]) -> NDArray[Any]:
    """Allocate memory for weights that every step reads, aligned to a cache line, on huge pages if the system has them.

    A pass over more memory than the caches hold takes 1.3 to 1.9 times as long on pages of 4 KB; numpy asks for huge pages only
    from 4 MB on.
    """
    size = elements * np.dtype(dtype).itemsize
    if _ADVICE is None or size < HUGE_PAGE // 2:
        return _aligned(np.empty(size + CACHE_LINE, np.uint8), CACHE_LINE, size).view(dtype)
    # Private memory, because shared memory has small pages; the part before the first multiple is never touched.
    mapped = mmap.mmap(-1, -(-size // HUGE_PAGE) * HUGE_PAGE + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # an operating system without huge pages
        mapped.madvise(_ADVICE)
    return _aligned(np.frombuffer(mapped, np.uint8), HUGE_PAGE, size).view(dtype)


def _aligned(memory: NDArray[np.uint8], multiple: int, size: int) -> NDArray[np.uint8]:
    start = -memory.ctypes.data % multiple
    return memory[start : start + size]
