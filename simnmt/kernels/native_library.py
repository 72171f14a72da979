"""The compiled kernels, opened once a process, and threads for them; without them numpy and torch give the same results."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from simnmt.base.compile import KERNEL_LIBRARY, cpu_name
from simnmt.base.errors import InputError
from simnmt.base.suggestions import did_you_mean
from simnmt.kernels.arrays import KernelError

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
