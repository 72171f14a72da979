"""What a batched server's work takes, as it is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol


class ServerCost(Protocol):
    """How long a server's work takes; `simnmt.costs.DecodingCost` is one."""

    @property
    def leave_s(self) -> float:
        """Seconds added to a step at whose end some are done, who are done after it."""
        ...

    def steps_at(self, batch: int) -> Callable[[int, int], float]:
        """Seconds of the steps at positions first..last, both included, of so many sentences; 0 where last < first.

        The position of a step is that of the sentence that has been active longest.
        """
        ...

    def source_s(self, batch: int, longest: int) -> float:
        """Seconds added to each step of so many sentences, of which the longest active source has so many tokens."""
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
    """What steps take by batch size and longest source, each asked for once."""

    __slots__ = ("_cost", "_of", "_source_s", "weighs_sources")

    def __init__(self, cost: ServerCost) -> None:
        self.weighs_sources = any(cost.source_s(1, longest) for longest in (1, 2))
        """Whether sources count at all: what they add is in proportion to their tokens beyond some number."""
        self._cost = cost
        self._of: dict[int, StepsTake] = {}
        self._source_s: dict[tuple[int, int], float] = {}

    def of(self, batch: int) -> StepsTake:
        """Of a batch of so many sentences, but for what its sources add."""
        found = self._of.get(batch)
        if found is None:
            found = self._of[batch] = self._cost.steps_at(batch)
        return found

    def source_s(self, batch: int, longest: int) -> float:
        """What a longest source of so many tokens adds to each of its steps."""
        found = self._source_s.get((batch, longest))
        if found is None:
            found = self._source_s[batch, longest] = self._cost.source_s(batch, longest)
        return found
