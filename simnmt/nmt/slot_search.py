"""The interface of a search over slots, with its length limits, banned tokens and resulting hypotheses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from simnmt.nmt.step_model import StepModel


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One translation."""

    tokens: tuple[int, ...]
    """Without the start token and, where it ended by itself, without the end token."""
    score: float | None
    """Sum of log-probabilities (natural), the end token's included, divided by how many they are to the power of the
    length penalty, which is 1 in greedy search; None where none was asked for."""
    steps: int = field(default=0, compare=False)
    """Decode steps taken for the sentence: its tokens and the end in greedy search; a beam runs on beyond its best."""


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


_NEVER = float("-inf")


@dataclass(slots=True)
class BannedTokens:
    """Tokens never chosen: padding, which is no output, and of a sentence of forced length the end."""

    pad: int
    eos: int
    device: torch.device
    all_forced: bool = False
    columns: Tensor | None = None
    """In every row; another tensor whenever they change."""
    ends: Tensor | None = None
    """Rows, [rows], whose end is banned; None where those of all or of none are."""

    @classmethod
    def of(cls, model: StepModel) -> BannedTokens:
        """Of an empty decoder."""
        return cls(model.pad_token, model.eos_token, model.device)

    def see(self, limits: Sequence[Limit], beam: int) -> None:
        """Be told of the sentences under way; to be called whenever they change."""
        forced = [limit.forced for limit in limits]
        before, self.all_forced = self.all_forced, all(forced)
        if self.columns is None or before != self.all_forced:
            columns = {self.pad} - {self.eos} | ({self.eos} if self.all_forced else set())
            self.columns = torch.tensor(sorted(columns), dtype=torch.int64, device=self.device)
        mixed = any(forced) and not self.all_forced
        self.ends = torch.tensor(forced, device=self.device).repeat_interleave(beam) if mixed else None

    def ban(self, logits: Tensor) -> None:
        """Make them impossible, in place."""
        if self.columns is not None:
            logits.index_fill_(1, self.columns, _NEVER)
        if self.ends is not None:
            logits[:, self.eos].masked_fill_(self.ends, _NEVER)


class MaskedBias:
    """Made anew when the banned tokens change, and no sooner."""

    def __init__(self, model: StepModel, banned: BannedTokens) -> None:
        self._vocab, self._banned = model.vocab, banned
        bias = model.bias
        self._bias = None if bias is None else bias.detach().float().contiguous()
        self._columns: Tensor | None = None
        """Those banned in every row, as of when `_masked` was made."""
        self._masked = self._bias

    def now(self) -> Tensor | None:
        """float32 [vocab]; None where nothing is added and nothing banned. The same tensor until something changes."""
        columns = self._banned.columns
        if columns is not self._columns:
            self._columns = columns
            if columns is not None and len(columns):
                bias = torch.zeros(self._vocab, device=columns.device) if self._bias is None else self._bias.clone()
                self._masked = bias.index_fill_(0, columns, _NEVER)
            else:
                self._masked = self._bias
        return self._masked
