"""Which decoder a device is taken to run, and how its times are known: as calibrated, measured beside it, or composed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from simnmt.costs.active_share import ActiveShare
from simnmt.costs.decoder_block import DecoderBlock, DecoderVariant, canonical
from simnmt.costs.decoder_composition import (
    OPTIONS,
    CompositionError,
    Stages,
    composed,
    composition_error,
    value_of,
)
from simnmt.costs.decoder_fidelity import agreement_of, fidelity_words, rounding_of, worst_of
from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.costs.profile_error import ProfileError

How = Literal["base", "measured", "composed"]
CALIBRATE = "measure it with simnmt calibrate --only decoder"
_HOW = {"base": "as calibrated", "measured": "measured", "composed": "composed"}


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One decode step at a batch size: chosen and base, seconds."""

    batch: int
    base: Stages
    base_step_s: float
    own: Stages
    step_s: float
    active: ActiveShare | None = None
    """Of a restricted vocabulary, as measured; where the step is composed, with the same vocabulary in another variant."""
    s_per_share: float | None = None
    """Its `ActiveShare.s_per_share`, for this variant's product and search."""

    @property
    def ratio(self) -> float:
        """The whole step over the base's; below 1 where it is faster."""
        return self.step_s / self.base_step_s

    @property
    def more_search_s(self) -> float:
        """Bias, softmax and search above the base's; below 0 where they are faster."""
        return self.own.search_s - self.base.search_s


@dataclass(frozen=True, slots=True)
class DecoderChoice:
    """A variant of a profile's decoder and what its times rest on."""

    settings: DecoderSettings
    base: DecoderSettings
    how: How
    steps: tuple[StepTimes, ...]
    """By batch size, rising."""
    agreement: float | None
    """Share of target tokens that are those of the exact decoder with the same candidates; None: exact, or not measured. Of
    techniques that were never measured together the product of their own."""
    error: CompositionError | None = None
    """Of composing, on what was measured, with the same beam where that can judge; None where nothing is composed, or nothing
    could be left out to judge by."""
    rounding: str | None = None
    """The engine's type where that is not float32 and the settings name no other: it rounds, whatever the techniques."""
    multiplied: bool = False
    """Whether the agreement is a product."""
    identical: float | None = None
    """Share of sentences that are translated as by the exact decoder; None where that was not measured of this very vocabulary
    and beam."""
    likeliest_active: float | None = None
    """Share of a restricted decoder's rows and steps whose likeliest token of all was active, where measured."""
    pace: float = 1.0
    """Seconds of a target token by the profile's plane over the seconds of the measured step at batch 1."""

    @property
    def exact(self) -> bool:
        """Whether translations are those of the plain decoder of the same beam in float32 (XP-03)."""
        return self.settings.exact and self.rounding is None

    @property
    def short(self) -> str:
        """`decoder beam 5, fused: measured, exact`; with the profile's own beam where that is another."""
        told = f"decoder {self.settings.words()}: {_HOW[self.how]}, {self.fidelity}"
        return told if self.settings.beam == self.base.beam else f"{told} (the profile is of beam {self.base.beam})"

    @property
    def fidelity(self) -> str:
        """`exact`, or its agreement."""
        return fidelity_words(
            self.settings,
            self.agreement,
            rounding=self.rounding,
            multiplied=self.multiplied,
            identical=self.identical,
            likeliest_active=self.likeliest_active,
        )

    @property
    def alone(self) -> StepTimes | None:
        """Of a sentence by itself; None where that was not measured."""
        return next((each for each in self.steps if each.batch == 1), None)

    @property
    def varies(self) -> bool:
        """Whether sentences alone differ in what a step takes, as they do in what is active of the vocabulary."""
        alone = self.alone
        return bool(alone and alone.active and alone.active.by_sentence and alone.s_per_share)

    def more_s_per_tgt_token(self, uniform: NDArray[np.float64]) -> NDArray[np.float64]:
        """What sentences alone take above the mean for each target token, by uniform draws in [0, 1); the expectation is 0.

        A step takes a line over the share that is active, at the profile's pace. 0 where sentences are not known to differ.
        """
        alone = self.alone
        if alone is None or alone.active is None or alone.s_per_share is None:
            return np.zeros_like(uniform)
        return self.pace * alone.s_per_share * alone.active.deviation(uniform)

    @property
    def active_words(self) -> str:
        """`5.1 % of 12,000 tokens active on average at batch 1, 14 % at batch 16`; empty where that was not measured."""
        told = [(each.batch, each.active) for each in self.steps if each.active is not None]
        return ", ".join(
            f"{active.words()} on average at batch {batch}" if not number else f"{100 * active.mean:.3g} % at batch {batch}"
            for number, (batch, active) in enumerate(told)
        )

    def words(self) -> str:
        """What a reader must know, in one sentence without its end."""
        if self.how == "base":
            return f"{self.short}, which the profile's costs are of"
        times = [f"{step.ratio:.3g} at batch {step.batch}" for step in self.steps]
        told = f"{self.short}; a decode step takes, times that of {self.base.words()}: {', '.join(times)}"
        if self.settings.beam != self.base.beam:
            told += f"; refilling, and what a longer source adds, as with beam {self.base.beam}"
        if active := self.active_words:
            told += f"; {active}"
        return told if self.how == "measured" else f"{told}; {self.composition_words()}"

    def composition_words(self) -> str:
        """How far composing is to be trusted."""
        how = "composed of the measured effects of its options, which multiply within a stage of the step"
        if self.error is None:
            return f"{how}; by how much that errs is not known, as no measured variant follows from the others"
        return f"{how}; that is off by {self.error.words()}"

    def as_json(self) -> dict[str, Any]:
        """SI units."""
        error, shares = self.error, {str(each.batch): each.active.mean for each in self.steps if each.active is not None}
        # Runs of before there were vocabularies to choose from must stay as they were to the byte.
        told = {"active_share": shares, "identical": self.identical, "likeliest_active": self.likeliest_active}
        vocabulary = told if shares else {}
        return {
            "settings": self.settings.model_dump(mode="json"),
            "how": self.how,
            "exact": self.exact,
            "rounding": self.rounding,
            "agreement": self.agreement,
            "composition_error": None if error is None else {"mean": error.mean, "most": error.most, "judged": error.judged},
            "step_over_base": {str(step.batch): step.ratio for step in self.steps},
        } | vocabulary


def choose(block: DecoderBlock, settings: DecoderSettings, *, name: str, compute_type: str | None = None) -> DecoderChoice:
    """Find a variant, or compose it. `name`: of the profile; `compute_type`: its engine's, which `gemm: null` means.

    Raises `ProfileError` where the block does not tell its times, with what it could tell.
    """
    wanted = _as_measured(block, settings, compute_type)
    if wanted == canonical(block.base):
        how: How = "base"
    elif any(wanted == canonical(each) for each in block.measured):
        how = "measured"
    else:
        how = "composed"
        _check_values(block, wanted, name)
    steps = tuple(found for batch in block.batches if (found := _times(block, wanted, batch)) is not None)
    if not steps:
        _refuse_combination(block, wanted, name)
    agreement, multiplied = agreement_of(block, wanted)
    return DecoderChoice(
        settings=wanted,
        base=block.base,
        how=how,
        steps=steps,
        agreement=agreement,
        multiplied=multiplied,
        error=(composition_error(block, wanted.beam) or composition_error(block)) if how == "composed" else None,
        rounding=rounding_of(wanted, compute_type),
        identical=worst_of(block, wanted, "identical"),
        likeliest_active=worst_of(block, wanted, "likeliest_active"),
    )


def as_meant(block: DecoderBlock, settings: DecoderSettings) -> DecoderSettings:
    """What was left unnamed as the block has it: `candidates` and `vocabulary`, the search's extent and no technique, as in its
    base; `frequent_words` as measured, where they were with one number, or with the base's.
    """
    unnamed: dict[str, Any] = {}
    named = settings.model_fields_set & {"candidates", "vocabulary"}
    if not named:
        unnamed |= {"candidates": block.base.candidates, "vocabulary": block.base.vocabulary}
    elif named == {"vocabulary"} and settings.vocabulary == "candidates":
        unnamed["candidates"] = block.base.candidates
    if settings.embeddings == "frequent" and "frequent_words" not in settings.model_fields_set:
        known = {each.frequent_words for each in (block.base, *block.measured) if each.embeddings == "frequent"}
        if block.base.embeddings == "frequent":
            unnamed["frequent_words"] = block.base.frequent_words
        elif len(known) == 1:
            unnamed["frequent_words"] = known.pop()
    return settings.model_copy(update=unnamed)


def _as_measured(block: DecoderBlock, settings: DecoderSettings, compute_type: str | None) -> DecoderSettings:
    """The same decoder in the words of the block: products in the engine's own type may be named or not."""
    known = {each.gemm for each in block.measured}
    gemm = settings.gemm
    if gemm is None and None not in known:
        gemm = compute_type if compute_type in known else block.base.gemm
    elif gemm == compute_type and gemm not in known:
        gemm = None
    return canonical(settings.model_copy(update={"gemm": gemm}))


def _times(block: DecoderBlock, wanted: DecoderSettings, batch: int) -> StepTimes | None:
    measured = block.at(batch)
    base = measured[canonical(block.base)]
    stages = Stages(base.body_s, base.product_s, base.search_s)
    own = measured.get(wanted)
    if own is not None:
        its = Stages(own.body_s, own.product_s, own.search_s)
        return StepTimes(batch, stages, base.step_s, its, own.step_s, *_active(measured, wanted, its))
    if any(wanted == canonical(each) for each in block.measured):
        return None  # measured elsewhere: what could be measured is not mixed with what is composed
    found = composed(measured, wanted)
    if found is None:
        return None
    return StepTimes(batch, stages, base.step_s, found, found.step_s, *_active(measured, wanted, found))


def _active(
    measured: Mapping[DecoderSettings, DecoderVariant], wanted: DecoderSettings, stages: Stages
) -> tuple[ActiveShare | None, float | None]:
    """What is multiplied of a restricted vocabulary, and what a share of it takes more: of the variant that is most alike."""
    alike = [each for each in measured.values() if each.active is not None and each.settings.vocabulary == wanted.vocabulary]
    if not alike:
        return None, None
    own = min(alike, key=lambda each: sum(value_of(each.settings, option) != value_of(wanted, option) for option in OPTIONS))
    assert own.active is not None
    slope_s = own.active.s_per_share
    # What a share takes more, it takes in the output layer: product and search.
    return own.active, None if slope_s is None else slope_s * stages.layer_s / (own.product_s + own.search_s)


def _check_values(block: DecoderBlock, wanted: DecoderSettings, name: str) -> None:
    """Effects are known of the values that were measured, and of no other."""
    for option in OPTIONS:
        value, known = value_of(wanted, option), list(dict.fromkeys(value_of(each, option) for each in block.measured))
        if value not in known:
            named = wanted.embeddings if option == "embeddings" and "frequent_words" not in wanted.model_fields_set else value
            measure = f"{CALIBRATE} --vocabulary" if option == "vocabulary" else CALIBRATE
            raise ProfileError(
                f"profile {name} was not measured with {option} {_said(named)}, only with {_listed(known)}",
                remedy=f"give {option}: {_listed(known, ' or ')}, or {measure}",
            )


def _refuse_combination(block: DecoderBlock, wanted: DecoderSettings, name: str) -> NoReturn:
    nearest = min(
        block.measured, key=lambda each: sum(value_of(each, option) != value_of(wanted, option) for option in OPTIONS)
    )
    raise ProfileError(
        f"{wanted.words()} was not measured in profile {name}, and cannot be composed: some of its options were only ever "
        "measured together, which does not tell the effect of each",
        remedy=f"take a measured variant, such as {nearest.words()}, or {CALIBRATE}",
    )


def _said(value: object) -> str:
    """As a scenario says it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _listed(values: Sequence[object], between: str = ", ") -> str:
    return between.join(_said(value) for value in values)
