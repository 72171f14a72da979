"""Measured decoder variants of a profile: decode steps by stage, active share of the vocabulary, equal translations (SHARP-10).

The active share of the vocabulary is a distribution over steps and sentences (FVP-11).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from simnmt.base.arrays import Floats
from simnmt.profile.blocks import NOTE, Block, Count, Duration, Kind, Length, Share, Shown
from simnmt.profile.decoder_settings import DecoderSettings

LEVELS = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
"""Levels of the stored quantiles, least and most included."""
Shares = Annotated[tuple[Share, ...], Field(min_length=len(LEVELS), max_length=len(LEVELS))]


class ActiveShare(Block):
    """Distribution of the active share of the output layer's columns, at one batch size, on real text (FVP-11)."""

    vocab: Annotated[int, Field(ge=2)]
    steps: Annotated[int, Field(ge=1)]
    mean: Share
    """Mean over steps of the share that a step multiplies, the union of all its rows (FVP-06)."""
    by_step: Shares
    """Quantiles over steps, one for each of `LEVELS`."""
    by_sentence: Shares | None = None
    """Quantiles, over sentences decoded alone, of a sentence's mean share; null if sentences share steps."""
    s_per_share: Annotated[float, Field(ge=0.0, le=1e3)] | None = None
    """Slope of the seconds of a step over its active share."""

    @classmethod
    def of(
        cls, columns: Sequence[int], vocab: int, *, by_sentence: Sequence[float] | None = None, s_per_share: float | None = None
    ) -> ActiveShare:
        """Return the distribution of the active columns of each step; `by_sentence`: mean shares of sentences decoded alone."""

        def quantiles(shares: Sequence[float] | Floats) -> tuple[float, ...]:
            return tuple(np.quantile(np.asarray(shares, np.float64), LEVELS).tolist())

        return cls(
            vocab=vocab,
            steps=len(columns),
            mean=float(np.mean(columns)) / vocab,
            by_step=quantiles(np.asarray(columns) / vocab),
            by_sentence=None if by_sentence is None else quantiles(by_sentence),
            s_per_share=s_per_share,
        )

    def more_s(self, uniform: Floats) -> Floats:
        """Draw the seconds of a step of single sentences above the mean, by inverse transform of uniform draws in [0, 1).

        A step's time is linear in the active share, which is uniform between quantiles. The expectation is 0. All 0 if single
        sentences were not measured.
        """
        if self.by_sentence is None or self.s_per_share is None:
            return np.zeros_like(uniform)
        quantiles = np.array(self.by_sentence)
        expected = float(np.diff(LEVELS) @ (quantiles[1:] + quantiles[:-1]) / 2.0)
        return np.asarray(self.s_per_share * (np.interp(uniform, LEVELS, quantiles) - expected))

    def __str__(self) -> str:
        return f"{100 * self.mean:.3g} % of {self.vocab:,} tokens active"


def memory_account(vocab: int, width: int, clusters: int, columns: int, bytes_per_number: int = 2) -> dict[str, int]:
    """Return the bytes of clusters with so many active `columns` in all sets together, by part (FVP-12, FVP-13).

    The parts are the centroids; their squared norms and their mean in float32, computed beforehand (FVP-05); the indices of the
    active columns; the begins of the sets, which the paper's sum leaves out; and a flag per column for making a union (FVP-06).
    """
    return {
        "centroids": clusters * width * bytes_per_number,
        "norms": 4 * (clusters + width),
        "indices": 4 * columns,
        "starts": 8 * (clusters + 1),
        "flags": vocab,
    }


STAGES = ("body_s", "product_s", "search_s")
"""Stages of a decode step; their seconds add up to those of the step."""


class DecoderVariant(Block):
    """Seconds of one decode step of `batch` sentences, the search included, with these decoder settings."""

    settings: DecoderSettings
    batch: Count = 1
    body_s: Duration
    """Everything but product and search: recurrence, attention, reordering a beam, bookkeeping."""
    product_s: Duration
    """Product of the output layer (first stage of FNI-01)."""
    search_s: Duration
    """Bias, softmax and search (the other three stages of FNI-01, which a fused decoder computes in one)."""
    agreement: Share | None = None
    """Share of target tokens, teacher-forced on a trained model, that equal those of the exact decoder with the same candidates
    (SHARP-10)."""
    likeliest_active: Share | None = None
    """Share of rows and steps of free decoding whose likeliest token of the whole vocabulary is active (1 less the miss rate of
    FVP-08); decoding goes on with the chosen token after a miss."""
    identical: Share | None = None
    """Share of sentences with the same translation as the exact decoder's (FVP-08)."""
    active: ActiveShare | None = None

    @classmethod
    def of(cls, settings: DecoderSettings, batch: int, *stages_s: float) -> DecoderVariant:
        """Return the variant of measured `STAGES`; a stage below the resolution of the clock counts as a nanosecond."""
        body_s, product_s, search_s = (max(seconds, 1e-9) for seconds in stages_s)
        return cls(settings=settings, batch=batch, body_s=body_s, product_s=product_s, search_s=search_s)

    @property
    def step_s(self) -> float:
        """Seconds of the whole step."""
        return self.body_s + self.product_s + self.search_s

    @property
    def shares(self) -> tuple[float, float, float]:
        """Shares of body, product and search in the step; their sum is 1 (FNI-17)."""
        return self.body_s / self.step_s, self.product_s / self.step_s, self.search_s / self.step_s


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
        seen = [(variant.settings, variant.batch) for variant in self.variants]
        if len(set(seen)) < len(seen) or not {(self.base, batch) for _, batch in seen} <= set(seen):
            raise ValueError("variants: settings are listed twice with a batch size, or the base lacks one")
        return self

    @property
    def measured(self) -> tuple[DecoderSettings, ...]:
        """Settings of the measured variants, each once, in the order of the block."""
        return tuple(dict.fromkeys(variant.settings for variant in self.variants))

    def steps(self, settings: DecoderSettings) -> dict[int, DecoderVariant]:
        """Return the variants with these settings by batch size, rising."""
        alike = [variant for variant in self.variants if variant.settings == settings]
        return {variant.batch: variant for variant in sorted(alike, key=lambda variant: variant.batch)}

    def lines(self, label: str) -> Iterator[tuple[str, str]]:
        """Return the steps of each variant by batch size too, with the shares of the stages, which sum to 100 % (FNI-17)."""
        yield from super().lines(label)
        base = self.steps(self.base)
        for settings in self.measured:
            parts = []
            for batch, variant in self.steps(settings).items():
                body, product, search = (100 * share for share in variant.shares)
                shares = f"body {body:.0f} %, product {product:.0f} %, bias, softmax and search {search:.0f} %"
                times = f"{1e3 * variant.step_s:.4g} ms, {variant.step_s / base[batch].step_s:.3g} times the base's"
                parts.append(f"batch {batch}: {times} ({shares})" + (f", {variant.active}" if variant.active else ""))
            yield f"{label} {settings.describe()}", "; ".join(parts)
