"""A device profile with another variant of its decoder: steps, gaps and plane moved by what was measured (SHARP-11, XP-03)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simnmt.costs.batch_cost import StepCost
from simnmt.costs.decoder_choice import CALIBRATE, DecoderChoice, as_meant, choose
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
"""Share of a step or of the plane's slope that a variant must leave: less says that both were not measured alike."""


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
        return profile, choice
    kind = _kind(profile.execution.kind, choice, block.kind)
    changed: dict[str, Any] = {"decoder": None, "reconciliation": None, "execution": _execution(profile, choice, kind)}
    if profile.engine is not None:
        changed["engine"] = _engine(profile.engine, choice.settings)
    if profile.step is not None:
        changed["step"], changed["overheads"] = _step(profile, profile.step, choice, kind)
    if choice.settings.beam != block.base.beam:
        changed["beam_overrun"] = None  # of another beam it is not known
    if profile.energy is not None and profile.energy.j_per_tgt_token is not None:
        # At the same power, energy goes with time.
        times = changed["execution"].plane.s_per_tgt_token / profile.execution.plane.s_per_tgt_token
        changed["energy"] = profile.energy.model_copy(update={"j_per_tgt_token": times * profile.energy.j_per_tgt_token})
    return profile.model_copy(update=changed), choice


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
    alone = choice.alone
    if alone is None:
        raise ProfileError(
            f"{choice.settings.words()} was not measured at batch 1 in profile {profile.name}, so what it takes for a single "
            "sentence is not known",
            remedy=f"take another variant, or {CALIBRATE}",
        )
    own = profile.execution
    slope = own.plane.s_per_tgt_token + alone.more_s
    if slope < LEAST_LEFT * own.plane.s_per_tgt_token:
        _refuse(profile, choice, 1, own.plane.s_per_tgt_token, -alone.more_s)
    plane = own.plane.model_copy(update={"s_per_tgt_token": slope})
    return own.model_copy(update={"kind": kind, "plane": plane, "samples": ()})


def _step(profile: DeviceProfile, step: StepBlock, choice: DecoderChoice, kind: Kind) -> tuple[StepBlock, Overheads | None]:
    """Step and gap together take the measured difference more at each batch size; the gap what a line can tell of the search's.

    Between batch sizes the difference is interpolated. The step is told up to the greatest batch at which the variant was
    measured, if that is below its own.
    """
    cost, most = StepCost.of(step), max(each.batch for each in choice.steps)
    batches = np.array(sorted({batch for batch in (*step.batch, *(each.batch for each in choice.steps)) if batch <= most}))
    batches = batches[(batches >= step.batch[0]) & (batches <= step.batch[-1])]
    if not batches.size:
        batches = np.array(step.batch[:1])
    positions = np.array(step.position)
    more_s, more_search_s = (_along(batches, choice, name) for name in ("more_s", "more_search_s"))
    overheads, gap_s, new_gap_s = _gaps(profile.overheads, batches, more_search_s)
    times = step.run_over_told or 1.0
    before = cost.seconds(batches[:, None], positions[None, :])
    # The average step is dearer than the usual one, which the block is of; the difference is of the average.
    seconds = before + ((more_s + gap_s - new_gap_s) / times)[:, None]
    least = np.unravel_index(int(np.argmin(seconds / before)), seconds.shape)
    if seconds[least] < LEAST_LEFT * before[least]:
        _refuse(profile, choice, int(batches[least[0]]), float(before[least]), -float(more_s[least[0]]))
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
            "notes": (*step.notes, f"moved by the difference of {choice.settings.words()} to {choice.base.words()}"),
        }
    )
    return moved, overheads


def _gaps(own: Overheads | None, batches: NDArray[np.int64], more_s: Floats) -> tuple[Overheads | None, Floats, Floats]:
    """The overheads with the gap moved, and the gap at each batch size before and after; untouched where none is known."""
    fixed, each = (None, None) if own is None else (own.step_gap_s, own.step_gap_s_per_sentence)
    nothing = np.zeros(batches.size)
    if own is None or fixed is None or fixed.value is None:
        return own, nothing, nothing
    gap_s: Floats = fixed.value + (0.0 if each is None or each.value is None else each.value) * batches.astype(np.float64)
    found = fit_overhead(batches, np.maximum(gap_s + more_s, 0.0))
    kind = fixed.kind
    update = {"step_gap_s": Overhead(value=found.s_fixed, kind=kind, note=fixed.note)}
    per_sentence = found.s_per_sentence if batches.size > 1 or each is None or each.value is None else each.value
    if each is not None or per_sentence:
        update["step_gap_s_per_sentence"] = Overhead(value=per_sentence, kind=kind, note="" if each is None else each.note)
    new_gap_s: Floats = found.s_fixed + per_sentence * batches.astype(np.float64)
    return own.model_copy(update=update), gap_s, new_gap_s


def _along(batches: NDArray[np.int64], choice: DecoderChoice, name: str) -> Floats:
    """A difference at these batch sizes: between those measured a line, beyond them as at the nearest."""
    at, known_s = [float(each.batch) for each in choice.steps], [float(getattr(each, name)) for each in choice.steps]
    found: Floats = np.interp(batches.astype(np.float64), at, known_s)
    return found


def _kind(own: Kind, choice: DecoderChoice, block: Kind) -> Kind:
    """What was composed was not measured."""
    kinds = {own, block, "inferred" if choice.how == "composed" else "measured"}
    return next(kind for kind in _LEAST_SURE_FIRST if kind in kinds)


def _refuse(profile: DeviceProfile, choice: DecoderChoice, batch: int, own_s: float, saved_s: float) -> None:
    raise ProfileError(
        f"{choice.settings.words()} would save {1e3 * saved_s:.4g} ms of a step at batch {batch}, but profile {profile.name} "
        f"has steps of {1e3 * own_s:.4g} ms: they were not measured alike",
        remedy="calibrate step and decoder again, together",
    )
