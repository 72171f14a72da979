"""Columns in files: one number per request, written and read block by block, so that memory does not grow with a run."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.random_streams import blocks_of

Array = NDArray[Any]
Rows = slice | NDArray[np.int64]
"""A slice of requests, or their indices."""


class Column:
    """A number for each request, in a file; reading rows returns a new array.

    The file may be removed: its content stays as long as the column exists. A pickled column holds the name of its file, or
    the numbers as an array if the file was removed.
    """

    __slots__ = ("_content", "_dtype", "_path")

    MAPPED_FROM = 1 << 18
    """Bytes of the smallest file that is mapped, not read: a process may have only 65,530 maps on Linux."""

    def __init__(self, path: str, dtype: np.dtype[Any]) -> None:
        self._path, self._dtype = path, dtype
        self._content: bytes | mmap.mmap
        with Path(path).open("rb") as file:
            if os.fstat(file.fileno()).st_size < self.MAPPED_FROM:
                self._content = file.read()
            else:
                self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._content) // self._dtype.itemsize

    def __getitem__(self, rows: Rows) -> Array:
        values = np.array(np.frombuffer(self._content, self._dtype)[rows])
        if isinstance(self._content, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            # Pages that were read count as memory of this process until it gives them back.
            self._content.madvise(mmap.MADV_DONTNEED)
        return values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self[:].astype(dtype or self._dtype, copy=False)

    def __reduce__(self) -> Any:
        return (Column, (self._path, self._dtype)) if Path(self._path).exists() else self[:].__reduce__()


class Reordered:
    """A column in another order; row i is row `order[i]` of the column."""

    __slots__ = ("_column", "_order")

    def __init__(self, column: AnyColumn, order: NDArray[np.int64]) -> None:
        self._column, self._order = column, order

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, rows: Rows) -> Array:
        values: Array = self._column[self._order[rows]]
        return values


AnyColumn = Array | Column | Reordered


def write_columns(folder: Path, blocks: Iterable[Mapping[str, Array]]) -> dict[str, Column]:
    """Write consecutive blocks of columns to files in `folder` and return the columns by name. Raises `OSError`.

    Every block has the same names.
    """
    files: dict[str, IO[bytes]] = {}
    dtypes: dict[str, np.dtype[Any]] = {}
    with ExitStack() as opened:
        for block in blocks:
            for name, part in block.items():
                if name not in files:
                    files[name] = opened.enter_context((folder / name).open("wb"))
                    dtypes[name] = part.dtype
                files[name].write(np.ascontiguousarray(part).data)
    return {name: Column(str(folder / name), dtype) for name, dtype in dtypes.items()}


def assemble(part: Callable[[slice], Array], rows: slice) -> Array:
    """Return the values that `part` gives for `rows`, computed block by block, as one array."""
    whole: Array | None = None
    for block in blocks_of(rows):
        values = part(block)
        if whole is None:
            whole = np.empty(rows.stop - rows.start, values.dtype)
        whole[block.start - rows.start : block.stop - rows.start] = values
    return np.empty(0) if whole is None else whole
