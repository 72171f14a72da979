"""What the attentional models carry from step to step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(slots=True)
class AttentionalState:
    """Memory and state in one: before `start` a row is a sentence, after it one of its beams."""

    kept: tuple[Tensor, ...]
    """What each recurrent layer keeps, from bottom to top, each [rows, width]: h, and then c of an LSTM."""
    source: Tensor
    """What attention compares and what it gives, side by side: [rows, src_len, compared + gates]."""
    behind: Tensor | None
    """True behind a source's end, [rows, src_len]; None where all are equally long."""
