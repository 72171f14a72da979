"""What a batched server's work takes, as it is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol


class ServerCost(Protocol):
    """How long a server's work takes; `simnmt.costs.DecodingCost` is one."""

    def steps_at(self, batch: int) -> Callable[[int, int], float]:
        """Seconds of the steps at positions first..last, both included, of so many sentences; 0 where last < first.

        The position of a step is that of the sentence that has been active longest.
        """
        ...

    def encode_s(self, src_lens: Sequence[int]) -> float:
        """Seconds of encoding sentences of so many tokens together."""
        ...

    def refill_s(self, joining: int) -> float:
        """Seconds until so many encoded sentences have joined."""
        ...


StepsTake = Callable[[int, int], float]
"""Seconds of the steps at positions first..last, both included, of one batch size: a closed form."""


class StepTimes:
    """The closed forms by batch size, each made once."""

    __slots__ = ("_cost", "_of")

    def __init__(self, cost: ServerCost) -> None:
        self._cost = cost
        self._of: dict[int, StepsTake] = {}

    def of(self, batch: int) -> StepsTake:
        """Of a batch of so many sentences."""
        found = self._of.get(batch)
        if found is None:
            found = self._of[batch] = self._cost.steps_at(batch)
        return found
