"""The compiled kernels, loaded: the widest level that this processor runs, or none where none was compiled."""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from dataclasses import dataclass

from simnmt.kernels import levels
from simnmt.kernels.compile import library_path, sources_hash

REMEDY = "run `python -m simnmt.kernels.compile`"


@dataclass(frozen=True, slots=True)
class NativeLibrary:
    """One compiled level, open. Who uses a function of it declares its types beside the use."""

    level: str
    cdll: ctypes.CDLL


@functools.cache
def library() -> NativeLibrary | None:
    """The native kernels at the widest level that may run here; None without any, and every kernel then takes its fallback.

    Chosen once a process: by the processor, what was compiled, and the variable SIMNMT_KERNELS. Warns where a library is there
    but was made from other sources. Raises `KernelError` for a level that SIMNMT_KERNELS misspells.
    """
    return load(os.environ.get(levels.VARIABLE))


def load(asked: str | None = None) -> NativeLibrary | None:
    """As `library`, for the level asked for instead of the variable's; loaded anew."""
    if asked == "none":
        return None
    opened = {level: cdll for level in levels.LEVELS if (cdll := _opened(level)) is not None}
    features = processor_features(opened.get("portable"))
    level = levels.choose(features, opened, asked)
    return None if level is None else NativeLibrary(level, opened[level])


def processor_features(portable: ctypes.CDLL | None) -> int:
    """What the processor has, as `levels.supported` reads it: asked of the one library that runs on any; 0 without it."""
    return 0 if portable is None else int(portable.simnmt_features())


def _opened(level: str) -> ctypes.CDLL | None:
    path = library_path(level)
    if not path.is_file():
        return None
    try:
        cdll = ctypes.CDLL(str(path))
    except OSError as error:
        warnings.warn(
            f"the native kernels {path.name} cannot be loaded, so they are not used: {error} ({REMEDY})", stacklevel=5
        )
        return None
    cdll.simnmt_sources.restype = ctypes.c_char_p
    if cdll.simnmt_sources().decode() != sources_hash():
        warnings.warn(
            f"the native kernels {path.name} were compiled from other sources, so they are not used ({REMEDY})", stacklevel=5
        )
        return None
    return cdll
