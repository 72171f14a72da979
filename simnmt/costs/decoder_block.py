"""What a profile knows of the ways in which its decoder can be written: whole decode steps and their stages, by variant."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from simnmt.configuration import Configuration
from simnmt.costs.active_share import ActiveShare
from simnmt.costs.decoder_settings import FREQUENT_WORDS, DecoderSettings
from simnmt.costs.profile_blocks import Count, Duration, Kind, Length

STAGES = ("body_s", "product_s", "search_s")
"""Of a decode step; they add up to it."""
PARTS_DIFFER = 0.02
"""Of the step: what its stages may sum to beside it."""


class DecoderVariant(Configuration):
    """Time of one decode step of `batch` sentences, the search included, with a decoder so written; seconds."""

    settings: DecoderSettings
    batch: Count = 1
    step_s: Duration
    """The whole: the model, choosing tokens, reordering a beam."""
    body_s: Duration
    """All but the other two: recurrence, attention, bookkeeping."""
    product_s: Duration
    """The output layer's product (FNI-01's first stage)."""
    search_s: Duration
    """Bias, softmax and search (FNI-01's other three, which fusing makes one)."""
    agreement: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Share of target tokens, teacher-forced on a trained model, that are those of the exact decoder with the same candidates
    (SHARP-10); null: exact, or not measured."""
    likeliest_active: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Of a restricted vocabulary, decoding freely: share of its own rows and steps whose likeliest token of all is active (one
    less the miss rate of FVP-08); what follows a miss is judged along the path that was taken. null: not measured."""
    identical: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Share of sentences whose whole translation is the exact decoder's (FVP-08); null: exact, or not measured."""
    active: ActiveShare | None = None
    """Of a restricted vocabulary: what is multiplied of it."""

    @model_validator(mode="after")
    def _adds_up(self) -> DecoderVariant:
        parts_s = sum(getattr(self, stage) for stage in STAGES)
        if abs(parts_s - self.step_s) > PARTS_DIFFER * self.step_s:
            raise ValueError(f"stages of {parts_s:g} s together where the step takes {self.step_s:g} s")
        if self.active is not None and self.settings.vocabulary == "full":
            raise ValueError("active: a decoder of the full vocabulary has all of it active")
        return self

    @property
    def shares(self) -> tuple[float, float, float]:
        """Of body, product and search in the step; 1 together (FNI-17)."""
        parts_s = [getattr(self, stage) for stage in STAGES]
        body, product, search = (part / sum(parts_s) for part in parts_s)
        return body, product, search


class DecoderBlock(Configuration):
    """Decode steps of several variants, each at some batch sizes, measured in turn so that they can be compared."""

    kind: Kind
    base: DecoderSettings
    """The variant that the profile's other costs are of."""
    src_len: Length | None = None
    """Source tokens under the steps."""
    repeats: Count | None = None
    """Timings of a variant at a batch size."""
    variants: Annotated[tuple[DecoderVariant, ...], Field(min_length=1)]
    left_out: tuple[str, ...] = ()
    """What could not be measured, and why."""
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _comparable(self) -> DecoderBlock:
        seen = [(canonical(each.settings), each.batch) for each in self.variants]
        if len(set(seen)) < len(seen):
            settings, batch = next(each for each in seen if seen.count(each) > 1)
            raise ValueError(f"variants: {settings.words()} at batch {batch} stands there twice")
        lacking = [batch for _, batch in seen if (canonical(self.base), batch) not in seen]
        if lacking:
            raise ValueError(f"base: {self.base.words()} is not among the variants at batch {lacking[0]}")
        return self

    @property
    def batches(self) -> tuple[int, ...]:
        """At which variants were measured, rising."""
        return tuple(sorted({variant.batch for variant in self.variants}))

    @property
    def measured(self) -> tuple[DecoderSettings, ...]:
        """Each variant once, as the block names them."""
        return tuple(dict.fromkeys(variant.settings for variant in self.variants))

    def at(self, batch: int) -> dict[DecoderSettings, DecoderVariant]:
        """The variants at a batch size, by their settings in canonical form."""
        return {canonical(variant.settings): variant for variant in self.variants if variant.batch == batch}


def canonical(settings: DecoderSettings) -> DecoderSettings:
    """The same decoder, said in one way: `frequent_words` means nothing unless embeddings are the frequent ones."""
    if settings.embeddings == "frequent":
        return settings
    return settings.model_copy(update={"frequent_words": FREQUENT_WORDS})
