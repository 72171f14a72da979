"""A synthetic RTT process: levels that shift, an autocorrelated residual around them, lone spikes with a heavy tail.

One smooth process cannot have both the quantiles and the autocorrelation of a real RTT: routes change and stay changed,
queues come and go slowly, and single packets are late for no lasting reason. Each has its part here.

Fitted to the first half of each of 31 RIPE Atlas series (ping to a root name server, 5 to 33 days), draws match p50, p95
and p99 of the second half within 5 % in 64 % of cases; the first half itself does in 68 %.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from simnmt.network.errors import TraceError
from simnmt.network.rtt_series import RttSeries
from simnmt.streams import stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHARES = (0.0, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 0.999, 1.0)
"""Where the distribution of a level's residuals is kept: linear between these shares."""

MIN_FIT_SAMPLES = 50

_FLOOR_S = 1e-4
"""No RTT is drawn below this."""

# Of the segmentation, in units of the noise between neighbouring samples. A stay costs at most _FAR a sample, so a lone
# outlier never pays for the two shifts of _SHIFT it would need; three samples that agree do.
_SHIFT = 12.0
_FAR = 9.0
_START_SHARES = (*np.linspace(0.01, 0.97, 17).tolist(), 0.98, 0.985, 0.99, 0.993, 0.996, 0.998)

_TRIMMED = (0.01, 0.99)
_HERMITE = 30


@dataclass(frozen=True, slots=True)
class RttProcess:
    """A semi-Markov chain of RTT levels, a residual whose normal score is AR(1), and spikes from a cut Pareto tail."""

    step_s: float
    """Time between samples."""
    levels_s: tuple[float, ...]
    """RTT of each level: the median of what it covers."""
    mean_dwell_steps: tuple[float, ...]
    """Mean stay in each level, in samples; stays are geometric."""
    shares: tuple[float, ...]
    """Share of time in each level; the first sample's level is drawn by it."""
    next_level: tuple[tuple[float, ...], ...]
    """Row k: probabilities of the level after k, zero for k itself."""
    residuals_s: tuple[tuple[float, ...], ...]
    """Row k: quantiles at `SHARES` of what is added to level k."""
    residual_lag_1: float
    """Correlation of the residual's normal score with the one before."""
    spike_share: float
    """Probability that a sample is a lone spike."""
    spike_scale_s: float
    spike_shape: float
    """Scale and shape of the generalised Pareto law of spike heights."""
    spike_min_s: float
    spike_max_s: float
    """Heights lie between these: what the fit saw, as a Pareto tail knows no bound."""
    source: str = ""
    """The series it was fitted to."""

    def __post_init__(self) -> None:
        levels = len(self.levels_s)
        rows = (*self.next_level, self.shares, self.mean_dwell_steps)
        laws = [self.shares, *(row for row in self.next_level if any(row))]
        sound = (
            levels > 0
            and len(self.next_level) == len(self.residuals_s) == levels
            and all(len(row) == levels for row in rows)
            and all(len(row) == len(SHARES) and list(row) == sorted(row) for row in self.residuals_s)
            and all(min(law) >= 0 and abs(sum(law) - 1) < 1e-6 for law in laws)
            and min(self.levels_s) > 0
            and min(self.mean_dwell_steps) >= 1
            and self.step_s > 0
            and -1 < self.residual_lag_1 < 1
            and 0 <= self.spike_share <= 1
        )
        if not sound:
            raise TraceError("the parameters of the RTT process contradict each other")

    def with_base(self, base_s: float) -> RttProcess:
        """The same fluctuations in seconds around another lowest level: a path of another length.

        Raises `TraceError` where that leaves no positive RTT. A drawn series may also be scaled to a mean.
        """
        if not base_s > 0:
            what = f"a base RTT of {base_s * 1e3:.4g} ms"
            raise TraceError(what, remedy="a higher mean or base leaves room for the fluctuations")
        shift_s = base_s - min(self.levels_s)
        return replace(self, levels_s=tuple(level_s + shift_s for level_s in self.levels_s))

    def to_json(self) -> str:
        """One line that `from_json` reads back to the same process."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> RttProcess:
        """Read what `to_json` wrote. Raises `TraceError` where the text is something else."""
        try:
            said: dict[str, Any] = json.loads(text)
            return cls(**{key: _tuples(value) for key, value in said.items()})
        except (ValueError, TypeError, AttributeError) as error:
            raise TraceError(f"these are no parameters of an RTT process: {error}") from None


def fit(series: RttSeries) -> RttProcess:
    """Fit the process to a series taken at even spacing (its median spacing is the step).

    The series counts as a circle, its end followed by its start, so that the chain leaves each level as often as it enters
    it and its long-run shares of time are those seen. Raises `TraceError` below `MIN_FIT_SAMPLES` samples.
    """
    rtt_s = series.rtt_s
    if len(rtt_s) < MIN_FIT_SAMPLES:
        what = f"RTT series {series.name} has {len(rtt_s)} samples"
        raise TraceError(what, remedy=f"a process needs at least {MIN_FIT_SAMPLES} to be fitted to")
    levels_s, level = _segment(rtt_s)
    dwell_steps, shares, next_level = _chain(level, len(levels_s))
    residual_s = rtt_s - levels_s[level]
    spike = _lone_spikes(residual_s, level, len(levels_s))
    bodies = [np.quantile(residual_s[(level == k) & ~spike], SHARES) for k in range(len(levels_s))]
    heights_s = residual_s[spike]
    floor_s, scale_s, shape = _pareto(heights_s)
    return RttProcess(
        step_s=float(np.median(np.diff(series.time_s))),
        levels_s=_short(levels_s),
        mean_dwell_steps=_short(dwell_steps),
        shares=_short(shares),
        next_level=tuple(map(_short, next_level)),
        residuals_s=tuple(map(_short, bodies)),
        residual_lag_1=round(_score_lag_1(residual_s, level, spike, bodies), 9),
        spike_share=round(float(spike.mean()), 9),
        spike_scale_s=round(scale_s, 9),
        spike_shape=round(shape, 9),
        spike_min_s=round(floor_s, 9),
        spike_max_s=round(float(heights_s.max(initial=0.0)), 9),
        source=series.source,
    )


def draw(process: RttProcess, duration_s: float, seed: int, name: str = "synthetic") -> RttSeries:
    """Draw a series of kind "synthetic" with a sample each `step_s`; the same seed draws the same series.

    Each part has a stream of its own, and a longer series begins with the shorter one.
    """
    count = max(1, round(duration_s / process.step_s))
    level = _levels(process, count, seed)
    innovation = stream(seed, 0, "rtt residual").standard_normal(count).tolist()
    rho = process.residual_lag_1
    fresh = (1.0 - rho * rho) ** 0.5
    score = innovation[0]
    scores = [score]
    for shock in innovation[1:]:
        score = rho * score + fresh * shock
        scores.append(score)
    share = ndtr(np.array(scores))
    rtt_s: Floats = np.array(process.levels_s, dtype=np.float64)[level]
    for k, quantiles_s in enumerate(process.residuals_s):
        here = level == k
        rtt_s[here] += np.interp(share[here], SHARES, quantiles_s)
    rtt_s += _spikes(process, count, seed)
    source = f"drawn with seed {seed} from a process" + (f" fitted to {process.source}" if process.source else "")
    time_s = np.arange(count, dtype=np.float64) * process.step_s
    rtt_s[rtt_s < _FLOOR_S] = _FLOOR_S
    return RttSeries(name, "synthetic", source, time_s, rtt_s)


def _segment(rtt_s: Floats) -> tuple[Floats, Ints]:
    """Levels in ascending order, and each sample's: the least sum of |distance| / noise and shifts, by dynamic programming."""
    noise_s = max(float(np.median(np.abs(np.diff(rtt_s)))) * 1.5, 2e-4 * float(np.median(rtt_s)))
    levels_s = _apart(np.quantile(rtt_s, _START_SHARES), 3 * noise_s)
    for _ in range(5):
        level = _cheapest_path(np.minimum(np.abs(rtt_s[:, None] - levels_s) / noise_s, _FAR))
        levels_s = _apart(np.array([np.median(rtt_s[level == k]) for k in np.unique(level)]), 2 * noise_s)
    level = _cheapest_path(np.minimum(np.abs(rtt_s[:, None] - levels_s) / noise_s, _FAR))
    used, level = np.unique(level, return_inverse=True)
    return levels_s[used], level


def _apart(levels_s: Floats, gap_s: float) -> Floats:
    kept: list[float] = []
    for level_s in np.sort(levels_s).tolist():
        if not kept or level_s - kept[-1] > gap_s:
            kept.append(level_s)
    return np.array(kept)


def _cheapest_path(cost: Floats) -> Ints:
    """Level per sample of least cost, where changing the level costs `_SHIFT`; `cost` has shape (samples, levels)."""
    samples, levels = cost.shape
    came = np.empty((samples, levels), dtype=np.int64)
    stay = np.arange(levels)
    total = np.zeros(levels)
    for i in range(samples):
        best = int(total.argmin())
        shift = total[best] + _SHIFT
        came[i] = np.where(total <= shift, stay, best)
        total = np.minimum(total, shift) + cost[i]
    path = np.empty(samples, dtype=np.int64)
    path[-1] = total.argmin()
    for i in range(samples - 1, 0, -1):
        path[i - 1] = came[i, path[i]]
    return path


def _chain(level: Ints, levels: int) -> tuple[Floats, Floats, Floats]:
    """Mean dwell in samples, share of time and transition rows of a circular sequence of levels."""
    after = np.roll(level, -1)
    moves = np.zeros((levels, levels))
    np.add.at(moves, (level, after), 1)
    np.fill_diagonal(moves, 0)
    time = np.bincount(level, minlength=levels).astype(np.float64)
    visits = moves.sum(axis=1)
    rows = moves / np.maximum(visits, 1)[:, None]
    return time / np.maximum(visits, 1), time / time.sum(), rows


def _lone_spikes(residual_s: Floats, level: Ints, levels: int) -> NDArray[np.bool_]:
    """Samples far above their level of which at most two stand together."""
    far = np.zeros(len(level), dtype=bool)
    for k in range(levels):
        low, high = np.quantile(residual_s[level == k], [0.25, 0.9])
        far |= (level == k) & (residual_s > high + 3 * (high - low))
    edges = np.flatnonzero(np.diff(far, prepend=False, append=False))
    lone = np.zeros_like(far)
    for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        lone[start:stop] = stop - start <= 2
    return lone


def _pareto(heights_s: Floats) -> tuple[float, float, float]:
    """Least height, scale and shape of a generalised Pareto law above it, by probability-weighted moments.

    Source: Hosking and Wallis 1987, their k = -shape. The shape is kept within what has a mean and a bounded density.
    """
    if len(heights_s) < 2:
        return (float(heights_s[0]), 0.0, 0.0) if len(heights_s) else (0.0, 0.0, 0.0)
    ordered = np.sort(heights_s) - heights_s.min()
    mean_s = float(ordered.mean())
    weighted_s = float(np.mean(ordered * (1 - (np.arange(len(ordered)) + 0.65) / len(ordered))))
    if mean_s <= 2 * weighted_s:
        return float(heights_s.min()), mean_s, 0.0
    shape = min(max(2 - mean_s / (mean_s - 2 * weighted_s), -0.5), 0.9)
    return float(heights_s.min()), mean_s * (1 - shape), shape


def _score_lag_1(residual_s: Floats, level: Ints, spike: NDArray[np.bool_], bodies: list[Floats]) -> float:
    """Lag-1 correlation of the normal score that gives the residuals themselves the covariance they have.

    Only neighbours of one level, neither of them a spike, count; both tails are cut, since a few samples given to the
    wrong level would outweigh all others. The covariance of g(x) and g(y) of two normal scores x, y of correlation r is
    the sum of a_j^2 r^j over g's coefficients a_j in Hermite polynomials (Mehler's formula).
    """
    pair = (level[1:] == level[:-1]) & ~spike[1:] & ~spike[:-1]
    share = (np.arange(4000) + 0.5) / 4000
    power = np.zeros(_HERMITE)
    wanted = 0.0
    basis = _hermite(ndtri(share))
    for k, body_s in enumerate(bodies):
        low_s, high_s = np.interp(_TRIMMED, SHARES, body_s)
        shape_s = np.clip(np.interp(share, SHARES, body_s), low_s, high_s)
        here = pair & (level[1:] == k)
        now_s, then_s = (np.clip(each[here], low_s, high_s) for each in (residual_s[1:], residual_s[:-1]))
        wanted += float(np.dot(now_s - shape_s.mean(), then_s - shape_s.mean()))
        power += here.sum() * (basis @ shape_s / len(share)) ** 2
    rhos = np.linspace(0.0, 0.99, 100)
    covariance = power @ rhos ** np.arange(1, _HERMITE + 1)[:, None]
    return float(np.interp(wanted, covariance, rhos)) if covariance[-1] > 0 else 0.0


def _hermite(x: Floats) -> Floats:
    """Hermite polynomials 1 to `_HERMITE` of unit norm under the normal law; shape (_HERMITE, len(x))."""
    rows = [np.ones_like(x), x]
    for j in range(1, _HERMITE):
        rows.append((x * rows[j] - j**0.5 * rows[j - 1]) / (j + 1) ** 0.5)
    return np.array(rows[1:])


def _levels(process: RttProcess, count: int, seed: int) -> Ints:
    """Level of each sample."""
    random = stream(seed, 0, "rtt level")

    def pick(weights: tuple[float, ...]) -> int:
        shares = np.cumsum(weights)
        return int(np.searchsorted(shares / shares[-1], random.random(), side="right"))

    level = pick(process.shares)
    found = np.empty(count, dtype=np.int64)
    at = 0
    while at < count:
        stay = int(random.geometric(1 / process.mean_dwell_steps[level]))
        found[at : at + stay] = level
        at += stay
        if any(process.next_level[level]):
            level = pick(process.next_level[level])
    return found


def _spikes(process: RttProcess, count: int, seed: int) -> Floats:
    """Height of the spike on each sample, 0 on most."""
    hit, tail = stream(seed, 0, "rtt spike").random((count, 2)).T
    shape, scale_s = process.spike_shape, process.spike_scale_s
    over_s = -scale_s * np.log1p(-tail) if shape == 0 else scale_s / shape * np.expm1(-shape * np.log1p(-tail))
    height_s = np.minimum(process.spike_min_s + over_s, process.spike_max_s)
    return np.where(hit < process.spike_share, height_s, 0.0)


def _short(values: Floats) -> tuple[float, ...]:
    """Nine decimals, for seconds a nanosecond: finer than any fit, and short in a file."""
    return tuple(np.round(values, 9).tolist())


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
