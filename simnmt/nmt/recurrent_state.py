"""What the recurrent models carry from step to step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(slots=True)
class RecurrentState:
    """Memory and state in one: before `start` a row is a sentence, after it one of its beams."""

    hidden: tuple[Tensor, ...]
    """h, and c of an LSTM: [layers, rows, hidden]."""
    keys: Tensor | None
    """What a decoder state is scored against, [rows, hidden, src_len]; None without attention."""
    values: Tensor | None
    """The encoder's states, [rows, src_len, hidden]."""
    mask: Tensor | None
    """True behind a source's end, [rows, 1, src_len]; None where all are equally long."""
