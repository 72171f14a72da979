"""Fits the synthetic RTT process to a series: daily swing first, then levels, then what is far from them, then the rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simnmt.network.errors import TraceError
from simnmt.network.rtt_series import RttSeries
from simnmt.network.synthesis import level_shifts
from simnmt.network.synthesis.daily_swing import fit_daily_swing
from simnmt.network.synthesis.excursions import far_from_level, fit_excursions
from simnmt.network.synthesis.level_shifts import count_shifts, noise_of, segment
from simnmt.network.synthesis.process import RttProcess
from simnmt.network.synthesis.quantile_law import Floats, QuantileLaw

MIN_FIT_SAMPLES = 50

SHARES = (0.0, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 0.999, 1.0)
"""Where the law of a level's residuals is kept, if the level has samples enough for it."""
_SHARES_OF_FEW = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_SAMPLES_A_QUANTILE = 30

_FAR_LAG = 4
_LEAST_MEMORY = 0.02
_MOST_PERSISTENT = 0.999


def fit(series: RttSeries) -> RttProcess:
    """Fit the process to a series taken at even spacing (its median spacing is the step).

    The series counts as a circle, its end followed by its start. Raises `TraceError` below `MIN_FIT_SAMPLES` samples.
    """
    if len(series.rtt_s) < MIN_FIT_SAMPLES:
        what = f"RTT series {series.name} has {len(series.rtt_s)} samples"
        raise TraceError(what, remedy=f"a process needs at least {MIN_FIT_SAMPLES} to be fitted to")
    if len(series.rtt_s) > level_shifts.MOST_SAMPLES:
        what = f"RTT series {series.name} has {len(series.rtt_s):,} samples"
        raise TraceError(what, remedy=f"a process can be fitted to at most {level_shifts.MOST_SAMPLES:,}; cut it")
    daily = fit_daily_swing(series.time_s, series.rtt_s)
    rtt_s = series.rtt_s - daily.at(series.time_s) if daily else series.rtt_s
    levels_s, level = segment(rtt_s)
    residual_s = rtt_s - levels_s[level]
    far = far_from_level(residual_s, level, noise_of(rtt_s) / 2)
    spikes, bursts = fit_excursions(residual_s, far)
    ordinary = [(level == k) & ~far for k in range(len(levels_s))]
    slow_share, persistence = _memory(residual_s, ordinary)
    return RttProcess(
        source=series.source,
        step_s=float(np.median(np.diff(series.time_s))),
        levels=count_shifts(levels_s, level),
        residuals=tuple(_law(residual_s[here]) for here in ordinary),
        slow_share=slow_share,
        persistence=persistence,
        spikes=spikes,
        bursts=bursts,
        daily=daily,
    )


def _law(residual_s: Floats) -> QuantileLaw:
    enough = len(residual_s) >= _SAMPLES_A_QUANTILE * len(SHARES)
    return QuantileLaw.of(residual_s, np.array(SHARES if enough else _SHARES_OF_FEW))


def _memory(residual_s: Floats, ordinary: list[NDArray[np.bool_]]) -> tuple[float, float]:
    """Share and persistence of the slow part of the score, from its autocorrelation at lag 1 and at `_FAR_LAG`.

    A residual's score is that of its rank among its level's, so no tail and no level weighs more than another.
    """
    from scipy.special import ndtri  # here, since scipy takes a third of the start of a process
    from scipy.stats import rankdata

    score = np.full(len(residual_s), np.nan)
    for here in ordinary:
        score[here] = ndtri((rankdata(residual_s[here]) - 0.5) / here.sum())
    near, far = (_mean_product(score, lag) for lag in (1, _FAR_LAG))
    if near < _LEAST_MEMORY:
        return 0.0, 0.0
    persistence = min((max(far, 0.0) / near) ** (1 / (_FAR_LAG - 1)), _MOST_PERSISTENT)
    persistence = round(min(max(persistence, near), _MOST_PERSISTENT), 4)
    return round(min(near / persistence, 1.0), 4), persistence


def _mean_product(score: Floats, lag: int) -> float:
    product = score[lag:] * score[:-lag]
    known = np.isfinite(product)
    return float(product[known].mean()) if known.any() else 0.0
