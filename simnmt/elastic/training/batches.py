"""Which examples are learnt from together: of like lengths, in an order that the seed and the epoch decide."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simnmt.streams import stream

_SPREAD = 4.0
"""Tokens by which lengths are blurred before sorting, so that a batch is another one each epoch."""


def epoch_batches(lengths: NDArray[np.int64], batch_tokens: int, *, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Rows of each batch, at most `batch_tokens` with padding (a longer example is alone), in random order."""
    draw = stream(seed, 0, "elastic-batches", epoch)
    order = np.argsort(lengths + draw.random(len(lengths)) * _SPREAD, kind="stable")
    batches = in_order(lengths, order, batch_tokens)
    return [batches[index] for index in draw.permutation(len(batches))]


def in_order(lengths: NDArray[np.int64], order: NDArray[np.int64], batch_tokens: int) -> list[NDArray[np.int64]]:
    """Rows in `order`, cut into batches of at most `batch_tokens` with padding."""
    batches: list[NDArray[np.int64]] = []
    begin, longest = 0, 0
    for at, row in enumerate(order):
        longer = max(longest, int(lengths[row]))
        if at > begin and (at - begin + 1) * longer > batch_tokens:
            batches.append(order[begin:at])
            begin, longer = at, int(lengths[row])
        longest = longer
    return [*batches, order[begin:]]


def lengths_of(token_ids: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Tokens of each example."""
    return np.array([len(tokens) for tokens in token_ids], np.int64)
