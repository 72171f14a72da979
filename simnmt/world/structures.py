"""The structures that the C in `compiled/` reads, as `settings.h` declares them, and the library itself."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.compile import WORLD_LIBRARY, c_declarations

NUMBER, REAL, POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
c: Any = c_declarations(WORLD_LIBRARY.folder / "settings.h")
"""The structures and numbers of `settings.h` by name."""
DecideCallback = ctypes.CFUNCTYPE(NUMBER, NUMBER)


class UncompiledError(Exception):
    """A run that the compiled engine does not cover; the message names the cause."""


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the compiled world; None if it was not compiled, or from other sources, which a warning says."""
    return WORLD_LIBRARY.open()


class PinnedMemory(list[Any]):
    """Arrays and structures that the C points to, which must live as long as it reads them."""

    def address(self, column: NDArray[Any] | None, dtype: Any = np.float64) -> int | None:
        """Return the address of a column's numbers."""
        if column is None:
            return None
        contiguous = np.ascontiguousarray(column, dtype)
        self.append(contiguous)
        return contiguous.ctypes.data

    def addresses(self, columns: Sequence[NDArray[Any] | None], dtype: Any = np.float64) -> int:
        """Return the address of the addresses of columns."""
        return self.array(POINTER, [self.address(column, dtype) for column in columns])

    def tables(self, tables: Sequence[Sequence[NDArray[Any]] | None]) -> int:
        """Return the address of the addresses of tables of columns."""
        return self.array(POINTER, [None if columns is None else self.addresses(columns) for columns in tables])

    def array(self, kind: Any, items: Sequence[Any]) -> int:
        """Return the address of an array of structures or numbers."""
        array = (kind * len(items))(*items)
        self.append(array)
        return ctypes.addressof(array)

    def structure(self, structure: Any) -> int:
        """Return the address of a structure."""
        self.append(structure)
        return ctypes.addressof(structure)
