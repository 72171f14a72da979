"""Measured time over target length, from a profile's samples: the paper's figure 2a in numbers (CNMT-06, CNMT-18)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simnmt.costs import DeviceProfile
from simnmt.costs.profile_blocks import CellSample

QUARTILES_OF_SD = 1.349
"""Distance of a normal law's quartiles in standard deviations."""
PUBLISHED = {"gateway": (0.99, 0.13), "cloud": (0.85, 1.2)}
"""R2 and mean squared error of the Transformer's line, on the Jetson and the Titan; printed in ms, meant in ms squared."""


@dataclass(frozen=True, slots=True)
class TimeOverLength:
    """Means of measured execution time per target length, and the line through them."""

    tgt_len: tuple[int, ...]
    mean_ms: tuple[float, ...]
    sd_ms: tuple[float, ...]
    """Of single inferences about the mean: over the source lengths, and over the repeats of each."""
    ms_per_token: float
    ms_fixed: float
    r2: float
    """Of the means about the line."""
    mse_ms2: float


def samples_of(profile: DeviceProfile) -> list[CellSample]:
    """The profile's raw samples of single sentences; empty where it holds none."""
    return [sample for sample in profile.execution.samples if sample.batch == 1]


def time_over_length(samples: Sequence[CellSample]) -> TimeOverLength | None:
    """Mean per target length over the inferences of the samples; None where they hold less than three target lengths."""
    lengths = sorted({sample.tgt_len for sample in samples})
    if len(lengths) < 3:
        return None
    means, deviations = [], []
    for length in lengths:
        here = [sample for sample in samples if sample.tgt_len == length]
        repeats = np.array([sample.repeats for sample in here])
        of_cell = np.array([1e3 * sample.mean_s for sample in here])
        within = np.array([1e3 * _sd_s(sample) for sample in here])
        mean = float(np.average(of_cell, weights=repeats))
        means.append(mean)
        deviations.append(float(np.sqrt(np.average((of_cell - mean) ** 2 + within**2, weights=repeats))))
    slope, offset = (float(number) for number in np.polyfit(lengths, means, 1))
    residual = np.array(means) - (slope * np.array(lengths) + offset)
    spread = float(np.var(means))
    return TimeOverLength(
        tuple(lengths),
        tuple(means),
        tuple(deviations),
        slope,
        offset,
        1.0 - float((residual**2).mean()) / spread if spread > 0 else 0.0,
        float((residual**2).mean()),
    )


def _sd_s(sample: CellSample) -> float:
    """Standard deviation over the repeats of a cell: as it was written, else from the quartiles, else unknown and left out."""
    if sample.sd_s is not None:
        return sample.sd_s
    if sample.p25_s is None or sample.p75_s is None:
        return 0.0
    return (sample.p75_s - sample.p25_s) / QUARTILES_OF_SD
