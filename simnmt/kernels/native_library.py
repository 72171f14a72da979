"""The compiled kernels, loaded: the widest level that this processor runs, or none where none was compiled.

A library's constructors are compiled for its level: one that the processor cannot run is never opened, nor a stale one.
"""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from simnmt.kernels import levels
from simnmt.kernels.compile import NATIVE, library_path, sources_hash

REMEDY = "fallbacks are used until you run `python -m simnmt.kernels.compile`"


@dataclass(frozen=True, slots=True, eq=False)
class NativeLibrary:
    """One compiled level, open. Who uses a function of it declares its types beside the use."""

    level: str
    cdll: ctypes.CDLL


@functools.cache
def library() -> NativeLibrary | None:
    """The native kernels at the widest level that may run here; None without any, and every kernel then takes its fallback.

    Chosen once a process: by the processor, what was compiled, and the variable SIMNMT_KERNELS. Warns where a library is there
    but was made from other sources. Raises `KernelLevelError` for a level that SIMNMT_KERNELS misspells.
    """
    return _widest(os.environ.get(levels.VARIABLE) or None, levels.VARIABLE, compiled)


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
    paths = {level: path for level in levels.LEVELS if (path := library_path(level, native)).is_file()}
    sound = {level: path for level, path in paths.items() if sources in path.read_bytes()}
    _refuse([path for level, path in paths.items() if level not in sound], "were compiled from other sources")
    return Compiled(sound, sources)


def processor_features(portable: ctypes.CDLL | None) -> int:
    """What the processor has, as `levels.supported` reads it: asked of the one library that runs on any; 0 without it."""
    return 0 if portable is None else int(portable.simnmt_features())


def _widest(asked: str | None, named: str, compiled: Callable[[], Compiled]) -> NativeLibrary | None:
    if asked == levels.NONE:
        return None
    found = compiled()
    paths = dict(found.paths)
    portable = _opened(paths.get("portable"), found.sources)
    features = processor_features(portable)
    while (level := levels.choose(features, paths, asked, named=named)) is not None:
        cdll = portable if level == "portable" else _opened(paths[level], found.sources)
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
        _refuse([path], "cannot be loaded")
        return None
    if cdll.simnmt_sources() != sources:
        _refuse([path], "were compiled from other sources")
        return None
    return cdll


def _refuse(paths: list[Path], why: str) -> None:
    if paths:
        names = ", ".join(path.name for path in paths)
        warnings.warn(f"the native kernels {names} {why}: {REMEDY}", stacklevel=5)
