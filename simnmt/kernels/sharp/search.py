"""The search of one sentence: its request, the checks of its arguments, and its result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.arrays import checked
from simnmt.kernels.errors import KernelError
from simnmt.kernels.sharp.weights import Float32, SharpTokens, SharpWeights

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One search."""

    tokens: SharpTokens
    beam: int
    steps: int
    """At most, or where `forced` exactly."""
    forced: bool
    """Whether the end token is banned."""
    candidates: Ints | None
    """Words that may be chosen; None: all."""
    stop_margin: float


def banned(ids: Ints, tokens: SharpTokens, *, forced: bool = False) -> NDArray[np.bool_]:
    """Which words are never chosen: padding, which is no output, and in a search of forced length the end."""
    padding = ids == tokens.pad if tokens.pad != tokens.eos else np.zeros(len(ids), np.bool_)
    return np.asarray(padding | (ids == tokens.eos)) if forced else padding


def check_candidates(weights: SharpWeights, candidates: Ints | None, *, needs_end: bool, forced: bool) -> None:
    """Raise `KernelError` for a list that no search could use."""
    if candidates is None:
        return
    checked("candidates", candidates, np.int64, (None,))
    seen = np.unique(candidates)
    if len(seen) != len(candidates) or not len(seen) or seen[0] < 0 or seen[-1] >= weights.vocab:
        raise KernelError(f"candidates are not words of a vocabulary of {weights.vocab}, each once")
    if needs_end and weights.tokens.eos not in seen:
        raise KernelError("candidates lack the end token, so that no translation could end")
    if banned(candidates, weights.tokens, forced=forced).all():
        raise KernelError("candidates hold no word that may be chosen")


def check_source(weights: SharpWeights, states: Float32, most_src_len: int) -> Float32:
    """The states, contiguous. Raises `KernelError`."""
    if isinstance(states, np.ndarray):
        states = np.ascontiguousarray(states)
    checked("source_states", states, np.float32, (None, weights.source_width))
    if not 1 <= len(states) <= most_src_len:
        raise KernelError(f"source_states are of {len(states)} words, not of 1 to most_src_len, {most_src_len}")
    if not np.isfinite(states).all():
        raise KernelError("source_states hold NaN or infinity")
    return states


def candidate_positions(words: Ints, candidates: Ints | None, vocab: int) -> Ints:
    """Columns of words among the candidates. Raises `KernelError` for one that is none."""
    ids = np.arange(vocab) if candidates is None else candidates
    order = np.argsort(ids)
    places = order[np.searchsorted(ids, words, sorter=order).clip(max=len(ids) - 1)]
    if (ids[places] != words).any():
        raise KernelError("tokens hold a word that is not among the candidates")
    return np.ascontiguousarray(places)


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Where the time of all steps of one sentence went."""

    prepare_s: float
    """Once a sentence: the products of its source states, and its candidates' rows gathered."""
    body_s: float
    """Attention, bottom cell and stack."""
    product_s: float
    """The output layer's product."""
    search_s: float
    """Bias, softmax, search and the beam's bookkeeping."""


@dataclass(frozen=True, slots=True)
class SharpTranslation:
    """The best translation of one sentence."""

    tokens: tuple[int, ...]
    """Without the start token and, where it ended by itself, without the end token."""
    log_prob: float
    """Sum of log-probabilities (natural), the end token's included; not divided by the length (SHARP-03)."""
    attended: tuple[int, ...]
    """Of each token, the source position that its step looked at most: the first of those that tie."""
    steps: int
    """Taken by the search, those after the best translation ended included."""
    distinct_share: float
    """Distinct recurrent states among the hypotheses of all steps (SHARP-09)."""
    stopped_early: bool
    """Whether the margin of SHARP-03 ended the search; else the length limit did, or nothing was left open."""
    stage_s: StageSeconds | None = None
    """None unless asked for, and without a compiled library."""


@dataclass(frozen=True, slots=True)
class ForcedSteps:
    """What the decoder thinks along a given translation (teacher forcing)."""

    best: NDArray[np.int64]
    """[tokens], the likeliest word of each step."""
    log_probs: NDArray[np.float32]
    """[tokens], of the given words."""
