"""What MarianMT carries from step to step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(slots=True)
class MarianMemory:
    """What the encoder leaves."""

    cross: Tensor
    """Keys and values of all the decoder's layers: [layers, keys and values, batch, heads, src_len, head width]."""
    mask: Tensor | None
    """True up to each source's end, [batch, 1, 1, src_len]; None where all are equally long."""


@dataclass(slots=True)
class MarianState:
    """Keys and values of all layers in one tensor each, so that reordering rows is one operation."""

    past: Tensor
    """Of the tokens so far: [layers, keys and values, rows, heads, capacity, head width]."""
    cross: Tensor
    """Of the source: [layers, keys and values, rows, heads, src_len, head width]."""
    mask: Tensor | None
    """True up to each source's end, [rows, 1, 1, src_len]."""
    position: int
    """Columns written so far."""
    begun: Tensor | None = None
    """The column of each row's first token, int64 [rows]; None where it is column 0 for all."""
