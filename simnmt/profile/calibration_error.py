"""Draws of a device profile within the error of its calibration: a parametric bootstrap of its plane and of its steps.

A profile keeps the quantiles and the mean of each cell's repeats, not the repeats themselves. `sample_times` restores them, and
`CalibrationError` measures on them how far the profile may lie from the box:

1. Repeats. Every cell is measured anew on the profile's plane, with relative noise drawn from that of all cells together, since
   a cell has few repeats. The plane is then refitted by the fit that made the profile (`fit_plane_of_means`).
2. Stretches. Inferences of one stretch share the speed of the box. The level moves by its standard error over stretches
   (`execution.fit.level_error`). If that was not recorded, all of the noise is taken as common to a stretch, which is an upper
   bound.
3. Disturbances. Half of the draws count the disturbed repeats in the level and the residual, as if the box in service had
   them too; the other half leave them out, as the profile does. Which of both holds is not known.
4. Form. A plane is not the truth. The deviations of the cells from the plane show a smooth relative deviation over the
   logarithms of both lengths (a Gaussian process, without the part that a plane can follow, and beyond the noise of the
   cells' means). Each draw has one that agrees with the cells, so the draws need not have the profile's plane as their mean.
5. Batches. Costs of steps and encoders move with the level, and by a smooth factor over the batch size whose size is the error
   on batch sizes that were measured only to judge.


Not in a draw: a box in service that is slower or faster than during the calibration, variants of the decoder, streamed models,
energy, and the overheads beside the scale that they share with the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.base.least_squares import bounded_least_squares
from simnmt.profile.blocks import CellSample, EncoderBlock, StepBlock
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.execution_fit import LEAST, LEAST_CELLS, Mode, fit_plane_of_means
from simnmt.profile.execution_plane import ExecutionPlane, PlaneCoefficients

Floats = NDArray[np.float64]
Block = TypeVar("Block", StepBlock, EncoderBlock)

CORRELATION = 1.0
"""Distance, in halves of a grid's side on a logarithmic scale, at which two deviations of the form correlate by exp(-1/2)."""
OCTAVES = 1.0
"""The same for batch sizes, in octaves."""
CELLS_A_STRETCH = 10
"""Cells between two readings of the reference cell in a calibration that did not record `level_error`."""
LEAST_FREEDOM = 2.0
"""Least degrees of freedom of an estimated size of deviations."""


def sample_times(sample: CellSample) -> Floats:
    """Return sorted repeats with the quantiles and the mean of a cell, shape (repeats,).

    Exact for up to 6 repeats, which these numbers determine. Of more, the repeats are the least change of a line through the
    quantiles that has all of these numbers.
    """
    count = sample.repeats
    known = [(share, value) for share, value in zip(_SHARES, _quantiles(sample), strict=True) if value is not None]
    if count == 1 or len(known) < 2:
        return np.full(count, sample.mean_s)
    shares, values = np.array(known).T
    at = np.arange(count)
    times = np.interp(at / (count - 1), shares, values)
    position = shares * (count - 1)
    weights = np.maximum(1.0 - np.abs(position[:, None] - at), 0.0)
    rows = np.vstack([weights, np.full(count, 1.0 / count)])
    times = times + np.linalg.pinv(rows) @ (np.append(values, sample.mean_s) - rows @ times)
    ordered: Floats = np.maximum.accumulate(np.maximum(times, sample.min_s))
    return ordered


_SHARES = (0.0, 0.25, 0.5, 0.75, 0.95)


def _quantiles(sample: CellSample) -> tuple[float | None, ...]:
    return sample.min_s, sample.p25_s, sample.median_s, sample.p75_s, sample.p95_s


def lacking_samples(profile: DeviceProfile) -> str:
    """Return why the error of a profile's calibration is not known; empty if it is."""
    if profile.execution.kind != "measured":
        return f"its execution plane is {profile.execution.kind}"
    cells = len([sample for sample in profile.execution.samples if sample.batch == 1])
    if cells < LEAST_CELLS:
        return f"it holds samples of {cells} cells, and {LEAST_CELLS} are needed" if cells else "it holds no samples"
    return ""


@dataclass(frozen=True)
class CalibrationError:
    """The error of a profile's calibration, for requests of the given lengths. Raises `ValueError` if it is not known.

    Example:
        >>> error = CalibrationError(profile, src_len, tgt_len)  # doctest: +SKIP
        >>> error.draw(np.random.default_rng(1)).plane  # doctest: +SKIP
    """

    profile: DeviceProfile
    src_len: ArrayLike
    """Lengths of representative requests in the profile's unit, shape (requests,): the deviation of the form is drawn for them,
    as the plane that follows it best there."""
    tgt_len: ArrayLike

    def __post_init__(self) -> None:
        if reason := lacking_samples(self.profile):
            raise ValueError(f"profile {self.profile.name}: {reason}")

    def draw(self, generator: np.random.Generator) -> DeviceProfile:
        """Return a profile that the box may have, by its calibration. Samples and the fit's quality are left out."""
        execution, cells = self.profile.execution, self._cells
        ratios = generator.choice(cells.ratios, cells.cell_of.size)
        level = float(np.exp(self._level_sd * generator.standard_normal()))
        counts_disturbed = bool(generator.random() < 0.5)
        time_s = self._measured_s[cells.cell_of] * ratios
        refit = fit_plane_of_means(
            cells.src_len[cells.cell_of],
            cells.tgt_len[cells.cell_of],
            time_s,
            mode=self._mode,
            quantile=execution.fit.quantile or LEAST,
            fitted=cells.fitted[cells.cell_of],
            keep_disturbed=counts_disturbed,
        )
        plane = self._shifted(refit.plane, level, self._form.draw(generator))
        src_len, tgt_len = np.asarray(self.src_len, np.float64), np.asarray(self.tgt_len, np.float64)
        before_s = float(np.mean(_plane_of(self.profile).seconds(src_len, tgt_len)))
        after_s = float(np.mean(plane.seconds(src_len, tgt_len)))
        pace = after_s / before_s if before_s > 0.0 else 1.0
        drawn: dict[str, object] = {
            "plane": PlaneCoefficients.model_construct(
                s_per_src_token=plane.s_per_src_token, s_per_tgt_token=plane.s_per_tgt_token, s_fixed=plane.s_fixed
            ),
            "residual_relative_sd": refit.residual_relative_sd * self._residual_scale,
            "samples": (),
        }
        profile = self.profile
        update: dict[str, object] = {"execution": execution.model_copy(update=drawn)}
        if profile.step is not None:
            update["step"] = _moved(profile.step, pace, self._step_error, generator)
        if profile.encoder is not None:
            update["encoder"] = _moved(profile.encoder, pace, self._encoder_error, generator)
        if profile.overheads is not None:
            update["overheads"] = profile.overheads.times(pace)
        return profile.model_copy(update=update)

    def _shifted(self, refit: ExecutionPlane, level: float, deviation: Floats) -> ExecutionPlane:
        """Return the profile's plane moved by the refit's difference, the level, and the deviation at the requests' lengths."""
        profile = measured = _plane_of(self.profile)
        moved = ExecutionPlane(
            profile.s_per_src_token + refit.s_per_src_token - measured.s_per_src_token,
            profile.s_per_tgt_token + refit.s_per_tgt_token - measured.s_per_tgt_token,
            profile.s_fixed + refit.s_fixed - measured.s_fixed,
        ).times(level)
        if not deviation.any():
            return moved
        src, tgt = np.asarray(self.src_len, np.float64), np.asarray(self.tgt_len, np.float64)
        time = np.maximum(moved.seconds(src, tgt) + profile.seconds(src, tgt) * deviation, 1e-12)
        fitted = ExecutionPlane(*bounded_least_squares(_design(src, tgt), time, (True, True, False)).tolist())
        return fitted.times(float(time.mean() / fitted.seconds(src, tgt).mean()))

    @property
    def _mode(self) -> Mode:
        return self.profile.execution.fit.mode or "full_grid"

    @cached_property
    def _measured_s(self) -> Floats:
        """Seconds of the plane by cell, above 0."""
        cells = self._cells
        seconds = _plane_of(self.profile).seconds(cells.src_len, cells.tgt_len)
        return np.where(seconds > 0.0, seconds, cells.mean_s)

    @cached_property
    def _cells(self) -> _CellTimes:
        return _CellTimes.of(self.profile, self._mode)

    @cached_property
    def _residual_scale(self) -> float:
        """Residual of the profile over that of the noise within cells alone, which a refit of new noise finds."""
        kept = self._cells.kept_ratios
        within = float(np.sqrt(((kept - 1.0) ** 2).mean())) if kept.size else 0.0
        return self.profile.execution.residual_relative_sd / within if within > 0.0 else 1.0

    @cached_property
    def _level_sd(self) -> float:
        """Relative standard error of the level beyond that of independent repeats."""
        cells, fit = self._cells, self.profile.execution.fit
        count = cells.cell_of.size
        noise = float(cells.kept_ratios.std()) if cells.kept_ratios.size else 0.0
        stretches = max(count / CELLS_A_STRETCH, 2.0)
        error = noise / stretches**0.5 if fit.level_error is None else fit.level_error
        return float(np.sqrt(max(error**2 - noise**2 / count, 0.0)))

    @cached_property
    def _step_error(self) -> tuple[float, float]:
        return _batch_error(self.profile.step)

    @cached_property
    def _encoder_error(self) -> tuple[float, float]:
        return _batch_error(self.profile.encoder)

    @cached_property
    def _form(self) -> _FormError:
        src, tgt = np.asarray(self.src_len, np.float64), np.asarray(self.tgt_len, np.float64)
        return _FormError.of(self._cells, self._measured_s, _plane_of(self.profile), src, tgt)


def _plane_of(profile: DeviceProfile) -> ExecutionPlane:
    plane = profile.execution.plane
    return ExecutionPlane(plane.s_per_src_token, plane.s_per_tgt_token, plane.s_fixed)


def _design(src_len: Floats, tgt_len: Floats) -> Floats:
    return np.column_stack([src_len, tgt_len, np.ones_like(src_len)])


@dataclass(frozen=True)
class _CellTimes:
    """Restored repeats of a calibration of single sentences; columns of shape (cells,) unless stated."""

    src_len: Floats
    tgt_len: Floats
    fitted: NDArray[np.bool_]
    """True for cells that the shape was fitted to; the others only judged it."""
    mean_s: Floats
    """Mean of the undisturbed repeats; of all repeats where every one was disturbed."""
    mean_of: Floats
    """Number of repeats in that mean."""
    cell_of: NDArray[np.int64]
    """Cell of each repeat, shape (repeats,)."""
    ratios: Floats
    """Repeats over their cell's undisturbed mean, of cells with several repeats, shape (any,)."""
    kept_ratios: Floats
    """Those of undisturbed repeats."""

    @staticmethod
    def of(profile: DeviceProfile, mode: Mode) -> _CellTimes:
        samples = [sample for sample in profile.execution.samples if sample.batch == 1]
        src_len = np.array(
            [sample.src_len if sample.src_len_mean is None else sample.src_len_mean for sample in samples], float
        )
        tgt_len = np.array([float(sample.tgt_len) for sample in samples])
        repeats = [sample_times(sample) for sample in samples]
        counts = np.array([len(times) for times in repeats])
        cell_of = np.repeat(np.arange(len(samples)), counts)
        time_s = np.concatenate(repeats)
        fitted = np.ones(len(samples), np.bool_)
        if mode == "six_cells":
            # Corners and judging cells, see `calibrate.plan`; if some corner is missing, all cells were fitted.
            corners = (src_len == src_len.min()) | (src_len == src_len.max())
            fitted = corners if int(corners.sum()) == 6 else fitted
        fit = profile.execution.fit
        plane = fit_plane_of_means(
            src_len[cell_of], tgt_len[cell_of], time_s, mode=mode, quantile=fit.quantile or LEAST, fitted=fitted[cell_of]
        )
        kept = plane.kept
        kept_of = np.bincount(cell_of, weights=kept, minlength=len(samples))
        counted = (kept | (kept_of[cell_of] == 0)).astype(np.float64)
        mean_of: Floats = np.bincount(cell_of, weights=counted, minlength=len(samples)).astype(np.float64)
        mean_s = np.bincount(cell_of, weights=counted * time_s, minlength=len(samples)) / mean_of
        # Deviations from a mean of n numbers are too small by sqrt(1 - 1/n).
        several = (mean_of > 1)[cell_of]
        scale = np.sqrt(mean_of / np.maximum(mean_of - 1.0, 1.0))[cell_of]
        ratios = 1.0 + (time_s / mean_s[cell_of] - 1.0) * np.where(counted > 0.0, scale, 1.0)
        if not several.any():
            # Single repeats alone: their deviation from the plane is all that shows their noise.
            several, ratios = np.ones_like(several), 1.0 + plane.off
            ratios = ratios / ratios[kept].mean() if kept.any() else ratios
        ratios = np.maximum(ratios, 0.1)
        return _CellTimes(
            src_len, tgt_len, fitted, mean_s, mean_of, cell_of, ratios[several], ratios[several & (counted > 0.0)]
        )


@dataclass(frozen=True)
class _FormError:
    """Deviation of the true times from the plane, relative to it, at the lengths of the requests: a normal distribution."""

    size: float
    """Estimated standard deviation of the smooth deviation before the part is removed that a plane can follow."""
    mean: Floats
    """Expected deviation by the deviations of the cells, shape (requests,)."""
    factor: Floats
    """Further deviation at the requests, by standard normal numbers, shape (requests, numbers)."""

    def draw(self, generator: np.random.Generator) -> Floats:
        """Return the relative deviation at each request."""
        deviation: Floats = self.mean + self.factor @ generator.standard_normal(self.factor.shape[1])
        return deviation

    @staticmethod
    def of(cells: _CellTimes, measured_s: Floats, plane: ExecutionPlane, src_len: Floats, tgt_len: Floats) -> _FormError:
        """Return the deviation given those of the cells.

        Deviations are a Gaussian process over the logarithms of both lengths. Its size follows from the cells, beyond the noise
        of their means, by the method of moments.
        """
        at_cells = _scaled_logarithms(cells, cells.src_len, cells.tgt_len)
        at_requests = _scaled_logarithms(cells, src_len, tgt_len)
        values, vectors = np.linalg.eigh(_correlation(at_cells, at_cells))
        kept = values > 1e-9 * values[-1]
        root = vectors[:, kept] * np.sqrt(values[kept])
        # A draw `root @ z` at the cells continues to the requests by its conditional mean; both are one smooth function.
        onto = _correlation(at_requests, at_cells) @ (vectors[:, kept] / np.sqrt(values[kept]))
        requests_s = np.maximum(plane.seconds(src_len, tgt_len), 1e-12)
        design = _design(cells.src_len, cells.tgt_len) / measured_s[:, None]
        followed = np.linalg.pinv(design[cells.fitted]) @ root[cells.fitted]
        weight = cells.mean_of / cells.mean_of.sum()
        residual = root - design @ followed
        level = weight @ residual
        residual, at_lengths = residual - level, onto - (_design(src_len, tgt_len) / requests_s[:, None]) @ followed - level
        ratio = cells.mean_s / measured_s
        off = ratio / float(weight @ ratio) - 1.0
        noise = np.maximum(float(cells.kept_ratios.var()) / cells.mean_of, 1e-12)
        explained = float(weight @ (residual**2).sum(axis=1))
        beyond = float(weight @ (off**2 - noise))
        if explained <= 1e-12 or beyond <= 1e-12:
            return _FormError(0.0, np.zeros_like(src_len), np.zeros((src_len.size, 1)))
        size = (beyond / explained) ** 0.5
        # Posterior of the normal numbers z: cells deviate by size * residual @ z, and by noise.
        precision = np.eye(residual.shape[1]) + size**2 * (residual.T / noise) @ residual
        expected = np.linalg.solve(precision, size * (residual.T / noise) @ off)
        spread = np.linalg.inv(np.linalg.cholesky(precision)).T
        return _FormError(size, size * at_lengths @ expected, size * at_lengths @ spread)


def _scaled_logarithms(cells: _CellTimes, src_len: Floats, tgt_len: Floats) -> Floats:
    """Return both lengths, logarithmic and from -1 to 1 over the cells, shape (lengths, 2); lengths outside are at the ends."""
    columns = []
    for grid, lengths in ((cells.src_len, src_len), (cells.tgt_len, tgt_len)):
        ends = np.log(np.maximum([grid.min(), grid.max()], 1.0))
        width = max(float(ends[1] - ends[0]), 1e-9)
        columns.append(np.clip(2.0 * (np.log(np.maximum(lengths, 1.0)) - ends[0]) / width - 1.0, -1.0, 1.0))
    return np.column_stack(columns)


def _correlation(first: Floats, second: Floats, distance: float = CORRELATION) -> Floats:
    squared = ((first[:, None, :] - second[None, :, :]) ** 2).sum(axis=-1)
    correlation: Floats = np.exp(-0.5 * squared / distance**2)
    return correlation


def _moved(block: Block, pace: float, error: tuple[float, float], generator: np.random.Generator) -> Block:
    """Return the block with its times multiplied by the pace and by a smooth factor over batch sizes (`_batch_error`)."""
    sizes, (size, freedom) = np.array(block.batch, np.float64), error
    octaves = np.log2(sizes)[:, None]
    values, vectors = np.linalg.eigh(_correlation(octaves, octaves, OCTAVES))
    smooth = vectors @ (np.sqrt(np.maximum(values, 0.0)) * generator.standard_normal(sizes.size))
    spread = size * (freedom / generator.chisquare(freedom)) ** 0.5
    factor = pace * np.exp(spread * smooth)
    # A batch of one is measured as a whole, and moves with the plane.
    update: dict[str, object] = {}
    if block.alone_s is not None:
        update["alone_s"] = tuple(pace * second for second in block.alone_s)
    if block.seconds is not None:
        update["seconds"] = tuple(
            tuple(scale * second for second in row) for scale, row in zip(factor.tolist(), block.seconds, strict=True)
        )
    if block.coefficients is not None:
        times = {name: pace * value for name, value in block.coefficients.model_dump().items()}
        if spread > 0.0:
            rows, lengths = (axis.ravel() for axis in np.meshgrid(sizes, np.array(block.lengths, float), indexing="ij"))
            surface = block.model_copy(update={"form": "linear", "alone_s": None}).cost
            time = surface.seconds(rows, lengths) * np.repeat(factor, len(block.lengths))
            times = dict(zip(times, _linear(rows, lengths, time, list(times.values())), strict=True))
        update["coefficients"] = block.coefficients.model_copy(update=times)
    if isinstance(block, StepBlock) and block.s_per_row_src_token is not None:
        update["s_per_row_src_token"] = pace * block.s_per_row_src_token
    return block.model_copy(update=update)


def _linear(rows: Floats, lengths: Floats, time: Floats, known: Sequence[float]) -> list[float]:
    """Refit the coefficients of a linear form by relative error; those that were 0 stay 0."""
    design = np.column_stack([np.ones_like(rows), rows, lengths, rows * lengths]) * (np.array(known) > 0.0)
    coefficients: list[float] = bounded_least_squares(design / time[:, None], np.ones_like(time)).tolist()
    return coefficients


def _batch_error(block: StepBlock | EncoderBlock | None) -> tuple[float, float]:
    """Return the relative error over batch sizes, a standard deviation, and its degrees of freedom.

    From the batch sizes that were measured only to judge; without them the error that was recorded, as of normal errors.
    """
    if block is None:
        return 0.0, LEAST_FREEDOM
    by_size: dict[int, list[float]] = {}
    cost = block.cost
    for batch, length, second in block.judged_cells:
        if batch > 1:
            by_size.setdefault(batch, []).append(float(cost.seconds(batch, length)) / second - 1.0)
    if by_size:
        errors = np.array([np.mean(errors) for errors in by_size.values()])
        return float(np.sqrt((errors**2).mean())), max(float(errors.size), LEAST_FREEDOM)
    return (block.heldout_error or 0.0) * (np.pi / 2.0) ** 0.5, 5.0
