"""Batchers that users bring: which waiting sentences are encoded and which join, with each move checked.

A batcher has `arrive(request, src_len, now_s)` and `next(active, now_s, longest)`, which returns `Encode`, `Join` or None as
`Batcher.next` does, and an attribute `size`, the most sentences that are decoded together. It may have `threshold` (it is
asked when at most so many are active), `due_s` and `close()`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf, isnan
from numbers import Real
from typing import Any

from simnmt.base.errors import short_repr
from simnmt.base.extension import FAULTS, Extended, Extension, ExtensionError, describe_fault
from simnmt.batching.batcher import Batcher, Batching, Encode, Join


@dataclass(frozen=True, slots=True)
class CustomBatching(Batching):
    """The settings of a user's batcher, from which each server gets its own."""

    extension: Extension = field(kw_only=True)

    def batcher(self) -> CheckedBatcher:
        """Return a new batcher. Raises `ExtensionError`."""
        return CheckedBatcher(self.extension.make(), self.extension, self)


class CustomBatchingConfiguration(Extended):
    """The configuration of a batcher that a user brings."""

    size: int
    threshold: int

    @property
    def batching(self) -> CustomBatching:
        """The settings of the batcher."""
        return CustomBatching(self.size, self.threshold, extension=self.extension)


def custom_batching(extension: Extension) -> CustomBatchingConfiguration:
    """Return the configuration of a user's batcher. Raises `ExtensionError` for a class that makes no moves."""
    made, label = extension.make(), extension.label
    if not all(callable(getattr(made, method, None)) for method in ("arrive", "next")):
        what = f"{label} has no methods arrive and next, so it is no batcher"
        remedy = "write a class with arrive(request, src_len, now_s), next(active, now_s, longest) and the attribute size"
        raise ExtensionError(what, remedy=remedy)
    settings = made.batching if isinstance(made, Batcher) else made
    size = getattr(settings, "size", None)
    threshold = getattr(settings, "threshold", size - 1 if isinstance(size, int) else None)
    if type(size) is not int or type(threshold) is not int or not 0 <= threshold < size:
        what = f"{label} has the size {short_repr(size)} and the threshold {short_repr(threshold)}"
        raise ExtensionError(what, remedy="give a size of at least 1, and a threshold below it or none")
    return CustomBatchingConfiguration(kind=label, extension=extension, size=size, threshold=threshold)


class CheckedBatcher(Batcher):
    """A user's batcher whose moves are checked, so that no sentence is lost or waits for ever."""

    __slots__ = ("_closed", "_encoded", "_extension", "_unencoded", "_users")

    def __init__(self, batcher: Any, extension: Extension, batching: Batching) -> None:
        super().__init__(batching)
        self._users, self._extension = batcher, extension
        self._unencoded, self._encoded = set[int](), set[int]()
        """Sentences that are not encoded, and encoded ones that have not joined."""
        self._closed = False
        """True if no sentence will arrive for now."""

    @property
    def waiting(self) -> int:
        """Number of sentences that have not joined."""
        return len(self._unencoded) + len(self._encoded)

    @property
    def queued(self) -> int:
        """Number of sentences that are not encoded."""
        return len(self._unencoded)

    @property
    def due_s(self) -> float:
        """When the batcher wants to be asked again; infinity if it does not say."""
        due_s: Any = getattr(self._users, "due_s", inf)
        if not isinstance(due_s, Real) or isnan(due_s):
            raise self._error(f"due_s is {short_repr(due_s)}, which is no time", "set it to seconds, or to math.inf for never")
        return float(due_s)

    def arrive(self, request: int, src_len: int, now_s: float, rank: int = 0) -> None:
        """Add a sentence; a user's batcher takes those of all classes alike."""
        self._unencoded.add(request)
        self._closed = False
        self._called("arrive", request, src_len, now_s)

    def close(self) -> None:
        """Say that no sentence will arrive for now."""
        self._closed = True
        if hasattr(self._users, "close"):
            self._called("close")

    def next(self, active: int, now_s: float, longest: int = 0) -> Encode | Join | None:
        """Return the batcher's move. Raises `ExtensionError` for a move that cannot be made, and for waiting without an end."""
        move = self._called("next", active, now_s, longest)
        if isinstance(move, Encode):
            requests = self._moved(move.requests, self._unencoded, "waiting to be encoded")
            self._encoded.update(requests)
            return Encode(requests)
        if isinstance(move, Join):
            requests = self._moved(move.requests, self._encoded, "encoded")
            if active + len(requests) > self.batching.size:
                what = f"lets {len(requests)} join {active} active sentences, with a size of {self.batching.size}"
                raise self._error(what)
            return Join(requests)
        if move is not None:
            raise self._error(f"next returned {short_repr(move)}", "return Encode, Join or None")
        if self.waiting and not active:
            if self._closed:
                what = f"next returned nothing, but {self.waiting} sentences wait, none is active and no more will come"
                raise self._error(what, "return Encode or Join after close()")
            if self.due_s <= now_s:
                raise self._error(f"next returned nothing at {now_s:g} s, when it was due", "return a move, or a later due_s")
        return None

    def _moved(self, requests: Iterable[int], source: set[int], state: str) -> tuple[int, ...]:
        """Take the sentences of a move out of those that are in this state."""
        numbers = tuple(requests) if isinstance(requests, Iterable) else ()
        if not (numbers and len(set(numbers)) == len(numbers) and source.issuperset(numbers)):
            what = f"moves {short_repr(requests)}, not all of which are sentences that are {state}"
            raise self._error(what, "name each once, as in Encode((3, 4))")
        source.difference_update(numbers)
        return numbers

    def _called(self, method: str, *arguments: object) -> Any:
        try:
            return getattr(self._users, method)(*arguments)
        except FAULTS as error:
            raise self._error(f"{method} raised {describe_fault(error)}") from error

    def _error(self, what: str, remedy: str | None = None) -> ExtensionError:
        return self._extension.fault(f"batcher {self._extension.label}: {what}", remedy)
