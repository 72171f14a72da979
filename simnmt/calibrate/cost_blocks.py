"""Fits of measured cells to the cost blocks of a profile: execution, steps, encoder, gaps between steps. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from simnmt.calibrate.fits import fit_grid, fit_overhead, split_totals
from simnmt.calibrate.plan import JUDGING, corner_cells
from simnmt.calibrate.samples import Cell
from simnmt.calibrate.settings import CalibrationError, Settings
from simnmt.nmt.engine import Work
from simnmt.profile.blocks import EncoderBlock, Execution, Overhead, StepBlock
from simnmt.profile.execution_fit import (
    MEDIAN,
    Mode,
    by_cell,
    cell_samples,
    fit_execution,
    fit_relative_plane,
    heldout_plane_error,
    relative_error,
    samples_by_tgt_len,
)
from simnmt.profile.origin import ValidRange
from simnmt.profile.profile_variant import GAP_NAMES

FIT_MODE: dict[str, Mode] = {"quick": "six_cells", "full": "full_grid", "paper": "paper"}
POSITIONS = 7
"""Number of positions of decode steps beside the first, evenly spaced in their logarithm."""
BY_SPLITTING = "by splitting whole translations over the target length: the backend does not report its steps"
BY_STEP = "medians of whole translations of one token less their decode step: the backend does not report its encoder"

Rows = list[tuple[int, int, float]]
"""(batch, length, seconds)."""
Columns = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


def execution_block(cells: Sequence[Cell], settings: Settings) -> Execution:
    """Fit `execution` of a profile: plane, residual, errors and samples.

    Raises `ValueError` for too few cells, `CalibrationError` for inferences of mode paper whose plane has a negative time per
    token: its least squares have no bounds.
    """
    src_len, tgt_len, time_s = _columns(cells)
    corners = _is_corner(src_len, tgt_len, settings)
    # If some corners did not fit into memory, the others cannot make a plane to be judged.
    all_six = len({*zip(src_len[corners], tgt_len[corners], strict=True)}) == 6
    mode: Mode = FIT_MODE[settings.mode] if settings.gap_s is None else "every_repeat"
    marked = corners if mode == "six_cells" and all_six else None
    stretch = [number for cell in cells for number in cell.stretches]
    known = stretch if len(stretch) == time_s.size else None
    block = fit_execution(src_len, tgt_len, time_s, mode=mode, fitted=marked, stretch=known)
    for side, s_per_token in (("source", block.plane.s_per_src_token), ("target", block.plane.s_per_tgt_token)):
        if s_per_token < 0.0:
            what = f"{time_s.size:,} inferences give a {side} token {1e3 * s_per_token:.3g} ms, which cannot be"
            raise CalibrationError(what, remedy="give more --inferences in another --out, on a quiet box")
    fit: dict[str, object] = {}
    if mode == "full_grid" and all_six:
        fit["heldout_error_six_cells"] = heldout_plane_error(src_len, tgt_len, time_s, fitted=corners)
    if settings.mode == "paper":
        plane = fit_relative_plane(src_len, tgt_len, time_s, quantile=MEDIAN).plane
        medians = by_cell(src_len, tgt_len, time_s)
        fit["lengths"] = settings.drawn_lengths
        fit["relative_plane"] = asdict(plane) | {
            "error": relative_error(plane.seconds(medians.first, medians.second), medians.quantile(MEDIAN)),
            "heldout_error": heldout_plane_error(src_len, tgt_len, time_s, quantile=MEDIAN),
        }
    # Thousands of single inferences are kept by target length, as in figure 2a of C-NMT.
    summed_up = samples_by_tgt_len if settings.mode == "paper" else cell_samples
    samples = summed_up(src_len, tgt_len, time_s, beam=settings.beam)
    return block.model_copy(update={"fit": block.fit.model_copy(update=fit), "samples": samples})


def valid_range(cells: Sequence[Cell], settings: Settings) -> ValidRange:
    """Return the lengths from 1 to the longest measured one; in paper mode, from the shortest drawn one."""

    def ends(lengths: list[int]) -> tuple[int, int]:
        return min(lengths) if settings.mode == "paper" else 1, max(lengths)

    return ValidRange(src_len=ends([cell.work.src_len for cell in cells]), tgt_len=ends([cell.work.tgt_len for cell in cells]))


def step_block(cells: Sequence[Cell], left_out: Sequence[Work], beam: int) -> StepBlock | None:
    """Fit the cost of the model's decode steps; None with fewer than two batch sizes to fit to, or without steps.

    If the backend reports its steps, the search between two steps is a separate overhead (`step_gap_s`), which the simulated
    world adds. If it does not, the block includes the search, and no gap is known.
    """
    reported = all(timing.steps_s is not None for cell in cells for timing in cell.timings)
    rows = _reported_steps(cells) if reported else _split_steps(cells)
    if _fitted_batches(rows) < 2:
        return None
    more, notes = _prolonged(rows) if reported else ([], (BY_SPLITTING,))
    block = fit_grid(
        StepBlock,
        *zip(*(rows + more), strict=True),
        judged_batches=_judging(rows),
        beam=beam,
        left_out=_describe_omitted(left_out),
        notes=notes,
        repeats=_repeats(cells),
        src_len=cells[0].work.src_len,
    )
    return block.model_copy(update={"run_over_predicted": _run_over_predicted(cells, block)})


def encoder_block(cells: Sequence[Cell], left_out: Sequence[Work], beam: int, step: StepBlock | None) -> EncoderBlock | None:
    """Fit the cost of encoding; if the backend does not report it, to the time of a one-step translation less that step."""
    reported = all(timing.encode_s is not None for cell in cells for timing in cell.timings)
    if reported:
        rows = [(cell.work.batch, cell.work.src_len, timing.encode_s or 0.0) for cell in cells for timing in cell.timings]
    elif step is None:
        return None
    else:
        first_s = _first_steps_s(step)
        rows = [
            (cell.work.batch, cell.work.src_len, float(np.median(cell.total_s)) - first_s(cell.work.batch)) for cell in cells
        ]
    lost = [(batch, src_len) for batch, src_len, second in rows if second <= 0.0]
    rows = [row for row in rows if row[2] > 0.0]
    if _fitted_batches(rows) < 2:
        return None
    short = tuple(f"batch {batch}, {src_len} source tokens: took no longer than its decode step" for batch, src_len in lost)
    return fit_grid(
        EncoderBlock,
        *zip(*rows, strict=True),
        judged_batches=_judging(rows),
        beam=beam,
        left_out=(*short, *_describe_omitted(left_out)),
        notes=() if reported else (BY_STEP,),
        repeats=_repeats(cells),
    )


def _columns(cells: Sequence[Cell]) -> Columns:
    rows = [(cell.work.src_len, cell.work.tgt_len, second) for cell in cells for second in cell.total_s]
    src_len, tgt_len, time_s = zip(*rows, strict=True)
    return np.array(src_len), np.array(tgt_len), np.array(time_s)


def _is_corner(src_len: NDArray[np.int64], tgt_len: NDArray[np.int64], settings: Settings) -> NDArray[np.bool_]:
    corners = {(work.src_len, work.tgt_len) for work in corner_cells(settings)}
    return np.array([pair in corners for pair in zip(src_len.tolist(), tgt_len.tolist(), strict=True)])


def _reported_steps(cells: Sequence[Cell]) -> Rows:
    """Return (batch, position, seconds) per position and timing: the median of the step and its neighbours.

    The first step has no neighbours: nothing is cached before it.
    """
    windows = _windows(max((cell.work.tgt_len for cell in cells), default=1))
    rows = []
    for cell in cells:
        for low, position, high in windows:
            for timing in cell.timings:
                assert timing.steps_s is not None
                if high < len(timing.steps_s):
                    rows.append((cell.work.batch, position, float(np.median(timing.steps_s[low : high + 1]))))
    return rows


def _prolonged(rows: Rows) -> tuple[Rows, tuple[str, ...]]:
    """Return rows for positions beyond the short runs of large batches, and notes on them.

    Such a step grows from the timed steps as it does for the largest batch that was timed at all positions.
    """
    positions = sorted({position for _, position, _ in rows})
    usual_s = {
        key: float(np.median([second for batch, position, second in rows if (batch, position) == key]))
        for key in {(batch, position) for batch, position, _ in rows}
    }
    reached = {batch: max(at for other, at in usual_s if other == batch) for batch, _ in usual_s}
    whole = [batch for batch, last in reached.items() if last == positions[-1] and batch not in JUDGING]
    short = sorted(batch for batch, last in reached.items() if last < positions[-1] and batch not in JUDGING)
    if not whole or not short:
        return [], ()
    model, added = max(whole), list[tuple[int, int, float]]()
    for batch in short:
        # The first step differs from all others.
        timed = [at for at in positions if 0 < at <= reached[batch]] or [0]
        scale = sum(usual_s[batch, at] for at in timed) / sum(usual_s[model, at] for at in timed)
        added += [(batch, at, scale * usual_s[model, at]) for at in positions if at > reached[batch]]
    scaled = ", ".join(f"{batch} (from {reached[batch] + 1} on)" for batch in short)
    return added, (f"positions not timed, scaled from batch {model}: of batch {scaled}",)


def _run_over_predicted(cells: Sequence[Cell], block: StepBlock) -> float | None:
    """Return the mean ratio of the measured seconds of all steps of a run to those that `block` predicts."""
    cost = block.cost
    ratios = [
        sum(timing.steps_s) / float(cost.sum_s(cell.work.batch, 0, len(timing.steps_s) - 1))
        for cell in cells
        for timing in cell.timings
        if timing.steps_s is not None
    ]
    return float(np.mean(ratios)) if ratios else None


def _split_steps(cells: Sequence[Cell]) -> Rows:
    """Return (batch, position, seconds) by one fit per batch size to the medians of its cells."""
    rows = []
    for batch in sorted({cell.work.batch for cell in cells}):
        of_batch = [cell for cell in cells if cell.work.batch == batch]
        tgt_lens = [cell.work.tgt_len for cell in of_batch]
        if len(tgt_lens) < 2:
            continue
        _, first_s, more_s = split_totals(tgt_lens, [float(np.median(cell.total_s)) for cell in of_batch])
        if first_s > 0.0 or more_s > 0.0:
            rows += [(batch, position, first_s + position * more_s) for _, position, _ in _windows(max(tgt_lens))]
    return [row for row in rows if row[2] > 0.0]


def _first_steps_s(step: StepBlock) -> Callable[[int], float]:
    """Return a function from batch size to seconds of a first step, measured if possible: an encoder takes hardly more than
    the error of a fit."""
    cost = step.cost
    measured_s = {batch: second for batch, position, second in step.judged_cells if position == 0}
    if step.position[0] == 0:
        measured_s |= {batch: row[0] for batch, row in zip(step.batch, step.seconds, strict=True)}
    return lambda batch: measured_s[batch] if batch in measured_s else float(cost.seconds(batch, 0))


def _windows(tgt_len: int) -> list[tuple[int, int, int]]:
    """Return (first, middle, last) of the positions that are pooled; the first step is alone."""
    last = tgt_len - 1
    middles = sorted({round(at) for at in np.geomspace(1, last, POSITIONS).tolist()}) if last else []
    nears = [max(1, middle // 10) for middle in middles]
    return [(0, 0, 0)] + [(max(at - near, 1), at, min(at + near, last)) for at, near in zip(middles, nears, strict=True)]


def _judging(rows: Rows) -> tuple[int, ...]:
    return tuple(sorted({batch for batch, _, _ in rows} & set(JUDGING)))


def _fitted_batches(rows: Rows) -> int:
    return len({batch for batch, _, _ in rows} - set(JUDGING))


def _repeats(cells: Sequence[Cell]) -> int:
    """Return the least number of timings of a cell."""
    return min(len(cell.timings) for cell in cells)


def _describe_omitted(left_out: Sequence[Work]) -> tuple[str, ...]:
    return tuple(
        f"batch {work.batch}, {work.src_len} source and {work.tgt_len} target tokens: out of memory" for work in left_out
    )


NOT_REPORTED = "the backend does not report its steps, which include the gap"
ALONE = "single sentences only: how it grows with the batch was not measured"


def gap_overheads(steps: Sequence[Cell], encoders: Sequence[Cell]) -> dict[str, Overhead]:
    """Fit `step_gap_s` and `step_gap_s_per_sentence` of a profile, from the benches of decode steps and of encoders.

    The gap of a batch size is the median time of a translation beside its encoder and steps, less that of a translation of a
    single token, which is the one-time part, divided by the number of further steps.
    """
    batches = sorted({cell.work.batch for cell in steps})
    gaps_s = {batch: _gap_s(batch, steps, encoders) for batch in batches}
    known = {batch: gap for batch, gap in gaps_s.items() if gap is not None}
    if not set(known) - set(JUDGING):
        return dict.fromkeys(GAP_NAMES, Overhead(value=None, kind="measured", note=NOT_REPORTED))
    fitted = fit_overhead(list(known), list(known.values()), judged=JUDGING)
    error = "" if fitted.error is None else f", error {100 * fitted.error:.1f} % on {fitted.how}"
    note = f"whole translations less encoder and steps, batch {min(known)} to {max(known)}{error}"
    heldout_error = fitted.error if set(known) & set(JUDGING) else None
    values = zip(GAP_NAMES, (fitted.s_fixed, fitted.s_per_sentence), strict=True)
    return {name: Overhead(value=value, kind="measured", note=note, heldout_error=heldout_error) for name, value in values}


def lone_gap_overheads(executions: Sequence[Cell]) -> dict[str, Overhead]:
    """Fit the gap overheads to single sentences, without measured batches: the growth with the batch is unknown."""
    gap = gap_of_singles_s(executions)
    note = NOT_REPORTED if gap is None else ALONE
    return {name: Overhead(value=value, kind="measured", note=note) for name, value in zip(GAP_NAMES, (gap, None), strict=True)}


def gap_of_singles_s(cells: Sequence[Cell]) -> float | None:
    """Fit the seconds of a gap by target length, from single sentences; None if the backend does not report steps."""
    gaps = [(cell.work.tgt_len, gap_s) for cell in cells for gap_s in _beside_s(cell)]
    tgt_lens = sorted({tgt_len for tgt_len, _ in gaps})
    if len(tgt_lens) < 2:
        return None
    medians_s = [float(np.median([gap for other, gap in gaps if other == tgt_len])) for tgt_len in tgt_lens]
    return max(float(np.polyfit(tgt_lens, medians_s, 1)[0]), 0.0)


def _gap_s(batch: int, steps: Sequence[Cell], encoders: Sequence[Cell]) -> float | None:
    of_batch = [cell for cell in steps if cell.work.batch == batch]
    longest = max(of_batch, key=lambda cell: (cell.work.tgt_len, -cell.work.src_len))
    beside_s = _beside_s(longest)
    if not beside_s:
        return None
    src_len, tgt_len = longest.work.src_len, longest.work.tgt_len
    # The beginning may depend on the source: a beam's rows are copies of the encoded source.
    once = min(
        (cell for cell in encoders if (cell.work.batch, cell.work.tgt_len) == (batch, 1) and _beside_s(cell)),
        key=lambda cell: abs(cell.work.src_len - src_len),
        default=None,
    )
    if once is None or tgt_len == 1:
        # The whole over the steps would include joining and leaving, which are measured separately.
        return None
    return float(np.median(beside_s) - np.median(_beside_s(once))) / (tgt_len - 1)


def _beside_s(cell: Cell) -> list[float]:
    """Return the whole less all parts, of each timing that reports its parts."""
    return [
        timing.total_s - timing.encode_s - sum(timing.steps_s)
        for timing in cell.timings
        if timing.encode_s is not None and timing.steps_s is not None
    ]
