"""Draws of a device profile within the error of its calibration, by resampling the kept samples and refitting.

`CalibrationDraws` restores the repeats of each cell from their quantiles and mean, and draws profiles that the box may have:

1. Repeats. Every cell is measured anew about its mean, with relative noise drawn from that of all cells together, and the plane
   is refitted by the fit that made the profile.
2. Stretches. The level moves by its standard error over stretches of measuring; if that was not recorded, by an upper bound.
3. Disturbances. Half of the draws count the disturbed repeats, as if the box in service had them too.
4. Form. A plane is not the truth: at the lengths of the requests, it is corrected by the ratios of the cells' new means to it,
   smoothed over the logarithms of both lengths.
5. Batches. Costs of steps and encoders move with the level, and by the error on batch sizes that were measured only to judge.
Not in a draw: another speed of the box in service, variants of the decoder, streamed models and energy.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from simnmt.base.arrays import Floats
from simnmt.profile.blocks import CellSample, EncoderBlock, StepBlock, overheads_times
from simnmt.profile.cost import Plane
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.execution_fit import LEAST, LEAST_CELLS, Cells, PlaneOfMeans, bounded_least_squares, fit_plane_of_means

Block = TypeVar("Block", StepBlock, EncoderBlock)

NEAR = 0.17
"""Width of the smoothing of cells, in halves of the logarithmic side of their grid (chosen by coverage of synthetic boxes)."""
CELLS_A_STRETCH = 10
"""Cells between two readings of the reference cell in a calibration that did not record `level_error`."""


def sample_times(sample: CellSample) -> Floats:
    """Return sorted repeats with the quantiles and the mean of a cell, shape (repeats,).

    Exact for up to 6 repeats; of more, the least change of a line through the quantiles that has all of these numbers.
    """
    count = sample.repeats
    quantiles = ((0.0, sample.min_s), (0.25, sample.p25_s), (0.5, sample.median_s), (0.75, sample.p75_s), (0.95, sample.p95_s))
    known = [(share, value) for share, value in quantiles if value is not None]
    if count == 1 or len(known) < 2:
        return np.full(count, sample.mean_s)
    shares, values = np.array(known).T
    at = np.arange(count)
    times = np.interp(at / (count - 1), shares, values)
    weights = np.maximum(1.0 - np.abs((shares * (count - 1))[:, None] - at), 0.0)
    rows = np.vstack([weights, np.full(count, 1.0 / count)])
    times = times + np.linalg.pinv(rows) @ (np.append(values, sample.mean_s) - rows @ times)
    ordered: Floats = np.maximum.accumulate(np.maximum(times, sample.min_s))
    return ordered


def lacking_samples(profile: DeviceProfile) -> str:
    """Return why the error of a profile's calibration is not known; empty if it is."""
    if profile.execution.kind != "measured":
        return f"its execution plane is {profile.execution.kind}"
    cells = len(profile.execution.samples)
    if cells < LEAST_CELLS:
        return f"it holds samples of {cells} cells, and {LEAST_CELLS} are needed" if cells else "it holds no samples"
    return ""


class CalibrationDraws:
    """The error of a profile's calibration, for representative requests of the given lengths, shape (requests,), in its unit.

    Raises `ValueError` if the error is not known.
    """

    def __init__(self, profile: DeviceProfile, src_len: ArrayLike, tgt_len: ArrayLike) -> None:
        if reason := lacking_samples(profile):
            raise ValueError(f"profile {profile.name}: {reason}")
        self.profile = profile
        self._src, self._tgt = np.asarray(src_len, np.float64), np.asarray(tgt_len, np.float64)
        samples = profile.execution.samples
        lengths = np.array([(sample.src_len, sample.tgt_len) for sample in samples], np.float64)
        repeats = [sample_times(sample) for sample in samples]
        src, tgt = np.repeat(lengths, [len(times) for times in repeats], axis=0).T
        self._cells = cells = Cells(src, tgt, np.concatenate(repeats))
        # Six cells of mode six_cells were fitted, the others only judged; if one of the six is missing, all were fitted.
        ends = (lengths[:, 0].min(), lengths[:, 0].max())
        six = profile.execution.fit.mode == "six_cells" and np.isin(cells.src, ends).sum() == 6
        self._fitted = np.isin(src, ends) if six else None
        plane, time_s = self._refit(cells), cells.time
        # The undisturbed repeats; all repeats where every one was disturbed.
        counted = plane.kept | np.isnan(cells.means(time_s, plane.kept))[cells.cell_of]
        self._mean_s, count = cells.means(time_s, counted), cells.counted(counted)
        # Deviations from a mean of n numbers are too small by sqrt(1 - 1/n).
        scale = np.where(counted, np.sqrt(count / np.maximum(count - 1.0, 1.0))[cells.cell_of], 1.0)
        ratios, several = 1.0 + (time_s / self._mean_s[cells.cell_of] - 1.0) * scale, (count > 1.0)[cells.cell_of]
        if not several.any():
            # Single repeats alone: their deviation from the plane is all that shows their noise, and the plane is their mean.
            several, ratios = np.ones_like(several), 1.0 + plane.off
            ratios = ratios / ratios[plane.kept].mean() if plane.kept.any() else ratios
            self._mean_s = np.maximum(plane.plane.seconds(cells.src, cells.tgt), 1e-12)
        self._ratios = np.maximum(ratios, 0.1)[several]
        """Repeats over their cell's undisturbed mean, of cells with several repeats, shape (any,)."""
        kept_ratios = np.maximum(ratios, 0.1)[several & counted]
        self._noise = float(kept_ratios.std()) if kept_ratios.size else 0.0
        self._within = float(np.sqrt(((kept_ratios - 1.0) ** 2).mean())) if kept_ratios.size else 0.0
        self._nearness = self._weights()

    def draw(self, generator: np.random.Generator) -> DeviceProfile:
        """Return a profile that the box may have, by its calibration. Samples and the fit's quality are left out."""
        cells, profile, src, tgt = self._cells, self.profile, self._src, self._tgt
        time_s = self._mean_s[cells.cell_of] * generator.choice(self._ratios, cells.cell_of.size)
        level = float(np.exp(self._level_sd() * generator.standard_normal()))
        refit = self._refit(Cells(cells.columns[0], cells.columns[1], time_s), keep_disturbed=bool(generator.random() < 0.5))
        form = self._nearness @ (1.0 + np.nan_to_num(cells.means(refit.off, refit.kept)))
        new_s = np.maximum(refit.plane.times(level).seconds(src, tgt) * form, 1e-12)
        design = np.column_stack([src, tgt, np.ones_like(src)])
        plane = Plane(*bounded_least_squares(design, new_s, (True, True, False)).tolist())
        plane = plane.times(float(new_s.mean() / plane.seconds(src, tgt).mean()))
        usual_s = float(profile.execution.plane.seconds(src, tgt).mean())
        pace = float(new_s.mean()) / usual_s if usual_s > 0.0 else 1.0
        # A refit of new noise finds the residual within cells alone.
        scale = profile.execution.residual_relative_sd / self._within if self._within > 0.0 else 1.0
        drawn = {"plane": plane, "residual_relative_sd": refit.residual_relative_sd * scale, "samples": ()}
        update: dict[str, object] = {"execution": profile.execution.model_copy(update=drawn)}
        for name in ("step", "encoder"):
            if (block := getattr(profile, name)) is not None:
                update[name] = _moved(block, pace, generator)
        update["overheads"] = overheads_times(profile.overheads, pace)
        return profile.model_copy(update=update)

    def _refit(self, cells: Cells, *, keep_disturbed: bool = False) -> PlaneOfMeans:
        fit = self.profile.execution.fit
        quantile = fit.quantile or LEAST
        return fit_plane_of_means(cells, fit.mode or "full_grid", quantile, self._fitted, keep_disturbed=keep_disturbed)

    def _level_sd(self) -> float:
        """Return the relative standard error of the level beyond that of independent repeats."""
        count, recorded = self._cells.cell_of.size, self.profile.execution.fit.level_error
        error = self._noise / max(count / CELLS_A_STRETCH, 2.0) ** 0.5 if recorded is None else recorded
        return float(np.sqrt(max(error**2 - self._noise**2 / count, 0.0)))

    def _weights(self) -> Floats:
        """Return weights of the cells at each request, shape (requests, cells), with sums of 1."""
        squared: Floats = np.zeros((self._src.size, len(self._cells)))
        for grid, lengths in ((self._cells.src, self._src), (self._cells.tgt, self._tgt)):
            low, high = np.log(np.maximum([grid.min(), grid.max()], 1.0))
            requests = np.clip(np.log(np.maximum(lengths, 1.0)), low, high)
            distance = (requests[:, None] - np.log(np.maximum(grid, 1.0))) / max((high - low) / 2.0, 1e-9)
            squared = squared + distance**2
        weights = np.exp(-0.5 * (squared - squared.min(axis=1, keepdims=True)) / NEAR**2)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _moved(block: Block, pace: float, generator: np.random.Generator) -> Block:
    """Return the block at the pace, its batches moved by the error on judged sizes, else by the recorded one."""
    errors: dict[int, list[float]] = {}
    for batch, length, second in block.judged_cells:
        if batch > 1:
            errors.setdefault(batch, []).append(float(block.cost.seconds(batch, length)) / second - 1.0)
    size = (block.heldout_error or 0.0) * (np.pi / 2.0) ** 0.5
    if errors:
        size = float(np.sqrt(np.mean([np.mean(of_size) ** 2 for of_size in errors.values()])))
    factor = pace * float(np.exp(size * generator.standard_t(max(len(errors), 5))))
    return block.times(factor, of_one=pace)  # a batch of one is measured as a whole, and moves with the plane
