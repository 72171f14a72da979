"""Measured decoder variants of a profile: decode steps by stage, active share of the vocabulary, equal translations (SHARP-10).

The active share of the vocabulary is a distribution over steps and sentences (FVP-11).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simnmt.profile.blocks import NOTE, Block, Count, Duration, Kind, Length, Rising, Share, Shown
from simnmt.profile.decoder_settings import FREQUENT_WORDS, DecoderSettings

Shares = Annotated[tuple[Share, ...], Field(min_length=2)]
LEVELS = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
"""Levels of the stored quantiles, least and most included."""


class ActiveShare(Block):
    """Distribution of the active share of the output layer's columns, at one batch size, on real text (FVP-11)."""

    vocab: Annotated[int, Field(ge=2)]
    steps: Annotated[int, Field(ge=1)]
    mean: Share
    """Mean over steps of the share that a step multiplies, the union of all its rows (FVP-06)."""
    levels: Annotated[Shares, Rising] = LEVELS
    by_step: Shares
    """Quantiles over steps, one per level."""
    by_sentence: Shares | None = None
    """Quantiles, over sentences decoded alone, of a sentence's mean share; null if sentences share steps."""
    s_per_share: Annotated[float, Field(ge=0.0, le=1e3)] | None = None
    """Slope of the seconds of a step over its active share; null if the timed steps do not determine it."""

    @classmethod
    def of(
        cls,
        columns: Sequence[int],
        vocab: int,
        *,
        by_sentence: Sequence[float] | None = None,
        s_per_share: float | None = None,
    ) -> ActiveShare:
        """Return the distribution of the active columns of each step.

        `by_sentence`: mean share of each sentence, if sentences were decoded alone.
        """
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
        """Draw the differences of sentences' shares from their mean, by inverse transform of uniform draws in [0, 1).

        The expectation is 0. Between quantiles the distribution is uniform. All 0 if single sentences were not measured.
        """
        if self.by_sentence is None:
            return np.zeros_like(uniform)
        levels, quantiles = np.array(self.levels), np.array(self.by_sentence)
        expected = float(np.diff(levels) @ (quantiles[1:] + quantiles[:-1]) / 2.0)
        deviation: NDArray[np.float64] = np.interp(uniform, levels, quantiles) - expected
        return deviation

    def describe(self) -> str:
        """Describe the mean, as `5.1 % of 12,000 tokens active`."""
        return f"{100 * self.mean:.3g} % of {self.vocab:,} tokens active"


def _quantiles(shares: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(np.quantile(shares, LEVELS).tolist())


STAGES = ("body_s", "product_s", "search_s")
"""Stages of a decode step; their seconds add up to those of the step."""


class DecoderVariant(Block):
    """Seconds of one decode step of `batch` sentences, the search included, with these decoder settings."""

    settings: DecoderSettings
    batch: Count = 1
    step_s: Duration
    """The whole step: the model, choosing tokens, reordering a beam."""
    body_s: Duration
    """Everything but product and search: recurrence, attention, bookkeeping."""
    product_s: Duration
    """Product of the output layer (first stage of FNI-01)."""
    search_s: Duration
    """Bias, softmax and search (the other three stages of FNI-01, which a fused decoder computes in one)."""
    agreement: Share | None = None
    """Share of target tokens, teacher-forced on a trained model, that equal those of the exact decoder with the same candidates
    (SHARP-10); null: exact, or not measured."""
    likeliest_active: Share | None = None
    """Share of rows and steps, with a restricted vocabulary and free decoding, whose likeliest token of the whole vocabulary is
    active (1 less the miss rate of FVP-08); decoding goes on with the chosen token after a miss. null: not measured."""
    identical: Share | None = None
    """Share of sentences with the same translation as the exact decoder's (FVP-08); null: exact, or not measured."""
    active: ActiveShare | None = None

    @classmethod
    def of(cls, settings: DecoderSettings, batch: int, *stages_s: float) -> DecoderVariant:
        """Return the variant of measured `STAGES`; a stage below the resolution of the clock counts as a nanosecond."""
        body_s, product_s, search_s = parts_s = [max(seconds, 1e-9) for seconds in stages_s]
        return cls(settings=settings, batch=batch, step_s=sum(parts_s), body_s=body_s, product_s=product_s, search_s=search_s)

    @property
    def shares(self) -> tuple[float, float, float]:
        """Shares of body, product and search in the step; their sum is 1 (FNI-17)."""
        total_s = self.body_s + (self.product_s + self.search_s)
        return self.body_s / total_s, self.product_s / total_s, self.search_s / total_s


class DecoderBlock(Block):
    """Decode steps of several variants at some batch sizes, measured alternately so that they can be compared."""

    kind: Annotated[Kind, Shown()]
    base: Annotated[DecoderSettings, Shown("the other costs are of {}")]
    src_len: Annotated[Length | None, Shown("under sources of {} tokens")] = None
    repeats: Annotated[Count | None, Shown("{} timings each, taken in turn")] = None
    variants: Annotated[tuple[DecoderVariant, ...], Field(min_length=1)]
    left_out: Annotated[tuple[str, ...], Shown("left out: {}")] = ()
    notes: Annotated[tuple[str, ...], NOTE] = ()

    @model_validator(mode="after")
    def _comparable(self) -> DecoderBlock:
        seen = [(canonical(variant.settings), variant.batch) for variant in self.variants]
        if len(set(seen)) < len(seen):
            settings, batch = next(pair for pair in seen if seen.count(pair) > 1)
            raise ValueError(f"variants: {settings.describe()} at batch {batch} is listed twice")
        lacking = [batch for _, batch in seen if (canonical(self.base), batch) not in seen]
        if lacking:
            raise ValueError(f"base: {self.base.describe()} is not among the variants at batch {lacking[0]}")
        return self

    @property
    def batches(self) -> tuple[int, ...]:
        """Batch sizes of the measured variants, rising."""
        return tuple(sorted({variant.batch for variant in self.variants}))

    @property
    def measured(self) -> tuple[DecoderSettings, ...]:
        """Settings of the measured variants, each once, in the order of the block."""
        return tuple(dict.fromkeys(variant.settings for variant in self.variants))

    def lines(self, label: str) -> Iterator[tuple[str, str]]:
        """Return the steps of each variant by batch size too, with the shares of the stages, which sum to 100 % (FNI-17)."""
        yield from super().lines(label)
        for settings in self.measured:
            parts = []
            for variant in self.variants:
                if variant.settings == settings:
                    body, product, search = (100 * share for share in variant.shares)
                    ratio = variant.step_s / self.at(variant.batch)[canonical(self.base)].step_s
                    active = "" if variant.active is None else f", {variant.active.describe()}"
                    shares = f"body {body:.0f} %, product {product:.0f} %, bias, softmax and search {search:.0f} %"
                    times = f"{1e3 * variant.step_s:.4g} ms, {ratio:.3g} times the base's"
                    parts.append(f"batch {variant.batch}: {times} ({shares}){active}")
            yield f"{label} {settings.describe()}", "; ".join(parts)

    def at(self, batch: int) -> dict[DecoderSettings, DecoderVariant]:
        """Return the variants at a batch size, by settings in canonical form."""
        return {canonical(variant.settings): variant for variant in self.variants if variant.batch == batch}


def canonical(settings: DecoderSettings) -> DecoderSettings:
    """Return the one form of equivalent settings: `frequent_words` counts only where embeddings are the frequent ones."""
    if settings.embeddings == "frequent":
        return settings
    return settings.model_copy(update={"frequent_words": FREQUENT_WORDS})
