"""Fits of samples to cost models: steps and encoders as a line or a table (FNI-18), steps split from whole translations."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.profile.batch_cost import LinearSurface, Surface, TableSurface
from simnmt.profile.blocks import EncoderBlock, EncoderCoefficients, Kind, StepBlock, StepCoefficients
from simnmt.profile.least_squares import bounded_least_squares, by_cell, errs_clearly_less, r_squared

_QUANTILES = {"min": 0.0, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}


def cell_samples(
    src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike, *, batch: int = 1, beam: int = 1
) -> list[dict[str, Any]]:
    """`execution.samples` of raw repeats, by cell in rising order."""
    cells = by_cell(src_len, tgt_len, time_s)
    return [
        {"src_len": int(src), "tgt_len": int(tgt), "batch": batch, "beam": beam} | _summed_up(repeats)
        for src, tgt, repeats in zip(cells.first, cells.second, cells.repeats, strict=True)
    ]


def samples_by_tgt_len(
    src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike, *, batch: int = 1, beam: int = 1
) -> list[dict[str, Any]]:
    """`execution.samples` of many single inferences, one entry a target length: what C-NMT's figure 2a shows.

    Their source lengths differ: `src_len_mean` is their mean, `src_len` the nearest whole number.
    """
    src = np.asarray(src_len, np.float64)
    cells = by_cell(np.zeros_like(src), tgt_len, time_s)
    mean = np.bincount(cells.cell_of, weights=src) / np.bincount(cells.cell_of)
    return [
        {"src_len": round(middle), "src_len_mean": middle, "tgt_len": int(tgt), "batch": batch, "beam": beam}
        | _summed_up(repeats)
        for middle, tgt, repeats in zip(mean.tolist(), cells.second, cells.repeats, strict=True)
    ]


def _summed_up(repeats: NDArray[np.float64]) -> dict[str, Any]:
    return (
        {"repeats": repeats.size}
        | {f"{name}_s": float(np.quantile(repeats, share)) for name, share in _QUANTILES.items()}
        | {"mean_s": float(repeats.mean()), "sd_s": float(repeats.std(ddof=1)) if repeats.size > 1 else None}
    )


def split_totals(tgt_len: ArrayLike, total_s: ArrayLike) -> tuple[float, float, float]:
    """(encode_and_fixed_s, s_first_step, s_per_position) of one batch size and source length, by one fit over all repeats.

    A translation of T tokens takes encode_and_fixed_s + T s_first_step + T (T - 1) / 2 s_per_position, because the step at
    position p, from 0, takes s_first_step + p s_per_position. By relative error, no part below 0; with two target lengths
    steps are alike. Both columns of shape (translations,). Raises `ValueError` for fewer than two target lengths, lengths
    below 1 and times that are not positive.
    """
    length, time = np.asarray(tgt_len, np.float64), np.asarray(total_s, np.float64)
    if length.ndim != 1 or length.shape != time.shape:
        raise ValueError(f"two columns of one length are needed, got shapes {length.shape} and {time.shape}")
    if not (np.isfinite(time).all() and (time > 0.0).all() and np.isfinite(length).all() and (length >= 1.0).all()):
        raise ValueError("target lengths from 1 and positive times are needed")
    distinct = np.unique(length).size
    if distinct < 2:
        raise ValueError("two target lengths at least are needed to tell a step from the rest")
    grown = length * (length - 1.0) / 2.0 * (distinct > 2)
    design = np.column_stack([np.ones_like(length), length, grown]) / time[:, None]
    fixed, first, per_position = bounded_least_squares(design, np.ones_like(time), (True,) * 3).tolist()
    return fixed, first, per_position


GOOD_ENOUGH = 0.005
"""Error of a line up to which no table replaces it (`errs_clearly_less`): a table has so many
numbers that noise alone makes it the better one now and then, and outside of its grid it knows less. As the line's error
counts the greater of the held-out one and the one on the cells that it was fitted to: judges at large batches must not
acquit a line that is wrong at small ones."""
WRONG = 0.1
"""So far off at one fitted batch size, over all lengths, a line is wrong there, however noisy the judges are: then that counts
as its error."""

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Errors = dict[str, float | None]


def fit_step_cost(
    batch: ArrayLike,
    position: ArrayLike,
    time_s: ArrayLike,
    *,
    judged_batches: Collection[int] = (),
    kind: Kind = "measured",
    quantile: float = 0.5,
    beam: int = 1,
    left_out: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> StepBlock:
    """The profile's block of measured steps, repeats and all; three columns of shape (steps,).

    Fits both forms to a quantile of each cell's repeats and keeps the line unless the table errs clearly less on batch sizes
    that neither saw: those of `judged_batches`, which are kept out of both for good, or, where none of them lies inside of
    what was fitted, each of the others left out in turn. Only the linear form uses batch sizes at which some position
    is missing. `left_out`: what could not be measured, `notes`: how the rest was; both are reported. Raises `ValueError`
    for no or impossible measurements, and where all were only to judge.
    """
    fit = _fitted(batch, position, time_s, quantile, judged_batches)
    linear = fit.linear
    return StepBlock(
        kind=kind,
        position=fit.lengths,
        coefficients=StepCoefficients(
            s_fixed=linear.s_fixed,
            s_per_row=linear.s_per_row,
            s_per_position=linear.s_per_token,
            s_per_row_position=linear.s_per_row_token,
        ),
        beam=beam,
        left_out=left_out,
        notes=notes,
        form=fit.form,
        **fit.told,
    )


def fit_encoder_cost(
    batch: ArrayLike,
    src_len: ArrayLike,
    time_s: ArrayLike,
    *,
    judged_batches: Collection[int] = (),
    kind: Kind = "measured",
    quantile: float = 0.5,
    beam: int = 1,
    left_out: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> EncoderBlock:
    """Fit the profile's encoder block as `fit_step_cost` does, over source lengths."""
    fit = _fitted(batch, src_len, time_s, quantile, judged_batches)
    linear = fit.linear
    return EncoderBlock(
        kind=kind,
        src_len=fit.lengths,
        coefficients=EncoderCoefficients(
            s_fixed=linear.s_fixed,
            s_per_row=linear.s_per_row,
            s_per_src_token=linear.s_per_token,
            s_per_row_src_token=linear.s_per_row_token,
        ),
        beam=beam,
        left_out=left_out,
        notes=notes,
        form=fit.form,
        **fit.told,
    )


@dataclass(frozen=True, slots=True)
class _Fit:
    form: Literal["linear", "table"]
    lengths: tuple[int, ...]
    linear: LinearSurface
    told: dict[str, Any]
    """What both blocks say alike."""


@dataclass(frozen=True, slots=True)
class _Points:
    """Cells, by their quantile."""

    rows: Floats
    tokens: Floats
    time: Floats

    def at(self, chosen: Mask) -> _Points:
        return _Points(self.rows[chosen], self.tokens[chosen], self.time[chosen])

    def linear(self) -> LinearSurface:
        """By relative error, no coefficient below 0; what did not vary gets none."""
        rows, tokens = self.rows, self.tokens
        varied = np.array([True, np.ptp(rows) > 0, np.ptp(tokens) > 0, np.ptp(rows) > 0 and np.ptp(tokens) > 0])
        design = np.column_stack([np.ones_like(rows), rows, tokens, rows * tokens]) * varied / self.time[:, None]
        return LinearSurface(*bounded_least_squares(design, np.ones_like(self.time), (True,) * 4).tolist())

    def off(self, surface: Surface) -> Floats:
        """Absolute relative errors."""
        return np.abs(surface.seconds(self.rows, self.tokens) / self.time - 1.0)

    def bias(self, surface: Surface) -> float:
        """Absolute relative error of the mean over all cells."""
        return abs(float(surface.seconds(self.rows, self.tokens).mean() / self.time.mean()) - 1.0)


def _fitted(batch: ArrayLike, length: ArrayLike, time_s: ArrayLike, quantile: float, judged_batches: Collection[int]) -> _Fit:
    cells = by_cell(batch, length, time_s)
    rows, tokens, time = cells.first, cells.second, cells.quantile(quantile)
    if (rows < 1).any() or (tokens < 0).any() or (rows % 1 != 0).any() or (tokens % 1 != 0).any():
        raise ValueError("batches are whole numbers from 1, lengths from 0")
    judges = np.isin(rows, list(judged_batches))
    points, judged = (_Points(rows, tokens, time).at(mask) for mask in (~judges, judges))
    if not points.rows.size:
        raise ValueError("every batch size was measured only to judge, and none is left to fit")
    lengths, every = np.unique(points.tokens), np.unique(points.rows)
    whole = np.array([size for size in every if np.count_nonzero(points.rows == size) == lengths.size])
    table = TableSurface(whole, lengths, points.time[np.isin(points.rows, whole)].reshape(whole.size, lengths.size))
    linear = points.linear()
    misfit = float(points.off(linear).mean())
    judged = judged.at(_inside(judged, table))
    errors, how = _judged(judged, linear, table) if judged.rows.size else _left_out_in_turn(points, table)
    form: Literal["linear", "table"] = "linear"
    if errors["table"] is not None and errors["linear"] is not None:
        worst = max(points.at(points.rows == size).bias(linear) for size in every)
        error = max(errors["linear"], misfit, worst if worst > WRONG else 0.0)
        form = "table" if errs_clearly_less(errors["table"], error, GOOD_ENOUGH) else "linear"
    batches = whole if form == "table" else every
    block_fields = {
        "batch": tuple(int(size) for size in batches),
        "seconds": tuple(tuple(row) for row in table.cells.tolist()) if batches.size == whole.size else None,
        "judged_batch": tuple(int(size) for size in np.unique(judged.rows)),
        "judged_cells": tuple(
            (int(size), int(at), second)
            for size, at, second in zip(judged.rows, judged.tokens, judged.time.tolist(), strict=True)
        ),
        "heldout_error": errors[form],
        "heldout_error_linear": errors["linear"],
        "heldout_error_table": errors["table"],
        "heldout_how": how,
        "fitted_error_linear": misfit,
        "r2": r_squared(linear.seconds(points.rows, points.tokens), points.time) if form == "linear" else None,
        "repeats": min(repeats.size for repeats in cells.repeats),
    }
    return _Fit(form, tuple(int(grid_length) for grid_length in lengths), linear, block_fields)


def _inside(points: _Points, table: TableSurface) -> Mask:
    """Where neither form is made to extrapolate: what lies on or between the cells of the table."""
    inside = np.full(points.rows.shape, table.batches.size > 0)
    for values, grid in ((points.rows, table.batches), (points.tokens, table.lengths)):
        if grid.size:
            inside &= (values >= grid[0]) & (values <= grid[-1])
    return inside


def _judged(judged: _Points, linear: LinearSurface, table: TableSurface) -> tuple[Errors, str]:
    """Errors of both forms on the same cells, of batch sizes that neither saw."""
    sizes = ", ".join(f"{size:.0f}" for size in np.unique(judged.rows))
    errors: Errors = {"linear": float(judged.off(linear).mean()), "table": float(judged.off(table).mean())}
    return errors, f"batch sizes {sizes}, measured only to judge"


def _left_out_in_turn(points: _Points, table: TableSurface) -> tuple[Errors, str | None]:
    """Errors of both forms on batch sizes left out in turn, the ends of the table excepted: neither is made to extrapolate.

    With fewer than three batch sizes, on lengths left out in turn.
    """
    off: dict[str, list[Floats]] = {"linear": [], "table": []}
    over_batches = table.batches.size >= 3
    axis, coordinate = (table.batches, points.rows) if over_batches else (table.lengths, points.tokens)
    for left_out in axis[1:-1] if table.batches.size else ():
        judged = points.at(np.isin(points.rows, table.batches) & (coordinate == left_out))
        kept = axis != left_out
        without = (
            TableSurface(table.batches[kept], table.lengths, table.cells[kept])
            if over_batches
            else TableSurface(table.batches, table.lengths[kept], table.cells[:, kept])
        )
        off["linear"].append(judged.off(points.at(coordinate != left_out).linear()))
        off["table"].append(judged.off(without))
    if not off["table"]:
        return {"linear": None, "table": None}, None
    how = f"{'batch sizes' if over_batches else 'lengths'} left out in turn, without the least and the greatest"
    return {form: float(np.concatenate(errors).mean()) for form, errors in off.items()}, how
