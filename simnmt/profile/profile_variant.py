"""Profile variants: the same device with another decoder configuration, as calibrated or measured (SHARP-11, XP-03).

A variant multiplies steps, gaps and the plane's slope by the ratio of its step to the step of the block's base, both timed
alternately. The steps of a profile are timed by another bench and then brought to the pace of whole executions, so seconds of
both must not be added: on a box whose speed varies, a variant would save too much.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.profile.blocks import Kind, Overheads, ProfileError, StepBlock
from simnmt.profile.decoder_block import ActiveShare, DecoderBlock, DecoderVariant, canonical
from simnmt.profile.decoder_settings import DecoderOptions, DecoderSettings
from simnmt.profile.device_profile import DeviceProfile

CALIBRATE = "measure it with simnmt calibrate --part decoder"


EXACT_TYPE = "float32"
"""Compute type of engines that do not round."""


@dataclass(frozen=True, slots=True)
class DecoderChoice:
    """A variant of a profile's decoder: the origin of its times, and its agreement with the exact decoder (SHARP-10).

    The exact decoder has the same beam and candidates. The shares are the least over the measured batch sizes; None: exact, or
    not measured.
    """

    settings: DecoderSettings
    base: DecoderSettings
    steps: tuple[DecoderVariant, ...] = ()
    """Measured steps, by rising batch size."""
    base_steps: tuple[DecoderVariant, ...] = ()
    """Steps of the base at the same batch sizes."""
    rounding: str | None = None
    """Compute type of the products if it is the engine's and rounds; None: float32, or a type of the decoder."""
    agreement: float | None = None
    """Share of equal target tokens of any beam, since identities and beams do not change it."""
    identical: float | None = None
    """Share of equal sentences."""
    likeliest_active: float | None = None
    """Share of a restricted decoder's rows and steps whose likeliest token was active."""
    pace: float = 1.0
    """Seconds of a target token by the profile's plane over the seconds of the measured step at batch 1."""

    @property
    def how(self) -> Literal["base", "measured"]:
        """The origin of its times: those of the profile, or of the variant."""
        return "base" if self.settings == canonical(self.base) else "measured"

    @property
    def exact(self) -> bool:
        """True if translations are those of the plain decoder of the same beam in float32 (XP-03)."""
        return self.settings.exact and self.rounding is None

    @property
    def ratios(self) -> dict[int, float]:
        """Seconds of a step over those of the base's step, by batch size."""
        return {step.batch: step.step_s / base.step_s for step, base in zip(self.steps, self.base_steps, strict=True)}

    @property
    def active(self) -> dict[int, ActiveShare]:
        """Active shares of a restricted vocabulary, by batch size."""
        return {step.batch: step.active for step in self.steps if step.active is not None}

    @property
    def alone(self) -> DecoderVariant | None:
        """The step of a single sentence; None if not measured at batch 1."""
        return next((step for step in self.steps if step.batch == 1), None)

    @property
    def varies(self) -> bool:
        """True if the step times of single sentences vary with their active shares of the vocabulary."""
        alone = self.alone
        return bool(alone and alone.active and alone.active.by_sentence and alone.active.s_per_share)

    def more_s_per_tgt_token(self, uniform: NDArray[np.float64]) -> NDArray[np.float64]:
        """Draw the seconds per target token of single sentences above the mean, from uniform draws in [0, 1).

        The expectation is 0. A step's time is linear in the active share, at the profile's pace. All 0 if `varies` is false.
        """
        alone = self.alone
        if alone is None or alone.active is None or alone.active.s_per_share is None:
            return np.zeros_like(uniform)
        return self.pace * alone.active.s_per_share * alone.active.deviation(uniform)

    @property
    def fidelity(self) -> str:
        """`exact`, or the shares that agree with the exact decoder; then rounding and candidates."""
        noise, rounding = self.settings.noise, self.rounding
        if not noise:
            text = "exact" if rounding is None else f"exact but for rounding in {rounding}"
        else:
            shares = {"tokens": self.agreement, "sentences": self.identical}
            alike = " and ".join(f"{_percent(share)} of {unit}" for unit, share in shares.items() if share is not None)
            text = f"{alike} as the exact decoder's" if alike else f"not exact ({', '.join(noise)}), agreement not measured"
            if self.agreement is None and self.likeliest_active is not None:
                likeliest = f"likeliest token of all active in {_percent(self.likeliest_active)} of its own steps"
                text = f"{likeliest}, {text}" if alike else likeliest
            text += "" if rounding is None else f", rounding in {rounding} aside"
        return text if self.settings.candidates is None else f"{text}, among its candidates"

    @property
    def short(self) -> str:
        """Short description, `decoder beam 5, fused: measured, exact`; with the beam of the profile if that differs."""
        origin = "as calibrated" if self.how == "base" else "measured"
        summary = f"decoder {self.settings.describe()}: {origin}, {self.fidelity}"
        return summary if self.settings.beam == self.base.beam else f"{summary} (the profile is of beam {self.base.beam})"

    def describe(self) -> str:
        """Describe the variant in one sentence without a full stop."""
        if self.how == "base":
            return f"{self.short}, with which the profile's costs were measured"
        times = ", ".join(f"{ratio:.3g} at batch {batch}" for batch, ratio in self.ratios.items())
        summary = f"{self.short}; a decode step over that of {self.base.describe()}: {times}"
        if self.settings.beam != self.base.beam:
            summary += f"; refilling, and what a longer source adds, as with beam {self.base.beam}"
        return "; ".join([summary, *(f"{share.describe()} at batch {batch}" for batch, share in self.active.items())])

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers in SI units."""
        return {
            "settings": self.settings.model_dump(mode="json"),
            "how": self.how,
            "exact": self.exact,
            "rounding": self.rounding,
            "agreement": self.agreement,
            "step_over_base": {str(batch): ratio for batch, ratio in self.ratios.items()},
            "active_share": {str(batch): share.mean for batch, share in self.active.items()},
            "identical": self.identical,
            "likeliest_active": self.likeliest_active,
        }


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %" if share > 0.99 else f"{100 * share:.3g} %"


def choose(block: DecoderBlock, settings: DecoderSettings, *, name: str, compute_type: str | None = None) -> DecoderChoice:
    """Return a measured variant; raise `ProfileError`, with the most similar measured one, if it was not measured.

    `name`: name of the profile, for messages; `compute_type`: type of the engine, which `gemm: null` means.
    """
    wanted = _as_measured(block, settings, compute_type)
    steps = tuple(variants[wanted] for batch in block.batches if wanted in (variants := block.at(batch)))
    if not steps:
        options = DecoderSettings.model_fields
        nearest = max(block.measured, key=lambda known: sum(getattr(known, key) == getattr(wanted, key) for key in options))
        restricts = wanted.vocabulary not in {measured.vocabulary for measured in block.measured}
        raise ProfileError(
            f"{wanted.describe()} was not measured in profile {name}",
            remedy=f"take a measured variant, such as {nearest.describe()}, or {CALIBRATE}{' --vocabulary' * restricts}",
        )
    # Identities do not change the agreement (SHARP-10).
    alike = [variant for variant in block.variants if _noise(variant.settings) == _noise(wanted)]
    same_beam = [variant for variant in alike if variant.settings.beam == wanted.beam]
    return DecoderChoice(
        wanted,
        block.base,
        steps,
        tuple(block.at(step.batch)[canonical(block.base)] for step in steps),
        rounding=_rounding(wanted, compute_type),
        agreement=_least(variant.agreement for variant in alike) if wanted.noise else None,
        identical=_least(variant.identical for variant in same_beam),
        likeliest_active=_least(variant.likeliest_active for variant in same_beam),
    )


def _noise(settings: DecoderSettings) -> dict[str, Any]:
    return settings.model_dump(include=set(settings.noise))


def _least(shares: Iterable[float | None]) -> float | None:
    return min((share for share in shares if share is not None), default=None)


def _rounding(settings: DecoderSettings, compute_type: str | None) -> str | None:
    """Return the engine's type if the decoder's products are in it and it is not float32, else None."""
    return None if settings.gemm is not None or compute_type in (None, EXACT_TYPE) else compute_type


def _as_meant(block: DecoderBlock, settings: DecoderSettings) -> DecoderSettings:
    """Fill in unnamed settings from the block: `candidates` and `vocabulary`, which are not techniques, as in the base;
    `frequent_words` as in the base, or as in all measured variants if those agree.
    """
    unnamed: dict[str, Any] = {}
    named = settings.model_fields_set & {"candidates", "vocabulary"}
    if not named:
        unnamed |= {"candidates": block.base.candidates, "vocabulary": block.base.vocabulary}
    elif named == {"vocabulary"} and settings.vocabulary == "candidates":
        unnamed["candidates"] = block.base.candidates
    if settings.embeddings == "frequent" and "frequent_words" not in settings.model_fields_set:
        known = {variant.frequent_words for variant in block.measured if variant.embeddings == "frequent"}
        if block.base.embeddings == "frequent":
            known = {block.base.frequent_words}
        if len(known) == 1:
            unnamed["frequent_words"] = known.pop()
    return settings.model_copy(update=unnamed)


def _as_measured(block: DecoderBlock, settings: DecoderSettings, compute_type: str | None) -> DecoderSettings:
    """Normalise the settings to the block's GEMM names, which may name the engine's type or leave it null."""
    known = {measured_settings.gemm for measured_settings in block.measured}
    gemm = settings.gemm
    if gemm is None and None not in known:
        gemm = compute_type if compute_type in known else block.base.gemm
    elif gemm == compute_type and gemm not in known:
        gemm = None
    return canonical(settings.model_copy(update={"gemm": gemm}))


_LEAST_SURE_FIRST: tuple[Kind, ...] = ("synthetic", "inferred", "measured")
GAP_NAMES = ("step_gap_s", "step_gap_s_per_sentence")
"""The overheads that are the gap between two steps: its fixed part, and for each sentence."""


def with_decoder(profile: DeviceProfile, settings: DecoderSettings) -> tuple[DeviceProfile, DecoderChoice]:
    """Return the profile of the same device with another decoder configuration, and the choice of variant.

    Step with gap, and the plane's seconds per target token, are multiplied by the ratio of the variant's step to that of
    the block's `base`, at each batch size: a ratio, because both steps were timed alternately, but perhaps at another pace
    than the rest of the profile. Costs of encoding, refilling and longer sources do not change. The new profile has no block
    `decoder`; for the settings of `base`, the profile itself is returned. `as_meant` fills in unnamed settings.

    Raises `ProfileError` if the profile has no such block, if the variant was not measured, and for settings that name no beam
    if the profile's beam is not 1.
    """
    block = profile.decoder
    if block is None:
        raise ProfileError(
            f"profile {profile.name} has no variants of its decoder (block decoder)",
            remedy="calibrate with --part decoder --out and the profile's file, or name a profile that has them",
        )
    if "beam" not in settings.model_fields_set and settings.beam != block.base.beam:
        raise ProfileError(
            f"no beam is named, and profile {profile.name} is of beam {block.base.beam}",
            remedy=f"give beam: {block.base.beam}, or beam: {settings.beam} if that is meant",
        )
    compute_type = None if profile.engine is None else profile.engine.compute_type
    choice = choose(block, _as_meant(block, settings), name=profile.name, compute_type=compute_type)
    moved = profile if choice.how == "base" else _moved(profile, block, choice)
    if choice.alone is None:
        return moved, choice
    return moved, replace(choice, pace=moved.plane.s_per_tgt_token / choice.alone.step_s)


def _moved(profile: DeviceProfile, block: DecoderBlock, choice: DecoderChoice) -> DeviceProfile:
    kind = min(profile.execution.kind, block.kind, key=_LEAST_SURE_FIRST.index)
    ratio, settings, engine, energy = choice.ratios.get(1), choice.settings, profile.engine, profile.energy
    if ratio is None:
        raise ProfileError(
            f"{settings.describe()} was not measured at batch 1 in profile {profile.name}, so its time for a single sentence "
            "is unknown",
            remedy=f"take another variant, or {CALIBRATE}",
        )
    plane = profile.execution.plane.times(1.0, ratio)
    execution = profile.execution.model_copy(update={"kind": kind, "plane": plane, "samples": ()})
    changed: dict[str, object] = {"decoder": None, "execution": execution}
    if engine is not None:
        options = None if engine.decoder is None else DecoderOptions(**settings.model_dump(exclude={"beam"}))
        changed["engine"] = engine.model_copy(update={"beam": settings.beam, "fused": settings.fused, "decoder": options})
    if profile.step is not None:
        changed["step"], changed["overheads"] = _moved_step(profile.step, profile.overheads, choice, kind)
    if settings.beam != block.base.beam:
        changed["beam_overrun"] = None  # unknown for another beam
    if energy is not None and energy.j_per_tgt_token is not None:
        # At the same power, energy is proportional to time.
        changed["energy"] = energy.model_copy(update={"j_per_tgt_token": ratio * energy.j_per_tgt_token})
    return profile.model_copy(update=changed)


def as_calibrated(profile: DeviceProfile) -> DecoderChoice | None:
    """Return the decoder with which the profile's costs were measured, and its known fidelity; None without an engine."""
    engine, block = profile.engine, profile.decoder
    compute_type = None if engine is None else engine.compute_type
    if block is not None:
        return choose(block, block.base, name=profile.name, compute_type=compute_type)
    if engine is None:
        return None
    options = {"fused": engine.fused} if engine.decoder is None else engine.decoder.model_dump()
    settings = DecoderSettings(**options, beam=engine.beam)
    return DecoderChoice(canonical(settings), settings, rounding=_rounding(settings, compute_type))


def _moved_step(
    step: StepBlock, overheads: Overheads | None, choice: DecoderChoice, kind: Kind
) -> tuple[StepBlock, Overheads | None]:
    """Multiply step and gap together by the measured ratio, at each batch size and every position; the gap is 0 thereafter.

    Between measured batch sizes, the ratio is that of interpolated times. The step block ends at the greatest measured batch
    of the variant, if that is below the block's greatest.
    """
    measured = np.array(list(choice.ratios))
    batches = np.unique([*step.batch, *measured])
    batches = batches[(batches <= measured[-1]) & (batches >= step.batch[0]) & (batches <= step.batch[-1])]
    if not batches.size:
        batches = np.array(step.batch[:1])
    mean_over_usual, known_s = step.run_over_predicted or 1.0, {} if overheads is None else overheads.known_s
    fixed_s, s_per_sentence = (known_s.get(name, 0.0) for name in GAP_NAMES)
    # The mean step takes longer than the usual step of the block; the ratio holds for the mean step with its gap.
    steps_s = mean_over_usual * step.cost.seconds(batches[:, None], np.array(step.position)[None, :])
    # Linear between measured batch sizes, constant beyond them.
    base_s = np.interp(batches, measured, [times.step_s for times in choice.base_steps])
    variant_s = np.interp(batches, measured, [times.step_s for times in choice.steps])
    seconds = (variant_s / base_s)[:, None] * (steps_s + (fixed_s + s_per_sentence * batches)[:, None]) / mean_over_usual
    moved = step.model_copy(
        update={
            "kind": kind,
            "batch": tuple(batches.tolist()),
            "seconds": tuple(map(tuple, seconds.tolist())),
            "judged_cells": (),
            "beam": choice.settings.beam,
            "notes": (*step.notes, f"moved by the ratio of {choice.settings} to {choice.base}, gaps included"),
        }
    )
    if overheads is None:
        return moved, None
    no_gap = {name: getattr(overheads, name).model_copy(update={"value": 0.0}) for name in GAP_NAMES if name in known_s}
    return moved, overheads.model_copy(update=no_gap)
