"""Attention weights of a trained model along given translations, and word alignments from them (SHARP-02)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from simnmt.nmt.attentional_model import AttentionalModel
from simnmt.nmt.errors import NmtError
from simnmt.nmt.marian_model import MarianModel
from simnmt.nmt.models import TranslationModel
from simnmt.nmt.recurrent_model import RecurrentModel
from simnmt.nmt.step_model import pad
from simnmt.nmt.vocabulary.alignment import LexicalTable, alignable, lexical_table

BATCH = 64
"""Sentence pairs aligned together."""
MERGED = 4_000_000
"""Links that are held before they are added up."""


@torch.inference_mode()
def attention_alignment(
    model: TranslationModel,
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
        weights = attention_weights(model, src.to(where), src_lengths.to(where), tgt_in.to(where)).float().cpu()
        inside = torch.arange(tgt.shape[1]) < tgt_lengths[:, None]
        within = inside[:, :, None] & (torch.arange(src.shape[1]) < src_lengths[:, None])[:, None, :]
        keys = src[:, None, :] * model.vocab + tgt[:, :, None]
        sums.add(keys[within].numpy(), weights[within].numpy())
        progress(first + len(batch))
    return lexical_table(*sums.total(), model.architecture.src_vocab, model.vocab)


def can_attend(model: object) -> TypeGuard[TranslationModel]:
    """Return whether `attention_weights` takes the model: whether it has attention."""
    if isinstance(model, RecurrentModel):
        return model.score is not None
    return isinstance(model, (MarianModel, AttentionalModel))


@torch.inference_mode()
def attended_positions(model: TranslationModel, source: Sequence[int], target: Sequence[int]) -> list[int]:
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
    weights = attention_weights(model, src, torch.tensor([len(source)], device=model.device), tgt_in)
    positions: list[int] = weights[0].argmax(dim=1).tolist()
    return positions


def attention_weights(model: TranslationModel, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
    """How much each step looks at each source position, [batch, tgt_len, src_len], summing to 1; fed as `forward` is.

    Of a Transformer it is the mean of the heads of the last layer but one, which aligns best (Garg et al., 2019). Raises
    `NmtError` for a model without attention.
    """
    if isinstance(model, MarianModel):
        return _marian_weights(model, src, src_lengths, tgt_in)
    if isinstance(model, RecurrentModel):
        state = model.encode(src, src_lengths)
        hidden = state.hidden if isinstance(model.decoder, nn.LSTM) else state.hidden[0]
        if state.keys is None:
            raise NmtError("a model without attention aligns nothing", remedy="align by ibm1")
        states, _ = model.decoder(model.tgt_embedding(tgt_in), hidden)
        scores = torch.bmm(states, state.keys)
        return (scores if state.mask is None else scores.masked_fill(state.mask, float("-inf"))).softmax(dim=2)
    cell = model.bottom
    keys, values = cell.look_at(model.source_states(src, src_lengths))
    behind = torch.arange(src.shape[1], device=src.device) >= src_lengths[:, None]
    kept = cell.cell.zeros(len(src), cell.hidden, values)
    steps = []
    for fed in cell.feed(model.tgt_embedding(tgt_in)).unbind(1):
        query = (cell.recur(kept[0]) + fed)[:, None, : cell.compared]
        if cell.score is None:
            scores = torch.bmm(query.tanh(), keys.transpose(1, 2))[:, 0]
        else:
            scores = cell.score((keys + query).tanh())[:, :, 0]
        steps.append(scores.masked_fill(behind, float("-inf")).softmax(dim=1))
        kept = cell.step(fed, kept, keys, values, behind)
    return torch.stack(steps, dim=1)


def _marian_weights(model: MarianModel, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
    within = torch.arange(src.shape[1], device=src.device) < src_lengths[:, None]
    with _eager_attention(model):
        attentions = model.hf(
            input_ids=src,
            attention_mask=within.long(),
            decoder_input_ids=tgt_in,
            use_cache=False,
            output_attentions=True,
        ).cross_attentions
    weights: Tensor = attentions[max(len(attentions) - 2, 0)].mean(dim=1)
    return weights


@contextmanager
def _eager_attention(model: MarianModel) -> Iterator[None]:
    """Within it, attention is computed so that its weights can be told, which the fast ways do not keep."""
    usual = model.hf.config._attn_implementation
    model.hf.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.hf.set_attn_implementation(usual)


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
