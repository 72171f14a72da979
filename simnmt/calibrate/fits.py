"""Fits of samples to blocks of a profile: tables of steps and encoders (FNI-18), overheads."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from simnmt.profile.blocks import EncoderBlock, StepBlock
from simnmt.profile.cost import CostTable
from simnmt.profile.execution_fit import bounded_least_squares, nonnegative_line


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
    **fields: Any,
) -> Grid:
    """Return the cost of steps (over positions) or encoders (over source lengths): the median of each cell's repeats.

    Its error is that on the batch sizes of `judged_batches` inside its range, which are no part of the table; None without any.
    A batch size without its longest length is left out; shorter lengths that are missing are interpolated. Three columns of
    shape (measurements,), repeats and all; `fields`: further ones of the block.
    """
    timed = pd.DataFrame({"batch": np.asarray(batch), "length": np.asarray(length), "seconds": np.asarray(time_s)})
    rows, tokens, time = timed.groupby(["batch", "length"])["seconds"].median().reset_index().to_numpy(np.float64).T
    judges = np.isin(rows, list(judged_batches))
    lengths = np.unique(tokens[~judges])
    sizes = np.unique(rows[~judges & (tokens == lengths[-1])])
    seconds = [np.interp(lengths, tokens[rows == size], time[rows == size]) for size in sizes]
    table = CostTable.of(sizes, lengths, seconds)
    judges &= (rows >= sizes[0]) & (rows <= sizes[-1]) & (tokens >= lengths[0])
    judged = rows[judges], tokens[judges], time[judges]
    errors = np.abs(table.seconds(*judged[:2]) / judged[2] - 1.0)
    judging = ", ".join(f"{size:.0f}" for size in np.unique(judged[0]))
    return kind.model_validate(
        {
            "kind": "measured",
            "batch": tuple(map(int, sizes)),
            "seconds": table.rows,
            "judged_cells": tuple((int(size), int(at), float(second)) for size, at, second in zip(*judged, strict=True)),
            "heldout_error": float(errors.mean()) if errors.size else None,
            "heldout_how": f"batch sizes {judging}, measured only to judge" if judging else None,
            kind.length_name: tuple(map(int, lengths)),
        }
        | fields
    )


LEAST_WEIGHED = 0.1
"""Share of the usual overhead below which a measurement gets no more weight: the clock's noise must not decide."""


class OverheadFit(NamedTuple):
    """Seconds = s_fixed + s_per_sentence sentences."""

    s_fixed: float
    s_per_sentence: float
    heldout_error: float | None = None
    """Mean absolute relative error on the judged sizes; None without any."""


def fit_overhead(sentences: ArrayLike, time_s: ArrayLike, *, judged: Collection[int] = ()) -> OverheadFit:
    """Fit both parts by relative error, neither below 0, to one time for each number of sentences.

    Sizes in `judged` are not fitted, and give the error. Columns of shape (sizes,).
    """
    size, time = np.asarray(sentences, np.float64), np.asarray(time_s, np.float64)
    judging = np.isin(size, list(judged))
    usual = float(np.median(time[~judging]))
    if usual <= 0.0:  # nothing measurable
        return OverheadFit(0.0, 0.0)
    weighed = np.maximum(time, LEAST_WEIGHED * usual)
    fixed, per_sentence = nonnegative_line(size[~judging], time[~judging], 1.0 / weighed[~judging])
    off = np.abs(fixed + per_sentence * size - time) / weighed
    return OverheadFit(fixed, per_sentence, float(off[judging].mean()) if judging.any() else None)
