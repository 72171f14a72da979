"""What a search keeps of each sentence under way: it joins with its slot, moves with it and leaves with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from simnmt.nmt.hypothesis import Hypothesis
from simnmt.nmt.step_model import StepModel

_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Limit:
    """How long a sentence's output may be."""

    steps: int
    """Most steps, 1 or more."""
    forced: bool = False
    """Whether it takes them all: its end token is banned."""


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

    def choose(self, logits: Tensor) -> list[tuple[int, Hypothesis]]:
        """Take the step's logits [rows, vocab], used up; returns the slots that are done, ascending, with what they found."""

    def leave(self, order: Sequence[int]) -> None:
        """Slot i becomes what slot `order[i]` was; the others are gone."""


@dataclass(slots=True)
class Banned:
    """Tokens never chosen: padding, which is no output, and of a sentence of forced length the end."""

    pad: int
    eos: int
    device: torch.device
    all_forced: bool = False
    _columns: Tensor | None = None
    """In every row."""
    _ends: Tensor | None = None
    """Rows, [rows], whose end is banned; None where those of all or of none are."""

    @classmethod
    def of(cls, model: StepModel) -> Banned:
        """Of an empty decoder."""
        return cls(model.pad_token, model.eos_token, model.device)

    def see(self, limits: Sequence[Limit], beam: int) -> None:
        """Be told of the sentences under way; to be called whenever they change."""
        forced = [limit.forced for limit in limits]
        before, self.all_forced = self.all_forced, all(forced)
        if self._columns is None or before != self.all_forced:
            columns = {self.pad} - {self.eos} | ({self.eos} if self.all_forced else set())
            self._columns = torch.tensor(sorted(columns), dtype=torch.int64, device=self.device)
        mixed = any(forced) and not self.all_forced
        self._ends = torch.tensor(forced, device=self.device).repeat_interleave(beam) if mixed else None

    def ban(self, logits: Tensor) -> None:
        """Make them impossible, in place."""
        if self._columns is not None:
            logits.index_fill_(1, self._columns, _NEVER)
        if self._ends is not None:
            logits[:, self.eos].masked_fill_(self._ends, _NEVER)
