"""From measured cells to the cost blocks of a profile. Pure: the costs themselves know how they are fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.calibrate.plan import corner_cells
from simnmt.calibrate.samples import Cell
from simnmt.calibrate.settings import Settings
from simnmt.costs import (
    StepCost,
    cell_samples,
    fit_encoder_cost,
    fit_execution,
    fit_relative_plane,
    fit_step_cost,
    heldout_plane_error,
)
from simnmt.costs.profile_blocks import EncoderBlock, StepBlock
from simnmt.nmt.engine import Work

FIT_MODE = {"quick": "six_cells", "full": "full_grid", "paper": "paper"}
POSITIONS = 7
"""At which decode steps are told apart; evenly spaced in their logarithm."""
BY_DIFFERENCES = "by differences of whole translations over the target length: the backend does not tell its steps"

Columns = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


def execution_block(cells: Sequence[Cell], settings: Settings) -> dict[str, Any]:
    """`execution` of a profile: plane, residual, errors and samples. Raises `ValueError` for too few cells."""
    src_len, tgt_len, time_s = _columns(cells)
    corners = _is_corner(src_len, tgt_len, settings)
    # With few corners left, by lack of memory, they cannot make a plane that others judge.
    marked = corners if settings.mode == "quick" and len({*zip(src_len[corners], tgt_len[corners], strict=True)}) == 6 else None
    fitted = fit_execution(src_len, tgt_len, time_s, mode=FIT_MODE[settings.mode], fitted=marked)
    fit = dict(fitted.fit)
    if settings.mode == "full":
        # What a quick calibration would have been wrong by, judged by all other cells.
        fit["heldout_error_six_cells"] = heldout_plane_error(src_len, tgt_len, time_s, fitted=corners)
    if settings.mode == "paper":
        relative = fit_relative_plane(src_len, tgt_len, time_s, quantile=0.5)
        fit["lengths"] = settings.lengths
        fit["relative_plane"] = asdict(relative.plane) | {
            "error": relative.error,
            "heldout_error": heldout_plane_error(src_len, tgt_len, time_s, quantile=0.5),
        }
    return {
        "kind": "measured",
        "plane": asdict(fitted.plane),
        "residual_relative_sd": fitted.residual_relative_sd,
        "fit": fit,
        "samples": cell_samples(src_len, tgt_len, time_s, beam=settings.beam) if settings.mode != "paper" else [],
    }


def valid_range(cells: Sequence[Cell], settings: Settings) -> dict[str, list[int]]:
    """Lengths from 1 to the longest that were measured; of paper mode, those that were drawn."""
    low = 1 if settings.mode != "paper" else None
    found = {}
    for name in ("src_len", "tgt_len"):
        lengths = [getattr(cell.work, name) for cell in cells]
        found[name] = [low or min(lengths), max(lengths)]
    return found


def step_block(cells: Sequence[Cell], left_out: Sequence[Work], beam: int) -> StepBlock | None:
    """Cost of decode steps; None where fewer than two batch sizes, or no steps, could be told."""
    told = all(timing.steps_s is not None for cell in cells for timing in cell.timings)
    rows = _told_steps(cells) if told else _differences(cells)
    if len({batch for batch, _, _ in rows}) < 2:
        return None
    notes = _words(left_out) if told else (BY_DIFFERENCES, *_words(left_out))
    return fit_step_cost(*zip(*rows, strict=True), beam=beam, left_out=notes)


def encoder_block(cells: Sequence[Cell], left_out: Sequence[Work], beam: int, step: StepBlock | None) -> EncoderBlock | None:
    """Cost of encoding; where the backend does not tell it, the whole of one step's translation less that step."""
    cost = None if step is None else StepCost.of(step)
    rows: list[tuple[int, int, float]] = []
    told = all(timing.encode_s is not None for cell in cells for timing in cell.timings)
    for cell in cells:
        work = cell.work
        for timing in cell.timings:
            if timing.encode_s is not None:
                rows.append((work.batch, work.src_len, timing.encode_s))
            elif cost is not None:
                rows.append((work.batch, work.src_len, timing.total_s - work.tgt_len * float(cost.seconds(work.batch, 0))))
    rows = [row for row in rows if row[2] > 0.0]
    if len({batch for batch, _, _ in rows}) < 2:
        return None
    how = () if told else ("a translation of one token less its decode step: the backend does not tell its encoder",)
    return fit_encoder_cost(*zip(*rows, strict=True), beam=beam, left_out=(*how, *_words(left_out)))


def step_gap_s(cells: Sequence[Cell]) -> float | None:
    """Seconds that each step adds to the whole beside its own; None where the backend does not tell."""
    gaps = [
        (cell.work.tgt_len, timing.total_s - timing.encode_s - sum(timing.steps_s))
        for cell in cells
        for timing in cell.timings
        if timing.encode_s is not None and timing.steps_s is not None
    ]
    tgt_lens = sorted({tgt_len for tgt_len, _ in gaps})
    if len(tgt_lens) < 2:
        return None
    medians_s = [float(np.median([gap for other, gap in gaps if other == tgt_len])) for tgt_len in tgt_lens]
    return max(float(np.polyfit(tgt_lens, medians_s, 1)[0]), 0.0)


def _columns(cells: Sequence[Cell]) -> Columns:
    rows = [(cell.work.src_len, cell.work.tgt_len, second) for cell in cells for second in cell.total_s]
    src_len, tgt_len, time_s = zip(*rows, strict=True)
    return np.array(src_len), np.array(tgt_len), np.array(time_s)


def _is_corner(src_len: NDArray[np.int64], tgt_len: NDArray[np.int64], settings: Settings) -> NDArray[np.bool_]:
    corners = {(work.src_len, work.tgt_len) for work in corner_cells(settings)}
    return np.array([pair in corners for pair in zip(src_len.tolist(), tgt_len.tolist(), strict=True)])


def _told_steps(cells: Sequence[Cell]) -> list[tuple[int, int, float]]:
    """(batch, position, seconds): at each chosen position the step itself and its neighbours, over all repeats."""
    rows = []
    for cell in cells:
        last = cell.work.tgt_len - 1
        for position in sorted({round(at) for at in np.geomspace(1, max(last, 1), POSITIONS).tolist()}):
            near = max(1, position // 10)
            for timing in cell.timings:
                assert timing.steps_s is not None
                steps_s = timing.steps_s[max(position - near, 0) : position + near + 1]
                rows += [(cell.work.batch, position, step_s) for step_s in steps_s]
    return rows


def _differences(cells: Sequence[Cell]) -> list[tuple[int, int, float]]:
    """(batch, position, seconds) by the least times of neighbouring target lengths; what noise makes negative is left out."""
    rows = []
    for batch in sorted({cell.work.batch for cell in cells}):
        of_batch = sorted((cell for cell in cells if cell.work.batch == batch), key=lambda cell: cell.work.tgt_len)
        for short, long in pairwise(of_batch):
            more = long.work.tgt_len - short.work.tgt_len
            step_s = (long.min_s - short.min_s) / more
            if step_s > 0.0:
                rows.append((batch, round((short.work.tgt_len + long.work.tgt_len - 1) / 2), step_s))
    return rows


def _words(left_out: Sequence[Work]) -> tuple[str, ...]:
    return tuple(
        f"batch {work.batch}, {work.src_len} source and {work.tgt_len} target tokens: out of memory" for work in left_out
    )
