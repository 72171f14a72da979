"""Batches of sentences of like length, filled to a number of tokens, in an order that depends on seed and epoch alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.streams import stream


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of each sentence pair, end marks included; arrays of shape (pairs,)."""

    src: NDArray[np.int64]
    tgt: NDArray[np.int64]


def epoch_batches(lengths: Lengths, batch_tokens: int, *, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Indices of the pairs of each batch of one epoch; each pair occurs once.

    A batch's longer side, padded, holds at most `batch_tokens` tokens, or one pair. Pairs of like length meet by chance
    within their length, and the batches come in random order.
    """
    draw = stream(seed, epoch, "batches")
    order = draw.permutation(len(lengths.src))
    # Target first: the product with the vocabulary costs most, and padding it costs as much as words do.
    order = order[np.lexsort((lengths.src[order], lengths.tgt[order]))]
    batches = cut(lengths.src[order], lengths.tgt[order], batch_tokens)
    return [order[batches[index]] for index in draw.permutation(len(batches))]


def cut(src: NDArray[np.int64], tgt: NDArray[np.int64], batch_tokens: int) -> list[slice]:
    """Runs of neighbours whose longer side, padded, holds at most `batch_tokens` tokens, or that are one pair."""
    runs: list[slice] = []
    start = longest = 0
    for index, length in enumerate(np.maximum(src, tgt).tolist()):
        longest = max(longest, length)
        if index > start and longest * (index + 1 - start) > batch_tokens:
            runs.append(slice(start, index))
            start, longest = index, length
    if len(src) > start:
        runs.append(slice(start, len(src)))
    return runs


def padded(sentences: Sequence[Sequence[int]], pad: int) -> NDArray[np.int64]:
    """Token ids of shape (sentences, longest), the shorter ones filled up with `pad` at their end."""
    longest = max(len(sentence) for sentence in sentences)
    filled = np.full((len(sentences), longest), pad, dtype=np.int64)
    for row, sentence in zip(filled, sentences, strict=True):
        row[: len(sentence)] = sentence
    return filled
