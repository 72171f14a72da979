"""Doubts about a device profile: every verb and page takes its warnings from here.

`profile_doubts` examines a whole profile: the state of the box while each cost model was measured, the errors of the fits,
and the accuracy of a streamed model on its task. `calibrate`, `profile inspect`, `sti profile`, `sti plan` and `sti run` print
all of its result. A simulated run prints only the doubts with a known effect on its numbers (`Doubt.effect`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from simnmt.base import shipped_files
from simnmt.base.configuration import end_tokens
from simnmt.base.suggestions import format_list
from simnmt.profile.blocks import Conditions, MeasuringConditions
from simnmt.profile.decoder_block import canonical
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.endpoint_block import EndpointBlock
from simnmt.profile.streaming_block import StiBlock

CONDITIONS = "conditions"
COST_MODELS = ("execution", "step", "encoder", "decoder", "overheads", "disk", "energy", "sti")
"""Blocks of a profile that may be measured."""
_MODELS_OF_PART = {"step": ("step", "encoder")}
"""Cost models that a part of a calibration measures, if not only the block of the same name."""
_WITH_CELLS = ("execution", "step", "encoder")
"""Cost models that are measured in cells between readings of the reference cell."""
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
HELDOUT_EFFECTS = {
    "execution": "times of single requests of other lengths",
    "step": "times of decoding steps at other batch sizes",
    "gap": "gaps between two steps at other batch sizes",
    "encoder": "times of encoding at other batch sizes",
    "energy": "joules of requests of other lengths",
}
"""What the held-out error of a cost model is an error of, for lengths and batch sizes that were not fitted."""
CHANCE_Z = 1.645
"""One-sided 95 %: an accuracy within this many standard errors of the commonest class's share shows nothing learnt."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """One reason to distrust figures of a profile."""

    source: str
    """The block that gives the reason: `conditions`, or a name of `COST_MODELS`."""
    cost_models: tuple[str, ...]
    """Names of `COST_MODELS` whose figures are doubtful."""
    message: str
    """One sentence without a full stop."""
    effect: str = ""
    """Its effect on the numbers of a run that uses these cost models, one sentence without a full stop; empty if it has none
    or none is known, so that a run does not print the doubt."""

    def as_json(self) -> dict[str, Any]:
        """Return the doubt with plain types."""
        return {"source": self.source, "cost_models": list(self.cost_models), "message": self.message, "effect": self.effect}


def profile_doubts(profile: DeviceProfile, cost_models: Sequence[str] = COST_MODELS, *, beam: int | None = None) -> list[Doubt]:
    """Return all doubts about these cost models of a profile, conditions first.

    `beam`: beam of the search, if a variant of the profile's decoder is chosen; None for the profile's beam.

    Example:
        >>> from simnmt.profile import profile_doubts, read_profile
        >>> from simnmt.base.shipped_files import find
        >>> [doubt.source for doubt in profile_doubts(read_profile(find("calibration", "@tx2-marian")))]
        []
    """
    doubts = [*_of_conditions(profile), *_of_execution(profile), *_of_heldout_errors(profile)]
    doubts += [*_of_alone(profile), *_of_decoder(profile), *_of_beam(profile, beam), *_of_clipping(profile)]
    doubts += [] if profile.endpoint is None else _of_endpoint(profile.endpoint)
    if profile.sti is not None:
        doubts += sti_doubts(profile.sti)
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
    doubts, error, r2 = [], block.compute.heldout_error, block.io.r2
    if error is not None and error > ERROR_BOUND:
        message = f"sti: a held-out error of {100 * error:.0f} % on whole submodels (measure again)"
        doubts.append(_of_model("sti", message, f"computing times of submodels err by {100 * error:.0f} % on average"))
    if block.kind == "measured" and (r2 is None or r2 < STI_R2_BOUND):
        value = "none" if r2 is None else f"{r2:.2f}"
        message = f"sti: R2 of reads by bits {value}, below {STI_R2_BOUND}: fixed part and bandwidth cannot be told apart"
        effect = f"read times of shards do not follow their line (R2 {value}), so that plans may miss their deadlines"
        doubts.append(_of_model("sti", message, effect))
    ranks = block.importance
    if ranks is not None and ranks.full_accuracy is not None and ranks.majority is not None:
        chance = chance_level_message(ranks.full_accuracy, ranks.majority, ranks.examples, ranks.task)
        if chance is not None:
            effect = "accuracies of plans may be chance: the model is no better than the commonest class of its task"
            doubts.append(_of_model("sti", f"sti: {chance}, and the order of the shards may be chance", effect))
    return doubts


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
    return (
        f"right on {100 * accuracy:.1f} % of {task}, whose commonest class alone gives {100 * majority:.1f} %: nothing shows "
        "that the model has learnt the task"
    )


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


def _of_model(name: str, message: str, effect: str = "") -> Doubt:
    return Doubt(name, (name,), message, effect)


def _of_conditions(profile: DeviceProfile) -> Iterator[Doubt]:
    if profile.conditions is None:
        return
    for cost_models, state in _sessions(profile, profile.conditions):
        measuring = format_list(cost_models)
        if state.busy:
            yield Doubt(CONDITIONS, cost_models, busy_message(state.others_cpus, f"measuring {measuring}"))
        yield from _of_drift(state, cost_models, measuring)


def _of_drift(state: MeasuringConditions, cost_models: tuple[str, ...], measuring: str) -> Iterator[Doubt]:
    """Doubt cells that stayed disturbed, or else a large drift of the reference cell, in which repeats may hide worse."""
    named = [cell.split()[0] for cell in state.disturbed]
    counted = [name for name in named if name in cost_models]
    # If a profile names no cells, the count is of all cells of the session.
    count = len(counted) if named else state.disturbed_cells or 0
    moved = "" if state.drift is None else f": the reference cell moved by up to {100 * state.drift:.0f} %"
    if count:
        concerned = tuple(dict.fromkeys(counted)) or tuple(name for name in cost_models if name in _WITH_CELLS)
        cells = f"{count} {'cell' if count == 1 else 'cells'} of {', '.join(concerned)} stayed disturbed"
        yield Doubt(CONDITIONS, concerned, f"{cells}{moved} (measure again on a quiet box)")
    elif state.drift is not None and state.drift > DRIFT_BOUND:
        steady = f"the speed of the box drifted while measuring {measuring}"
        yield Doubt(CONDITIONS, cost_models, f"{steady}{moved}; disturbed stretches were repeated")


def _sessions(profile: DeviceProfile, state: Conditions) -> Iterator[tuple[tuple[str, ...], MeasuringConditions]]:
    """Return the measuring sessions, first to last, each with the cost models that were last measured in it."""
    remaining = [name for name in COST_MODELS if _is_measured(profile, name)]
    sessions: list[tuple[tuple[str, ...], MeasuringConditions]] = []
    for later in reversed(state.later):
        parts = [name for part in later.parts for name in _MODELS_OF_PART.get(part, (part,))]
        sessions.append((tuple(name for name in remaining if name in parts), later))
        remaining = [name for name in remaining if name not in parts]
    sessions.append((tuple(remaining), state))
    return ((cost_models, session) for cost_models, session in reversed(sessions) if cost_models)


def _is_measured(profile: DeviceProfile, name: str) -> bool:
    block = getattr(profile, name)
    return block is not None and getattr(block, "kind", "measured") == "measured"


def _of_execution(profile: DeviceProfile) -> Iterator[Doubt]:
    """Doubt medians that were fitted, a mean far above them or the least, and disturbed executions."""
    fit = profile.execution.fit
    if profile.execution.kind != "measured":
        return
    if fit.quantile:
        yield _of_model(
            "execution",
            "executions of the same lengths take very different times: the plane is fitted to their medians, since the least "
            "times do not predict each other (measure again on a box that shares no cache)",
        )
    if fit.level is not None and fit.level > LEVEL_BOUND:
        usual = "medians" if fit.quantile else "undisturbed time"
        yield _of_model(
            "execution",
            f"the mean of the executions lies {100 * (fit.level - 1):.0f} % above their {usual}: "
            "the box was busy, or its times are unsteady (measure again on a quiet box)",
            f"executions on a quiet box may take up to {100 * (1 - 1 / fit.level):.0f} % less time than this run charges",
        )
    if fit.disturbed_share is not None and fit.disturbed_share > DISTURBED_BOUND:
        longer = _disturbance(profile)
        effect = f"executions disturbed as in the calibration take {100 * longer:.0f} % more time than this run charges"
        yield _of_model(
            "execution",
            f"{100 * fit.disturbed_share:.0f} % of the executions were disturbed and count neither for the plane's level nor "
            "for its spread (measure again on a quiet box)",
            effect if longer > ERROR_BOUND else "",
        )


def _disturbance(profile: DeviceProfile) -> float:
    """Return the relative difference of the mean time of all repeats, disturbed ones included, from the plane; 0 if unknown."""
    samples = [sample for sample in profile.execution.samples if sample.batch == 1]
    src_len = np.array([sample.src_len if sample.src_len_mean is None else sample.src_len_mean for sample in samples])
    tgt_len, repeats = np.array([sample.tgt_len for sample in samples]), np.array([sample.repeats for sample in samples])
    plane_s = float(repeats @ profile.plane.seconds(src_len, tgt_len)) if samples else 0.0
    mean_s = np.array([sample.mean_s for sample in samples])
    return float(repeats @ mean_s) / plane_s - 1.0 if plane_s > 0.0 else 0.0


def _of_heldout_errors(profile: DeviceProfile) -> Iterator[Doubt]:
    errors = heldout_errors(profile)
    of_means, _ = errors.pop("execution_of_means"), errors.pop("sti")
    on_means = of_means is not None and of_means > (errors["execution"] or 0.0)
    if on_means:
        errors["execution"] = of_means
    for name, error in errors.items():
        if error is None or error <= ERROR_BOUND:
            continue
        cost_model, label = ("step", "gap between steps") if name == "gap" else (name, name)
        times = " on mean times" if on_means and name == "execution" else ""
        message = f"{label}: a held-out error of {100 * error:.3g} %{times}, above {100 * ERROR_BOUND:.0f} % (measure again)"
        effect = f"{HELDOUT_EFFECTS[name]} err by {100 * error:.3g} % on average" if name in HELDOUT_EFFECTS else ""
        yield _of_model(cost_model, message, effect)


def _of_alone(profile: DeviceProfile) -> Iterator[Doubt]:
    """Doubt a plane and steps that disagree on a sentence alone (XP-01)."""
    apart = alone_vs_plane(profile)
    if apart is not None and abs(apart) > MOST_APART:
        yield Doubt(
            "step",
            ("step", "encoder"),
            f"a sentence alone takes {100 * apart:+.1f} % by steps against the plane, beyond {100 * MOST_APART:.0f} %: "
            "batching changes its cost before anything is batched (measure execution and step together)",
            f"a sentence alone takes {100 * apart:+.1f} % time on a box that batches, compared with a box that does not",
        )


def _of_decoder(profile: DeviceProfile) -> Iterator[Doubt]:
    ratios = against_step(profile).items()
    off = [f"{ratio:.3g} at batch {batch}" for batch, ratio in ratios if not 1.0 / DECODER_BOUND <= ratio <= DECODER_BOUND]
    if off:
        yield _of_model(
            "decoder",
            f"steps of the decoder's base took {', '.join(off)} times as long as step and gap: variants were not measured "
            "under the conditions of the rest (measure step and decoder again, on a quiet box)",
            f"the speed-up of the chosen decoder may differ: its base took {', '.join(off)} times as long as step and gap",
        )


def _of_endpoint(block: EndpointBlock) -> Iterator[Doubt]:
    """Doubt the times of a running service that contain the round trip, beside the doubts that its calibration recorded."""
    if block.round_trip.how == "included":
        why = ""
        if block.round_trip.seconds is not None:
            echo_s = block.round_trip.seconds.median_s
            why = f", because the echo, {1e3 * echo_s:.3g} ms, takes longer than the shortest sentence"
        what = "times contain the network's round trip, which a scenario's link adds again"
        yield Doubt("endpoint", ("execution",), f"{what} (give it an RTT near 0){why}", f"{what} (give it an RTT near 0)")
    elif block.round_trip.taken_off_s > block.mean_s:
        what = f"the round trip taken off, {1e3 * block.round_trip.taken_off_s:.3g} ms, is longer than a mean execution, "
        what += f"{1e3 * block.mean_s:.3g} ms: the fixed part is uncertain"
        yield Doubt("endpoint", ("execution",), f"{what} (measure from beside the service)", what)
    yield from (Doubt("endpoint", ("execution",), message) for message in block.doubts)


def _of_beam(profile: DeviceProfile, chosen: int | None) -> Iterator[Doubt]:
    """Doubt a beam whose steps beyond its best output were not counted: only those of the calibrated beam are charged."""
    calibrated = 1 if profile.engine is None else profile.engine.beam
    beam = calibrated if chosen is None else chosen
    if beam > 1 and (profile.beam_overrun is None or beam != calibrated):
        uncharged = f"a beam of {beam} takes steps beyond its best output, which are not charged since they were not counted"
        message = f"{uncharged} (calibrate a trained model with --beam {beam} --text FILE)"
        yield Doubt("execution", ("execution", "step"), message, f"executions take longer than this run charges: {uncharged}")


def _of_clipping(profile: DeviceProfile) -> Iterator[Doubt]:
    """Doubt 16-bit products, of the engine or of variants of its decoder, that clip weights."""
    engine, decoder = profile.engine, profile.decoder
    if engine is None or engine.clipped_weights is None or engine.product_weights is None:
        return
    cost_models = ("execution", "decoder") if engine.compute_type == "int16" else ("decoder",)
    rounds = engine.compute_type == "int16" or (
        decoder is not None and any(variant.settings.gemm == "int16" for variant in decoder.variants)
    )
    message = clipped_weights_message(engine.clipped_weights, engine.product_weights)
    if rounds and message is not None:
        yield Doubt("decoder", cost_models, message, message)


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
