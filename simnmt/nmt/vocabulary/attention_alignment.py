"""Attention weights of a trained model along given translations, and word alignments from them (SHARP-02)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray

from simnmt.nmt.errors import NmtError
from simnmt.nmt.step_model import NeuralModel, pad
from simnmt.nmt.vocabulary.alignment import LexicalTable, alignable, lexical_table

BATCH = 64
"""Sentence pairs aligned together."""
MERGED = 4_000_000
"""Links that are held before they are added up."""


@torch.inference_mode()
def attention_alignment(
    model: NeuralModel,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> LexicalTable:
    """p(target token | source token) by how much the model looks at a source token when it is fed the reference.

    `sources` with their end marks, `targets` without; pairs with an empty side, or longer than the model takes, are left out.
    `progress` is told how many pairs are done. Raises `NmtError` for a model without attention, and where no pair is left.
    """
    pairs = alignable(sources, targets, model.max_positions)
    if not pairs:
        raise NmtError("no sentence pair to align", remedy="give parallel text")
    pairs.sort(key=lambda pair: (len(pair[0]), len(pair[1])))
    sums = _Sums()
    for first in range(0, len(pairs), BATCH):
        batch = pairs[first : first + BATCH]
        src, src_lengths = pad([source for source, _ in batch], model.pad_token)
        tgt, tgt_lengths = pad([target for _, target in batch], model.pad_token)
        tgt_in = torch.cat((torch.full((len(batch), 1), model.start_token), tgt[:, :-1]), dim=1)
        where = model.device
        weights = model.attention(src.to(where), src_lengths.to(where), tgt_in.to(where)).float().cpu()
        inside = torch.arange(tgt.shape[1]) < tgt_lengths[:, None]
        within = inside[:, :, None] & (torch.arange(src.shape[1]) < src_lengths[:, None])[:, None, :]
        keys = src[:, None, :] * model.vocab + tgt[:, :, None]
        sums.add(keys[within].numpy(), weights[within].numpy())
        progress(first + len(batch))
    return lexical_table(*sums.total(), model.architecture.src_vocab, model.vocab)


def can_attend(model: object) -> TypeGuard[NeuralModel]:
    """Return whether the model has attention."""
    return isinstance(model, NeuralModel) and model.attends


@torch.inference_mode()
def attended_positions(model: NeuralModel, source: Sequence[int], target: Sequence[int]) -> list[int]:
    """Return the source position that the step of each target token looks at most; the first of equals.

    Feeding a finished translation again is cheaper than keeping the weights of each step of each search: they are wanted of the
    few translations that hold an unknown word.

    Args:
        model: a model with attention (`can_attend`).
        source: tokens, the end mark included.
        target: tokens, without the end mark.
    """
    src = torch.tensor([source], device=model.device)
    tgt_in = torch.tensor([[model.start_token, *target[:-1]]], device=model.device)
    weights = model.attention(src, torch.tensor([len(source)], device=model.device), tgt_in)
    positions: list[int] = weights[0].argmax(dim=1).tolist()
    return positions


@dataclass(slots=True)
class _Sums:
    """Sums by key, of more keys than are wanted in memory at once."""

    keys: list[NDArray[np.int64]] = field(default_factory=list)
    weights: list[NDArray[np.float64]] = field(default_factory=list)
    held: int = 0

    def add(self, keys: NDArray[np.int64], weights: NDArray[np.float32]) -> None:
        self.keys.append(keys)
        self.weights.append(weights.astype(np.float64))
        self.held += len(keys)
        if self.held >= MERGED:
            self._merge()

    def _merge(self) -> None:
        keys, places = np.unique(np.concatenate(self.keys), return_inverse=True)
        sums = np.zeros(len(keys))
        sums += np.bincount(places, weights=np.concatenate(self.weights), minlength=len(keys))
        self.keys, self.weights, self.held = [keys], [sums], 0

    def total(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Keys, ascending, and their sums."""
        self._merge()
        return self.keys[0], self.weights[0]
