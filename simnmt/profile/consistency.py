"""Agreement between a profile's cost models: a sentence alone against its plane, variants against the step (XP-01).

Whole executions and their parts are measured by different benches, on a box whose speed varies. Fitted apart they disagree,
and a sentence would take another time where batching is switched on. One least-squares fit reconciles them, and the
execution plane is derived from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base import shipped_files
from simnmt.base.configuration import end_tokens
from simnmt.profile.batch_cost import DecodingCost, EncoderCost, StepCost, TableSurface
from simnmt.profile.blocks import CellSample, EncoderBlock, Kind, Overhead, Overheads, StepBlock
from simnmt.profile.decoder_block import DecoderBlock, canonical, composition_error, describe_fidelity, rounding_of
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import DeviceProfile, PlaneCoefficients, Reconciliation
from simnmt.profile.execution_fit import MEDIAN, fit_relative_plane
from simnmt.profile.execution_plane import ExecutionPlane
from simnmt.profile.least_squares import relative_error

if TYPE_CHECKING:
    from simnmt.profile.device_profile import DeviceProfile

Floats = NDArray[np.float64]

LEAST_CELLS = 6
"""Whole executions: a plane and a pace have four numbers."""
MOST_APART = 0.02
"""Bound of `alone_vs_plane` (XP-01)."""
LENGTHS = "@de-en-news"
"""Shipped length table over which a sentence alone is compared with the plane."""
PACED = ("step_gap_s", "step_gap_s_per_sentence", "refill_s_fixed", "refill_s_per_sentence", "leave_s")
"""Overheads that belong to decoding in batches, and are measured with the decode steps."""


def reconcile(profile: DeviceProfile, *, kind: Kind) -> DeviceProfile:
    """Return the profile with its plane, and its steps and encoder at batch 1, from one model of a sentence alone.

    The model is `encoder(1, N) + steps(1, 0..M-1) + M gap(1) + joining and leaving`. A weighted least-squares fit, by relative
    error, determines each length of the encoder and of the steps at batch 1 together with `pace`, the one factor by which the
    box was slower in whole executions than in their parts. Each cell of whole executions is one row of the fit; each measured
    length of encoder and steps is another, which ties it to the pace times its own measurement. All costs of decoding in
    batches are then multiplied by the pace, and the plane is the relative least-squares plane through the model at the measured
    cells. What the fit changed stands in `reconciliation`.

    Args:
        profile: As measured, not yet reconciled.
        kind: Of the correction: "measured" where whole executions and parts were measured in the same rounds, "inferred" where
            they were measured at different times.

    Returns:
        The new profile; the same one where it lacks steps, encoder or samples of single executions to reconcile.

    Raises:
        ValueError: If the profile is reconciled already.
    """
    if profile.reconciliation is not None:
        raise ValueError(f"profile {profile.name} is reconciled already")
    step, encoder, whole = profile.step, profile.encoder, _whole_executions(profile)
    if step is None or encoder is None or whole is None or step.batch[0] != 1 or encoder.batch[0] != 1:
        return profile
    cost = profile.of_forced_lengths.decoding_cost
    pace, step_s, encoder_s = _fit(cost, step, encoder, whole)
    changed = {
        "step": _paced(step, pace, step_s),
        "encoder": _paced(encoder, pace, encoder_s),
        "overheads": _paced_overheads(profile.overheads, pace),
    }
    moved = profile.model_copy(update=changed)
    model_s = moved.of_forced_lengths.decoding_cost.solo_s(whole.src_len, whole.tgt_len)
    plane = fit_relative_plane(whole.src_len, whole.tgt_len, model_s).plane
    measured = [step_s / (pace * _alone_s(step)), encoder_s / (pace * _alone_s(encoder))]
    block = Reconciliation(
        kind=kind,
        pace=pace,
        cells=whole.time_s.size,
        largest_change=max(float(np.abs(ratio - 1.0).max()) for ratio in measured),
        error=relative_error(model_s, whole.time_s),
        plane_error=relative_error(plane.seconds(whole.src_len, whole.tgt_len), whole.time_s),
        measured_plane=profile.execution.plane,
    )
    execution = profile.execution.model_copy(update={"plane": _plane_block(plane)})
    return moved.model_copy(update={"execution": execution, "reconciliation": block})


def alone_vs_plane(profile: DeviceProfile) -> float | None:
    """Return how far a sentence alone in a server that batches lies from the plane, on average over `@de-en-news` (XP-01).

    Signed and relative: the mean of encoder, steps and gaps over the mean of the plane, less 1. None for a profile without
    costs of steps and encoders, or whose plane takes no time there.
    """
    if profile.step is None or profile.encoder is None:
        return None
    src_len, tgt_len, count = _news()
    src, tgt = end_tokens(profile.length_unit.end_of_sentence)
    src_len, tgt_len = src_len + src, tgt_len + tgt
    plane_s = float(profile.plane.seconds(src_len, tgt_len) @ count)
    return float(profile.decoding_cost.solo_s(src_len, tgt_len) @ count) / plane_s - 1.0 if plane_s > 0.0 else None


@dataclass(frozen=True, slots=True)
class _WholeExecutions:
    """Mean undisturbed seconds of single sentences by their lengths; three columns of shape (cells,)."""

    src_len: Floats
    tgt_len: Floats
    time_s: Floats


def _whole_executions(profile: DeviceProfile) -> _WholeExecutions | None:
    """Return what was measured of single sentences; None if there are fewer than `LEAST_CELLS` cells."""
    fit = profile.execution.quality
    samples = [sample for sample in profile.execution.samples if sample.batch == 1]
    if len(samples) < LEAST_CELLS:
        return None
    # The same times as the measured plane's: the quantile of each cell, raised to the mean, or the means of single inferences.
    robust = fit.level is not None and fit.mode != "paper"
    src_len = [sample.src_len if sample.src_len_mean is None else sample.src_len_mean for sample in samples]
    time_s = [fit.level * _shape_s(sample, fit.quantile) if robust and fit.level else sample.mean_s for sample in samples]
    return _WholeExecutions(np.array(src_len, float), np.array([float(sample.tgt_len) for sample in samples]), np.array(time_s))


def _shape_s(sample: CellSample, quantile: float | None) -> float:
    return sample.median_s if quantile == MEDIAN else sample.min_s


def _fit(cost: DecodingCost, step: StepBlock, encoder: EncoderBlock, whole: _WholeExecutions) -> tuple[float, Floats, Floats]:
    """Fit (pace, seconds of a step by position, seconds of encoding by source length), the last two of batch 1."""
    step_s, encoder_s = _alone_s(step), _alone_s(encoder)
    one, positions, src_lens = np.ones(1), np.array(step.position, float), np.array(encoder.src_len, float)
    last = whole.tgt_len - 1.0
    of_steps = _gradient(step_s, lambda row: TableSurface(one, positions, row[None]).sum_s(1, 0, last))
    of_encoder = _gradient(encoder_s, lambda row: TableSurface(one, src_lens, row[None]).seconds(1, whole.src_len))
    steps_s = cost.mean_over_usual * cost.step.steps_s(1, 0, last)
    besides_s = cost.solo_s(whole.src_len, whole.tgt_len) - steps_s - cost.encoder.seconds(1, whole.src_len)
    parts = np.column_stack([cost.mean_over_usual * of_steps, of_encoder])
    known_s = np.concatenate([step_s, encoder_s])
    design = np.vstack(
        [
            np.column_stack([parts, besides_s]) / whole.time_s[:, None],
            np.column_stack([np.diag(1.0 / known_s), -np.ones(known_s.size)]),
        ]
    )
    target = np.concatenate([np.ones(whole.time_s.size), np.zeros(known_s.size)])
    scale = np.append(known_s, 1.0)
    solution: Floats = np.linalg.lstsq(design * scale, target, rcond=None)[0] * scale
    if (solution <= 0.0).any():
        # Measurements that contradict each other so far do not determine single lengths; the pace alone is always positive.
        model_over_measured = (parts @ known_s + besides_s) / whole.time_s
        pace = float(model_over_measured.sum() / (model_over_measured @ model_over_measured))
        return pace, pace * step_s, pace * encoder_s
    return float(solution[-1]), solution[: step_s.size], solution[step_s.size : -1]


def _gradient(row: Floats, seconds: Callable[[Floats], Floats]) -> Floats:
    """Derivatives of seconds by each cell of a row, shape (results, cells): a table's sums are linear in its cells but for
    the trend beyond its last length, which never falls."""
    base, share = seconds(row), 1e-4
    columns = [
        (seconds(row * (1.0 + share * (np.arange(row.size) == at))) - base) / (share * row[at]) for at in range(row.size)
    ]
    return np.column_stack(columns)


def _alone_s(block: StepBlock | EncoderBlock) -> Floats:
    """What was measured at batch 1, by length; of a line without its cells, what the line says."""
    if block.seconds is not None:
        return np.array(block.seconds[0])
    if isinstance(block, StepBlock):
        return StepCost.of(block).seconds(1, np.array(block.position))
    return EncoderCost.of(block).seconds(1, np.array(block.src_len))


def _paced(block: Any, pace: float, alone_s: Floats) -> Any:
    """A block of steps or encoders whose every time is multiplied by the pace, with its own row for a batch of one."""
    update: dict[str, Any] = {
        "alone_s": tuple(alone_s.tolist()),
        "judged_cells": tuple((batch, length, pace * second) for batch, length, second in block.judged_cells),
    }
    if block.seconds is not None:
        update["seconds"] = tuple(tuple(pace * second for second in row) for row in block.seconds)
    if block.coefficients is not None:
        coefficients = {name: pace * value for name, value in block.coefficients.model_dump().items()}
        update["coefficients"] = block.coefficients.model_copy(update=coefficients)
    if isinstance(block, StepBlock) and block.s_per_row_src_token is not None:
        update["s_per_row_src_token"] = pace * block.s_per_row_src_token
    return block.model_copy(update=update)


def _paced_overheads(overheads: Overheads | None, pace: float) -> Overheads | None:
    if overheads is None:
        return None
    known: dict[str, Overhead] = {name: overhead for name in PACED if (overhead := getattr(overheads, name)) is not None}
    return overheads.model_copy(
        update={
            name: overhead.model_copy(update={"value": pace * overhead.value})
            for name, overhead in known.items()
            if overhead.value is not None
        }
    )


def _plane_block(plane: ExecutionPlane) -> PlaneCoefficients:
    return PlaneCoefficients(
        s_per_src_token=plane.s_per_src_token, s_per_tgt_token=plane.s_per_tgt_token, s_fixed=plane.s_fixed
    )


@cache
def _news() -> tuple[Floats, Floats, Floats]:
    """(source length, target length, count) of each distinct pair of the length table."""
    # Room workload, which reads length tables in full, is on the same floor.
    table = np.loadtxt(shipped_files.find("traces/lengths", LENGTHS), delimiter=",", comments=("#", "s"))
    return table[:, 0], table[:, 1], table[:, 2]


def describe_alone(profile: DeviceProfile) -> list[tuple[str, str]]:
    """Return (what, how much) of the reconciliation, for a reader; empty for a profile without costs of steps."""
    apart, block = alone_vs_plane(profile), profile.reconciliation
    if apart is None:
        return []
    words = f"{100 * apart:+.2f} % against the plane, mean over {LENGTHS} (at most {100 * MOST_APART:.0f} %)"
    if block is None:
        return [("sentence alone", f"{words}; plane and steps were never reconciled")]
    off = f"model {100 * block.error:.2g} %, plane {100 * block.plane_error:.2g} % off {block.cells} cells of whole executions"
    return [
        ("sentence alone", words),
        (
            "reconciliation",
            f"{block.kind}: all costs of decoding multiplied by a pace of {block.pace:.4g}; single lengths at batch 1 by up to "
            f"{100 * block.largest_change:.2g} % more; {off}",
        ),
    ]


FIRST_STEPS = 12
"""Positions at which variants are measured: those of short translations."""
Facts = list[tuple[str, str]]


def decoder_facts(profile: DeviceProfile) -> Facts:
    """Return (what, how much) of each variant by batch size, with the shares of the stages, which sum to 100 % (FNI-17)."""
    block = profile.decoder
    if block is None:
        return []
    batches = ", ".join(map(str, block.batches))
    parts = [f"{block.kind}: {len(block.measured)} variants, batch {batches}"]
    parts += [] if block.repeats is None else [f"{block.repeats} timings each, taken in turn"]
    parts += [] if block.src_len is None else [f"under sources of {block.src_len} tokens"]
    lines = [("decoder", f"{', '.join(parts)}; the other costs are of {block.base.words()}")]
    compute_type = None if profile.engine is None else profile.engine.compute_type
    lines += [
        (f"decoder {settings.words()}", "; ".join(_describe_variant(block, settings, compute_type)))
        for settings in block.measured
    ]
    lines.append(("decoder composed", _describe_composition(block)))
    if against := against_step(profile):
        ratios = ", ".join(f"{ratio:.3g} at batch {batch}" for batch, ratio in against.items())
        lines.append(("decoder against step", f"measured steps of {block.base.words()} over step and gap: {ratios}"))
    lines += [("decoder note", "; ".join(block.notes))] if block.notes else []
    lines += [("decoder left out", "; ".join(block.left_out))] if block.left_out else []
    return lines


def _describe_variant(block: DecoderBlock, settings: DecoderSettings, compute_type: str | None) -> Iterator[str]:
    known: dict[str, list[float]] = {"agreement": [], "identical": [], "likeliest_active": []}
    for variant in block.variants:
        if variant.settings != settings:
            continue
        body, product, search = (round(100 * share) for share in variant.shares)
        # Rounded separately, the three shares might sum to 99 or 101.
        body = 100 - product - search
        shares = f"body {body} %, product {product} %, bias, softmax and search {search} %"
        base = block.at(variant.batch)[canonical(block.base)]
        times = "" if variant is base else f", {variant.step_s / base.step_s:.3g} times the base's"
        active = "" if variant.active is None else f", {variant.active.words()}"
        yield f"batch {variant.batch}: {1e3 * variant.step_s:.4g} ms{times} ({shares}){active}"
        for name, known_shares in known.items():
            known_shares += [] if (share := getattr(variant, name)) is None else [share]
    yield describe_fidelity(
        settings,
        min(known["agreement"], default=None),
        rounding=rounding_of(settings, compute_type),
        identical=min(known["identical"], default=None),
        likeliest_active=min(known["likeliest_active"], default=None),
    )


def _describe_composition(block: DecoderBlock) -> str:
    error = composition_error(block)
    if error is None:
        return "how well the effects of single options tell of combinations is not known: none follows from the others"
    return f"off by {error.words()}"


def against_step(profile: DeviceProfile) -> dict[int, float]:
    """Return by batch size the measured step of the base over the profile's step and gap; about 1 if both agree.

    A variant moves costs by its ratio to the base, which a slower box changes little; far from 1 more than the pace may differ.
    """
    block = profile.decoder
    if block is None or profile.step is None or profile.encoder is None:
        return {}
    cost = profile.of_forced_lengths.decoding_cost
    last = min(FIRST_STEPS, cost.step.position_range[1])
    # Of the usual step, as the variants are.
    block_step_s = {
        batch: float(cost.step.steps_s(batch, 0, last)) / (last + 1) + cost.gap_s(batch)
        for batch in block.batches
        if batch <= cost.step.batch_range[1]
    }
    return {batch: block.at(batch)[canonical(block.base)].step_s / step_s for batch, step_s in block_step_s.items()}
