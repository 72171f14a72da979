"""Greedy and beam search over any step model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from simnmt.nmt.step_model import StepModel


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One translation."""

    tokens: tuple[int, ...]
    """Without the start token and, where it ended by itself, without the end token."""
    score: float
    """Sum of log-probabilities (natural), the end token's included, divided by length to the power of the penalty."""


def greedy(
    model: StepModel, src: Tensor, src_lengths: Tensor, *, max_len: int = 200, forced_len: int | None = None
) -> list[Hypothesis]:
    """The likeliest token at each step, for every sentence of the batch; stops when all have ended or at `max_len` tokens.

    With `forced_len` every sentence gets just that many tokens, none of them the end token.
    """
    raise NotImplementedError


def beam(
    model: StepModel,
    src: Tensor,
    src_lengths: Tensor,
    *,
    beam: int,
    max_len: int = 200,
    forced_len: int | None = None,
    length_penalty: float = 1.0,
) -> list[Hypothesis]:
    """The best hypothesis of each sentence that a beam of that width finds."""
    raise NotImplementedError


def pad(sources: Sequence[Sequence[int]], pad_token: int) -> tuple[Tensor, Tensor]:
    """Sources of different lengths as one batch: int64 [batch, longest] and their lengths [batch], on the CPU."""
    raise NotImplementedError
