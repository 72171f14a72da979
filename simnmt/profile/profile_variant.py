"""Profile variants: the same device with another decoder configuration, as calibrated or measured (SHARP-11, XP-03).

A variant multiplies steps, gaps and the plane's slope by the ratio of its step to the step of the block's base, both timed
alternately. The steps of a profile are timed by another bench and then brought to the pace of whole executions, so seconds of
both must not be added: on a box whose speed varies, a variant would save too much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.profile.blocks import GAP_NAMES, Kind, ProfileError, StepBlock, overheads_times
from simnmt.profile.decoder_block import DecoderBlock, DecoderVariant
from simnmt.profile.decoder_settings import FREQUENT_WORDS, DecoderSettings
from simnmt.profile.device_profile import DeviceProfile

SHARES = ("agreement", "identical", "likeliest_active")


@dataclass(frozen=True, slots=True)
class DecoderChoice:
    """A variant of a profile's decoder: the origin of its times, and its agreement with the exact decoder (SHARP-10).

    The exact decoder has the same beam and candidates.
    """

    settings: DecoderSettings
    base: DecoderSettings
    steps: tuple[DecoderVariant, ...] = ()
    """Measured steps, by rising batch size."""
    base_steps: tuple[DecoderVariant, ...] = ()
    """Steps of the base at the same batch sizes."""
    rounding: str | None = None
    """Compute type of the products if it is the engine's and rounds; None: float32, or a type of the decoder."""

    @property
    def how(self) -> Literal["base", "measured"]:
        """Origin of the times: the profile, or the variant."""
        return "base" if self.settings == self.base else "measured"

    @property
    def exact(self) -> bool:
        """True if translations are those of the plain decoder of the same beam in float32 (XP-03)."""
        return self.settings.exact and self.rounding is None

    @property
    def shares(self) -> dict[str, float | None]:
        """The `SHARES` that were measured, least over the batch sizes; None: exact, or not measured."""
        known = {name: [getattr(step, name) for step in self.steps] for name in SHARES}
        return {name: min((share for share in shares if share is not None), default=None) for name, shares in known.items()}

    @property
    def ratios(self) -> dict[int, float]:
        """Seconds of a step over those of the base's step, by batch size."""
        return {step.batch: step.step_s / base.step_s for step, base in zip(self.steps, self.base_steps, strict=True)}

    @property
    def fidelity(self) -> str:
        """`exact`, or the shares that agree with the exact decoder; then rounding and candidates."""
        noise, rounding = self.settings.noise, self.rounding
        if not noise:
            text = "exact" if rounding is None else f"exact but for rounding in {rounding}"
        else:
            tokens, sentences, likeliest = (self.shares[name] for name in SHARES)
            alike = [f"{_percent(share)} of {unit}" for share, unit in ((tokens, "tokens"), (sentences, "sentences")) if share]
            known = [] if likeliest is None else [f"likeliest token of all active in {_percent(likeliest)} of its own steps"]
            known += [f"{' and '.join(alike)} as the exact decoder's"] if alike else []
            text = ", ".join(known) or f"not exact ({', '.join(noise)}), agreement not measured"
            text += "" if rounding is None else f", rounding in {rounding} aside"
        return text if self.settings.candidates is None else f"{text}, among its candidates"

    @property
    def short(self) -> str:
        """Description, `decoder beam 5, fused: measured, exact`; with the beam of the profile if that differs."""
        origin = "as calibrated" if self.how == "base" else "measured"
        other_beam = "" if self.settings.beam == self.base.beam else f" (the profile is of beam {self.base.beam})"
        return f"decoder {self.settings.describe()}: {origin}, {self.fidelity}{other_beam}"

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers in SI units."""
        return {
            "settings": self.settings.model_dump(mode="json"),
            "how": self.how,
            "exact": self.exact,
            "rounding": self.rounding,
            **self.shares,
            "step_over_base": {str(batch): ratio for batch, ratio in self.ratios.items()},
            "active_share": {str(step.batch): step.active_share for step in self.steps if step.active_share is not None},
        }


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %" if share > 0.99 else f"{100 * share:.3g} %"


def _meaning(settings: DecoderSettings, compute_type: str | None) -> DecoderSettings:
    """Return the one form of equivalent settings."""
    same: dict[str, Any] = {"gemm": settings.gemm or compute_type}
    if settings.embeddings != "frequent":
        same["frequent_words"] = FREQUENT_WORDS
    if settings.candidates is not None:
        same["vocabulary"] = "full"
    return settings.model_copy(update=same)


def _completed(block: DecoderBlock, settings: DecoderSettings) -> DecoderSettings:
    """Fill in what is no technique and was not named, as the base has it: the vocabulary, and the frequent words."""
    named, base, unnamed = settings.model_fields_set, block.base, dict[str, Any]()
    if not named & {"candidates", "vocabulary"}:
        unnamed |= {"candidates": base.candidates, "vocabulary": base.vocabulary}
    if settings.embeddings == "frequent" and "frequent_words" not in named:
        kept = (known.frequent_words for known in (base, *block.measured) if known.embeddings == "frequent")
        unnamed["frequent_words"] = next(kept, FREQUENT_WORDS)
    return settings.model_copy(update=unnamed)


def _rounding(settings: DecoderSettings, compute_type: str | None) -> str | None:
    return None if settings.gemm is not None or compute_type in (None, "float32") else compute_type


def choose(profile: DeviceProfile, settings: DecoderSettings) -> DecoderChoice:
    """Return a measured variant of a profile's decoder; options that are not named are those of the block's base.

    Raises `ProfileError` if the profile has no variants, and, with the most similar measured one, if this was not measured.
    """
    block, compute_type = profile.decoder, None if profile.engine is None else profile.engine.compute_type
    if block is None:
        raise ProfileError(
            f"profile {profile.name} has no variants of its decoder (block decoder)",
            remedy="calibrate with --part decoder --out and the profile's file, or name a profile that has them",
        )
    wanted = _completed(block, settings)
    # Without a step of batch 1, the time of a single sentence is unknown.
    known_alone = [known for known in block.measured if known == block.base or 1 in block.steps(known)]
    chosen = next((known for known in known_alone if _meaning(known, compute_type) == _meaning(wanted, compute_type)), None)
    if chosen is None:
        options = DecoderSettings.model_fields
        nearest = max(known_alone, key=lambda known: sum(getattr(known, key) == getattr(wanted, key) for key in options))
        restricts = wanted.vocabulary not in {measured.vocabulary for measured in block.measured}
        measure = "measure it with simnmt calibrate --part decoder" + (" --vocabulary" if restricts else "")
        raise ProfileError(
            f"{wanted.describe()} was not measured in profile {profile.name}",
            remedy=f"take a measured variant, such as {nearest.describe()}, or {measure}",
        )
    steps, base_steps = block.steps(chosen), block.steps(block.base)
    in_turn = tuple(base_steps[batch] for batch in steps)
    return DecoderChoice(chosen, block.base, tuple(steps.values()), in_turn, _rounding(chosen, compute_type))


def as_calibrated(profile: DeviceProfile) -> DecoderChoice | None:
    """Return the decoder with which the profile's costs were measured, and its known fidelity; None without an engine."""
    if profile.decoder is not None:
        return choose(profile, profile.decoder.base)
    if (engine := profile.engine) is None:
        return None
    options = {"fused": engine.fused} if engine.decoder is None else engine.decoder.model_dump()
    settings = DecoderSettings(**options, beam=engine.beam)
    return DecoderChoice(settings, settings, rounding=_rounding(settings, engine.compute_type))


def with_decoder(profile: DeviceProfile, settings: DecoderSettings) -> tuple[DeviceProfile, DecoderChoice]:
    """Return the profile of the same device with another decoder configuration, and the choice of variant.

    Step with gap, and the plane's seconds per target token, are multiplied as the module says. Costs of encoding, refilling and
    longer sources do not change. The new profile has no block `decoder`; for the settings of `base`, it is the profile itself.

    Raises `ProfileError` as `choose` does, and for settings that name no beam if the profile's beam is not 1.
    """
    block = profile.decoder
    if block is not None and "beam" not in settings.model_fields_set and settings.beam != block.base.beam:
        raise ProfileError(
            f"no beam is named, and profile {profile.name} is of beam {block.base.beam}",
            remedy=f"give beam: {block.base.beam}, or beam: {settings.beam} if that is meant",
        )
    choice = choose(profile, settings)
    return profile if choice.how == "base" else _moved(profile, choice), choice


def _moved(profile: DeviceProfile, choice: DecoderChoice) -> DeviceProfile:
    ratio = choice.ratios[1]
    kinds = (profile.execution.kind, "measured" if profile.decoder is None else profile.decoder.kind)
    kind = min(kinds, key=("synthetic", "inferred", "measured").index)
    plane = profile.execution.plane.times(1.0, ratio)
    execution = profile.execution.model_copy(update={"kind": kind, "plane": plane, "samples": ()})
    changed: dict[str, object] = {"decoder": None, "execution": execution}
    if profile.step is not None:
        changed["step"] = _moved_step(profile.step, profile.overheads_s, choice, kind)
        changed["overheads"] = overheads_times(profile.overheads, 0.0, GAP_NAMES)
    if choice.settings.beam != choice.base.beam:
        changed["beam_overrun"] = None  # unknown for another beam
    return profile.model_copy(update=changed)


def _moved_step(step: StepBlock, gaps: dict[str, float], choice: DecoderChoice, kind: Kind) -> StepBlock:
    """Multiply step and gap together by the measured ratio at each batch size of both; the gap is in the step then."""
    measured = np.array(list(choice.ratios))
    batches: NDArray[np.int64] = np.unique([*step.batch, *measured])
    batches = batches[(batches >= step.batch[0]) & (batches <= min(measured[-1], step.batch[-1]))]
    batches = batches if batches.size else np.array(step.batch[:1])
    # The mean step takes longer than the usual step of the block; the ratio holds for the mean step with its gap.
    mean_over_usual = step.run_over_predicted or 1.0
    gap_s = gaps.get("step_gap_s", 0.0) + gaps.get("step_gap_s_per_sentence", 0.0) * batches
    steps_s = mean_over_usual * step.cost.seconds(batches[:, None], np.array(step.position)[None, :])
    # Linear between measured batch sizes, constant beyond them.
    variant_s, base_s = (
        np.interp(batches, measured, [times.step_s for times in steps]) for steps in (choice.steps, choice.base_steps)
    )
    seconds = (variant_s / base_s)[:, None] * (steps_s + gap_s[:, None]) / mean_over_usual
    return step.model_copy(
        update={
            "kind": kind,
            "batch": tuple(batches.tolist()),
            "seconds": tuple(map(tuple, seconds.tolist())),
            "judged_cells": (),
            "beam": choice.settings.beam,
            "notes": (*step.notes, f"moved by the ratio of {choice.settings} to {choice.base}, gaps included"),
        }
    )
