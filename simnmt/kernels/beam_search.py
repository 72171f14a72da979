"""Beam search of one sentence in numpy: the oracle of the beam searches in C and in torch (SHARP-01, SHARP-03)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.native_library import KernelError

Ints = NDArray[np.int64]
Step = Callable[[Ints, Ints], tuple[NDArray[np.floating[Any]], Ints]]
"""Given the last words of the open hypotheses, and the rows of the step before that they extend: returns log-probabilities
[rows, columns], and the source position that each row attends to most [rows]."""


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Seconds of the stages in all steps of one sentence."""

    prepare_s: float
    """Once per sentence: the products of its source states, and gathering the rows of its candidates."""
    body_s: float
    product_s: float
    search_s: float
    """Bias, softmax, search and the beam's bookkeeping."""


@dataclass(frozen=True, slots=True)
class SharpTranslation:
    """The best translation of one sentence."""

    tokens: tuple[int, ...]
    """Without the start token and without the end token."""
    log_prob: float
    """Sum of natural log-probabilities, with that of the end token; not divided by the length (SHARP-03)."""
    attended: tuple[int, ...]
    """By token: the source position that its step attended to most, the first among ties."""
    steps: int
    """Steps of the search, including those after the best translation ended."""
    distinct_share: float
    """Share of distinct recurrent states among the hypotheses of all steps (SHARP-09)."""
    stopped_early: bool
    """True if the margin ended the search; else the length limit did, or no hypothesis was left open."""
    stage_s: StageSeconds | None = None
    """None unless requested, and from the search in numpy."""


def beam_search(
    step: Step,
    *,
    beam: int,
    steps: int,
    start: int,
    eos: int,
    ids: Ints | None = None,
    kept: int = 1,
    margin: float = 3.0,
    length_penalty: float = 0.0,
) -> SharpTranslation:
    """Return the best translation; its `log_prob` is the score, the sum of log-probabilities over length ** `length_penalty`.

    A hypothesis that ends among the `beam` best of its step is completed; the best `beam` that do not end continue. The search
    stops when the worst of the best `kept` completed ones is `margin` ahead of the best open one. After the last step the open
    hypotheses compete with the completed ones. Ties go to the first hypothesis, then to the first column.

    Args:
        step: computes one step of the model.
        beam: most open hypotheses.
        steps: most steps.
        start: the word before the first.
        eos: the word that ends a translation.
        ids: words of the columns; None: a column is its word.
        kept: how many completed hypotheses the search waits for: 1 in the sharp decoder, `beam` in `nmt`.
        margin: 3 in the sharp decoder (SHARP-03), 0 in `nmt`.
        length_penalty: 0 in the sharp decoder, 1 in `nmt`. The end counts as a step.

    Raises:
        KernelError: if no word can be chosen.
    """
    words, parents, sums = np.array([start]), np.array([0]), np.zeros(1)
    history: list[tuple[Ints, Ints, Ints]] = []
    completed: list[tuple[float, int, int]] = []
    distinct = total = 0
    stopped = False
    while len(history) < steps and len(sums) and not stopped:
        log_probs, attended = step(words, parents)
        distinct, total = distinct + len(set(parents.tolist())), total + len(parents)
        candidates = (sums[:, None] + log_probs).ravel()
        order = np.argsort(-candidates, kind="stable")[: 2 * beam]
        order = order[candidates[order] > -np.inf]
        rows, columns = np.divmod(order, log_probs.shape[1])
        chosen = columns if ids is None else ids[columns]
        divisor = (len(history) + 1) ** length_penalty
        ends = chosen == eos
        ended, open_ranks = np.flatnonzero(ends[:beam]), np.flatnonzero(~ends)[:beam]
        completed += [(float(candidates[order[rank]]) / divisor, len(history), int(rows[rank])) for rank in ended]
        words, parents, sums = chosen[open_ranks], rows[open_ranks], candidates[order[open_ranks]]
        history.append((words, parents, attended))
        completed = sorted(completed, key=lambda hypothesis: -hypothesis[0])[:kept]
        stopped = len(sums) > 0 and len(completed) == kept and completed[-1][0] - sums[0] / divisor >= margin
    if not stopped:
        completed += [(float(score) / divisor, len(history), row) for row, score in enumerate(sums)]
    if not completed:
        raise KernelError("no word can be chosen")
    best, length, row = max(completed, key=lambda hypothesis: hypothesis[0])
    tokens, positions = list[int](), list[int]()
    for words, parents, attended in reversed(history[:length]):
        tokens.append(int(words[row]))
        row = int(parents[row])
        positions.append(int(attended[row]))
    return SharpTranslation(tuple(tokens[::-1]), best, tuple(positions[::-1]), len(history), distinct / total, stopped)
