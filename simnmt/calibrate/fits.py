"""Fits of samples to blocks of a profile: steps and encoders as a line or a table (FNI-18), overheads, disk reads, energy."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.base.arrays import Floats
from simnmt.profile.blocks import DiskBlock, EncoderBlock, EnergyBlock, ReadSample, StepBlock
from simnmt.profile.cost import CostTable
from simnmt.profile.execution_fit import (
    MEDIAN,
    bounded_least_squares,
    by_cell,
    errs_clearly_less,
    fit_relative_plane,
    heldout_plane_error,
    nonnegative_line,
    r_squared,
)
from simnmt.profile.profile_variant import LEAST_WEIGHED, overhead_line


def split_totals(tgt_len: ArrayLike, total_s: ArrayLike) -> tuple[float, float, float]:
    """Fit (encode_and_fixed_s, s_first_step, s_per_position) of one batch size and source length to all repeats.

    A translation of T tokens takes encode_and_fixed_s + T s_first_step + T (T - 1) / 2 s_per_position, because the step at
    position p, from 0, takes s_first_step + p s_per_position. The fit minimises relative errors, with no part below 0; with
    two target lengths, all steps are equal. Both columns of shape (translations,). Raises `ValueError` for fewer than two
    target lengths, lengths below 1 and times that are not positive.
    """
    length, time = np.asarray(tgt_len, np.float64), np.asarray(total_s, np.float64)
    if length.ndim != 1 or length.shape != time.shape:
        raise ValueError(f"two columns of one length are needed, got shapes {length.shape} and {time.shape}")
    if not (np.isfinite(time).all() and (time > 0.0).all() and np.isfinite(length).all() and (length >= 1.0).all()):
        raise ValueError("target lengths from 1 and positive times are needed")
    distinct = np.unique(length).size
    if distinct < 2:
        raise ValueError("two target lengths at least are needed to separate steps from the rest")
    grown = length * (length - 1.0) / 2.0 * (distinct > 2)
    design = np.column_stack([np.ones_like(length), length, grown]) / time[:, None]
    fixed, first, per_position = bounded_least_squares(design, np.ones_like(time)).tolist()
    return fixed, first, per_position


GOOD_ENOUGH = 0.005
"""Error of a line up to which no table replaces it (`errs_clearly_less`): with its many numbers, a table is sometimes better
by noise alone, and it extrapolates worse. The error of the line is the greater of the held-out error and the error on its
fitted cells: good predictions at large batches must not hide a line that is wrong at small ones."""
WRONG = 0.1
"""Error at one fitted batch size, over all lengths, from which a line is wrong there, however noisy the judging cells are: then
this is the error of the line."""

ON_A_LINE = "batches of two and more lie on the line that was fitted to them"

Mask = NDArray[np.bool_]
Errors = dict[str, float | None]


Grid = TypeVar("Grid", StepBlock, EncoderBlock)


def fit_grid(
    kind: type[Grid],
    batch: ArrayLike,
    length: ArrayLike,
    time_s: ArrayLike,
    *,
    judged_batches: Collection[int] = (),
    **blocks: Any,
) -> Grid:
    """Fit the cost of steps (over positions) or encoders (over source lengths) to the median of each cell's repeats.

    The line is kept unless the table errs clearly less on batch sizes that neither was fitted to: those of `judged_batches`,
    or, if none of them lies inside the fitted range, each of the others left out once. Only the linear form uses batch sizes
    with missing lengths.

    Args:
        kind: class of the block.
        batch, length, time_s: shape (measurements,), repeats and all.
        judged_batches: batch sizes that only judge.
        blocks: further fields of the block, such as `beam`, `left_out` and `notes`.

    Raises:
        ValueError: for no or impossible measurements, and if all batch sizes only judge.
    """
    cells = by_cell(batch, length, time_s)
    rows, tokens, time = cells.first, cells.second, cells.quantile(0.5)
    if (rows < 1).any() or (tokens < 0).any() or (rows % 1 != 0).any() or (tokens % 1 != 0).any():
        raise ValueError("batches are whole numbers from 1, lengths from 0")
    judges = np.isin(rows, list(judged_batches))
    points, judged = (_Points(rows, tokens, time).at(mask) for mask in (~judges, judges))
    if not points.rows.size:
        raise ValueError("every batch size was measured only to judge, and none is left to fit")
    lengths, sizes = np.unique(points.tokens), np.unique(points.rows)
    whole = np.array([size for size in sizes if np.count_nonzero(points.rows == size) == lengths.size])
    table = CostTable(whole, lengths, points.time[np.isin(points.rows, whole)].reshape(whole.size, lengths.size))
    line = points.line()
    judged = judged.at(_inside(judged, table))
    errors, how = _judged(judged, line, table) if judged.rows.size else _left_out_in_turn(points, table)
    form = "line"
    if errors["table"] is not None and errors["line"] is not None:
        worst = max(points.at(points.rows == size).bias(line) for size in sizes)
        error = max(errors["line"], float(points.off(line).mean()), worst if worst > WRONG else 0.0)
        if errs_clearly_less(errors["table"], error, GOOD_ENOUGH):
            form = "table"
    batches = whole
    if form == "line":
        # Batches of two lie on the line even if none was measured; a batch of one has its measured times.
        batches = np.union1d(sizes, [2.0]) if sizes[0] == 1.0 and sizes[-1] > 2.0 and 2.0 not in judged.rows else sizes
    cost = line if form == "line" else table
    seconds = np.array([cost.seconds(size, lengths) for size in batches])
    if whole.size and whole[0] == 1.0:
        seconds[batches == 1.0] = table.cells[0]
    content = {
        "kind": "measured",
        "batch": tuple(int(size) for size in batches),
        "seconds": tuple(map(tuple, seconds.tolist())),
        "judged_cells": tuple(
            (int(size), int(at), second)
            for size, at, second in zip(judged.rows, judged.tokens, judged.time.tolist(), strict=True)
        ),
        "heldout_error": errors[form],
        "heldout_how": how,
        kind.length_name: tuple(int(grid_length) for grid_length in lengths),
        "repeats": min(repeats.size for repeats in cells.repeats),
    }
    notes: tuple[str, ...] = blocks.pop("notes", ())
    if form == "line":
        notes = (*notes, ON_A_LINE)
    return kind.model_validate(content | blocks | {"notes": notes})


class _Points(NamedTuple):
    """Columns of cells with their medians."""

    rows: Floats
    tokens: Floats
    time: Floats

    def at(self, chosen: Mask) -> _Points:
        return _Points(self.rows[chosen], self.tokens[chosen], self.time[chosen])

    def line(self) -> CostTable:
        """Fit the bilinear form by relative error, no coefficient below 0; a column that does not vary gets 0."""
        rows, tokens = self.rows, self.tokens
        varied = np.array([True, np.ptp(rows) > 0, np.ptp(tokens) > 0, np.ptp(rows) > 0 and np.ptp(tokens) > 0])
        design = np.column_stack([np.ones_like(rows), rows, tokens, rows * tokens]) * varied / self.time[:, None]
        sizes, lengths = (np.unique([column.min(), column.max()]) for column in (rows, tokens))
        return CostTable.of_line(sizes, lengths, *bounded_least_squares(design, np.ones_like(self.time)).tolist())

    def off(self, surface: CostTable) -> Floats:
        """Return the absolute relative errors."""
        return np.abs(surface.seconds(self.rows, self.tokens) / self.time - 1.0)

    def bias(self, surface: CostTable) -> float:
        """Return the absolute relative error of the mean over all cells."""
        return abs(float(surface.seconds(self.rows, self.tokens).mean() / self.time.mean()) - 1.0)


def _inside(points: _Points, table: CostTable) -> Mask:
    """Return a mask of the points on or between the cells of the table, where neither form extrapolates."""
    inside = np.full(points.rows.shape, table.batches.size > 0)
    for values, grid in ((points.rows, table.batches), (points.tokens, table.lengths)):
        if grid.size:
            inside &= (values >= grid[0]) & (values <= grid[-1])
    return inside


def _judged(judged: _Points, line: CostTable, table: CostTable) -> tuple[Errors, str]:
    """Return the errors of both forms on cells of batch sizes that neither was fitted to."""
    sizes = ", ".join(f"{size:.0f}" for size in np.unique(judged.rows))
    errors: Errors = {"line": float(judged.off(line).mean()), "table": float(judged.off(table).mean())}
    return errors, f"batch sizes {sizes}, measured only to judge"


def _left_out_in_turn(points: _Points, table: CostTable) -> tuple[Errors, str | None]:
    """Return the errors of both forms on batch sizes left out one by one, except the ends, so that neither extrapolates.

    With fewer than three batch sizes, lengths are left out instead.
    """
    off: dict[str, list[Floats]] = {"line": [], "table": []}
    over_batches = table.batches.size >= 3
    axis, coordinate = (table.batches, points.rows) if over_batches else (table.lengths, points.tokens)
    for left_out in axis[1:-1] if table.batches.size else ():
        judged = points.at(np.isin(points.rows, table.batches) & (coordinate == left_out))
        kept = axis != left_out
        without = (
            CostTable(table.batches[kept], table.lengths, table.cells[kept])
            if over_batches
            else CostTable(table.batches, table.lengths[kept], table.cells[:, kept])
        )
        off["line"].append(judged.off(points.at(coordinate != left_out).line()))
        off["table"].append(judged.off(without))
    if not off["table"]:
        return {"line": None, "table": None}, None
    how = f"{'batch sizes' if over_batches else 'lengths'} left out in turn, without the least and the greatest"
    return {form: float(np.concatenate(errors).mean()) for form, errors in off.items()}, how


@dataclass(frozen=True, slots=True)
class OverheadFit:
    """Seconds = s_fixed + s_per_sentence sentences."""

    s_fixed: float
    s_per_sentence: float
    error: float | None
    """Mean absolute relative error; None if nothing was measurable."""
    how: str
    """The data on which `error` was judged."""


def fit_overhead(sentences: ArrayLike, time_s: ArrayLike, *, judged: Collection[int] = ()) -> OverheadFit:
    """Fit both parts by relative error, neither below 0, to one time for each number of sentences.

    Sizes in `judged` are not fitted, and give the error; without any, the error is that on the fitted sizes. Columns of shape
    (sizes,). Raises `ValueError` if no size is left to fit.
    """
    size, time = np.asarray(sentences, np.float64), np.asarray(time_s, np.float64)
    judging = np.isin(size, list(judged))
    if judging.all():
        raise ValueError("nothing to fit an overhead to")
    usual = float(np.median(time[~judging]))
    if usual <= 0.0:
        return OverheadFit(0.0, 0.0, None, "nothing measurable")
    fixed, per_sentence = overhead_line(size[~judging], time[~judging])
    off = np.abs(fixed + per_sentence * size - time) / np.maximum(time, LEAST_WEIGHED * usual)
    if not judging.any():
        return OverheadFit(fixed, per_sentence, float(off.mean()), "the sizes fitted")
    how = f"batch sizes {', '.join(f'{judged_size:.0f}' for judged_size in np.unique(size[judging]))}, never fitted"
    return OverheadFit(fixed, per_sentence, float(off[judging].mean()), how)


LEAST_SIZES = 4
"""Least sizes of reads for errors on sizes left out one by one."""


def fit_disk(read_s: Mapping[int, Sequence[float]], *, cold: bool, paced_bytes_per_s: float | None = None) -> DiskBlock:
    """Fit a profile's block `disk` to the medians of cold reads, by relative error.

    Args:
        read_s: seconds of each read, by bytes.
        cold: true if the page cache held nothing of what was read.
        paced_bytes_per_s: rate of a slower storage that was imitated.

    Raises:
        ValueError: for fewer than two sizes, and if larger reads take no longer.
    """
    sizes = sorted(read_s)
    size, time = np.array(sizes, float), np.array([np.median(read_s[size]) for size in sizes])
    if size.size < 2:
        raise ValueError("reads of two sizes at least are needed")
    fixed_s, s_per_byte = _read_line(size, time)
    errors = list[float]()
    for at in range(1, size.size - 1) if size.size >= LEAST_SIZES else ():
        try:
            kept_fixed_s, kept_s_per_byte = _read_line(np.delete(size, at), np.delete(time, at))
        except ValueError:
            errors = []
            break
        errors.append(abs(float((kept_fixed_s + kept_s_per_byte * size[at]) / time[at] - 1.0)))
    return DiskBlock(
        kind="measured",
        s_fixed=fixed_s,
        bytes_per_s=1.0 / s_per_byte,
        r2=r_squared(fixed_s + s_per_byte * size, time),
        heldout_error=float(np.mean(errors)) if errors else None,
        samples=tuple(ReadSample.of(read_s[size], bytes=size) for size in sizes),
        cold=cold,
        paced_bytes_per_s=paced_bytes_per_s,
    )


def _read_line(size: Floats, time: Floats) -> tuple[float, float]:
    fixed_s, s_per_byte = nonnegative_line(size, time, 1.0 / time)
    if s_per_byte <= 0.0:
        raise ValueError("larger reads take no longer: the bandwidth is unknown")
    return fixed_s, s_per_byte


def fit_energy(
    src_len: ArrayLike, tgt_len: ArrayLike, energy_j: ArrayLike, *, source: str, idle_w: float, active_w: float
) -> EnergyBlock:
    """Fit a profile's block `energy`: a plane in joules over both lengths, by relative error to the medians.

    Columns of shape (inferences,), with all repeats. Raises `ValueError` as `fit_relative_plane` does, also for energies of 0,
    which a counter that did not move would give.
    """
    plane = fit_relative_plane(src_len, tgt_len, energy_j, quantile=MEDIAN)
    return EnergyBlock(
        kind="measured",
        source=source,
        idle_w=idle_w,
        active_w=active_w,
        j_per_src_token=plane.s_per_src_token,
        j_per_tgt_token=plane.s_per_tgt_token,
        j_fixed=plane.s_fixed,
        heldout_error=heldout_plane_error(src_len, tgt_len, energy_j, quantile=MEDIAN),
    )
