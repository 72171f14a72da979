"""Doubts about a device profile: every verb and page takes its warnings from here.

`calibrate`, `profile inspect`, `sti profile`, `sti plan` and `sti run` print all doubts. A simulated run prints only those with
a known effect on its numbers (`Doubt.effect`). When a rule holds is said here, its words stand in `doubts.toml`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from simnmt.base import shipped_files
from simnmt.base.configuration import end_tokens
from simnmt.base.suggestions import format_list
from simnmt.profile.decoder_block import canonical
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.origin import MeasuringConditions
from simnmt.profile.streaming_block import StiBlock

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

COST_MODELS = ("execution", "step", "encoder", "decoder", "overheads", "disk", "energy", "sti")
"""The eight cost blocks of a profile, which may be measured."""
ERROR_BOUND = 0.10
"""Held-out error above which a cost model does not support a decision."""
DRIFT_BOUND = 0.50
"""Largest relative change of the reference cell; smaller changes are corrected by repeated stretches."""
LEVEL_BOUND = 1.10
"""Largest mean over least time; on a quiet box the mean lies a few hundredths above the least of a few repeats."""
DISTURBED_BOUND = 0.10
"""Largest share of disturbed executions."""
STI_R2_BOUND = 0.90
"""Least R2 of the line through reads by bits (STI-07)."""
DECODER_BOUND = 1.25
"""Largest factor between steps of the same decoder, measured twice within an hour on a quiet box."""
MOST_APART = 0.02
"""Largest magnitude of `alone_vs_plane` (XP-01)."""
LENGTHS = "@de-en-news"
"""Shipped length table over which a sentence alone is compared with the plane."""
FIRST_STEPS = 12
"""Positions at which variants are measured: those of short translations."""
CHANCE_Z = 1.645
"""One-sided 95 %: an accuracy within this many standard errors of the commonest class's share shows nothing learnt."""
Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Doubt:
    """One reason to distrust figures of a profile."""

    source: str
    """The block that gives the reason: `conditions`, `endpoint`, or a name of `COST_MODELS`."""
    cost_models: tuple[str, ...]
    """Names of `COST_MODELS` whose figures are doubtful."""
    message: str
    """One sentence without a full stop."""
    effect: str = ""
    """Its effect on the numbers of a run that uses these cost models, one sentence without a full stop; empty if it has none
    or none is known, so that a run does not print the doubt."""

    def as_json(self) -> dict[str, Any]:
        """Return the doubt with plain types."""
        return asdict(self) | {"cost_models": list(self.cost_models)}


@cache
def _rules() -> dict[str, Facts]:
    """Return the words of each rule, by name."""
    return tomllib.loads((Path(__file__).parent / "doubts.toml").read_text(encoding="utf-8"))


def _doubt(rule: str, facts: Facts) -> Doubt:
    words = _rules()[rule]
    models = facts.get("models") or words.get("concerns") or [words["source"]]
    return Doubt(words["source"], tuple(models), words["text"].format(**facts), words.get("effect", "").format(**facts))


def profile_doubts(profile: DeviceProfile, cost_models: Sequence[str] = COST_MODELS, *, beam: int | None = None) -> list[Doubt]:
    """Return all doubts about these cost models of a profile, conditions first.

    `beam`: beam of the search, if a variant of the profile's decoder is chosen; None for the profile's beam.

    Example:
        >>> from simnmt.profile import profile_doubts, read_profile
        >>> from simnmt.base.shipped_files import find
        >>> [doubt.source for doubt in profile_doubts(read_profile(find("calibration", "@tx2-marian")))]
        []
    """
    doubts = [_doubt(rule, facts) for rule, facts in _cases(profile, _calibrated_beam(profile) if beam is None else beam)]
    return [doubt for doubt in doubts if set(doubt.cost_models) & set(cost_models)]


def heldout_errors(profile: DeviceProfile) -> dict[str, float | None]:
    """Return per cost model the mean absolute relative error on data that it was not fitted to; None if it is not known.

    `execution` is of the least times, `execution_of_means` of the mean times.
    """
    fit = profile.execution.fit
    errors = {"execution": fit.heldout_error, "execution_of_means": fit.heldout_error_of_means}
    for name in ("step", "encoder", "disk", "energy"):
        errors[name] = getattr(getattr(profile, name), "heldout_error", None)
    gap = None if profile.overheads is None else profile.overheads.step_gap_s
    errors["gap"] = None if gap is None else gap.heldout_error
    errors["sti"] = None if profile.sti is None else profile.sti.compute.heldout_error
    return errors


def sti_doubts(block: StiBlock) -> list[Doubt]:
    """Return the doubts about a streamed model: its table against whole runs, the line through its reads, its accuracy."""
    return [_doubt(rule, facts) for rule, facts in _sti_cases(block)]


def chance_level_message(accuracy: float, majority: float, examples: int, task: str) -> str | None:
    """Return the warning of a classifier that is no better than the commonest class; None for a better one.

    `accuracy` and `majority` are shares of `examples`. A better model exceeds the commonest class by more than chance explains
    (one-sided, 95 %), or by half of the rest, which a few examples can show too.

    Example:
        >>> chance_level_message(0.52, 0.5, 100, "dev.tsv")
        'right on 52.0 % of dev.tsv, whose commonest class alone gives 50.0 %: nothing shows that the model has learnt the task'
        >>> chance_level_message(0.9, 0.5, 100, "dev.tsv") is None
        True
    """
    noise = CHANCE_Z * (majority * (1.0 - majority) / examples) ** 0.5
    if accuracy > majority + min(noise, (1.0 - majority) / 2.0):
        return None
    shown = f"right on {100 * accuracy:.1f} % of {task}, whose commonest class alone gives {100 * majority:.1f} %"
    return f"{shown}: nothing shows that the model has learnt the task"


def clipped_weights_message(clipped: int, weights: int) -> str | None:
    """Return the warning of weights that 16-bit products clip to [-1, 1]; None if they clip none (SHARP-05).

    Example:
        >>> clipped_weights_message(3, 12_000).partition(" lie")[0]
        '3 of 12,000 weights (0.025 %)'
        >>> clipped_weights_message(0, 12_000) is None
        True
    """
    if not clipped:
        return None
    share = f"{clipped:,} of {weights:,} weights ({100 * clipped / weights:.2g} %)"
    return f"{share} lie beyond [-1, 1], where 16-bit products clip them: translations may differ (compare with float32)"


def busy_message(others_cpus: float | None, activity: str) -> str:
    """Return the warning of a busy box; `others_cpus`: processors' worth of time that other programs used."""
    used = "other programs used it" if others_cpus is None else f"other programs used {others_cpus:.1f} CPUs"
    return f"the box was busy: {used} before or after {activity} (repeat on a quiet box)"


def _calibrated_beam(profile: DeviceProfile) -> int:
    return 1 if profile.engine is None else profile.engine.beam


def _sessions(profile: DeviceProfile) -> list[tuple[tuple[str, ...], MeasuringConditions]]:
    """Return the measuring sessions, first to last, each with the cost models that were last measured in it."""
    if profile.conditions is None:
        return []
    blocks = ((name, getattr(profile, name)) for name in COST_MODELS)
    remaining = [name for name, block in blocks if block is not None and getattr(block, "kind", "measured") == "measured"]
    sessions = list[tuple[tuple[str, ...], MeasuringConditions]]()
    for later in reversed(profile.conditions.later):
        # The part `step` measures the encoder too.
        parts = [*later.parts, *(["encoder"] if "step" in later.parts else [])]
        sessions.insert(0, (tuple(name for name in remaining if name in parts), later))
        remaining = [name for name in remaining if name not in parts]
    sessions.insert(0, (tuple(remaining), profile.conditions))
    return [(models, state) for models, state in sessions if models]


Cases = Iterator[tuple[str, Facts]]
"""Names of rules, with the facts that fill their words."""


def _cases(profile: DeviceProfile, beam: int) -> Cases:
    """Return all that is doubtful about a profile; `beam`: of the search."""
    yield from _session_cases(profile)
    yield from _execution_cases(profile)
    errors = heldout_errors(profile)
    for name in ("step", "encoder", "disk", "energy", "gap"):
        if (errors[name] or 0.0) > ERROR_BOUND:
            yield f"{name}_errs", {"percent": 100 * (errors[name] or 0.0)}
    apart = alone_vs_plane(profile)
    if apart is not None and abs(apart) > MOST_APART:
        yield "alone", {"percent": 100 * apart, "most": 100 * MOST_APART}
    ratios = against_step(profile).items()
    off = [f"{ratio:.3g} at batch {batch}" for batch, ratio in ratios if not 1.0 / DECODER_BOUND <= ratio <= DECODER_BOUND]
    if off:
        yield "decoder_at_another_pace", {"ratios": ", ".join(off)}
    # Only the steps of the calibrated beam are charged.
    if beam > 1 and (profile.beam_overrun is None or beam != _calibrated_beam(profile)):
        yield "uncounted_beam", {"beam": beam}
    yield from _clipping_cases(profile)
    if (endpoint := profile.endpoint) is not None:
        trip, echo = endpoint.round_trip, endpoint.round_trip.seconds
        if trip.how == "included":
            why = (
                "" if echo is None else f", because the echo, {1e3 * echo.median_s:.3g} ms, takes longer than a short sentence"
            )
            yield "round_trip_included", {"why": why}
        elif trip.taken_off_s > endpoint.mean_s:
            yield "long_round_trip", {"trip": 1e3 * trip.taken_off_s, "mean": 1e3 * endpoint.mean_s}
        yield from (("recorded", {"message": message}) for message in endpoint.doubts)
    if profile.sti is not None:
        yield from _sti_cases(profile.sti)


def _session_cases(profile: DeviceProfile) -> Cases:
    """Return busy boxes, cells that stayed disturbed, and large drifts, in which repeats may hide worse."""
    for models, state in _sessions(profile):
        if state.busy:
            yield "busy", {"models": models, "message": busy_message(state.others_cpus, f"measuring {format_list(models)}")}
        named = [name for name in (cell.split()[0] for cell in state.disturbed) if name in models]
        # If a profile names no cells, the count is of all cells of the session.
        count = len(named) if state.disturbed else state.disturbed_cells or 0
        if count:
            of = tuple(dict.fromkeys(named)) or tuple(name for name in models if name in ("execution", "step", "encoder"))
            moved = "" if state.drift is None else f": the reference cell moved by up to {100 * state.drift:.0f} %"
            cells = f"{count} cell{'s' * (count > 1)} of {', '.join(of)}"
            yield "disturbed_cells", {"models": of, "cells": cells, "moved": moved}
        elif (state.drift or 0.0) > DRIFT_BOUND:
            yield "drift", {"models": models, "measuring": format_list(models), "percent": 100 * (state.drift or 0.0)}


def _execution_cases(profile: DeviceProfile) -> Cases:
    """Return medians that were fitted, a mean far above them or the least, disturbed executions, and the greater error."""
    fit = profile.execution.fit
    if profile.execution.kind == "measured":
        if fit.quantile:
            yield "medians", {}
        if (level := fit.level or 1.0) > LEVEL_BOUND:
            usual = "medians" if fit.quantile else "undisturbed time"
            yield "level", {"above": 100 * (level - 1), "usual": usual, "less": 100 * (1 - 1 / level)}
        if (share := fit.disturbed_share or 0.0) > DISTURBED_BOUND:
            longer = _disturbance(profile)
            rule = "disturbed_executions_take_longer" if longer > ERROR_BOUND else "disturbed_executions"
            yield rule, {"percent": 100 * share, "longer": 100 * longer}
    error, of_means = fit.heldout_error or 0.0, fit.heldout_error_of_means or 0.0
    if max(error, of_means) > ERROR_BOUND:
        yield "execution_errs", {"percent": 100 * max(error, of_means), "times": " on mean times" * (of_means > error)}


def _disturbance(profile: DeviceProfile) -> float:
    """Return the relative difference of the mean time of all repeats, disturbed ones included, from the plane; 0 if unknown."""
    samples = [sample for sample in profile.execution.samples if sample.batch == 1]
    src_len = np.array([sample.src_len if sample.src_len_mean is None else sample.src_len_mean for sample in samples])
    tgt_len, repeats = np.array([sample.tgt_len for sample in samples]), np.array([sample.repeats for sample in samples])
    plane_s = float(repeats @ profile.plane.seconds(src_len, tgt_len)) if samples else 0.0
    mean_s = np.array([sample.mean_s for sample in samples])
    return float(repeats @ mean_s) / plane_s - 1.0 if plane_s > 0.0 else 0.0


def _clipping_cases(profile: DeviceProfile) -> Cases:
    """Return 16-bit products, of the engine or of variants of its decoder, that clip weights."""
    engine, decoder = profile.engine, profile.decoder
    if engine is not None and engine.clipped_weights is not None and engine.product_weights is not None:
        in_engine = engine.compute_type == "int16"
        in_variants = decoder is not None and any(variant.settings.gemm == "int16" for variant in decoder.variants)
        message = clipped_weights_message(engine.clipped_weights, engine.product_weights)
        if message is not None and (in_engine or in_variants):
            yield "clipped_weights", {"models": ["execution", "decoder"] if in_engine else ["decoder"], "message": message}


def _sti_cases(block: StiBlock) -> Cases:
    error, r2, ranks = block.compute.heldout_error or 0.0, block.io.r2, block.importance
    if error > ERROR_BOUND:
        yield "sti_errs", {"percent": 100 * error}
    if block.kind == "measured" and (r2 is None or r2 < STI_R2_BOUND):
        yield "reads_off_their_line", {"r2": "none" if r2 is None else f"{r2:.2f}", "bound": STI_R2_BOUND}
    if ranks is not None and ranks.full_accuracy is not None and ranks.majority is not None:
        message = chance_level_message(ranks.full_accuracy, ranks.majority, ranks.examples, ranks.task)
        if message is not None:
            yield "chance_level", {"message": message}


def alone_vs_plane(profile: DeviceProfile) -> float | None:
    """Return the relative difference of a sentence alone by steps from the plane, on average over `@de-en-news` (XP-01).

    It is the mean of encoder, steps and gaps over the mean of the plane, less 1. None for a profile without costs of steps
    and encoders, or whose plane gives 0 s for these lengths.
    """
    if profile.step is None or profile.encoder is None:
        return None
    src_len, tgt_len, count = _news()
    src, tgt = end_tokens(profile.length_unit.end_of_sentence)
    src_len, tgt_len = src_len + src, tgt_len + tgt
    plane_s = float(profile.plane.seconds(src_len, tgt_len) @ count)
    return float(profile.decoding_cost.solo_s(src_len, tgt_len) @ count) / plane_s - 1.0 if plane_s > 0.0 else None


@cache
def _news() -> tuple[np.ndarray[Any, np.dtype[np.float64]], ...]:
    """Return source length, target length and count of each distinct pair of the length table."""
    # The room `workload`, which reads length tables in full, is on the same floor and must not be imported.
    table = np.loadtxt(shipped_files.find("traces/lengths", LENGTHS), delimiter=",", comments=("#", "s"))
    return table[:, 0], table[:, 1], table[:, 2]


def against_step(profile: DeviceProfile) -> dict[int, float]:
    """Return by batch size the measured step of the decoder's base over the profile's step and gap; about 1 if both agree.

    A variant multiplies costs by its ratio to the base, which a slower box hardly changes; far from 1, more than the pace of
    the box may differ.
    """
    block = profile.decoder
    if block is None or profile.step is None or profile.encoder is None:
        return {}
    cost = profile.of_forced_lengths.decoding_cost
    last = min(FIRST_STEPS, cost.step.length_range[1])
    # Variants are usual (median) steps too.
    block_step_s = {
        batch: float(cost.step.sum_s(batch, 0, last)) / (last + 1) + cost.gap_s(batch)
        for batch in block.batches
        if batch <= cost.step.batch_range[1]
    }
    return {batch: block.at(batch)[canonical(block.base)].step_s / step_s for batch, step_s in block_step_s.items()}
