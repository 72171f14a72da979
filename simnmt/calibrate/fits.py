"""Fits of samples to blocks of a profile: tables of steps and encoders (FNI-18), overheads, disk reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from simnmt.base.arrays import Floats
from simnmt.profile.blocks import DiskBlock, EncoderBlock, ReadSample, StepBlock
from simnmt.profile.cost import CostTable
from simnmt.profile.execution_fit import (
    bounded_least_squares,
    by_cell,
    nonnegative_line,
    r_squared,
)


def split_totals(tgt_len: ArrayLike, total_s: ArrayLike) -> tuple[float, float, float]:
    """Fit (encode_and_fixed_s, s_first_step, s_per_position) of one batch size to translations of two target lengths or more.

    A translation of T tokens takes encode_and_fixed_s + T s_first_step + T (T - 1) / 2 s_per_position, because the step at
    position p, from 0, takes s_first_step + p s_per_position. The fit minimises relative errors, with no part below 0; with two
    target lengths, all steps are equal. Both columns of shape (translations,).
    """
    length, time = np.asarray(tgt_len, np.float64), np.asarray(total_s, np.float64)
    grown = length * (length - 1.0) / 2.0 * (np.unique(length).size > 2)
    design = np.column_stack([np.ones_like(length), length, grown]) / time[:, None]
    fixed, first, per_position = bounded_least_squares(design, np.ones_like(time)).tolist()
    return fixed, first, per_position


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
    """Return the cost of steps (over positions) or encoders (over source lengths): the median of each cell's repeats.

    Its error is that on the batch sizes of `judged_batches`, which are no part of the table, or, if none of them lies inside
    its range, on batch sizes left out one by one. A batch size without its longest length is left out; shorter lengths that
    are missing are interpolated.

    Args:
        kind: class of the block.
        batch, length, time_s: shape (measurements,), repeats and all.
        judged_batches: batch sizes that only judge.
        blocks: further fields of the block, such as `beam`, `left_out` and `notes`.

    Raises:
        ValueError: if no batch size has the longest length, or all only judge.
    """
    cells = by_cell(batch, length, time_s)
    rows, tokens, time = cells.first, cells.second, cells.quantile(0.5)
    judges = np.isin(rows, list(judged_batches))
    if judges.all():
        raise ValueError("every batch size was measured only to judge, and none is left to fit")
    lengths = np.unique(tokens[~judges])
    sizes = np.unique(rows[~judges & (tokens == lengths[-1])])
    seconds = [np.interp(lengths, tokens[rows == size], time[rows == size]) for size in sizes]
    table = CostTable.of(sizes, lengths, seconds)
    judges &= (rows >= sizes[0]) & (rows <= sizes[-1]) & (tokens >= lengths[0])
    judged = rows[judges], tokens[judges], time[judges]
    errors, how = _left_out_in_turn(table), None
    if judges.any():
        errors = np.abs(table.seconds(*judged[:2]) / judged[2] - 1.0)
        how = f"batch sizes {', '.join(f'{size:.0f}' for size in np.unique(judged[0]))}, measured only to judge"
    elif errors.size:
        how = f"{'batch sizes' if sizes.size >= 3 else 'lengths'} left out in turn, without the least and the greatest"
    return kind.model_validate(
        {
            "kind": "measured",
            "batch": tuple(map(int, sizes)),
            "seconds": table.rows,
            "judged_cells": tuple((int(size), int(at), float(second)) for size, at, second in zip(*judged, strict=True)),
            "heldout_error": float(errors.mean()) if errors.size else None,
            "heldout_how": how,
            kind.length_name: tuple(map(int, lengths)),
        }
        | blocks
    )


def _left_out_in_turn(table: CostTable) -> Floats:
    """Return the relative errors on batch sizes left out one by one, except the ends; of fewer than three, on lengths."""
    over_batches = table.batches.size >= 3
    cells = table.cells if over_batches else table.cells.T
    axis, other = (table.batches, table.lengths) if over_batches else (table.lengths, table.batches)
    errors = []
    for at in range(1, axis.size - 1):
        kept = np.delete(axis, at), other, np.delete(cells, at, axis=0)
        without = CostTable.of(*kept) if over_batches else CostTable.of(kept[1], kept[0], kept[2].T)
        seconds = without.seconds(axis[at], other) if over_batches else without.seconds(other, axis[at])
        errors.append(np.abs(seconds / cells[at] - 1.0))
    return np.concatenate(errors) if errors else np.empty(0)


LEAST_WEIGHED = 0.1
"""Share of the usual overhead below which a measurement gets no more weight: the clock's noise must not decide."""


def overhead_line(sentences: ArrayLike, time_s: ArrayLike) -> tuple[float, float]:
    """Fit (seconds fixed, seconds per sentence) by relative error, neither below 0; columns of shape (sizes,)."""
    size, time = np.asarray(sentences, np.float64), np.asarray(time_s, np.float64)
    usual = float(np.median(time))
    return nonnegative_line(size, time, 1.0 / np.maximum(time, LEAST_WEIGHED * usual)) if usual > 0.0 else (0.0, 0.0)


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
