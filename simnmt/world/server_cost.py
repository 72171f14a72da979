"""What a batched server's work takes, as it is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
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


FirstSteps = Callable[[int], float]
"""Seconds of the first so many steps of one batch size, from position 0."""


class StepTimes:
    """Per batch size the closed form, remembered: a second call with the same number costs a tenth of the first."""

    __slots__ = ("_cost", "_of")

    def __init__(self, cost: ServerCost) -> None:
        self._cost = cost
        self._of: dict[int, FirstSteps] = {}

    def of(self, batch: int) -> FirstSteps:
        """Of a batch of so many sentences."""
        found = self._of.get(batch)
        if found is None:
            take_s = self._cost.steps_at(batch)
            found = self._of[batch] = cache(lambda steps: take_s(0, steps - 1))
        return found
