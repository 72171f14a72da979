"""What an array handed to a native kernel must be: checked before its address is."""

from __future__ import annotations

import contextlib
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.errors import KernelError

CACHE_LINE = 64
HUGE_PAGE = 1 << 21


def checked(name: str, array: NDArray[Any], dtype: type[np.generic], shape: tuple[int | None, ...]) -> NDArray[Any]:
    """The array itself, where it is contiguous with this type and shape; None in `shape` is any size.

    Raises `KernelError`, which names the array.
    """
    if not isinstance(array, np.ndarray):
        raise KernelError(f"{name} is a {type(array).__name__}, not a numpy array")
    if array.dtype != dtype:
        raise KernelError(f"{name} is {array.dtype}, not {np.dtype(dtype)}")
    if array.ndim != len(shape):
        raise _misshapen(name, array, shape)
    for asked, size in zip(shape, array.shape, strict=True):
        if asked is not None and asked != size:
            raise _misshapen(name, array, shape)
    if not array.flags.c_contiguous:
        raise KernelError(f"{name} is not contiguous, row after row")
    return array


def checked_out(name: str, out: NDArray[np.float32] | None, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """A float32 array of this shape to write into: `out` itself where it fits, a new one for None. Raises `KernelError`."""
    if out is None:
        return np.empty(shape, np.float32)
    if not checked(name, out, np.float32, shape).flags.writeable:
        raise KernelError(f"{name} cannot be written to")
    return out


def check_apart(name: str, array: NDArray[Any], out: NDArray[Any]) -> None:
    """Refuse an `out` that overlaps the array but for one that is the array, element for element. Raises `KernelError`."""
    same = array.ctypes.data == out.ctypes.data and array.shape == out.shape
    if not same and np.may_share_memory(array, out):
        raise KernelError(f"out holds a part of {name}: give {name} itself, or memory of its own")


def huge_pages(elements: int, dtype: type[np.generic]) -> NDArray[Any]:
    """Memory for weights that every step passes over: aligned to a cache line, on huge pages where the system has them.

    A pass over 2 MB beyond the caches takes 1.3 to 1.9 times as long on pages of 4 KB; numpy asks for huge ones from 4 MB on.
    """
    size = elements * np.dtype(dtype).itemsize
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is None or size < HUGE_PAGE // 2:
        memory = np.empty(size + CACHE_LINE, np.uint8)
        return _from(memory, CACHE_LINE, size).view(dtype)
    rounded = -(-size // HUGE_PAGE) * HUGE_PAGE
    # Private, since shared memory has small pages; what lies before the first multiple is never touched, so never taken.
    mapped = mmap.mmap(-1, rounded + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        mapped.madvise(advice)
    return _from(np.frombuffer(mapped, np.uint8), HUGE_PAGE, size).view(dtype)


def allocated_bytes(array: NDArray[Any]) -> int:
    """Bytes of memory that an array of `huge_pages` can take."""
    return allocated_size(array.nbytes)


def allocated_size(size: int) -> int:
    """Bytes of memory that `huge_pages` takes for so many: whole pages where they lie on huge ones."""
    if getattr(mmap, "MADV_HUGEPAGE", None) is None or size < HUGE_PAGE // 2:
        return size + CACHE_LINE
    return -(-size // HUGE_PAGE) * HUGE_PAGE


def _misshapen(name: str, array: NDArray[Any], shape: tuple[int | None, ...]) -> KernelError:
    asked_for = ", ".join("any" if asked is None else str(asked) for asked in shape)
    return KernelError(f"{name} has the shape {list(array.shape)}, not [{asked_for}]")


def _from(memory: NDArray[np.uint8], multiple: int, size: int) -> NDArray[np.uint8]:
    start = -memory.ctypes.data % multiple
    return memory[start : start + size]
