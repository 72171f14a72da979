"""The output layer's bias with the tokens that no row may choose made impossible."""

from __future__ import annotations

import torch
from torch import Tensor

from simnmt.nmt.banned import Banned
from simnmt.nmt.step_model import StepModel

_NEVER = float("-inf")


class MaskedBias:
    """Made anew when the banned tokens change, and no sooner."""

    def __init__(self, model: StepModel, banned: Banned) -> None:
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
