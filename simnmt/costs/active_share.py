"""Which share of the vocabulary a decoder multiplies that restricts it: a distribution over steps and over sentences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simnmt.configuration import Configuration

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Shares = Annotated[tuple[Share, ...], Field(min_length=2)]
LEVELS = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
"""At which quantiles are kept, least and most included."""


class ActiveShare(Configuration):
    """Active columns of the output layer over the vocabulary, at one batch size, on real text (FVP-11)."""

    vocab: Annotated[int, Field(ge=2)]
    steps: Annotated[int, Field(ge=1)]
    """Decode steps that were looked at."""
    mean: Share
    """Over steps: what a step multiplies on the average, the union of all its rows (FVP-06)."""
    levels: Shares = LEVELS
    by_step: Shares
    """Quantiles over steps, one a level."""
    by_sentence: Shares | None = None
    """Quantiles, over sentences decoded alone, of the mean over a sentence's steps; null where sentences share steps."""
    s_per_share: Annotated[float, Field(ge=0.0, le=1e3)] | None = None
    """What a step would take more with the whole vocabulary active than with nothing of it, seconds: the slope of timed steps
    over their shares; null: not told by them."""

    @model_validator(mode="after")
    def _is_a_distribution(self) -> ActiveShare:
        if self.levels[0] != 0.0 or self.levels[-1] != 1.0 or any(low >= high for low, high in pairwise(self.levels)):
            raise ValueError("levels: not rising from 0 to 1")
        for name, quantiles in (("by_step", self.by_step), ("by_sentence", self.by_sentence)):
            if quantiles is not None and (len(quantiles) != len(self.levels) or list(quantiles) != sorted(quantiles)):
                raise ValueError(f"{name}: not one quantile a level, none less than the one before")
        if not self.by_step[0] <= self.mean <= self.by_step[-1]:
            raise ValueError(f"mean: {self.mean:g} lies outside the quantiles over steps")
        return self

    @classmethod
    def of(
        cls,
        columns: Sequence[int],
        vocab: int,
        *,
        by_sentence: Sequence[float] | None = None,
        s_per_share: float | None = None,
    ) -> ActiveShare:
        """Of the active columns of each step, and each sentence's mean share where sentences were decoded alone."""
        shares = np.asarray(columns, np.float64) / vocab
        mean = float(np.clip(shares.mean(), shares.min(), shares.max()))  # a mean of equal shares may round past them
        return cls(
            vocab=vocab,
            steps=len(shares),
            mean=mean,
            by_step=_quantiles(shares),
            by_sentence=None if by_sentence is None else _quantiles(np.asarray(by_sentence, np.float64)),
            s_per_share=s_per_share,
        )

    def deviation(self, uniform: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of sentences' shares from their mean, by inverse transform of uniform draws in [0, 1), of which the expectation is 0.

        Between quantiles the distribution is taken to be even. 0 where nothing is known of single sentences.
        """
        if self.by_sentence is None:
            return np.zeros_like(uniform)
        levels, quantiles = np.array(self.levels), np.array(self.by_sentence)
        expected = float(np.diff(levels) @ (quantiles[1:] + quantiles[:-1]) / 2.0)
        found: NDArray[np.float64] = np.interp(uniform, levels, quantiles) - expected
        return found

    def words(self) -> str:
        """`5.1 % of 12,000 tokens active`."""
        return f"{100 * self.mean:.3g} % of {self.vocab:,} tokens active"


def _quantiles(shares: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(np.quantile(shares, LEVELS).tolist())
