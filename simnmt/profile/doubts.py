"""Doubts about a device profile: every verb and page takes its warnings from the rules of this module.

`calibrate`, `profile inspect`, `sti profile`, `sti plan` and `sti run` print all doubts. A simulated run prints only those with
a known effect on its numbers (`Doubt.effect`). A new doubt is a line of `RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np

from simnmt.base import shipped_files
from simnmt.base.configuration import end_tokens
from simnmt.base.suggestions import format_list
from simnmt.profile.decoder_block import canonical
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.origin import MeasuringConditions
from simnmt.profile.streaming_block import StiBlock

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


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of doubt: when it holds, and its words."""

    source: str
    when: Callable[[DeviceProfile, int], Iterator[Facts]]
    """Returns the facts of each case of a profile, for the beam of a search."""
    text: str
    """Template of the message, filled with the facts."""
    effect: str = ""
    """Template of the effect."""
    concerns: tuple[str, ...] = ()
    """The doubtful cost models, unless the facts name others as `models`; empty: `source`."""

    def doubts(self, profile: DeviceProfile, beam: int) -> Iterator[Doubt]:
        """Return the doubts of this kind about a profile."""
        for facts in self.when(profile, beam):
            models = facts.get("models", self.concerns or (self.source,))
            yield Doubt(self.source, models, self.text.format(**facts), self.effect.format(**facts))


def profile_doubts(profile: DeviceProfile, cost_models: Sequence[str] = COST_MODELS, *, beam: int | None = None) -> list[Doubt]:
    """Return all doubts about these cost models of a profile, conditions first.

    `beam`: beam of the search, if a variant of the profile's decoder is chosen; None for the profile's beam.

    Example:
        >>> from simnmt.profile import profile_doubts, read_profile
        >>> from simnmt.base.shipped_files import find
        >>> [doubt.source for doubt in profile_doubts(read_profile(find("calibration", "@tx2-marian")))]
        []
    """
    doubts = (doubt for rule in RULES for doubt in rule.doubts(profile, _calibrated_beam(profile) if beam is None else beam))
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
    return [doubt for rule in RULES if rule.source == "sti" for doubt in rule.doubts(_OnlyStreamed(block), 1)]  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _OnlyStreamed:
    sti: StiBlock


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


def _busy(profile: DeviceProfile, _: int) -> Iterator[Facts]:
    for models, state in _sessions(profile):
        if state.busy:
            yield {"models": models, "message": busy_message(state.others_cpus, f"measuring {format_list(models)}")}


def _disturbed_cells(profile: DeviceProfile, _: int) -> Iterator[Facts]:
    """Return the facts of sessions with disturbed cells; without their names, the count is of all cells of the session."""
    for models, state in _sessions(profile):
        named = [name for name in (cell.split()[0] for cell in state.disturbed) if name in models]
        count = len(named) if state.disturbed else state.disturbed_cells or 0
        concerned = tuple(dict.fromkeys(named)) or tuple(name for name in models if name in ("execution", "step", "encoder"))
        if count:
            moved = "" if state.drift is None else f": the reference cell moved by up to {100 * state.drift:.0f} %"
            yield {"models": concerned, "cells": f"{count} cell{'s' * (count > 1)} of {', '.join(concerned)}", "moved": moved}


def _drift(profile: DeviceProfile, beam: int) -> Iterator[Facts]:
    """Return the facts of sessions whose reference cell moved, although no cell stayed disturbed."""
    disturbed = [facts["models"] for facts in _disturbed_cells(profile, beam)]
    for models, state in _sessions(profile):
        if state.drift is not None and state.drift > DRIFT_BOUND and not any(set(models) & set(names) for names in disturbed):
            yield {"models": models, "measuring": format_list(models), "percent": 100 * state.drift}


def _fit_facts(profile: DeviceProfile, holds: bool, **facts: Any) -> Iterator[Facts]:
    if profile.execution.kind == "measured" and holds:
        yield facts


def _medians(profile: DeviceProfile, _: int) -> Iterator[Facts]:
    return _fit_facts(profile, bool(profile.execution.fit.quantile))


def _level(profile: DeviceProfile, _: int) -> Iterator[Facts]:
    fit, level = profile.execution.fit, profile.execution.fit.level or 1.0
    usual = "medians" if fit.quantile else "undisturbed time"
    return _fit_facts(profile, level > LEVEL_BOUND, above=100 * (level - 1), usual=usual, less=100 * (1 - 1 / level))


def _disturbed_executions(profile: DeviceProfile, _: int) -> Iterator[Facts]:
    share = profile.execution.fit.disturbed_share or 0.0
    longer = 100 * _disturbance(profile)
    effect = f"executions disturbed as in the calibration take {longer:.0f} % more time than this run charges"
    effect = effect if longer > 100 * ERROR_BOUND else ""
    return _fit_facts(profile, share > DISTURBED_BOUND, percent=100 * share, effect=effect)


def _disturbance(profile: DeviceProfile) -> float:
    """Return the relative difference of the mean time of all repeats, disturbed ones included, from the plane; 0 if unknown."""
    samples = [sample for sample in profile.execution.samples if sample.batch == 1]
    src_len = np.array([sample.src_len if sample.src_len_mean is None else sample.src_len_mean for sample in samples])
    tgt_len, repeats = np.array([sample.tgt_len for sample in samples]), np.array([sample.repeats for sample in samples])
    plane_s = float(repeats @ profile.plane.seconds(src_len, tgt_len)) if samples else 0.0
    mean_s = np.array([sample.mean_s for sample in samples])
    return float(repeats @ mean_s) / plane_s - 1.0 if plane_s > 0.0 else 0.0


def _errs(name: str, label: str) -> Callable[[DeviceProfile, int], Iterator[Facts]]:
    """Return the condition that the held-out error of a cost model is above the bound; of a plane the greater of its two."""

    def facts(profile: DeviceProfile, _: int) -> Iterator[Facts]:
        errors = heldout_errors(profile)
        error, times = errors[name] or 0.0, ""
        if name == "execution" and (errors["execution_of_means"] or 0.0) > error:
            error, times = errors["execution_of_means"] or 0.0, " on mean times"
        if error > ERROR_BOUND:
            yield {"label": label, "percent": 100 * error, "times": times}

    return facts


def _alone(profile: DeviceProfile, _: int) -> Iterator[Facts]:
    apart = alone_vs_plane(profile)
    if apart is not None and abs(apart) > MOST_APART:
        yield {"percent": 100 * apart, "most": 100 * MOST_APART}


def _decoder_at_another_pace(profile: DeviceProfile, _: int) -> Iterator[Facts]:
    ratios = against_step(profile).items()
    off = [f"{ratio:.3g} at batch {batch}" for batch, ratio in ratios if not 1.0 / DECODER_BOUND <= ratio <= DECODER_BOUND]
    if off:
        yield {"ratios": ", ".join(off)}


def _uncounted_beam(profile: DeviceProfile, beam: int) -> Iterator[Facts]:
    """Return the facts of a beam whose steps beyond its best output were not counted: only the calibrated beam's are."""
    if beam > 1 and (profile.beam_overrun is None or beam != _calibrated_beam(profile)):
        yield {"beam": beam}


def _clipped(profile: DeviceProfile, _: int) -> Iterator[Facts]:
    """Return the facts of 16-bit products, of the engine or of variants of its decoder, that clip weights."""
    engine, decoder = profile.engine, profile.decoder
    if engine is None or engine.clipped_weights is None or engine.product_weights is None:
        return
    in_variants = decoder is not None and any(variant.settings.gemm == "int16" for variant in decoder.variants)
    message = clipped_weights_message(engine.clipped_weights, engine.product_weights)
    if message is not None and (engine.compute_type == "int16" or in_variants):
        yield {"models": ("execution", "decoder") if engine.compute_type == "int16" else ("decoder",), "message": message}


def _round_trip_included(profile: DeviceProfile, _: int) -> Iterator[Facts]:
    if profile.endpoint is not None and profile.endpoint.round_trip.how == "included":
        echo = profile.endpoint.round_trip.seconds
        shown = (
            "" if echo is None else f", because the echo, {1e3 * echo.median_s:.3g} ms, takes longer than the shortest sentence"
        )
        yield {"why": shown}


def _long_round_trip(profile: DeviceProfile, _: int) -> Iterator[Facts]:
    if profile.endpoint is not None and profile.endpoint.round_trip.taken_off_s > profile.endpoint.mean_s:
        yield {"trip": 1e3 * profile.endpoint.round_trip.taken_off_s, "mean": 1e3 * profile.endpoint.mean_s}


def _recorded(profile: DeviceProfile, _: int) -> Iterator[Facts]:
    return iter([] if profile.endpoint is None else [{"message": message} for message in profile.endpoint.doubts])


def _sti_errs(profile: DeviceProfile, _: int) -> Iterator[Facts]:
    error = None if profile.sti is None else profile.sti.compute.heldout_error
    if error is not None and error > ERROR_BOUND:
        yield {"percent": 100 * error}


def _reads_off_their_line(profile: DeviceProfile, _: int) -> Iterator[Facts]:
    block = profile.sti
    if block is not None and block.kind == "measured" and (block.io.r2 is None or block.io.r2 < STI_R2_BOUND):
        yield {"r2": "none" if block.io.r2 is None else f"{block.io.r2:.2f}", "bound": STI_R2_BOUND}


def _chance_level(profile: DeviceProfile, _: int) -> Iterator[Facts]:
    ranks = None if profile.sti is None else profile.sti.importance
    if ranks is not None and ranks.full_accuracy is not None and ranks.majority is not None:
        message = chance_level_message(ranks.full_accuracy, ranks.majority, ranks.examples, ranks.task)
        if message is not None:
            yield {"message": message}


_ERROR = "{label}: a held-out error of {percent:.3g} %{times}, above 10 % (measure again)"
_IN_TRANSIT = "times contain the network's round trip, which a scenario's link adds again (give it an RTT near 0)"
_UNCOUNTED = "a beam of {beam} takes steps beyond its best output, which are not charged since they were not counted"
_LONG_TRIP = (
    "the round trip taken off, {trip:.3g} ms, is longer than a mean execution, {mean:.3g} ms: the fixed part is uncertain"
)
RULES = (
    Rule("conditions", _busy, "{message}"),
    Rule("conditions", _disturbed_cells, "{cells} stayed disturbed{moved} (measure again on a quiet box)"),
    Rule(
        "conditions",
        _drift,
        "the speed of the box drifted while measuring {measuring}: the reference cell moved by up to {percent:.0f} %; "
        "disturbed stretches were repeated",
    ),
    Rule(
        "execution",
        _medians,
        "executions of the same lengths take very different times: the plane is fitted to their medians, since the least "
        "times do not predict each other (measure again on a box that shares no cache)",
    ),
    Rule(
        "execution",
        _level,
        "the mean of the executions lies {above:.0f} % above their {usual}: the box was busy, or its times are unsteady "
        "(measure again on a quiet box)",
        "executions on a quiet box may take up to {less:.0f} % less time than this run charges",
    ),
    Rule(
        "execution",
        _disturbed_executions,
        "{percent:.0f} % of the executions were disturbed and count neither for the plane's level nor for its spread (measure "
        "again on a quiet box)",
        "{effect}",
    ),
    Rule(
        "execution",
        _errs("execution", "execution"),
        _ERROR,
        "times of single requests of other lengths err by {percent:.3g} % on average",
    ),
    Rule(
        "step", _errs("step", "step"), _ERROR, "times of decoding steps at other batch sizes err by {percent:.3g} % on average"
    ),
    Rule(
        "encoder",
        _errs("encoder", "encoder"),
        _ERROR,
        "times of encoding at other batch sizes err by {percent:.3g} % on average",
    ),
    Rule("disk", _errs("disk", "disk"), _ERROR),
    Rule("energy", _errs("energy", "energy"), _ERROR, "joules of requests of other lengths err by {percent:.3g} % on average"),
    Rule(
        "step",
        _errs("gap", "gap between steps"),
        _ERROR,
        "gaps between two steps at other batch sizes err by {percent:.3g} % on average",
    ),
    Rule(
        "step",
        _alone,
        "a sentence alone takes {percent:+.1f} % by steps against the plane, beyond {most:.0f} %: batching changes its cost "
        "before anything is batched (measure execution and step together)",
        "a sentence alone takes {percent:+.1f} % time on a box that batches, compared with a box that does not",
        ("step", "encoder"),
    ),
    Rule(
        "decoder",
        _decoder_at_another_pace,
        "steps of the decoder's base took {ratios} times as long as step and gap: variants were not measured under the "
        "conditions of the rest (measure step and decoder again, on a quiet box)",
        "the speed-up of the chosen decoder may differ: its base took {ratios} times as long as step and gap",
    ),
    Rule(
        "execution",
        _uncounted_beam,
        f"{_UNCOUNTED} (calibrate a trained model with --beam {{beam}} --text FILE)",
        f"executions take longer than this run charges: {_UNCOUNTED}",
        ("execution", "step"),
    ),
    Rule("decoder", _clipped, "{message}", "{message}"),
    Rule("endpoint", _round_trip_included, _IN_TRANSIT + "{why}", _IN_TRANSIT, ("execution",)),
    Rule("endpoint", _long_round_trip, f"{_LONG_TRIP} (measure from beside the service)", _LONG_TRIP, ("execution",)),
    Rule("endpoint", _recorded, "{message}", "", ("execution",)),
    Rule(
        "sti",
        _sti_errs,
        "sti: a held-out error of {percent:.0f} % on whole submodels (measure again)",
        "computing times of submodels err by {percent:.0f} % on average",
    ),
    Rule(
        "sti",
        _reads_off_their_line,
        "sti: R2 of reads by bits {r2}, below {bound}: fixed part and bandwidth cannot be told apart",
        "read times of shards do not follow their line (R2 {r2}), so that plans may miss their deadlines",
    ),
    Rule(
        "sti",
        _chance_level,
        "sti: {message}, and the order of the shards may be chance",
        "accuracies of plans may be chance: the model is no better than the commonest class of its task",
    ),
)


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
