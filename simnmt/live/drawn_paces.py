"""What a prediction does not know of the boxes: the error of their profiles, and their pace at the time of a run.

The pace of a box is the time of its reference executions over that of its measurement in service; it wanders within minutes. A
prediction interval draws a pace from other runs, and a profile within the error of its calibration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.experiment.cases import Unit
from simnmt.live.cell_run import LiveRun, References

Floats = NDArray[np.float64]


AROUND_S = 2.0
"""Reference executions up to so long before and after a run count for its pace."""
LEAST = 3
"""Reference executions that count for the pace at a moment, at least."""
TRIMMED = 0.1
"""Share of the least and of the greatest reference executions that do not count."""


class BoxPaces:
    """By how much each device was slower in a run than when it was measured, by its reference executions alone.

    Twenty executions tell the pace of a run to 2 to 5 %. Boxes changed by a third from one run to the next, so that those of
    other runs would tell less.
    """

    def __init__(self, usual_s: Mapping[str, float], runs: Sequence[LiveRun]) -> None:
        """`usual_s`: by device, seconds of a reference execution while the device was measured; `runs`: all, on one clock."""
        self._usual_s = usual_s
        self._at_s, self._execution_s = dict[str, Floats](), dict[str, Floats]()
        for device in usual_s:
            self._at_s[device] = np.concatenate([run.begun_s + run.references[device].begin_s for run in runs])
            self._execution_s[device] = np.concatenate([run.references[device].execution_s for run in runs])

    def of(self, run: LiveRun) -> list[float]:
        """Return the pace of each device in a run; 1 for a device without reference executions."""
        begin_s, end_s = run.begun_s - AROUND_S, run.begun_s + run.span_s + AROUND_S
        paces = []
        for device, usual_s in self._usual_s.items():
            at_s = self._at_s[device]
            seconds = self._execution_s[device][(at_s >= begin_s) & (at_s <= end_s)]
            paces.append(_trimmed_mean(seconds) / usual_s if seconds.size and usual_s > 0.0 else 1.0)
        return paces


def reference_times_s(references: References, at_s: Floats) -> Floats:
    """Return the seconds of the reference executions about each of these moments; 1 if there are none.

    They are those up to `AROUND_S` before and after, or the nearest `LEAST` if those are fewer.

    Args:
        references: of one device.
        at_s: shape (moments,), on the clock of the references.
    """
    if not references.begin_s.size:
        return np.ones(at_s.shape)
    away_s = np.abs(at_s[:, None] - references.begin_s)
    enough_s = np.sort(away_s, axis=1)[:, :LEAST].max(axis=1)
    within = away_s <= np.maximum(enough_s, AROUND_S)[:, None]
    return np.array([_trimmed_mean(references.execution_s[near]) for near in within])


def _trimmed_mean(seconds: Floats) -> float:
    left_out = int(TRIMMED * seconds.size)
    return float(np.sort(seconds)[left_out : seconds.size - left_out].mean()) if seconds.size else 0.0


def calibration_levels(unit: Unit, draws: int) -> Floats:
    """Draw the level of each device's times within the error of its measurement in service, relative to its profile.

    The level is a mean of as many executions as the block holds; their lengths differ, so that the residual about the plane is
    what varies. Shape (draws, devices); 1 for a profile that was not measured in service.
    """
    levels = np.ones((draws, len(unit.case.targets)))
    for column, target in enumerate(unit.case.targets):
        if target.service is not None:
            error = target.service.residual.relative_sd / sqrt(target.service.executions)
            random = random_streams.stream(unit.scenario.seed, 0, f"level of {target.device}")
            levels[:, column] = np.exp(error * random.standard_normal(draws))
    return levels


def drawn_paces(levels: Floats, paces: Floats, seed: int, repeats: int) -> list[Floats]:
    """Draw the factors on the devices' times for each repeat of a cell, shape (draws, devices) each.

    The level of a draw holds for all repeats; the pace is another in each repeat. The policies of a group are given the same
    factors.

    Args:
        levels: of the profiles, shape (draws, devices).
        paces: of other runs, shape (runs, devices).
        seed: of the random numbers.
        repeats: of the cell.
    """
    factors = []
    for repeat in range(repeats):
        random = random_streams.stream(seed, repeat, "pace of the boxes")
        factors.append(levels * paces[random.integers(0, len(paces), len(levels))])
    return factors
