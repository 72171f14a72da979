"""The compiled kernels: levels, the choice of a level, and the loaded library.

The widest level that this processor runs is chosen; without compiled kernels every kernel uses its fallback. A library's
constructors are compiled for its level, so a library that the processor cannot run is never opened, nor an outdated one.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from simnmt.base.suggestions import did_you_mean
from simnmt.kernels.compile import LEVEL_FLAGS, NATIVE, library_path, sources_hash
from simnmt.kernels.errors import KernelLevelError

LEVELS = tuple(LEVEL_FLAGS)
"""The widest first."""
VARIABLE = "SIMNMT_KERNELS"
"""Environment variable that names the widest level to be used, or `none`."""
NONE = "none"
"""What the variable, a `level` argument and what is printed call the fallbacks."""
AVX2, AVX512 = 1, 2
"""Bits of what `simnmt_features` of the library answers."""


def supported(features: int) -> tuple[str, ...]:
    """Levels whose every instruction the processor has and the operating system saves, the widest first."""
    has = {"avx512": features & AVX2 and features & AVX512, "avx2": features & AVX2, "portable": True}
    return tuple(level for level in LEVELS if has[level])


def choose(features: int, compiled: Collection[str], asked: str | None, *, named: str = "level") -> str | None:
    """The widest level that is supported, compiled and no wider than what is asked for; None for no native kernel at all.

    `asked` is a mask that can only narrow, never raise above the processor; None: no mask. Raises `KernelLevelError` for a name
    that is no level, which says where it was `named`: by an argument, or by SIMNMT_KERNELS.
    """
    if asked == NONE:
        return None
    if asked is not None and asked not in LEVELS:
        remedy = did_you_mean(str(asked).strip(), (*LEVELS, NONE), f"one of {', '.join(LEVELS)} or {NONE}")
        raise KernelLevelError(f"{named}={asked!r}: no such level of kernels", remedy=remedy)
    within = LEVELS if asked is None else LEVELS[LEVELS.index(asked) :]
    return next((level for level in supported(features) if level in within and level in compiled), None)


REMEDY = "fallbacks are used until you run `python -m simnmt.kernels.compile`"


POINTER, SIZE, FLAG, REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
Signature = tuple[Any, ...]
"""Of a C function: the type of the result, None for nothing, and those of the arguments."""
SIGNATURES: dict[str, Signature] = {
    "simnmt_features": (FLAG,),
    "simnmt_tanh": (None, POINTER, SIZE, FLAG, POINTER),
    "simnmt_sigmoid": (None, POINTER, SIZE, FLAG, POINTER),
    "simnmt_best": (SIZE, FLAG, POINTER, SIZE, POINTER, *[SIZE] * 4, *[POINTER] * 5),
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
    "simnmt_pack_columns": (SIZE, POINTER, SIZE, SIZE, POINTER, SIZE, POINTER),
}
"""Of all functions but those of the sharp decoder, which take structures (`sharp.native_search`)."""


def declare(cdll: ctypes.CDLL, signatures: Mapping[str, Signature]) -> None:
    """Declare the types of those functions that the library has."""
    for name, (result, *arguments) in signatures.items():
        if hasattr(cdll, name):
            function = getattr(cdll, name)
            function.restype, function.argtypes = result, arguments


@dataclass(frozen=True, slots=True, eq=False)
class NativeLibrary:
    """One compiled level, open, with the types of its functions declared."""

    level: str
    cdll: ctypes.CDLL


T = TypeVar("T")


def at_once(works: Sequence[Callable[[], T]]) -> list[T]:
    """Call all of them, the first here and each other one on a thread of its own; their results in order.

    Raises what the first of them raised. The library's functions let other threads of Python run.
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
    # A forked process has the pool but none of its threads: work handed to it would wait for ever.
    os.register_at_fork(after_in_child=_pool.cache_clear)


@functools.cache
def library() -> NativeLibrary | None:
    """The native kernels at the widest level that may run here; None without any, and every kernel then takes its fallback.

    Chosen once a process: by the processor, what was compiled, and the variable SIMNMT_KERNELS. Warns where a library is there
    but was made from other sources. Raises `KernelLevelError` for a level that SIMNMT_KERNELS misspells.
    """
    return _widest(os.environ.get(VARIABLE) or None, VARIABLE, compiled)


@functools.cache
def library_of(level: str) -> NativeLibrary | None:
    """As `library`, no wider than `level` ("none" for none) whatever the variable says; opened once a process."""
    return _widest(level, "level", compiled)


@dataclass(frozen=True, slots=True)
class Compiled:
    """The libraries of a folder that were made from the sources in it, unopened."""

    paths: Mapping[str, Path]
    """By level."""
    sources: bytes
    """Hash of the sources."""


@functools.cache
def compiled() -> Compiled:
    """Those beside the package; looked at once a process."""
    return compiled_in(NATIVE)


def load(asked: str | None = None, native: Path = NATIVE) -> NativeLibrary | None:
    """As `library_of`, or the widest for None, of a folder as it is now."""
    return _widest(asked, "level", lambda: compiled_in(native))


def compiled_in(native: Path) -> Compiled:
    """Those of a folder as it is now; warns of libraries that were made from other sources. Opens none."""
    sources = sources_hash(native).encode()
    paths = {level: path for level in LEVELS if (path := library_path(level, native)).is_file()}
    sound = {level: path for level, path in paths.items() if sources in path.read_bytes()}
    _warn_unusable([path for level, path in paths.items() if level not in sound], "were compiled from other sources")
    return Compiled(sound, sources)


def processor_features(portable: ctypes.CDLL | None) -> int:
    """What the processor has, as `levels.supported` reads it: asked of the one library that runs on any; 0 without it."""
    return 0 if portable is None else int(portable.simnmt_features())


def _widest(asked: str | None, named: str, compiled: Callable[[], Compiled]) -> NativeLibrary | None:
    if asked == NONE:
        return None
    build = compiled()
    paths = dict(build.paths)
    portable = _opened(paths.get("portable"), build.sources)
    features = processor_features(portable)
    while (level := choose(features, paths, asked, named=named)) is not None:
        cdll = portable if level == "portable" else _opened(paths[level], build.sources)
        if cdll is not None:
            return NativeLibrary(level, cdll)
        del paths[level]
    return None


def _opened(path: Path | None, sources: bytes) -> ctypes.CDLL | None:
    """None, which is said, for what cannot be opened or was compiled anew from other sources since it was looked at."""
    if path is None:
        return None
    try:
        cdll = ctypes.CDLL(str(path))
        cdll.simnmt_sources.restype = ctypes.c_char_p
    except (OSError, AttributeError):
        _warn_unusable([path], "cannot be loaded")
        return None
    if cdll.simnmt_sources() != sources:
        _warn_unusable([path], "were compiled from other sources")
        return None
    declare(cdll, SIGNATURES)
    return cdll


def _warn_unusable(paths: list[Path], why: str) -> None:
    if paths:
        names = ", ".join(path.name for path in paths)
        warnings.warn(f"the native kernels {names} {why}: {REMEDY}", stacklevel=5)


def native_at(level: str | None) -> NativeLibrary | None:
    """The widest library up to `level`, never above the processor ("none" for none); for None the process's own.

    Raises `KernelLevelError` for a level that there is not.
    """
    return library() if level is None else library_of(level)


def level_name(level: str | None = None) -> str:
    """The level that `native_at` gives, "none" where kernels then take their fallbacks."""
    native = native_at(level)
    return NONE if native is None else native.level
