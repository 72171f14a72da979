"""Whether the box was itself while a stretch was measured: judged by a reference cell. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simnmt.calibrate.samples import Reading

BOUND = 0.05
"""Share by which a reading may differ from the usual one. A quiet box stays within 0.01 to 0.02."""
BASE = "the lower quartile of all readings"
"""What drift is told against: whatever disturbs makes slower, and a single lucky reading is not the rule."""


@dataclass(frozen=True, slots=True)
class Drift:
    """How steady the reference cell was."""

    usual_s: float
    """As `BASE` says."""
    largest: float
    """The largest share by which a reading differs from it, with its sign."""
    disturbed: frozenset[tuple[str, int, int]]
    """(bench, attempt, stretch) with a disturbed reading before or after."""


def judge(readings: Sequence[Reading], order: Mapping[tuple[str, int], Sequence[int]], bound: float = BOUND) -> Drift:
    """Compare all readings. `order`: the stretches of each (bench, attempt) as they were measured.

    A stretch is disturbed where a reading at either of its ends is off by more than `bound`, or is missing.
    """
    usual_s = float(np.quantile([reading.least_s for reading in readings], 0.25)) if readings else 0.0
    off: dict[tuple[str, int, int], float] = {
        (reading.bench, reading.attempt, reading.position): reading.least_s / usual_s - 1.0 if usual_s > 0.0 else 0.0
        for reading in readings
    }
    disturbed = {
        (bench, attempt, stretch)
        for (bench, attempt), stretches in order.items()
        for position, stretch in enumerate(stretches)
        if any(abs(off.get((bench, attempt, end), np.inf)) > bound for end in (position, position + 1))
    }
    return Drift(usual_s, max(off.values(), key=abs, default=0.0), frozenset(disturbed))
