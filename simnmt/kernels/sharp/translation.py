"""What the sharp decoder finds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
