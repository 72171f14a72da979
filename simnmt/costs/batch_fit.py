"""Fits of batch costs: a linear form, or a table where that errs clearly less on batch sizes that neither saw (FNI-18)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.costs.bounded_least_squares import bounded_least_squares
from simnmt.costs.cells import by_cell, r_squared
from simnmt.costs.profile_blocks import EncoderBlock, EncoderCoefficients, Kind, StepBlock, StepCoefficients
from simnmt.costs.surfaces import LinearSurface, TableSurface

CLEARLY = 0.8
GOOD_ENOUGH = 0.005
"""A table is kept where its held-out error is below 0.8 of the line's and the line errs by more than 0.5 %: it has so many
numbers that noise alone makes it the better one now and then, and outside of its grid it knows less."""

Floats = NDArray[np.float64]


def fit_step_cost(
    batch: ArrayLike,
    position: ArrayLike,
    time_s: ArrayLike,
    *,
    kind: Kind = "measured",
    quantile: float = 0.5,
    beam: int = 1,
    left_out: tuple[str, ...] = (),
) -> StepBlock:
    """The profile's block of measured steps, repeats and all; three columns of shape (steps,).

    Fits both forms to a quantile of each cell's repeats and keeps the line unless the table errs clearly less on batch sizes
    left out in turn; of batch sizes at which some position is missing, the linear form alone makes use. `left_out`: what
    could not be measured, to be told. Raises `ValueError` for no or impossible measurements.
    """
    found = _fitted(batch, position, time_s, quantile)
    own = found.linear
    return StepBlock(
        kind=kind,
        position=found.lengths,
        coefficients=StepCoefficients(
            s_fixed=own.s_fixed,
            s_per_row=own.s_per_row,
            s_per_position=own.s_per_token,
            s_per_row_position=own.s_per_row_token,
        ),
        beam=beam,
        left_out=left_out,
        form=found.form,
        **found.told,
    )


def fit_encoder_cost(
    batch: ArrayLike,
    src_len: ArrayLike,
    time_s: ArrayLike,
    *,
    kind: Kind = "measured",
    quantile: float = 0.5,
    beam: int = 1,
    left_out: tuple[str, ...] = (),
) -> EncoderBlock:
    """As `fit_step_cost`, over source lengths."""
    found = _fitted(batch, src_len, time_s, quantile)
    own = found.linear
    return EncoderBlock(
        kind=kind,
        src_len=found.lengths,
        coefficients=EncoderCoefficients(
            s_fixed=own.s_fixed,
            s_per_row=own.s_per_row,
            s_per_src_token=own.s_per_token,
            s_per_row_src_token=own.s_per_row_token,
        ),
        beam=beam,
        left_out=left_out,
        form=found.form,
        **found.told,
    )


@dataclass(frozen=True, slots=True)
class _Found:
    form: Literal["linear", "table"]
    lengths: tuple[int, ...]
    linear: LinearSurface
    told: dict[str, Any]
    """What both blocks say alike."""


def _fitted(batch: ArrayLike, length: ArrayLike, time_s: ArrayLike, quantile: float) -> _Found:
    cells = by_cell(batch, length, time_s)
    rows, tokens, time = cells.first, cells.second, cells.quantile(quantile)
    if (rows < 1).any() or (tokens < 0).any() or (rows % 1 != 0).any() or (tokens % 1 != 0).any():
        raise ValueError("batches are whole numbers from 1, lengths from 0")
    lengths = np.unique(tokens)
    every = np.unique(rows)
    whole = np.array([size for size in every if np.count_nonzero(rows == size) == lengths.size])
    table = TableSurface(whole, lengths, time[np.isin(rows, whole)].reshape(whole.size, lengths.size))
    errors, how = _heldout(rows, tokens, time, table)
    linear = _linear(rows, tokens, time)
    form: Literal["linear", "table"] = "linear"
    if errors["table"] is not None and errors["linear"] is not None:
        clearly = errors["table"] < CLEARLY * errors["linear"] and errors["linear"] > GOOD_ENOUGH
        form = "table" if clearly else "linear"
    own = whole if form == "table" else every
    told = {
        "batch": tuple(int(size) for size in own),
        "seconds": tuple(tuple(row) for row in table.cells.tolist()) if own.size == whole.size else None,
        "heldout_error": errors[form],
        "heldout_error_linear": errors["linear"],
        "heldout_error_table": errors["table"],
        "heldout_how": how,
        "r2": r_squared(linear.seconds(rows, tokens), time) if form == "linear" else None,
        "repeats": min(repeats.size for repeats in cells.repeats),
    }
    return _Found(form, tuple(int(each) for each in lengths), linear, told)


def _heldout(rows: Floats, tokens: Floats, time: Floats, table: TableSurface) -> tuple[dict[str, float | None], str | None]:
    """Errors of both forms on batch sizes left out in turn, the ends of the table excepted: neither is made to extrapolate.

    With fewer than three batch sizes, on lengths left out in turn.
    """
    off: dict[str, list[Floats]] = {"linear": [], "table": []}
    over_batches = table.batches.size >= 3
    axis, own = (table.batches, rows) if over_batches else (table.lengths, tokens)
    for left_out in axis[1:-1] if table.batches.size else ():
        judged = np.isin(rows, table.batches) & (own == left_out)
        kept = axis != left_out
        without = (
            TableSurface(table.batches[kept], table.lengths, table.cells[kept])
            if over_batches
            else TableSurface(table.batches, table.lengths[kept], table.cells[:, kept])
        )
        linear = _linear(rows[own != left_out], tokens[own != left_out], time[own != left_out])
        for form, surface in (
            ("linear", linear),
            ("table", without),
        ):
            off[form].append(np.abs(surface.seconds(rows[judged], tokens[judged]) / time[judged] - 1.0))
    if not off["table"]:
        return {"linear": None, "table": None}, None
    how = f"{'batch sizes' if over_batches else 'lengths'} left out in turn, without the least and the greatest"
    return {form: float(np.concatenate(each).mean()) for form, each in off.items()}, how


def _linear(rows: Floats, tokens: Floats, time: Floats) -> LinearSurface:
    """By relative error, no coefficient below 0; what did not vary gets none."""
    varied = np.array([True, np.ptp(rows) > 0, np.ptp(tokens) > 0, np.ptp(rows) > 0 and np.ptp(tokens) > 0])
    design = np.column_stack([np.ones_like(rows), rows, tokens, rows * tokens]) * varied / time[:, None]
    return LinearSurface(*bounded_least_squares(design, np.ones_like(time), (True,) * 4).tolist())
