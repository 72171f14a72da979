"""Doubts about a device profile: every verb and page takes its warnings from here.

`calibrate`, `profile inspect`, `sti profile`, `sti plan` and `sti run` print all doubts. A simulated run prints only those with
a known effect on its numbers (`Doubt.effect`). This module has the conditions of the rules, `doubts.toml` their texts.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base import shipped_files
from simnmt.base.configuration import end_tokens
from simnmt.base.suggestions import format_list
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.origin import Conditions
from simnmt.profile.streaming_block import StiBlock

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

COST_MODELS = ("execution", "step", "encoder", "decoder", "slots", "overheads", "energy", "sti", "model_memory")
"""The nine cost blocks of a profile, which may be measured."""
LENGTHS = "@de-en-news"
"""Shipped length table over which a sentence alone is compared with the plane."""
ERRING = {
    "step": "times of decoding steps at other batch sizes",
    "encoder": "times of encoding at other batch sizes",
    "gap": "gaps between two steps at other batch sizes",
    "slots": "times of requests that are decoded together",
}
"""What errs if the held-out error of a cost model is large."""
Value = tuple[str, float, dict[str, Any]]
"""Name of a rule, the value that casts doubt where it is above the rule's bound, and facts that fill the rule's words."""


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
    """Its effect on the numbers of a run that uses these cost models; empty if none is known: a run does not print it then."""


def profile_doubts(profile: DeviceProfile, cost_models: Sequence[str] = COST_MODELS, *, beam: int | None = None) -> list[Doubt]:
    """Return all doubts about these cost models of a profile, conditions first.

    `beam`: beam of the search, if a variant of the profile's decoder is chosen; None for the profile's beam.
    """
    parts = [_of_sessions(profile), _of_execution(profile), _of_batches(profile), _of_header(profile, beam)]
    doubts = []
    for name, value, facts in itertools.chain(*parts, _of_streaming(profile.sti)):
        rule = _rules()[name]
        if value > rule.get("above", 0.0):
            facts = {"percent": 100 * value} | facts
            source, text, effect = (rule.get(part, "").format(**facts) for part in ("source", "text", "effect"))
            models: Any = facts.get("models") or rule.get("concerns") or [source]
            doubts.append(Doubt(source, tuple(models), text, effect))
    return [doubt for doubt in doubts if set(doubt.cost_models) & set(cost_models)]


@cache
def _rules() -> dict[str, dict[str, Any]]:
    return tomllib.loads((Path(__file__).parent / "doubts.toml").read_text(encoding="utf-8"))


def heldout_errors(profile: DeviceProfile) -> dict[str, float | None]:
    """Return per cost model the mean absolute relative error on data that it was not fitted to; None if it is not known.

    `execution` is of the least times, `execution_of_means` of the mean times.
    """
    fit, gap = profile.execution.fit, profile.overheads.get("step_gap_s")
    errors = {"execution": fit.heldout_error, "execution_of_means": fit.heldout_error_of_means}
    parts = {name: getattr(profile, name) for name in ("step", "encoder", "slots")}
    parts |= {"gap": gap, "sti": profile.sti and profile.sti.compute}
    return errors | {name: part and part.heldout_error for name, part in parts.items()}


def _of_sessions(profile: DeviceProfile) -> Iterator[Value]:
    for state, models in _sessions(profile):
        measuring = format_list(models)
        message = busy_message(state.others_cpus, f"measuring {measuring}")
        yield "busy", state.busy or False, {"models": models, "message": message}
        named = [name for name in (cell.split()[0] for cell in state.disturbed) if name in models]
        count, disturbed = len(named), list(dict.fromkeys(named))
        cells = f"{count} cell{'s' * (count > 1)} of {', '.join(disturbed)}"
        moved = "" if state.drift is None else f": the reference cell moved by up to {100 * state.drift:.0f} %"
        yield "disturbed_cells", count, {"models": disturbed, "cells": cells, "moved": moved}
        yield "drift", 0.0 if count else state.drift or 0.0, {"models": models, "measuring": measuring}


def _sessions(profile: DeviceProfile) -> list[tuple[Conditions, list[str]]]:
    """Return the measuring sessions, first to last, each with the cost models that were last measured in it."""
    if (first := profile.conditions) is None:
        return []
    blocks = {name: getattr(profile, name) for name in COST_MODELS}
    last = {name: 0 for name, block in blocks.items() if block and getattr(block, "kind", "measured") == "measured"}
    for number, later in enumerate(first.later, 1):
        # The part `step` measures the encoder too.
        last |= {name: number for name in last if name in later.parts or (name == "encoder" and "step" in later.parts)}
    sessions = enumerate((first, *first.later))
    return [(state, models) for number, state in sessions if (models := [name for name in last if last[name] == number])]


def _of_execution(profile: DeviceProfile) -> Iterator[Value]:
    fit = profile.execution.fit
    if profile.execution.kind == "measured":
        level, usual = fit.level or 1.0, "medians" if fit.quantile else "undisturbed time"
        yield "medians", fit.quantile or 0.0, {}
        yield "level", level, {"higher": 100 * (level - 1), "usual": usual, "less": 100 * (1 - 1 / level)}
        yield "disturbed_executions", fit.disturbed_share or 0.0, {}
    error, of_means = fit.heldout_error or 0.0, fit.heldout_error_of_means or 0.0
    times = " on mean times" if of_means > error else ""
    yield _error("execution", max(error, of_means), "times of single requests of other lengths", times)


def _error(block: str, error: float | None, erring: str, times: str = "") -> Value:
    source, what = ("step", "gap between steps") if block == "gap" else (block, block)
    return "errs", error or 0.0, {"block": source, "what": what, "times": times, "erring": erring}


def _of_batches(profile: DeviceProfile) -> Iterator[Value]:
    errors = heldout_errors(profile)
    yield from (_error(name, errors[name], erring) for name, erring in ERRING.items())
    apart = alone_vs_plane(profile) or 0.0
    yield "alone", abs(apart), {"signed": 100 * apart}


def _of_header(profile: DeviceProfile, beam: int | None) -> Iterator[Value]:
    engine, endpoint = profile.engine, profile.endpoint
    calibrated = 1 if engine is None else engine.beam
    # Only the steps of the calibrated beam are charged.
    if profile.beam_overrun is None or beam not in (None, calibrated):
        yield "uncounted_beam", beam or calibrated, {"beam": beam or calibrated}
    if engine is not None and engine.clipped_weights and engine.product_weights:
        in_engine = engine.compute_type == "int16"
        in_variants = any(settings.gemm == "int16" for settings in (profile.decoder.measured if profile.decoder else ()))
        models = ["execution", "decoder"] if in_engine else ["decoder"]
        message = clipped_weights_message(engine.clipped_weights, engine.product_weights)
        yield "clipped_weights", in_engine or in_variants, {"models": models, "message": message}
    if endpoint is not None:
        echo_s, trip_s = endpoint.echo_s, endpoint.round_trip_s
        longer = f", because the echo, {1e3 * (echo_s or 0.0):.3g} ms, takes longer than a short sentence"
        yield "round_trip_included", trip_s == 0.0, {"why": longer if echo_s else ""}
        yield "long_round_trip", trip_s / endpoint.mean_s, {"trip": 1e3 * trip_s, "mean": 1e3 * endpoint.mean_s}
        slope_s = profile.execution.plane.s_per_src_token if profile.slots is None else profile.slots.s_per_prompt_token
        yield "no_source_cost", slope_s == 0.0, {}
        yield from (("recorded", 1.0, {"message": message}) for message in endpoint.doubts)
    yield "drawn_weights", profile.model_memory is not None and engine is not None and engine.weights == "random", {}


def _of_streaming(block: StiBlock | None) -> Iterator[Value]:
    if block is None:
        return
    r2, ranks = block.io.r2, block.importance
    yield _error("sti", block.compute.heldout_error, "computing times of submodels", " on whole submodels")
    if block.kind == "measured":
        yield "reads_off_their_line", 1.0 - (r2 or 0.0), {"r2": "none" if r2 is None else f"{r2:.2f}"}
    if ranks is not None and ranks.full_accuracy is not None and ranks.majority is not None:
        message = chance_level_message(ranks.full_accuracy, ranks.majority, ranks.examples, ranks.task)
        yield "chance_level", message is not None, {"message": message}


def chance_level_message(accuracy: float, majority: float, examples: int, task: str) -> str | None:
    """Return the warning of a classifier that is no better than the commonest class; None for a better one.

    `accuracy` and `majority` are shares of `examples`. A better model exceeds the commonest class by more than chance explains
    (one-sided, 95 %), or by half of the rest, which a few examples can show too.
    """
    noise = 1.645 * (majority * (1.0 - majority) / examples) ** 0.5
    if accuracy > majority + min(noise, (1.0 - majority) / 2.0):
        return None
    shown = f"right on {100 * accuracy:.1f} % of {task}, whose commonest class alone gives {100 * majority:.1f} %"
    return f"{shown}: nothing shows that the model has learnt the task"


def clipped_weights_message(clipped: int, weights: int) -> str | None:
    """Return the warning of weights that 16-bit products clip to [-1, 1]; None if they clip none (SHARP-05)."""
    share = f"{clipped:,} of {weights:,} weights ({100 * clipped / weights:.2g} %)"
    where = "lie beyond [-1, 1], where 16-bit products clip them: translations may differ (compare with float32)"
    return f"{share} {where}" if clipped else None


def busy_message(others_cpus: float | None, activity: str) -> str:
    """Return the warning of a busy box; `others_cpus`: processors' worth of time that other programs used."""
    used = "other programs used it" if others_cpus is None else f"other programs used {others_cpus:.1f} CPUs"
    return f"the box was busy: {used} before or after {activity} (repeat on a quiet box)"


def alone_vs_plane(profile: DeviceProfile) -> float | None:
    """Return the relative difference of a sentence alone by steps from the plane, on average over `@de-en-news` (XP-01).

    None for a profile without costs of steps and encoders, or whose plane gives 0 s for these lengths.
    """
    if profile.step is None or profile.encoder is None:
        return None
    src, tgt = end_tokens(profile.length_unit.end_of_sentence)
    src_len, tgt_len, count = _news() + np.array([[src], [tgt], [0]])
    plane_s = float(profile.plane.seconds(src_len, tgt_len) @ count)
    return float(profile.decoding_cost.solo_s(src_len, tgt_len) @ count) / plane_s - 1.0 if plane_s > 0.0 else None


@cache
def _news() -> NDArray[np.float64]:
    """Return source length, target length and count of each distinct pair of the length table, shape (3, pairs)."""
    # The room `workload`, which reads length tables in full, is on the same floor and must not be imported.
    table = np.loadtxt(shipped_files.find("traces/lengths", LENGTHS), delimiter=",", comments=("#", "s"))
    return np.ascontiguousarray(table[:, :3].T)
