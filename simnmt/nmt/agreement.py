"""Compare two translations of the same sentences, and distinguish near ties from disagreements (FNI-11).

Batched products round differently, so that two candidates with nearly equal scores may change places. To distinguish this case
from a fault, the sentence is decoded once more, alone, by the search in numpy, which is biased by as much as rounding may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax

from simnmt.kernels.beam_search import Ints, beam_search
from simnmt.nmt.sentence_decoder import Hypothesis
from simnmt.nmt.step_model import StepModel

Tokens = tuple[int, ...]

NEAR_TIE = 1e-4
"""Two scores closer than this, in natural log-probability, may change their order with the rounding of batched products
(FNI-11)."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """A comparison of two translations of the same sentences."""

    equal: int
    """Sentences with equal translations."""
    near_ties: tuple[int, ...]
    """Sentences whose difference is a near tie: decoded alone they give one of the two translations, and the other if
    `NEAR_TIE` is added to the score of its first token that differs. These are allowed."""
    disagreements: tuple[int, ...]
    equal_tokens: float
    """Share of the tokens of the longer translation that are equal at the same place; 1 without tokens."""


def agreement(
    model: StepModel,
    sources: Sequence[Sequence[int]],
    ones: Sequence[Hypothesis],
    others: Sequence[Hypothesis],
    *,
    beam: int = 1,
    max_len: int | Sequence[int] = 200,
    tie: float = NEAR_TIE,
) -> Agreement:
    """Compare two translations of `sources`, token by token; `max_len`: most tokens, of all or of each."""
    most = [max_len] * len(sources) if isinstance(max_len, int) else max_len
    pairs = [(one.tokens, other.tokens) for one, other in zip(ones, others, strict=True)]
    differing = [sentence for sentence, (one, other) in enumerate(pairs) if one != other]
    near = [at for at in differing if _is_tie(model, sources[at], pairs[at], beam, most[at], tie)]
    same = sum(one == other for pair in pairs for one, other in zip(*pair, strict=False))
    tokens = sum(max(map(len, pair)) for pair in pairs)
    faults = tuple(sentence for sentence in differing if sentence not in near)
    return Agreement(len(pairs) - len(differing), tuple(near), faults, same / tokens if tokens else 1.0)


def _is_tie(model: StepModel, source: Sequence[int], pair: tuple[Tokens, Tokens], beam: int, max_len: int, tie: float) -> bool:
    alone = decode_alone(model, source, beam, max_len).tokens
    if alone not in pair:
        return False
    rival = pair[1] if alone == pair[0] else pair[0]
    shared = next((at for at, (one, other) in enumerate(zip(alone, rival, strict=False)) if one != other), None)
    favoured = (*rival, model.eos_token)[: (min(len(alone), len(rival)) if shared is None else shared) + 1]
    return decode_alone(model, source, beam, max_len, favoured=favoured, bonus=tie).tokens == rival


@torch.inference_mode()
def decode_alone(
    model: StepModel, source: Sequence[int], beam: int = 1, max_len: int = 200, *, favoured: Tokens = (), bonus: float = 0.0
) -> Hypothesis:
    """Decode one sentence by the search in numpy: slow, and independent of the searches in torch, which it checks.

    `bonus` is added to the log-probability of the last of the tokens `favoured`, after all others of them.
    """
    slots, device = model.slots(beam), model.device
    memory = model.encode(torch.tensor([list(source)], device=device), torch.tensor([len(source)], device=device))
    slots.join(memory, [0], [len(source)], beam)
    paths: list[Tokens] = []

    def step(words: Ints, parents: Ints) -> tuple[NDArray[np.float64], Ints]:
        nonlocal paths
        paths = [(*paths[parent], int(word)) for word, parent in zip(words, parents, strict=True)] if paths else [()]
        unused = beam - len(words)
        slots.reorder(torch.from_numpy(np.pad(parents, (0, unused))).to(device))
        hidden = slots.body(torch.from_numpy(np.pad(words, (0, unused))).to(device))
        logits = model.project(hidden)[: len(words)].double().cpu().numpy()
        if model.pad_token != model.eos_token:
            logits[:, model.pad_token] = -np.inf
        log_probs: NDArray[np.float64] = log_softmax(logits, axis=1)
        for row, path in enumerate(paths):
            if favoured and path == favoured[:-1]:
                log_probs[row, favoured[-1]] += bonus
        return log_probs, np.zeros(len(words), np.int64)

    steps = max_len if model.max_positions is None else min(max_len, model.max_positions)
    translation = beam_search(
        step, beam=beam, steps=steps, start=model.start_token, eos=model.eos_token, kept=beam, margin=0.0, length_penalty=1.0
    )
    return Hypothesis(translation.tokens, translation.log_prob, translation.steps)
