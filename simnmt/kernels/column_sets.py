"""Sets of vocabulary columns, one after another, and the union of those that a step has chosen (FVP-04, FVP-06)."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simnmt.kernels.errors import KernelError
from simnmt.kernels.gathered_arguments import ANY, check_tensor, outside
from simnmt.kernels.native_columns import functions_at

__all__ = ["ColumnSets", "Union"]


class Union(NamedTuple):
    """The columns of some sets together."""

    columns: Tensor
    """int32, ascending."""
    sets: tuple[int, ...]
    """Those sets, ascending, each once: equal ones have equal columns."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnSets:
    """r sets of columns of one vocabulary; set i is `columns[starts[i]:starts[i + 1]]`.

    Raises `KernelError` for tensors of other types, for a set that is empty or not ascending, and for a column that the
    vocabulary has not.
    """

    starts: Tensor
    """int64 [r + 1]: 0, then where each set ends. Always on the CPU."""
    columns: Tensor
    """int32 [n], ascending within each set. On any device: unions are made there."""
    vocab: int
    level: str | None = None
    """Widest of the native kernels to be used, as the variable SIMNMT_KERNELS says it; None for the process's own."""
    _flags: Tensor = field(init=False, repr=False)
    _lock: threading.Lock = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_tensor("starts", self.starts, (torch.int64,), (ANY,))
        check_tensor("columns", self.columns, (torch.int32,), (ANY,))
        for name in ("starts", "columns"):
            object.__setattr__(self, name, _owned(getattr(self, name)))
        object.__setattr__(self, "starts", self.starts.cpu())
        self._check()
        with torch.inference_mode(False):  # else they could be written to in that mode alone
            object.__setattr__(self, "_flags", torch.zeros(self.vocab, dtype=torch.uint8, device=self.columns.device))
        object.__setattr__(self, "_lock", threading.Lock())

    def _check(self) -> None:
        starts, columns = self.starts, self.columns
        if len(starts) < 2 or int(starts[0]) != 0 or int(starts[-1]) != columns.numel():
            raise KernelError(f"starts of {len(starts) - 1} sets do not run from 0 to the {columns.numel()} columns")
        sizes = self.starts.diff()
        if not bool((sizes > 0).all()):
            raise KernelError(f"set {int((sizes <= 0).nonzero()[0])} of {len(self)} is empty")
        least, most = int(columns.min()), int(columns.max())
        if least < 0 or most >= self.vocab:
            raise outside(least if least < 0 else most, self.vocab)
        ends = torch.zeros(columns.numel(), dtype=torch.bool, device=columns.device)
        ends[self.starts[1:].to(columns.device) - 1] = True
        fallen = (columns[1:] <= columns[:-1]) & ~ends[:-1]
        if bool(fallen.any()):
            at = int(fallen.nonzero()[0])
            culprit = int(torch.searchsorted(self.starts, at, right=True)) - 1
            raise KernelError(f"set {culprit}: its columns are not ascending, each once")

    def __len__(self) -> int:
        return len(self.starts) - 1

    def of(self, index: int) -> Tensor:
        """int32: one set's own columns, no copy. Raises `KernelError` for a set that there is not."""
        if not 0 <= index < len(self):
            raise KernelError(f"set {index} is not among the {len(self)}")
        return self.columns[int(self.starts[index]) : int(self.starts[index + 1])]

    def sizes(self) -> Tensor:
        """int64 [r]: columns of each set."""
        return self.starts.diff()

    def union(self, chosen: Tensor) -> Tensor:
        """int32, ascending: the columns of all sets in `chosen`, int64 [k], each set as often as it likes (FVP-06).

        Empty for k = 0; of one set alone its own slice, without a copy. Raises `KernelError` for a set that there is not.
        """
        return self.united(chosen).columns

    def united(self, chosen: Tensor) -> Union:
        """As `union`, with the sets that it is of."""
        check_tensor("chosen", chosen, (torch.int64,), (ANY,))
        distinct = sorted(set(chosen.tolist()))
        if not distinct:
            return Union(self.columns[:0], ())
        first, last = distinct[0], distinct[-1]
        if first < 0 or last >= len(self):
            raise KernelError(f"set {first if first < 0 else last} is not among the {len(self)}")
        return Union(self.of(first) if first == last else self._union_of(np.array(distinct)), tuple(distinct))

    def _union_of(self, distinct: NDArray[np.int64]) -> Tensor:
        starts = self.starts.numpy()
        firsts = starts[distinct]
        sizes = starts[distinct + 1] - firsts
        with self._lock:  # the flags are this object's: two threads would mark each other's
            native = functions_at(self.level) if self.columns.is_cpu else None
            if native is None:
                return self._union_by_torch(torch.from_numpy(firsts), torch.from_numpy(sizes))
            return self._union_by(native, distinct, int(sizes.sum()))

    def _union_by(self, native: ctypes.CDLL, distinct: NDArray[np.int64], indices: int) -> Tensor:
        found = torch.empty(min(self.vocab, indices), dtype=torch.int32)
        count = native.simnmt_union(
            distinct.ctypes.data,
            len(distinct),
            self.starts.data_ptr(),
            self.columns.data_ptr(),
            self._flags.data_ptr(),
            self.vocab,
            found.data_ptr(),
        )
        return found[:count]

    def _union_by_torch(self, firsts: Tensor, sizes: Tensor) -> Tensor:
        """All sets at once, so that a GPU is not called for each."""
        indices, ends = int(sizes.sum()), sizes.cumsum(0)
        offsets, sizes = (each.to(self.columns.device) for each in (firsts - ends + sizes, sizes))
        places = offsets.repeat_interleave(sizes, output_size=indices)
        places += torch.arange(indices, device=places.device)
        self._flags[self.columns[places]] = 1
        found = self._flags.nonzero()[:, 0].to(torch.int32)
        self._flags.zero_()
        return found

    @property
    def nbytes(self) -> int:
        """Bytes allocated: starts, columns and the flags (FVP-12)."""
        return sum(each.untyped_storage().nbytes() for each in (self.starts, self.columns, self._flags))


def _owned(tensor: Tensor) -> Tensor:
    """The tensor, or a copy where it is a view of something larger, which would stay in memory with it."""
    own = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return tensor if own else tensor.clone()
