"""Measured decoder variants of a profile: decode steps by stage, active vocabulary, and equal translations (SHARP-10)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, model_validator

from simnmt.profile.blocks import NOTE, Block, Count, Duration, Kind, Length, Share, Shown
from simnmt.profile.decoder_settings import DecoderSettings


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
    active_share: Share | None = None
    """Share of the vocabulary that a step multiplies for all its rows together (FVP-06), mean over a text (FVP-11);
    null: all of it."""

    @classmethod
    def of(cls, settings: DecoderSettings, batch: int, *stages_s: float) -> DecoderVariant:
        """Return the variant of measured `STAGES`; a stage below the resolution of the clock counts as a nanosecond."""
        body_s, product_s, search_s = (max(seconds, 1e-9) for seconds in stages_s)
        return cls(settings=settings, batch=batch, body_s=body_s, product_s=product_s, search_s=search_s)

    @property
    def step_s(self) -> float:
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
                share = variant.active_share
                active = "" if share is None else f", {100 * share:.3g} % of the vocabulary active"
                parts.append(f"batch {batch}: {times} ({shares}){active}")
            yield f"{label} {settings.describe()}", "; ".join(parts)
