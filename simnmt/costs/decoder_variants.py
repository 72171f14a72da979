"""A device profile with another variant of its decoder: steps, gaps and plane moved by what was measured (SHARP-11, XP-03).

A variant moves costs by the ratio of its step to that of the block's base, both timed in turn. The steps of a profile are
timed by another bench and then multiplied by a pace (`simnmt.costs.reconciliation`), so seconds of the one must not be added
to seconds of the other: on a box whose speed wanders a variant would save more than there is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simnmt.costs.batch_cost import StepCost
from simnmt.costs.decoder_choice import CALIBRATE, DecoderChoice, StepTimes, as_meant, choose
from simnmt.costs.decoder_fidelity import rounding_of
from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.costs.overhead_fit import fit_overhead
from simnmt.costs.profile_blocks import EngineBlock, Kind, Overhead, Overheads, StepBlock
from simnmt.costs.profile_error import ProfileError

if TYPE_CHECKING:
    from simnmt.costs.profile import DeviceProfile

Floats = NDArray[np.float64]
_LEAST_SURE_FIRST: tuple[Kind, ...] = ("synthetic", "inferred", "measured")
LEAST_LEFT = 0.02
"""Share of a variant's step and gap that its gap must leave for the model."""


def with_decoder(profile: DeviceProfile, settings: DecoderSettings) -> tuple[DeviceProfile, DecoderChoice]:
    """See `DeviceProfile.with_decoder`."""
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
    """See `DeviceProfile.as_calibrated`."""
    engine, block = profile.engine, profile.decoder
    compute_type = None if engine is None else engine.compute_type
    if block is not None:
        return choose(block, block.base, name=profile.name, compute_type=compute_type)
    if engine is None:
        return None
    own = DecoderSettings.model_validate({"fused": engine.fused} | (engine.decoder or {}) | {"beam": engine.beam})
    return DecoderChoice(own, own, "base", (), None, rounding=rounding_of(own, compute_type))


def _engine(own: EngineBlock, settings: DecoderSettings) -> EngineBlock:
    """The same engine with its decoder so written."""
    decoder = None if own.decoder is None else settings.model_dump(mode="json", exclude={"beam"})
    return own.model_copy(update={"beam": settings.beam, "fused": settings.fused, "decoder": decoder})


def _execution(profile: DeviceProfile, choice: DecoderChoice, kind: Kind) -> Any:
    """The plane of single sentences: each target token takes one step at batch 1."""
    if choice.alone is None:
        raise ProfileError(
            f"{choice.settings.words()} was not measured at batch 1 in profile {profile.name}, so what it takes for a single "
            "sentence is not known",
            remedy=f"take another variant, or {CALIBRATE}",
        )
    own = profile.execution
    plane = own.plane.model_copy(update={"s_per_tgt_token": choice.alone.ratio * own.plane.s_per_tgt_token})
    return own.model_copy(update={"kind": kind, "plane": plane, "samples": ()})


def _step(profile: DeviceProfile, step: StepBlock, choice: DecoderChoice, kind: Kind) -> tuple[StepBlock, Overheads | None]:
    """Step and gap together are multiplied by the measured ratio, at each batch size and every position.

    Between batch sizes it is the ratio of interpolated times. The step is told up to the greatest batch at which the variant
    was measured, if that is below its own.
    """
    cost, most = StepCost.of(step), max(each.batch for each in choice.steps)
    batches = np.array(sorted({batch for batch in (*step.batch, *(each.batch for each in choice.steps)) if batch <= most}))
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


def _kind(own: Kind, choice: DecoderChoice, block: Kind) -> Kind:
    """What was composed was not measured."""
    kinds = {own, block, "inferred" if choice.how == "composed" else "measured"}
    return next(kind for kind in _LEAST_SURE_FIRST if kind in kinds)
