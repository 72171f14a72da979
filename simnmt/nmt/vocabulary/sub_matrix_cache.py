"""Copies of the weights of active columns that come again, as many as a budget of memory holds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from torch import Tensor

from simnmt.kernels.gathered import SubMatrix
from simnmt.nmt.errors import NmtError

_MOST_COUNTED = 4_096
"""Keys whose uses are remembered without a copy, by their hashes: some hundred kilobytes beside the budget."""


class SubMatrixCache:
    """The copies used last, up to `budget_bytes` of them together; of one weight at a time. Threads may share it.

    A copy is made once `pays(uses)` says so, of a key that was asked for `uses` times since it last had one: that it will be as
    often again is the best guess there is.
    """

    def __init__(self, budget_bytes: int) -> None:
        """Raises `NmtError` for less than 0; 0 keeps nothing."""
        if budget_bytes < 0:
            raise NmtError(f"a cache of {budget_bytes:,} bytes", remedy="give 0 or more")
        self.budget_bytes = budget_bytes
        self.hits = self.misses = self.made = 0
        """Times that a copy was there, that none was, and that one was made."""
        self.nbytes = 0
        """Bytes that the copies hold."""
        self._kept: OrderedDict[Hashable, SubMatrix] = OrderedDict()
        self._uses: OrderedDict[int, int] = OrderedDict()
        self._weight: Tensor | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, weight: Tensor, columns: Tensor, key: Hashable, pays: Callable[[int], bool]) -> SubMatrix | None:
        """The copy of these columns, made now where it pays; None where there is none. Equal keys have equal columns."""
        with self._lock:
            self._belong_to(weight)
            if (found := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                self.hits += 1
                return found
            self.misses += 1
            uses = self._uses.pop(hash(key), 0) + 1
            needed = SubMatrix.bytes_of(weight, len(columns))
            if needed > self.budget_bytes:
                return None
            if not pays(uses):
                self._uses[hash(key)] = uses
                if len(self._uses) > _MOST_COUNTED:
                    self._uses.popitem(last=False)
                return None
            while self._kept and self.nbytes + needed > self.budget_bytes:
                _, oldest = self._kept.popitem(last=False)
                self.nbytes -= oldest.nbytes
            copy = SubMatrix.of(weight, columns)
            self._kept[key] = copy
            self.nbytes += copy.nbytes
            self.made += 1
            return copy

    def __str__(self) -> str:
        asked = self.hits + self.misses
        return (
            f"copies of columns served {self.hits:,} of {asked:,} products: {self.made:,} made, {len(self):,} kept in "
            f"{self.nbytes / 1e6:.1f} of {self.budget_bytes / 1e6:.1f} MB"
        )

    def _belong_to(self, weight: Tensor) -> None:
        """Give the copies of another weight back; the counts stay."""
        if self._weight is None or _place(self._weight) != _place(weight):
            self._kept.clear()
            self._uses.clear()
            self.nbytes, self._weight = 0, weight.detach()


def _place(weight: Tensor) -> tuple[object, ...]:
    return weight.data_ptr(), weight.dtype, weight.shape
