"""What an output layer gives: the n best columns of each row, or what one part of a row adds to them (FNI-03 to FNI-05)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Best(NamedTuple):
    """The best columns of each row of products, bias added. Where values are equal, the lowest column comes first."""

    columns: Tensor
    """int64 [rows, count], by descending value."""
    values: Tensor
    """float32 [rows, count]: product plus bias."""
    log_total: Tensor
    """float32 [rows]: logarithm of the sum of the row's exponentials relative to its largest value, so at least 0."""

    @property
    def log_sum(self) -> Tensor:
        """float32 [rows]: logarithm of the sum of the exponentials of the whole row; rounded as values of its size are."""
        return self.values[:, 0] + self.log_total

    @property
    def log_probs(self) -> Tensor:
        """float32 [rows, count]: logarithms of the softmax's probabilities, never above 0 (FNI-05).

        The largest value is subtracted first, exactly or nearly: a rounded `log_sum` would be off by 5e-4 at values of 1e4.
        """
        return (self.values - self.values[:, :1]) - self.log_total[:, None]


class Partial(NamedTuple):
    """What a part of each row adds to its softmax and its 1-best (FNI-04); (-inf, 0) is the part that adds nothing."""

    maximum: Tensor
    """float32 [rows]."""
    total: Tensor
    """float32 [rows]: sum of exponentials relative to the maximum."""
    column: Tensor
    """int64 [rows]: where the maximum is, the lowest of equals."""


def combine(a: Partial, b: Partial) -> Partial:
    """Two parts of the same rows as one (FNI-04): any split and any order give the same but for rounding."""
    maximum = torch.maximum(a.maximum, b.maximum)
    total = sum(torch.where(part.total > 0, part.total * (part.maximum - maximum).exp(), 0.0) for part in (a, b))
    assert isinstance(total, Tensor)
    first = (a.maximum > b.maximum) | ((a.maximum == b.maximum) & (a.column < b.column))
    return Partial(maximum, total, torch.where(first, a.column, b.column))
