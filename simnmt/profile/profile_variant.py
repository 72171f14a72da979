"""Profile variants: the same device with another decoder configuration, as calibrated, measured or composed (SHARP-11, XP-03).

A variant multiplies steps, gaps and the plane's slope by the ratio of its step to the step of the block's base, both timed
in turn. The steps of a profile are timed by another bench and then multiplied by a pace (`simnmt.profile.consistency`), so
seconds of one must not be added to seconds of the other: on a box whose speed varies, a variant would save too much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from simnmt.profile.batch_cost import StepCost
from simnmt.profile.blocks import EngineBlock, Kind, Overhead, Overheads, ProfileError, StepBlock
from simnmt.profile.decoder_block import (
    OPTIONS,
    ActiveShare,
    CompositionError,
    DecoderBlock,
    DecoderVariant,
    Stages,
    agreement_of,
    canonical,
    compose_stages,
    composition_error,
    describe_fidelity,
    rounding_of,
    value_of,
    worst_of,
)
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.least_squares import fit_overhead

if TYPE_CHECKING:
    from simnmt.profile.device_profile import DeviceProfile

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
        """`decoder beam 5, fused: measured, exact`; with the beam of the profile if that differs."""
        summary = f"decoder {self.settings.words()}: {_HOW[self.how]}, {self.fidelity}"
        return summary if self.settings.beam == self.base.beam else f"{summary} (the profile is of beam {self.base.beam})"

    @property
    def fidelity(self) -> str:
        """`exact`, or its agreement."""
        return describe_fidelity(
            self.settings,
            self.agreement,
            rounding=self.rounding,
            multiplied=self.multiplied,
            identical=self.identical,
            likeliest_active=self.likeliest_active,
        )

    @property
    def alone(self) -> StepTimes | None:
        """Step times of a single sentence; None if not measured at batch 1."""
        return next((step for step in self.steps if step.batch == 1), None)

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
        active_by_batch = [(step.batch, step.active) for step in self.steps if step.active is not None]
        return ", ".join(
            f"{active.words()} on average at batch {batch}" if not number else f"{100 * active.mean:.3g} % at batch {batch}"
            for number, (batch, active) in enumerate(active_by_batch)
        )

    def words(self) -> str:
        """Describe the variant in one sentence without a full stop."""
        if self.how == "base":
            return f"{self.short}, which the profile's costs are of"
        times = [f"{step.ratio:.3g} at batch {step.batch}" for step in self.steps]
        summary = f"{self.short}; a decode step takes, times that of {self.base.words()}: {', '.join(times)}"
        if self.settings.beam != self.base.beam:
            summary += f"; refilling, and what a longer source adds, as with beam {self.base.beam}"
        if active := self.active_words:
            summary += f"; {active}"
        return summary if self.how == "measured" else f"{summary}; {self.composition_words()}"

    def composition_words(self) -> str:
        """How far composing is to be trusted."""
        how = "composed of the measured effects of its options, which multiply within a stage of the step"
        if self.error is None:
            return f"{how}; by how much that errs is not known, as no measured variant follows from the others"
        return f"{how}; that is off by {self.error.words()}"

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers in SI units."""
        error, shares = self.error, {str(step.batch): step.active.mean for step in self.steps if step.active is not None}
        # Output of runs from before vocabularies could be chosen must stay the same to the byte.
        vocabulary_facts = {"active_share": shares, "identical": self.identical, "likeliest_active": self.likeliest_active}
        vocabulary = vocabulary_facts if shares else {}
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
    """Find a variant, or compose it. `name`: of the profile; `compute_type`: of the engine, which `gemm: null` means.

    Raises `ProfileError` if the block does not determine the variant's times, with the variants that it could give.
    """
    wanted = _as_measured(block, settings, compute_type)
    if wanted == canonical(block.base):
        how: How = "base"
    elif any(wanted == canonical(measured_settings) for measured_settings in block.measured):
        how = "measured"
    else:
        how = "composed"
        _check_values(block, wanted, name)
    steps = tuple(times for batch in block.batches if (times := _times(block, wanted, batch)) is not None)
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
    """Fill in unnamed settings from the block: `candidates` and `vocabulary`, which are no techniques, as in the base;
    `frequent_words` as in the base, or as measured if that is one number.
    """
    unnamed: dict[str, Any] = {}
    named = settings.model_fields_set & {"candidates", "vocabulary"}
    if not named:
        unnamed |= {"candidates": block.base.candidates, "vocabulary": block.base.vocabulary}
    elif named == {"vocabulary"} and settings.vocabulary == "candidates":
        unnamed["candidates"] = block.base.candidates
    if settings.embeddings == "frequent" and "frequent_words" not in settings.model_fields_set:
        measured = (block.base, *block.measured)
        frequent = [measured_settings for measured_settings in measured if measured_settings.embeddings == "frequent"]
        known = {measured_settings.frequent_words for measured_settings in frequent}
        if block.base.embeddings == "frequent":
            unnamed["frequent_words"] = block.base.frequent_words
        elif len(known) == 1:
            unnamed["frequent_words"] = known.pop()
    return settings.model_copy(update=unnamed)


def _as_measured(block: DecoderBlock, settings: DecoderSettings, compute_type: str | None) -> DecoderSettings:
    """Normalise the settings to the block's GEMM names: the engine's type may be named or null."""
    known = {measured_settings.gemm for measured_settings in block.measured}
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
    variant = measured.get(wanted)
    if variant is not None:
        variant_stages = Stages(variant.body_s, variant.product_s, variant.search_s)
        active, s_per_share = _active(measured, wanted, variant_stages)
        return StepTimes(batch, stages, base.step_s, variant_stages, variant.step_s, active, s_per_share)
    if any(wanted == canonical(measured_settings) for measured_settings in block.measured):
        return None  # measured at other batch sizes: measured and composed steps are not mixed
    composed = compose_stages(measured, wanted)
    if composed is None:
        return None
    return StepTimes(batch, stages, base.step_s, composed, composed.step_s, *_active(measured, wanted, composed))


def _active(
    measured: Mapping[DecoderSettings, DecoderVariant], wanted: DecoderSettings, stages: Stages
) -> tuple[ActiveShare | None, float | None]:
    """Return the active share of a restricted vocabulary and its added seconds per share, from the most similar variant."""
    known = [variant for variant in measured.values() if variant.active is not None]
    alike = [variant for variant in known if variant.settings.vocabulary == wanted.vocabulary]
    if not alike:
        return None, None
    nearest = min(
        alike, key=lambda variant: sum(value_of(variant.settings, option) != value_of(wanted, option) for option in OPTIONS)
    )
    assert nearest.active is not None
    slope_s = nearest.active.s_per_share
    # A larger share slows only the output layer: product and search.
    return nearest.active, None if slope_s is None else slope_s * stages.layer_s / (nearest.product_s + nearest.search_s)


def _check_values(block: DecoderBlock, wanted: DecoderSettings, name: str) -> None:
    """Raise `ProfileError` for an option value that was not measured: only measured values have known effects."""
    for option in OPTIONS:
        value = value_of(wanted, option)
        known = list(dict.fromkeys(value_of(measured_settings, option) for measured_settings in block.measured))
        if value not in known:
            named = wanted.embeddings if option == "embeddings" and "frequent_words" not in wanted.model_fields_set else value
            measure = f"{CALIBRATE} --vocabulary" if option == "vocabulary" else CALIBRATE
            raise ProfileError(
                f"profile {name} was not measured with {option} {_format_value(named)}, only with {_format_values(known)}",
                remedy=f"give {option}: {_format_values(known, ' or ')}, or {measure}",
            )


def _refuse_combination(block: DecoderBlock, wanted: DecoderSettings, name: str) -> NoReturn:
    def differing_options(settings: DecoderSettings) -> int:
        return sum(value_of(settings, option) != value_of(wanted, option) for option in OPTIONS)

    nearest = min(block.measured, key=differing_options)
    raise ProfileError(
        f"{wanted.words()} was not measured in profile {name}, and cannot be composed: some of its options were only ever "
        "measured together, which does not tell the effect of each",
        remedy=f"take a measured variant, such as {nearest.words()}, or {CALIBRATE}",
    )


def _format_value(value: object) -> str:
    """Format a value as in a scenario file."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _format_values(values: Sequence[object], between: str = ", ") -> str:
    return between.join(_format_value(value) for value in values)


Floats = NDArray[np.float64]
_LEAST_SURE_FIRST: tuple[Kind, ...] = ("synthetic", "inferred", "measured")
LEAST_LEFT = 0.02
"""Share of a variant's step and gap that its gap must leave for the model."""


def with_decoder(profile: DeviceProfile, settings: DecoderSettings) -> tuple[DeviceProfile, DecoderChoice]:
    """Return the profile of the same device with another decoder configuration, and what that rests on.

    Step with gap, and the plane's seconds per target token, are multiplied by the ratio of the variant's step to that of
    the block's `base`, at each batch size. A ratio and not a difference: both steps were timed in turn, but perhaps at
    another pace than the rest of the profile. A variant that was measured is taken as it is, another one composed of the
    effects of its options. Encoder, refilling and what a longer source adds stay as they are. The new profile has no block
    `decoder`; for the settings of `base` it is this one.

    Raises `ProfileError` where there is no such block, where it does not tell the variant's times, and for settings that
    name no beam where the profile's is not 1. Unnamed `candidates` are those of `base`, and an unnamed `frequent_words`
    what was measured, where there is one.
    """
    block = profile.decoder
    if block is None:
        raise ProfileError(
            f"profile {profile.name} has no variants of its decoder (block decoder)",
            remedy="calibrate with --only decoder --out and the profile's file, or name a profile that has them",
        )
    if "beam" not in settings.model_fields_set and settings.beam != block.base.beam:
        raise ProfileError(
            f"no beam is named, and profile {profile.name} is of beam {block.base.beam}",
            remedy=f"say beam: {block.base.beam}, or beam: {settings.beam} if that is meant",
        )
    compute_type = None if profile.engine is None else profile.engine.compute_type
    choice = choose(block, as_meant(block, settings), name=profile.name, compute_type=compute_type)
    if choice.how == "base":
        return _at_pace(profile, choice)
    kind = _kind(profile.execution.kind, choice, block.kind)
    changed: dict[str, Any] = {"decoder": None, "reconciliation": None, "execution": _execution(profile, choice, kind)}
    if profile.engine is not None:
        changed["engine"] = _engine(profile.engine, choice.settings)
    if profile.step is not None:
        changed["step"], changed["overheads"] = _step(profile, profile.step, choice, kind)
    if choice.settings.beam != block.base.beam:
        changed["beam_overrun"] = None  # of another beam it is not known
    if profile.energy is not None and profile.energy.j_per_tgt_token is not None and choice.alone is not None:
        # At the same power, energy goes with time.
        per_tgt_token = choice.alone.ratio * profile.energy.j_per_tgt_token
        changed["energy"] = profile.energy.model_copy(update={"j_per_tgt_token": per_tgt_token})
    return _at_pace(profile.model_copy(update=changed), choice)


def _at_pace(profile: DeviceProfile, choice: DecoderChoice) -> tuple[DeviceProfile, DecoderChoice]:
    """Return the profile and the choice with its pace: a target token of the profile over the step measured at batch 1."""
    alone = choice.alone
    if alone is None:
        return profile, choice
    return profile, replace(choice, pace=profile.plane.s_per_tgt_token / alone.step_s)


def as_calibrated(profile: DeviceProfile) -> DecoderChoice | None:
    """Return the decoder that the costs are of, with what is known of its fidelity; None where no engine is recorded."""
    engine, block = profile.engine, profile.decoder
    compute_type = None if engine is None else engine.compute_type
    if block is not None:
        return choose(block, block.base, name=profile.name, compute_type=compute_type)
    if engine is None:
        return None
    settings = DecoderSettings.model_validate({"fused": engine.fused} | (engine.decoder or {}) | {"beam": engine.beam})
    return DecoderChoice(settings, settings, "base", (), None, rounding=rounding_of(settings, compute_type))


def _engine(engine: EngineBlock, settings: DecoderSettings) -> EngineBlock:
    """Return the same engine with the decoder of these settings."""
    decoder = None if engine.decoder is None else settings.model_dump(mode="json", exclude={"beam"})
    return engine.model_copy(update={"beam": settings.beam, "fused": settings.fused, "decoder": decoder})


def _execution(profile: DeviceProfile, choice: DecoderChoice, kind: Kind) -> Any:
    """Return the execution block for single sentences: each target token takes one step at batch 1."""
    if choice.alone is None:
        raise ProfileError(
            f"{choice.settings.words()} was not measured at batch 1 in profile {profile.name}, so what it takes for a single "
            "sentence is not known",
            remedy=f"take another variant, or {CALIBRATE}",
        )
    execution = profile.execution
    plane = execution.plane.model_copy(update={"s_per_tgt_token": choice.alone.ratio * execution.plane.s_per_tgt_token})
    return execution.model_copy(update={"kind": kind, "plane": plane, "samples": ()})


def _step(profile: DeviceProfile, step: StepBlock, choice: DecoderChoice, kind: Kind) -> tuple[StepBlock, Overheads | None]:
    """Multiply step and gap together by the measured ratio, at each batch size and every position.

    Between batch sizes it is the ratio of interpolated times. The step block ends at the greatest batch at which the variant
    was measured, if that is below the block's greatest.
    """
    cost, most = StepCost.of(step), max(times.batch for times in choice.steps)
    batches = np.array(sorted({batch for batch in (*step.batch, *(times.batch for times in choice.steps)) if batch <= most}))
    batches = batches[(batches >= step.batch[0]) & (batches <= step.batch[-1])]
    if not batches.size:
        batches = np.array(step.batch[:1])
    mean_over_usual = step.run_over_told or 1.0
    gap_s = _gap_s(profile.overheads, batches)
    # The average step is dearer than the usual one, which the block is of; the ratio is of the average with its gap.
    before_s = mean_over_usual * cost.seconds(batches[:, None], np.array(step.position)[None, :]) + gap_s[:, None]
    base_s = _along(batches, choice, lambda times: times.base_step_s)
    after_s = (_along(batches, choice, lambda times: times.step_s) / base_s)[:, None] * before_s
    # Variants are measured at the first positions.
    more_search_s = _along(batches, choice, lambda times: times.more_search_s) / base_s * before_s[:, 0]
    overheads = _with_gap(profile.overheads, batches, gap_s + more_search_s, before_s, after_s)
    seconds = (after_s - _gap_s(overheads, batches)[:, None]) / mean_over_usual
    moved = step.model_copy(
        update={
            "kind": kind,
            "form": "table",
            "batch": tuple(batches.tolist()),
            "seconds": tuple(tuple(row) for row in seconds.tolist()),
            "coefficients": None,
            "alone_s": None,
            "judged_batch": (),
            "judged_cells": (),
            "beam": choice.settings.beam,
            "notes": (*step.notes, f"moved by the ratio of {choice.settings.words()} to {choice.base.words()}"),
        }
    )
    return moved, overheads


def _gap_s(overheads: Overheads | None, batches: NDArray[np.int64]) -> Floats:
    """The gap after a step at each batch size; what is not known of it counts as 0 s."""
    fixed_s, per_sentence_s = (_value(cost) for cost in _gap_costs(overheads))
    gap_s: Floats = fixed_s + per_sentence_s * batches.astype(np.float64)
    return gap_s


def _gap_costs(overheads: Overheads | None) -> tuple[Overhead | None, Overhead | None]:
    return (None, None) if overheads is None else (overheads.step_gap_s, overheads.step_gap_s_per_sentence)


def _value(cost: Overhead | None) -> float:
    return 0.0 if cost is None or cost.value is None else cost.value


def _with_gap(
    overheads: Overheads | None, batches: NDArray[np.int64], gap_s: Floats, before_s: Floats, after_s: Floats
) -> Overheads | None:
    """The overheads with the line over the batch that is nearest to the wanted gaps; untouched where no gap is known.

    `before_s`, `after_s`: steps with their gaps, shape (batch sizes, positions). If the line leaves less than `LEAST_LEFT` of
    some step for the model, as where variants save more than the gap's search, the old gap times the least ratio is taken.
    """
    costs = _gap_costs(overheads)
    known = [cost for cost in costs if cost is not None and cost.value is not None]
    if overheads is None or not known:
        return overheads
    line = fit_overhead(batches, np.maximum(gap_s, 0.0))
    line_s = (line.s_fixed, line.s_per_sentence if batches.size > 1 else _value(costs[1]))
    if (line_s[0] + line_s[1] * batches > (1.0 - LEAST_LEFT) * after_s.min(axis=1)).any():
        least = float((after_s / before_s).min())
        line_s = (least * _value(costs[0]), least * _value(costs[1]))
    moved = {
        name: Overhead(value=value, kind=known[0].kind, note="" if cost is None else cost.note)
        for name, cost, value in zip(("step_gap_s", "step_gap_s_per_sentence"), costs, line_s, strict=True)
        if cost is not None or value
    }
    return overheads.model_copy(update=moved)


def _along(batches: NDArray[np.int64], choice: DecoderChoice, seconds: Callable[[StepTimes], float]) -> Floats:
    """Measured seconds at these batch sizes: between those measured a line, beyond them as at the nearest."""
    at, known_s = zip(*((float(times.batch), seconds(times)) for times in choice.steps), strict=True)
    along_s: Floats = np.interp(batches.astype(np.float64), at, known_s)
    return along_s


def _kind(execution_kind: Kind, choice: DecoderChoice, block: Kind) -> Kind:
    """Return the least certain kind; a composed variant was not measured."""
    kinds = {execution_kind, block, "inferred" if choice.how == "composed" else "measured"}
    return next(kind for kind in _LEAST_SURE_FIRST if kind in kinds)
