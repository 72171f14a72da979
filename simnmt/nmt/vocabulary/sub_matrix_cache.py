"""Copies of the weights of active columns that come again, as many as a budget of memory holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

from torch import Tensor

from simnmt.kernels.gathered import SubMatrix
from simnmt.nmt.errors import NmtError

_MOST_COUNTED = 65_536
"""Keys whose uses are remembered without a copy."""


class SubMatrixCache:
    """The copies used last, up to `budget_bytes` of them together; of one weight at a time.

    A copy is made once `pays(uses)` says so, of a key that was asked for `uses` times: that it will be as often again is the
    best guess there is.
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
        self._uses: OrderedDict[Hashable, int] = OrderedDict()
        self._weight: Tensor | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, weight: Tensor, columns: Tensor, key: Hashable, pays: Callable[[int], bool]) -> SubMatrix | None:
        """The copy of these columns, made now where it pays; None where there is none. Equal keys have equal columns."""
        before = self._weight
        if before is None or (before.data_ptr(), before.dtype) != (weight.data_ptr(), weight.dtype):
            self.clear()
            self._weight = weight.detach()
        if (found := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            self.hits += 1
            return found
        self.misses += 1
        uses = self._uses.pop(key, 0) + 1
        self._uses[key] = uses
        if len(self._uses) > _MOST_COUNTED:
            self._uses.popitem(last=False)
        needed = len(columns) * weight.shape[1] * weight.element_size()
        if needed > self.budget_bytes or not pays(uses):
            return None
        self._make_room(needed)
        copy = SubMatrix.of(weight, columns)
        self._make_room(copy.nbytes)  # its layout may take more
        if copy.nbytes <= self.budget_bytes:
            self._kept[key] = copy
            self.nbytes += copy.nbytes
            self.made += 1
        return copy

    def clear(self) -> None:
        """Give the copies' memory back; the counts stay."""
        self._kept.clear()
        self._uses.clear()
        self.nbytes, self._weight = 0, None

    def _make_room(self, needed: int) -> None:
        while self._kept and self.nbytes + needed > self.budget_bytes:
            _, oldest = self._kept.popitem(last=False)
            self.nbytes -= oldest.nbytes
