"""Reconciliation: one model of a sentence alone, from whole executions and from separately measured parts (XP-01).

Whole executions and their parts are measured by different benches, on a box whose speed varies. Fitted separately they
disagree, and switching batching on would change the time of a sentence. One least-squares fit reconciles them, and the
execution plane is derived from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from simnmt.profile.batch_cost import DecodingCost, TableSurface
from simnmt.profile.blocks import EncoderBlock, Kind, StepBlock
from simnmt.profile.device_profile import DeviceProfile, Reconciliation
from simnmt.profile.execution_fit import MEDIAN, fit_relative_plane, relative_error
from simnmt.profile.execution_plane import PlaneCoefficients

Floats = NDArray[np.float64]
Block = TypeVar("Block", StepBlock, EncoderBlock)

LEAST_CELLS = 6
"""Least cells of whole executions: a plane and a pace have four numbers."""


def reconcile(profile: DeviceProfile, *, kind: Kind) -> DeviceProfile:
    """Return the profile with its plane, and its steps and encoder at batch 1, derived from one model of a sentence alone.

    The model is `encoder(1, N) + steps(1, 0..M-1) + M gap(1) + joining and leaving`. A weighted least-squares fit, by relative
    error, determines each length of the encoder and of the steps at batch 1 together with `pace`, the factor by which the box
    was slower in whole executions than in their parts. Each cell of whole executions is one row of the fit; each measured
    length of encoder and steps is another row, which ties it to the pace times its measurement. All costs of decoding in
    batches are then multiplied by the pace, and the plane is the relative least-squares plane through the model at the measured
    cells. The block `reconciliation` records the changes.

    Args:
        profile: the measured profile, not yet reconciled.
        kind: "measured" if whole executions and parts were measured in the same rounds, "inferred" if at different times.

    Returns:
        The new profile, or the same one if it lacks steps, encoder or samples of single executions.

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
        "step": step.times(pace).model_copy(update={"alone_s": tuple(step_s.tolist())}),
        "encoder": encoder.times(pace).model_copy(update={"alone_s": tuple(encoder_s.tolist())}),
        "overheads": None if profile.overheads is None else profile.overheads.times(pace),
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
    execution = profile.execution.model_copy(update={"plane": PlaneCoefficients(**asdict(plane))})
    return moved.model_copy(update={"execution": execution, "reconciliation": block})


def at_pace(profile: DeviceProfile, pace: float) -> DeviceProfile:
    """Return the profile with encoder, steps, gaps and joining multiplied by `pace`; its plane stays.

    Times that were measured become inferred, and the profile counts as not reconciled.
    """
    scaled = {"step": _inferred(profile.step, pace), "encoder": _inferred(profile.encoder, pace)}
    overheads = None if profile.overheads is None else profile.overheads.times(pace)
    return profile.model_copy(update={**scaled, "overheads": overheads, "reconciliation": None})


def _inferred(block: Block | None, pace: float) -> Block | None:
    if block is None:
        return None
    return block.times(pace).model_copy(update={"kind": "inferred" if block.kind == "measured" else block.kind})


class _WholeExecutions(NamedTuple):
    """Mean undisturbed seconds of single sentences by their lengths; three columns of shape (cells,)."""

    src_len: Floats
    tgt_len: Floats
    time_s: Floats


def _whole_executions(profile: DeviceProfile) -> _WholeExecutions | None:
    """Return the measured times of single sentences; None if there are fewer than `LEAST_CELLS` cells."""
    fit = profile.execution.fit
    samples = [sample for sample in profile.execution.samples if sample.batch == 1]
    if len(samples) < LEAST_CELLS:
        return None
    # The same times as the measured plane's: the quantile of each cell, raised to the mean, or the means of single inferences.
    src_len = [sample.src_len if sample.src_len_mean is None else sample.src_len_mean for sample in samples]
    if fit.level and fit.mode != "paper":
        time_s = [fit.level * (sample.median_s if fit.quantile == MEDIAN else sample.min_s) for sample in samples]
    else:
        time_s = [sample.mean_s for sample in samples]
    return _WholeExecutions(np.array(src_len, float), np.array([float(sample.tgt_len) for sample in samples]), np.array(time_s))


def _fit(cost: DecodingCost, step: StepBlock, encoder: EncoderBlock, whole: _WholeExecutions) -> tuple[float, Floats, Floats]:
    """Fit (pace, seconds of a step by position, seconds of encoding by source length), the last two of batch 1."""
    step_s, encoder_s = _alone_s(step), _alone_s(encoder)
    one, positions, src_lens = np.ones(1), np.array(step.position, float), np.array(encoder.src_len, float)
    last = whole.tgt_len - 1.0
    of_steps = _gradient(step_s, lambda row: TableSurface(one, positions, row[None]).sum_s(1, 0, last))
    of_encoder = _gradient(encoder_s, lambda row: TableSurface(one, src_lens, row[None]).seconds(1, whole.src_len))
    steps_s = cost.mean_over_usual * cost.step.sum_s(1, 0, last)
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
        # Strongly contradictory measurements do not determine single lengths; the pace alone is always positive.
        model_over_measured = (parts @ known_s + besides_s) / whole.time_s
        pace = float(model_over_measured.sum() / (model_over_measured @ model_over_measured))
        return pace, pace * step_s, pace * encoder_s
    return float(solution[-1]), solution[: step_s.size], solution[step_s.size : -1]


def _gradient(row: Floats, seconds: Callable[[Floats], Floats]) -> Floats:
    """Return the derivatives of seconds by each cell of a row, shape (results, cells).

    A table's sums are linear in its cells, except for the trend beyond its last length, which never falls.
    """
    base, share = seconds(row), 1e-4
    columns = [
        (seconds(row * (1.0 + share * (np.arange(row.size) == at))) - base) / (share * row[at]) for at in range(row.size)
    ]
    return np.column_stack(columns)


def _alone_s(block: StepBlock | EncoderBlock) -> Floats:
    """Return the measured seconds at batch 1, by length; those of the fitted line if the cells were not kept."""
    return np.array(block.seconds[0]) if block.seconds is not None else block.cost.seconds(1, np.array(block.lengths))
