"""A plugin of pytest: kernels and world run as compiled for aarch64, in the folder SIMNMT_AARCH64_FOLDER."""

from __future__ import annotations

import os
from pathlib import Path

from simnmt.base.compile import KERNEL_LIBRARY, WORLD_LIBRARY, Library
from simnmt.kernels import native_library
from tests.aarch64.emulated_library import cross_compiled, opened

FOLDER = Path(os.environ["SIMNMT_AARCH64_FOLDER"])
_compiled = Library.compiled
_emulated = {library.name: cross_compiled(library, FOLDER / library.name) for library in (KERNEL_LIBRARY, WORLD_LIBRARY)}

Library.compiled = lambda self: _compiled(_emulated[self.name])  # type: ignore[method-assign]
Library.opened = opened  # type: ignore[method-assign,assignment]
# Threads of torch would call an address of another process; those of Python call one function after another.
native_library._openmp_parallel = lambda: None  # type: ignore[assignment]
