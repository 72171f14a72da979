"""Sentence pairs as token ids, and batches of them as tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simnmt.nmt.architecture import Architecture
from simnmt.nmt.subwords import Subwords
from simnmt.nmt.training.batches import Lengths, cut, epoch_batches, padded
from simnmt.nmt.training.corpus import Pair, text_of


@dataclass(frozen=True, slots=True)
class Batch:
    """What the model is fed and what it should say, int64 on the model's device."""

    src: Tensor
    """[batch, src_len], padded at the end."""
    src_lengths: Tensor
    """[batch], end marks included."""
    tgt_in: Tensor
    """[batch, tgt_len]: the start token, then the reference."""
    tgt_out: Tensor
    """[batch, tgt_len]: the reference, then its end mark; padding is no target."""
    tgt_tokens: int
    """Targets in `tgt_out`."""


@dataclass(frozen=True, slots=True)
class EncodedPairs:
    """Token ids of sentence pairs, each sentence with its end mark."""

    src: list[list[int]]
    tgt: list[list[int]]
    lengths: Lengths
    architecture: Architecture
    too_long: int
    """Pairs left out for their length."""

    @classmethod
    def of(
        cls, pairs: Sequence[Pair], source: Subwords, target: Subwords, architecture: Architecture, max_tokens: int
    ) -> EncodedPairs:
        """Encode both sides and leave out pairs with a side of more than `max_tokens` tokens."""
        sides = zip(source.encode(text_of(pairs, 0)), target.encode(text_of(pairs, 1)), strict=True)
        kept = [(src, tgt) for src, tgt in sides if max(len(src), len(tgt)) <= max_tokens]
        src, tgt = [pair[0] for pair in kept], [pair[1] for pair in kept]
        lengths = Lengths(*(np.array([len(ids) for ids in side], dtype=np.int64) for side in (src, tgt)))
        return cls(src, tgt, lengths, architecture, len(pairs) - len(kept))

    def epoch(self, batch_tokens: int, *, seed: int, epoch: int) -> list[NDArray[np.int64]]:
        """Which pairs each batch of an epoch holds."""
        return epoch_batches(self.lengths, batch_tokens, seed=seed, epoch=epoch)

    def in_order(self, batch_tokens: int, device: torch.device) -> Iterator[Batch]:
        """All pairs, shortest first, for a loss that does not depend on their order."""
        order = np.lexsort((self.lengths.src, self.lengths.tgt))
        for run in cut(self.lengths.src[order], self.lengths.tgt[order], batch_tokens):
            yield self.batch(order[run], device)

    def batch(self, rows: NDArray[np.int64], device: torch.device) -> Batch:
        """The given pairs as tensors."""
        pad, start = self.architecture.pad_token, self.architecture.start_token
        out = padded([self.tgt[row] for row in rows], pad)
        fed = np.roll(out, 1, axis=1)
        fed[:, 0] = start
        tensors = (padded([self.src[row] for row in rows], pad), self.lengths.src[rows], fed, out)
        src, src_lengths, tgt_in, tgt_out = (torch.from_numpy(tensor).to(device) for tensor in tensors)
        return Batch(src, src_lengths, tgt_in, tgt_out, int(self.lengths.tgt[rows].sum()))
