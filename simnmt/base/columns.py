"""Columns: one number per request, long ones in files, so that memory does not grow with a run."""

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
    """A number for each request, in memory or in a file; reading rows returns a new array.

    The file may be removed: its content stays as long as the column exists. A pickled column holds the name of its file, or
    the numbers as an array if it has none.
    """

    __slots__ = ("_content", "_dtype", "_path")

    FILES_FROM_BYTES = 1 << 18
    """Size from which a column is in a file. A process may map only 65,530 files on Linux, and many small ones take long."""

    def __init__(self, content: bytes | bytearray | mmap.mmap, dtype: np.dtype[Any], path: str | None = None) -> None:
        self._content, self._dtype, self._path = content, dtype, path

    @classmethod
    def of_file(cls, path: str, dtype: np.dtype[Any]) -> Column:
        """Return the column that a file holds. Raises `OSError`."""
        with Path(path).open("rb") as file:
            if os.fstat(file.fileno()).st_size < cls.FILES_FROM_BYTES:  # an empty file cannot be mapped
                return cls(file.read(), dtype, path)
            return cls(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype, path)

    def __len__(self) -> int:
        return len(self._content) // self._dtype.itemsize

    def __getitem__(self, rows: Rows) -> Array:
        self._advise("MADV_NORMAL" if isinstance(rows, slice) else "MADV_RANDOM")
        values = np.array(np.frombuffer(self._content, self._dtype)[rows])
        self._release()
        return values

    def numbers_below(self, values: Array) -> NDArray[np.int64]:
        """Return how many numbers of this column, which ascends, are less than each value; same shape."""
        below = np.searchsorted(np.frombuffer(self._content, self._dtype), values, side="left")
        self._release()
        return below

    def _release(self) -> None:
        # Pages that were read count as memory of this process until it gives them back.
        self._advise("MADV_DONTNEED")

    def _advise(self, advice: str) -> None:
        # Where rows lie apart, Linux would map 64 KB about each.
        if isinstance(self._content, mmap.mmap) and hasattr(mmap, advice):
            self._content.madvise(getattr(mmap, advice))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self[:].astype(dtype or self._dtype, copy=False)

    def __reduce__(self) -> Any:
        if self._path is None or not Path(self._path).exists():
            return self[:].__reduce__()
        return (Column.of_file, (self._path, self._dtype))


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


class Computed:
    """A column whose numbers follow from the numbers of the rows: `of` maps these to values, both of shape (rows,)."""

    __slots__ = ("_count", "_of")

    def __init__(self, count: int, of: Callable[[Array], Array]) -> None:
        self._count, self._of = count, of

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, rows: Rows) -> Array:
        return self._of(np.arange(*rows.indices(self._count)) if isinstance(rows, slice) else rows)


AnyColumn = Array | Column | Reordered | Computed
FILES_FROM_ROWS = 1 << 20
"""Rows from which the columns of a log are in files too, whatever their size (`kept_columns`, `ColumnFile`)."""


def _reserve(file: IO[bytes], size: int) -> None:
    """Give a new file its size and the room on its disk; without room, writing into a mapped page would end the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        for _ in range(0, size, 1 << 20):
            file.write(bytes(1 << 20))
        file.truncate(size)


class ColumnFile:
    """A column that others write in place, in a file that is as long as the column from the start.

    `array` is the content of the file. Pages that were written count as memory of this process until `release`.
    """

    __slots__ = ("_path", "array")

    def __init__(self, path: Path, dtype: Any, count: int, value: float = 0.0) -> None:
        """Create the file; every number is `value`. Raises `OSError` without room for it."""
        self._path = path
        with path.open("xb") as file:
            _reserve(file, max(count * np.dtype(dtype).itemsize, 1))
        self.array: np.memmap[Any, Any] = np.memmap(path, dtype, "r+", shape=(count,))
        if value != 0.0:
            for rows in blocks_of(slice(0, count)):
                self.array[rows] = value
                self.release()

    def release(self) -> None:
        """Give the memory of the pages back; the file keeps their content."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self.array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]

    def column(self, dtype: Any = None) -> Column:
        """Return the finished column, read as another type of the same size if one is given."""
        return Column.of_file(str(self._path), np.dtype(dtype or self.array.dtype))


def collect_columns(folder: Path, blocks: Iterable[Mapping[str, Array]]) -> dict[str, Column]:
    """Return columns by name from their consecutive blocks: long ones in files of `folder`, which is made for the first one.

    Raises `OSError`.

    Every block has the same names.
    """
    in_memory: dict[str, bytearray] = {}
    files: dict[str, IO[bytes]] = {}
    dtypes: dict[str, np.dtype[Any]] = {}
    with ExitStack() as opened:
        for block in blocks:
            for name, part in block.items():
                dtypes.setdefault(name, part.dtype)
                written = np.ascontiguousarray(part).data
                if name in files:
                    files[name].write(written)
                    continue
                held = in_memory.setdefault(name, bytearray())
                if len(held) + written.nbytes < Column.FILES_FROM_BYTES:
                    held += written
                    continue
                folder.mkdir(parents=True, exist_ok=True)
                files[name] = opened.enter_context((folder / name).open("wb"))
                files[name].write(in_memory.pop(name))
                files[name].write(written)
    return {
        name: Column(in_memory[name], dtype) if name in in_memory else Column.of_file(str(folder / name), dtype)
        for name, dtype in dtypes.items()
    }


def assemble(part: Callable[[slice], Array], rows: slice) -> Array:
    """Return the values that `part` gives for `rows`, computed block by block, as one array."""
    whole: Array | None = None
    filled = 0
    for block in blocks_of(rows):
        values = part(block)
        if whole is None:
            whole = np.empty(size_of(rows), values.dtype)
        whole[filled : filled + len(values)] = values
        filled += len(values)
    return np.empty(0) if whole is None else whole


def size_of(rows: slice) -> int:
    """Return the number of rows in a slice with a start and a stop."""
    return len(range(rows.start, rows.stop, rows.step or 1))


def mean_of(column: AnyColumn) -> float:
    """Return the mean of a column of at least one number."""
    return float(sum(column[rows].sum(dtype=np.float64) for rows in blocks_of(slice(0, len(column))))) / len(column)


def numbers_below(column: AnyColumn, values: Array) -> NDArray[np.int64]:
    """Return how many numbers of a column, which ascends, are less than each value; same shape."""
    return column.numbers_below(values) if isinstance(column, Column) else np.searchsorted(column[:], values, side="left")


def are_kept_in_files(count: int) -> bool:
    """Return whether the columns of a log of so many rows are in files."""
    return count >= FILES_FROM_ROWS


def kept_columns(folder: Path | None, count: int, part: Callable[[slice], Mapping[str, Array]]) -> dict[str, AnyColumn]:
    """Return the columns that `part` gives for consecutive rows, computed block by block.

    They are arrays, or from `FILES_FROM_ROWS` rows on columns in files of `folder`, if one is given. Raises `OSError`.
    """
    blocks = (part(rows) for rows in blocks_of(slice(0, count)))
    if folder is not None and are_kept_in_files(count):
        return dict(collect_columns(folder, blocks))
    parts = list(blocks) or [part(slice(0, 0))]
    return {name: np.concatenate([of_block[name] for of_block in parts]) for name in parts[0]}
