"""Levels of an RTT series: values around which it stays for a while, as between changes of route."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats

Ints = NDArray[np.int64]

# Costs of the segmentation, in units of the noise between neighbouring samples. A stay costs at most _FAR per sample, so a
# single outlier never pays for the two shifts of _SHIFT that it needs; three equal samples do.
_SHIFT = 12.0
_FAR = 9.0
_START_SHARES = (*np.linspace(0.01, 0.97, 17).tolist(), 0.98, 0.985, 0.99, 0.993, 0.996, 0.998)


def noise_of(rtt_s: Floats) -> float:
    """Return the median step between neighbouring samples, seconds, or a small value if most steps are 0."""
    return max(float(np.median(np.abs(np.diff(rtt_s)))), 1.4e-4 * float(np.median(rtt_s)))


def segment(rtt_s: Floats) -> tuple[Floats, Ints]:
    """Return the levels in ascending order, and the level of each sample, by dynamic programming.

    Minimises the sum of |distance| / noise and of the costs of the shifts.
    """
    noise_s = 1.5 * noise_of(rtt_s)
    levels_s = _apart(np.quantile(rtt_s, _START_SHARES), 3 * noise_s)
    for _ in range(5):
        level = _cheapest_path(rtt_s, levels_s, noise_s)
        levels_s = _apart([np.median(rtt_s[level == k]) for k in np.unique(level)], 2 * noise_s)
    used, level = np.unique(_cheapest_path(rtt_s, levels_s, noise_s), return_inverse=True)
    return levels_s[used], level


def _apart(levels_s: Floats | Sequence[np.floating], gap_s: float) -> Floats:
    kept: list[float] = []
    for level_s in np.sort(levels_s).tolist():
        if not kept or level_s - kept[-1] > gap_s:
            kept.append(level_s)
    return np.array(kept)


def _cheapest_path(rtt_s: Floats, levels_s: Floats, noise_s: float) -> Ints:
    """Return the level of each sample at the least total cost; a shift costs `_SHIFT`."""
    totals = np.minimum(np.abs(rtt_s[:, None] - levels_s) / noise_s, _FAR)
    total = np.zeros(len(levels_s))
    best, shift = [], []
    for cost in totals:  # each cost is replaced by the total up to its sample
        best.append(total.argmin())
        shift.append(total[best[-1]] + _SHIFT)
        total = np.add(np.minimum(total, shift[-1]), cost, out=cost)
    stay, moved = np.arange(len(levels_s), dtype=np.int8), np.array(best[1:], dtype=np.int8)
    came = np.where(totals[:-1] <= np.array(shift[1:])[:, None], stay, moved[:, None])
    path = [int(total.argmin())]
    for origin in reversed(came.tolist()):
        path.append(origin[path[-1]])
    return np.array(path[::-1], dtype=np.int64)
