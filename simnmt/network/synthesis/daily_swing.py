"""What the hour of the day adds to an RTT, where enough days agree on it."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from simnmt.configuration import Configuration
from simnmt.network.synthesis.quantile_law import Floats, Seconds

DAY_S = 86_400.0
_HOURS = 24

_LEAST_DAYS = 7
"""Fewer cannot be sure enough of anything, by the test below."""
_CHANCE = 1e-3
_MATTERS = 0.01
"""A swing below this share of the median RTT is left out: levels and residuals hold it anyway."""


class DailySwing(Configuration):
    """An addition to the RTT by the hour of the day, linear between the middles of the hours."""

    hours_s: tuple[Seconds, ...] = Field(min_length=_HOURS, max_length=_HOURS)
    """Seconds added in each hour after the time of day at which the fitted series, and so a drawn one, begins."""

    def at(self, time_s: Floats) -> Floats:
        """Seconds added at each time after the start; same shape."""
        return np.interp(time_s / 3600 - 0.5, np.arange(_HOURS), self.hours_s, period=_HOURS)


def fit_daily_swing(time_s: Floats, rtt_s: Floats) -> DailySwing | None:
    """The median day, or None where the series has under seven full days, or its days do not peak together.

    Each day is its hourly medians less their median. Whether days peak together: Rayleigh's test of the phases of their
    first harmonics, at a chance of one in a thousand. So a day of other routes counts as one day, however far it strays.
    """
    hour = (time_s // 3600).astype(np.int64)
    days = int((hour[-1] + 1) // _HOURS)
    if days < _LEAST_DAYS:
        return None
    first, end = (np.searchsorted(hour, np.arange(days * _HOURS), side=side) for side in ("left", "right"))
    seen = first < end
    medians = np.array([np.median(rtt_s[a:b]) if a < b else 0.0 for a, b in zip(first.tolist(), end.tolist(), strict=True)])
    full = seen.reshape(days, _HOURS).all(axis=1)
    if full.sum() < _LEAST_DAYS:
        return None
    day_s = medians.reshape(days, _HOURS)[full]
    day_s -= np.median(day_s, axis=1, keepdims=True)
    swing_s = np.median(day_s, axis=0)
    harmonic = day_s @ np.exp(2j * np.pi * np.arange(_HOURS) / _HOURS)
    phase = harmonic / np.maximum(np.abs(harmonic), np.finfo(float).tiny)
    agree = float(abs(phase.sum()) ** 2 / len(phase))
    if np.exp(-agree) > _CHANCE or np.ptp(swing_s) < _MATTERS * np.median(rtt_s):
        return None
    return DailySwing(hours_s=tuple(np.round(swing_s, 9).tolist()))
