"""Whether two ways of decoding say the same, and where they do not, how close the call was (FNI-11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simnmt.nmt.hypothesis import Hypothesis
from simnmt.nmt.step_model import StepModel

NEAR_TIE = 1e-4
"""Scores closer than this may change their order with the rounding of batched products (FNI-11)."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A sentence that two ways of decoding translate differently."""

    sentence: int
    gap: float
    """See `closest_call`."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two translations of the same sentences, compared."""

    equal: int
    near_ties: tuple[Difference, ...]
    """Different, where a call was closer than the tolerance: allowed."""
    disagreements: tuple[Difference, ...]
    """Different without such an excuse."""


def agreement(
    model: StepModel,
    sources: Sequence[Sequence[int]],
    ones: Sequence[Hypothesis],
    others: Sequence[Hypothesis],
    *,
    beam: int = 1,
    max_len: int = 200,
    tolerance: float = NEAR_TIE,
) -> Agreement:
    """Compare two translations of `sources`, token by token."""
    raise NotImplementedError


def closest_call(model: StepModel, source: Sequence[int], beam: int = 1, max_len: int = 200) -> float:
    """The smallest gap between a candidate that was kept and one that was dropped, over all steps of the sentence alone.

    In natural log-probability, divided by the length where finished hypotheses are compared; infinity without a choice.
    """
    raise NotImplementedError
