"""The compiled kernels, loaded: the widest level that this processor runs, or none where none was compiled."""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from collections.abc import Iterator
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
    return load(os.environ.get(levels.VARIABLE))


def load(asked: str | None = None, native: Path = NATIVE) -> NativeLibrary | None:
    """As `library`, for the level asked for instead of the variable's; loaded anew."""
    if asked == levels.NONE:
        return None
    refused: dict[str, list[str]] = {}
    opened = dict(_opened(native, refused))
    for why, names in refused.items():
        warnings.warn(f"the native kernels {', '.join(names)} {why}: {REMEDY}", stacklevel=3)
    level = levels.choose(processor_features(opened.get("portable")), opened, asked)
    return None if level is None else NativeLibrary(level, opened[level])


def processor_features(portable: ctypes.CDLL | None) -> int:
    """What the processor has, as `levels.supported` reads it: asked of the one library that runs on any; 0 without it."""
    return 0 if portable is None else int(portable.simnmt_features())


def _opened(native: Path, refused: dict[str, list[str]]) -> Iterator[tuple[str, ctypes.CDLL]]:
    """The levels' libraries that are there and were made from the sources beside them; the names of others go to `refused`."""
    sources = sources_hash(native).encode()
    for level in levels.LEVELS:
        path = library_path(level, native)
        if not path.is_file():
            continue
        try:
            cdll = ctypes.CDLL(str(path))
            cdll.simnmt_sources.restype = ctypes.c_char_p
        except (OSError, AttributeError):
            refused.setdefault("cannot be loaded", []).append(path.name)
            continue
        if cdll.simnmt_sources() == sources:
            yield level, cdll
        else:
            refused.setdefault("were compiled from other sources", []).append(path.name)
