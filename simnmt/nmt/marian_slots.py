"""Slots of MarianMT."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from simnmt.nmt.marian_state import MarianMemory, MarianState

Step = Callable[[MarianState, Tensor], tuple[Tensor, MarianState]]


class MarianSlots:
    """See `Slots`."""

    def __init__(self, step: Step, capacity_rows: int) -> None:
        self._step, self._capacity = step, capacity_rows

    @property
    def rows(self) -> int:
        """See `Slots`."""
        raise NotImplementedError

    def join(self, memory: MarianMemory, sentences: Sequence[int], beam: int) -> None:
        """See `Slots`."""
        raise NotImplementedError

    def leave(self, slots: Sequence[int], beam: int) -> list[int]:
        """See `Slots`."""
        raise NotImplementedError

    def step(self, tokens: Tensor) -> Tensor:
        """See `Slots`."""
        raise NotImplementedError

    def reorder(self, rows: Tensor) -> None:
        """See `Slots`."""
        raise NotImplementedError
