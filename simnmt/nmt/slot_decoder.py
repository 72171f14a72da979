"""Sentences decoded together, each with a search of its own: they join and leave while the rest goes on (FNI-08, 10)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from simnmt.nmt.search import Hypothesis
from simnmt.nmt.step_model import Memory

Key = Hashable
"""What the caller knows a sentence by."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A sentence that the encoder has read: its place in what was encoded together."""

    memory: Memory
    row: int
    src_len: int
    """Tokens, the end included."""


class SlotDecoder:
    """Decodes up to `capacity` sentences together, greedily or with a beam, dropping each as soon as it is done.

    A sentence is encoded, joins, takes part in steps, and is handed out by the step that ends it.
    """

    def __init__(self, model: Any, *, beam: int = 1, max_len: int = 200, capacity: int, scored: bool = False) -> None:
        """`capacity`: most sentences active at a time; `scored`: whether greedy search sums log-probabilities."""
        raise NotImplementedError

    @property
    def active(self) -> int:
        """Sentences under way."""
        raise NotImplementedError

    def encode(self, sources: Sequence[Sequence[int]]) -> list[Encoded]:
        """Read these sources together; changes nothing of what is active.

        Raises `NmtError` for a source beyond the model's positions and `OutOfMemory`.
        """
        raise NotImplementedError

    def join(
        self,
        sentences: Sequence[Encoded],
        keys: Sequence[Key],
        forced_lens: Sequence[int] | None = None,
        max_lens: Sequence[int] | None = None,
    ) -> list[tuple[Key, Hypothesis]]:
        """Let these take part from the next step on; returns those that are done at once, being forced to no token.

        `forced_lens`: each gets just so many tokens, none of them the end; `max_lens`: most tokens of each, by default the
        decoder's. Raises `ValueError` for more than fit, `NmtError` for lengths beyond the model's positions, and
        `OutOfMemory`, after which none is active.
        """
        raise NotImplementedError

    def step(self) -> list[tuple[Key, Hypothesis]]:
        """One token more for each active sentence; those that are done with it are handed out and dropped.

        Raises `OutOfMemory`, after which none is active.
        """
        raise NotImplementedError

    def drop_all(self) -> None:
        """Forget every active sentence and give back their memory."""
        raise NotImplementedError
