"""One optimisation step: batches of encoded sentence pairs, the loss, its gradient, and Adam's update.

Batches hold sentences of similar length up to a number of tokens, in an order that depends only on seed and epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from simnmt.base.random_streams import stream
from simnmt.nmt.architecture import Architecture
from simnmt.nmt.errors import TrainingError, within_memory
from simnmt.nmt.models import TranslationModel
from simnmt.nmt.step_model import pad
from simnmt.nmt.subwords import Subwords
from simnmt.nmt.training.recipe import Pair, Recipe, side_of
from simnmt.nmt.training.session import AdamLearner, seed_step


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of each sentence pair, end marks included; arrays of shape (pairs,)."""

    src: NDArray[np.int64]
    tgt: NDArray[np.int64]

    @property
    def longer(self) -> NDArray[np.int64]:
        """Tokens of the longer side of each pair."""
        return np.maximum(self.src, self.tgt)


def epoch_batches(lengths: Lengths, batch_tokens: int, *, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Return the indices of the pairs of each batch of one epoch; each pair occurs once.

    The longer side of a batch, padded, has at most `batch_tokens` tokens, unless the batch is one pair. Pairs of equal length
    are in random order, and so are the batches.
    """
    draw = stream(seed, epoch, "batches")
    order = draw.permutation(len(lengths.src))
    # Target first: the output layer costs most, for padding as much as for words.
    order = order[np.lexsort((lengths.src[order], lengths.tgt[order]))]
    batches = batch_slices(lengths.longer[order], batch_tokens)
    return [order[batches[index]] for index in draw.permutation(len(batches))]


def batch_slices(lengths: NDArray[np.int64], batch_tokens: int) -> list[slice]:
    """Cut lengths into runs of at most `batch_tokens` tokens when padded; a longer sentence makes a run alone."""
    runs: list[slice] = []
    start = longest = 0
    for index, length in enumerate(lengths.tolist()):
        longest = max(longest, length)
        if index > start and longest * (index + 1 - start) > batch_tokens:
            runs.append(slice(start, index))
            start, longest = index, length
    if len(lengths) > start:
        runs.append(slice(start, len(lengths)))
    return runs


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs and targets of a model, int64 on its device."""

    src: Tensor
    """[batch, src_len], padded at the end."""
    src_lengths: Tensor
    """[batch], end marks included."""
    tgt_in: Tensor
    """[batch, tgt_len]: the start token, then the reference."""
    tgt_out: Tensor
    """[batch, tgt_len]: the reference, then its end mark; padding is not a target."""
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
        sides = zip(source.encode(side_of(pairs, 0)), target.encode(side_of(pairs, 1)), strict=True)
        kept = [(src, tgt) for src, tgt in sides if max(len(src), len(tgt)) <= max_tokens]
        src, tgt = [pair[0] for pair in kept], [pair[1] for pair in kept]
        lengths = Lengths(*(np.array([len(ids) for ids in side], dtype=np.int64) for side in (src, tgt)))
        return cls(src, tgt, lengths, architecture, len(pairs) - len(kept))

    def in_order(self, batch_tokens: int, device: torch.device) -> Iterator[Batch]:
        """Yield all pairs in batches, shortest first, for a loss that does not depend on their order."""
        order = np.lexsort((self.lengths.src, self.lengths.tgt))
        for run in batch_slices(self.lengths.longer[order], batch_tokens):
            yield self.batch(order[run], device)

    def batch(self, rows: NDArray[np.int64], device: torch.device) -> Batch:
        """Return the given pairs as tensors."""
        tokens = self.architecture
        src, src_lengths = pad([self.src[row] for row in rows], tokens.pad_token)
        tgt_out, _ = pad([self.tgt[row] for row in rows], tokens.pad_token)
        tgt_in = tgt_out.roll(1, dims=1)
        tgt_in[:, 0] = tokens.start_token
        src, src_lengths, tgt_in, tgt_out = (tensor.to(device) for tensor in (src, src_lengths, tgt_in, tgt_out))
        return Batch(src, src_lengths, tgt_in, tgt_out, int(self.lengths.tgt[rows].sum()))


def diverged(step: int) -> TrainingError:
    """Return the error of a loss that is not finite at a step."""
    remedy = "start again in another folder with a smaller --rate"
    return TrainingError(f"the loss of step {step:,} is not a number", remedy=remedy)


class Learner(AdamLearner):
    """A model and its optimiser; the random numbers of a step depend only on the seed and the number of the step."""

    def __init__(self, model: TranslationModel, recipe: Recipe, device: torch.device) -> None:
        self.model = model.to(device)
        self.recipe, self.device = recipe, device
        self._clip_weights: Callable[[], None] = getattr(self.model, "clip_weights", lambda: None)
        """Called after each step."""
        self._within_memory = partial(within_memory, str(device))
        super().__init__({"weights": self.model}, torch.optim.Adam(self.model.parameters(), betas=(0.9, 0.98), eps=1e-9))

    def step(self, batch: Batch, step: int) -> float:
        """Train on one batch as step number `step`, from 1; return the smoothed loss, summed over its tokens, in nats.

        Raises `TrainingError` for a loss that is not finite, before the weights change, and `OutOfMemory`.
        """
        draw = stream(self.recipe.seed, 0, "dropout", step)
        seed_step(self.device, draw)
        self.model.train()
        value: float = self._within_memory(lambda: self._gradient(batch))
        if not math.isfinite(value):
            raise diverged(step)
        self._within_memory(lambda: nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm))
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.rate(step)
        self._within_memory(self.optimizer.step)
        self._clip_weights()
        return value

    @torch.inference_mode()
    def mean_loss(self, batches: Iterable[Batch]) -> float:
        """Return the mean loss per target token in nats, the logarithm of the perplexity, without smoothing and dropout."""
        self.model.eval()
        total, tokens = 0.0, 0
        for batch in batches:
            total += self._within_memory(partial(self._loss, batch, 0.0)).item()
            tokens += batch.tgt_tokens
        return total / tokens

    def _gradient(self, batch: Batch) -> float:
        loss = self._loss(batch, self.recipe.label_smoothing)
        self.optimizer.zero_grad(set_to_none=True)
        (loss / batch.tgt_tokens).backward()  # type: ignore[no-untyped-call]
        return float(loss.item())

    def _loss(self, batch: Batch, smoothing: float) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.precision == "bfloat16"):
            logits = self.model(batch.src, batch.src_lengths, batch.tgt_in)
        pad = self.recipe.architecture.pad_token
        targets = batch.tgt_out.flatten()
        return functional.cross_entropy(
            logits.flatten(0, 1).float(), targets, ignore_index=pad, label_smoothing=smoothing, reduction="sum"
        )
