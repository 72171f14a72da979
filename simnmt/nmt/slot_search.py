"""What a search keeps of each sentence under way: it joins with its slot, moves with it and leaves with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from simnmt.nmt.hypothesis import Hypothesis


@dataclass(frozen=True, slots=True)
class Limit:
    """How long a sentence's output may be, and for candidate lists of what sentence."""

    steps: int
    """Most steps, 1 or more."""
    forced: bool = False
    """Whether it takes them all: its end token is banned."""
    source: Sequence[int] = ()
    """Tokens of the sentence, where the vocabulary in use hangs on them."""


class SlotSearch(Protocol):
    """Chooses tokens for all slots, and tells which are done; slot i is rows i x beam to (i + 1) x beam."""

    @property
    def beam(self) -> int:
        """Rows of a slot."""

    @property
    def tokens(self) -> Tensor:
        """What the next step is fed, int64 [rows]."""

    @property
    def parents(self) -> Tensor | None:
        """The row that each row goes on from, int64 [rows]; None where each does from itself."""

    def join(self, limits: Sequence[Limit]) -> None:
        """Append so many slots before their first step."""

    def project(self, hidden: Tensor) -> Any:
        """The model's part of the output layer, of what its body left, [rows, width]."""

    def choose(self, projected: Any) -> list[tuple[int, Hypothesis]]:
        """Take the step's projection, used up; returns the slots that are done, ascending, with what they found."""

    def leave(self, order: Sequence[int]) -> None:
        """Slot i becomes what slot `order[i]` was; the others are gone."""
