"""A decoder of whole batches, for engines that cannot refill a running batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simnmt.batching import Batcher, Batching, Encode, Join
from simnmt.nmt.engine import DecodeRequest, Hypothesis
from simnmt.nmt.errors import NmtError

MOST_TARGET_TOKENS = 200
"""Most tokens of a translation without a given limit."""


class WholeBatchDecoder:
    """A decoder driven by a batcher like `BatchedDecoder`, whose batches run from beginning to end in one call."""

    active = 0
    """No sentence is active between two moves."""

    def __init__(self, decode: Callable[[Sequence[DecodeRequest]], list[Hypothesis]], batching: Batching) -> None:
        """`decode`: translates a batch. Raises `NmtError` for batches that are refilled."""
        if batching.threshold:
            remedy = "take mini or maxi, or the torch backend"
            raise NmtError("this engine does not refill a running batch: no top-up batching", remedy=remedy)
        self.batcher, self._decode = Batcher(batching), decode
        self._waiting: dict[int, DecodeRequest] = {}

    @property
    def busy(self) -> bool:
        """Whether a sentence waits."""
        return bool(self._waiting)

    def arrive(self, key: int, request: DecodeRequest, now_s: float = 0.0) -> None:
        """Add a sentence to those that wait."""
        self._waiting[key] = request
        self.batcher.arrive(key, len(request.source), now_s)

    def withdraw(self, key: int) -> bool:
        """Remove a sentence that no move has taken yet; return whether there was one."""
        if not self.batcher.withdraw(key):
            return False
        del self._waiting[key]
        return True

    def holds(self, key: int) -> bool:
        """Return whether a sentence waits."""
        return key in self._waiting

    def act(self, now_s: float = 0.0) -> tuple[Encode | Join | None, list[tuple[int, Hypothesis]]]:
        """Make the batcher's next move; return it, with the finished sentences if it was a batch.

        Raises `OutOfMemory` and the errors of the engine, after which the sentences of the batch are gone and others go on.
        """
        move = self.batcher.next(0, now_s)
        if not isinstance(move, Join):
            return move, []
        requests = [self._waiting.pop(key) for key in move.requests]
        return move, list(zip(move.requests, self._decode(requests), strict=True))
