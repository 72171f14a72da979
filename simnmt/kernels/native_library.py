"""The compiled kernels, opened once a process, threads for them, and checks of the arrays whose addresses they are given."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from simnmt.base.compile import KERNEL_LIBRARY, cpu_name
from simnmt.base.errors import InputError
from simnmt.base.suggestions import did_you_mean


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
        return aligned_bytes(size).view(dtype)
    # Private memory, because shared memory has small pages; the part before the first multiple is never touched.
    mapped = mmap.mmap(-1, -(-size // HUGE_PAGE) * HUGE_PAGE + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # an operating system without huge pages
        mapped.madvise(_ADVICE)
    return _aligned(np.frombuffer(mapped, np.uint8), HUGE_PAGE, size).view(dtype)


def aligned_bytes(size: int) -> NDArray[np.uint8]:
    """Return uninitialised bytes that begin at a multiple of `CACHE_LINE`."""
    return _aligned(np.empty(size + CACHE_LINE, np.uint8), CACHE_LINE, size)


def _aligned(memory: NDArray[np.uint8], multiple: int, size: int) -> NDArray[np.uint8]:
    start = -memory.ctypes.data % multiple
    return memory[start : start + size]


VARIABLE = "SIMNMT_KERNELS"
"""Environment variable that names the build to use (`native`, `avx2`, `portable`), or `none`."""
NONE = "none"
"""Name of the references in the variable and in output."""


class KernelBuildError(InputError):
    """An unknown build of the kernels."""


_reference_only = False


def native() -> ctypes.CDLL | None:
    """Return the compiled kernels; None if the references in numpy and torch compute.

    Without the variable SIMNMT_KERNELS the best build for this processor is opened. Warns once if none can be used. Raises
    `KernelBuildError` for an unknown build.
    """
    return None if _reference_only else _opened()


def compiled() -> ctypes.CDLL:
    """Return the compiled kernels. Raises `KernelError` if there are none."""
    kernels = native()
    if kernels is None:
        raise KernelError("this needs compiled kernels: install with a C compiler")
    return kernels


@functools.cache
def _opened() -> ctypes.CDLL | None:
    asked = os.environ.get(VARIABLE) or None
    if asked == NONE:
        return None
    if asked is not None and asked not in KERNEL_LIBRARY.builds:
        raise KernelBuildError(f"{VARIABLE}={asked}: no such build", remedy=did_you_mean(asked, (*KERNEL_LIBRARY.builds, NONE)))
    return KERNEL_LIBRARY.open(asked)


@contextmanager
def references() -> Iterator[None]:
    """Compute by the references within the block, in all threads."""
    global _reference_only
    before, _reference_only = _reference_only, True
    try:
        yield
    finally:
        _reference_only = before


def level_name() -> str:
    """Return the vectors of the compiled kernels, such as AVX-512, AVX2 or NEON; `none` for the references."""
    kernels = native()
    return NONE if kernels is None else str(kernels.simnmt_level().decode())


def processor() -> str:
    """Return what figures of kernels ran on: the processor and its level, such as `AMD EPYC, AVX-512`."""
    level = level_name()
    return f"{cpu_name()}, {'numpy and torch without compiled kernels' if level == NONE else level}"


T = TypeVar("T")


def at_once(works: Sequence[Callable[[], T]]) -> list[T]:
    """Call all functions in parallel, the first on this thread and each other on another thread; return results in order.

    Raises the first error among them once all have ended. The library's functions let other Python threads run.
    """
    waiting: list[Future[T]] = []
    try:
        waiting.extend(_pool(len(works) - 1).submit(work) for work in works[1:])
        results = [work() for work in works[:1]]
    finally:
        wait(waiting)  # an interrupt must not free the arrays that the others still read and write
    return results + [future.result() for future in waiting]


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="simnmt-kernels")


if sys.platform != "win32":
    # A forked process inherits the pool without its threads: work handed to that pool would wait for ever.
    os.register_at_fork(after_in_child=_pool.cache_clear)


def share(function: Any, work: ctypes.Structure, threads: int) -> None:
    """Call a C function of one pointer, to `work`, on several threads at once; return when all calls have ended.

    The function must divide `work` itself, among however many threads call it. The threads are those of torch's operations
    where its OpenMP runtime can be called, else those of `at_once`.

    After a product by torch, `at_once` takes 160 to 290 us to begin and end two calls, torch's threads 16 to 20 us: Python's
    threads have to be woken, and to run Python whose code has left the caches.
    """
    at = ctypes.byref(work)
    parallel = _openmp_parallel() if threads > 1 and os.getpid() == PROCESS else None
    if parallel is None:
        at_once([functools.partial(function, at)] * threads)
    else:
        parallel(function, at, threads, 0)


PROCESS = os.getpid()
"""The process that imported this module: in a forked one the OpenMP runtime would wait for threads that were not forked."""


@functools.cache
def _openmp_parallel() -> Callable[[Any, Any, int, int], None] | None:
    """Return `GOMP_parallel` of the OpenMP runtime that torch has loaded for the whole process; None if there is none.

    The runtimes of GCC, LLVM and Intel have this function on Linux. It calls a function on the calling thread and on the
    runtime's threads that wait for this one.
    """
    try:
        parallel = ctypes.CDLL(None).GOMP_parallel
    except (AttributeError, OSError, TypeError):  # TypeError: Windows has no handle of the whole process
        return None
    parallel.restype, parallel.argtypes = None, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    return cast("Callable[[Any, Any, int, int], None]", parallel)
