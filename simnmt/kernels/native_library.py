"""The compiled kernels: levels, the choice of a level, and the loaded library.

The widest level that this processor can run is chosen; without compiled kernels every kernel uses its fallback. The
constructors of a library are compiled for its level, so a library that the processor cannot run is never opened. A library
made from other sources is not opened either.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from simnmt.base.compile import KERNEL_LIBRARY, LEVEL_FLAGS, Library
from simnmt.base.suggestions import did_you_mean
from simnmt.kernels.errors import KernelLevelError

LEVELS = tuple(LEVEL_FLAGS)
"""From the widest to the narrowest."""
VARIABLE = "SIMNMT_KERNELS"
"""Environment variable that names the widest level to use, or `none`."""
NONE = "none"
"""Name of the fallbacks in the variable, in `level` arguments and in output."""
AVX2, AVX512 = 1, 2
"""Bits of the result of the C function `simnmt_features`."""


def supported(features: int) -> tuple[str, ...]:
    """Return the levels that a processor with these features can run, the widest first."""
    has = {"avx512": features & AVX2 and features & AVX512, "avx2": features & AVX2, "portable": True}
    return tuple(level for level in LEVELS if has[level])


def choose(features: int, compiled: Collection[str], asked: str | None, *, named: str = "level") -> str | None:
    """Return the widest level that is supported, compiled and not wider than `asked`; None if no native kernel qualifies.

    `asked` can only narrow the choice; None does not. `named` names the source of the level in the message: an
    argument or SIMNMT_KERNELS. Raises `KernelLevelError` for a name that is no level.
    """
    if asked == NONE:
        return None
    if asked is not None and asked not in LEVELS:
        remedy = did_you_mean(str(asked).strip(), (*LEVELS, NONE), f"one of {', '.join(LEVELS)} or {NONE}")
        raise KernelLevelError(f"{named}={asked!r}: no such level of kernels", remedy=remedy)
    within = LEVELS if asked is None else LEVELS[LEVELS.index(asked) :]
    return next((level for level in supported(features) if level in within and level in compiled), None)


POINTER, SIZE, FLAG, REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
Signature = tuple[Any, ...]
"""Types of a C function: of its result (None for no result), then of its arguments."""
SIGNATURES: dict[str, Signature] = {
    "simnmt_features": (FLAG,),
    "simnmt_tanh": (None, POINTER, SIZE, FLAG, POINTER),
    "simnmt_sigmoid": (None, POINTER, SIZE, FLAG, POINTER),
    "simnmt_best": (SIZE, FLAG, POINTER, SIZE, POINTER, *[SIZE] * 4, *[POINTER] * 5),
    "simnmt_best_shared": (None, POINTER),
    "simnmt_unpack": (None, POINTER, SIZE, FLAG, POINTER, POINTER, POINTER, SIZE, POINTER, SIZE, POINTER),
    "simnmt_packed_size": (SIZE, SIZE, SIZE),
    "simnmt_quantise": (FLAG, POINTER, SIZE, REAL, REAL, POINTER),
    "simnmt_pack_int16": (None, POINTER, SIZE, SIZE, POINTER),
    "simnmt_pack_float32": (None, POINTER, SIZE, SIZE, POINTER),
    "simnmt_product_int16": (FLAG, POINTER, SIZE, POINTER, SIZE, SIZE, REAL, REAL, REAL, FLAG, POINTER, POINTER),
    "simnmt_product_float32": (None, POINTER, SIZE, POINTER, SIZE, SIZE, FLAG, POINTER, POINTER),
    "simnmt_union": (SIZE, POINTER, SIZE, POINTER, POINTER, POINTER, SIZE, POINTER),
    "simnmt_scatter": (SIZE, POINTER, SIZE, POINTER, SIZE, SIZE, POINTER, POINTER),
    "simnmt_row_wise": (SIZE, POINTER, SIZE, SIZE, POINTER, SIZE, POINTER, SIZE, POINTER),
    "simnmt_gathered_scratch": (SIZE, SIZE, SIZE),
    "simnmt_gathered": (SIZE, POINTER, SIZE, SIZE, POINTER, SIZE, POINTER, SIZE, POINTER, POINTER),
}
"""Signatures of all functions, except those of the sharp decoder, which take structures (`sharp.native_search`)."""


def declare(cdll: ctypes.CDLL, signatures: Mapping[str, Signature]) -> None:
    """Declare the types of the functions, as far as the library contains them."""
    for name, (result, *arguments) in signatures.items():
        if hasattr(cdll, name):
            function = getattr(cdll, name)
            function.restype, function.argtypes = result, arguments


@dataclass(frozen=True, slots=True, eq=False)
class NativeLibrary:
    """An opened library of one level; the types of its functions are declared."""

    level: str
    cdll: ctypes.CDLL


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
    parallel.restype, parallel.argtypes = None, (POINTER, POINTER, ctypes.c_uint, ctypes.c_uint)
    return cast("Callable[[Any, Any, int, int], None]", parallel)


@functools.cache
def native_at(level: str | None) -> NativeLibrary | None:
    """Return the widest library up to `level` ("none" for none) that this processor runs; None if kernels take fallbacks.

    For None the variable SIMNMT_KERNELS names the level. The choice is made once per process and level. Warns of libraries that
    were made from other sources. Raises `KernelLevelError` for an unknown level.
    """
    asked, named = (os.environ.get(VARIABLE) or None, VARIABLE) if level is None else (level, "level")
    return load(asked, named=named, compiled=_compiled_at_first_use)


def level_name(level: str | None = None) -> str:
    """Return the level of the library that `native_at` returns, "none" if kernels take their fallbacks."""
    native = native_at(level)
    return NONE if native is None else native.level


def load(
    asked: str | None = None,
    library: Library = KERNEL_LIBRARY,
    *,
    named: str = "level",
    compiled: Callable[[], Mapping[str, Path]] | None = None,
) -> NativeLibrary | None:
    """Open the widest level of a library as `choose` does, without remembering the result.

    `compiled`: returns the result of `Library.compiled`; None reads the folder now.
    """
    if asked == NONE:
        return None
    paths = dict(library.compiled() if compiled is None else compiled())
    portable = _opened(library, paths.get("portable"))
    features = processor_features(portable)
    while (level := choose(features, paths, asked, named=named)) is not None:
        cdll = portable if level == "portable" else _opened(library, paths[level])
        if cdll is not None:
            return NativeLibrary(level, cdll)
        del paths[level]
    return None


@functools.cache
def _compiled_at_first_use() -> Mapping[str, Path]:
    """Return the compiled kernels, whose files are read and hashed once for all levels."""
    return KERNEL_LIBRARY.compiled()


def processor_features(portable: ctypes.CDLL | None) -> int:
    """Return the features of the processor for `supported`, by the library that runs on any processor; 0 without it."""
    return 0 if portable is None else int(portable.simnmt_features())


def _opened(library: Library, path: Path | None) -> ctypes.CDLL | None:
    cdll = None if path is None else library.opened(path)
    if cdll is not None:
        declare(cdll, SIGNATURES)
    return cdll
