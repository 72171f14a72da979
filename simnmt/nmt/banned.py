"""Tokens that a search must not choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simnmt.nmt.slot_search import Limit
from simnmt.nmt.step_model import StepModel

_NEVER = float("-inf")


@dataclass(slots=True)
class Banned:
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
    def of(cls, model: StepModel) -> Banned:
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
