"""RTT levels that shift, as routes do: found in a series, kept as counts, drawn in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simnmt.configuration import Configuration
from simnmt.network.synthesis.quantile_law import Floats, Seconds

Ints = NDArray[np.int64]

MOST_SAMPLES = 20_000_000
"""Of a lap, and of what is drawn at once: more would not fit into memory."""

# Of the segmentation, in units of the noise between neighbouring samples. A stay costs at most _FAR a sample, so a lone
# outlier never pays for the two shifts of _SHIFT it would need; three samples that agree do.
_SHIFT = 12.0
_FAR = 9.0
_START_SHARES = (*np.linspace(0.01, 0.97, 17).tolist(), 0.98, 0.985, 0.99, 0.993, 0.996, 0.998)


class LevelShifts(Configuration):
    """How long a lap stays in each level, and how often it goes from one to another; a lap ends in the level it began in."""

    levels_s: tuple[Annotated[Seconds, Field(gt=0)], ...]
    """RTT of each level, seconds: the median of what it covers."""
    samples: tuple[Annotated[int, Field(ge=1)], ...]
    """Samples of a lap in each level."""
    shifts: tuple[tuple[int, int, int], ...]
    """(from, to, count): the level left, the level entered, and how many times a lap does so."""

    @model_validator(mode="after")
    def _is_one_lap(self) -> LevelShifts:
        levels = len(self.levels_s)
        if not levels or levels != len(self.samples):
            raise ValueError("needs as many samples as levels_s, and at least one")
        if self.lap_samples > MOST_SAMPLES:
            raise ValueError(f"a lap has {self.lap_samples:,} samples, and at most {MOST_SAMPLES:,} can be drawn")
        if sum(count for *_, count in self.shifts) > self.lap_samples:
            raise ValueError("a lap has a sample for each shift")
        if any(not (0 <= left < levels and 0 <= right < levels and count > 0) for left, right, count in self.shifts):
            raise ValueError("shifts must name levels by their position from 0, and happen at least once")
        visits = np.bincount(self._episodes(None), minlength=levels)
        balance = [0] * levels
        for left, right, count in self.shifts:
            balance[left] += count
            balance[right] -= count
        if any(balance) or visits.sum() != max(1, sum(count for *_, count in self.shifts)):
            raise ValueError("shifts must leave each level as often as they enter it, and reach all that they name")
        if min(visits) < 1 or any(time < count for time, count in zip(self.samples, visits, strict=True)):
            raise ValueError("every level must be visited, and have a sample for each visit")
        return self

    @property
    def lap_samples(self) -> int:
        """Samples of a lap."""
        return sum(self.samples)

    def draw(self, random: np.random.Generator, first: int | None = None) -> Ints:
        """Level of each sample of one lap: the same shifts in a random order, stays cut at random, a random start.

        The long-run shares of time are thus those of every lap: shifts are far too few for chance to bring them about. A
        stay is geometric but for what the others leave it. `first`: the level to start in, any if None.
        """
        order = self._episodes(random)
        stay = np.empty(len(order), dtype=np.int64)
        for k, samples in enumerate(self.samples):
            here = order == k
            stay[here] = parted(samples, int(here.sum()), random)
        level = np.repeat(order, stay)
        starts = np.arange(len(level)) if first is None else np.flatnonzero(level == first)
        return np.roll(level, -int(random.choice(starts)))

    def _episodes(self, random: np.random.Generator | None) -> Ints:
        """The levels in the order of their visits: a circuit that takes each shift once (Hierholzer's algorithm)."""
        ahead: list[list[int]] = [[] for _ in self.levels_s]
        for left, right, count in self.shifts:
            ahead[left] += [right] * count
        if random is not None:
            ahead = [random.permutation(np.array(each, dtype=np.int64)).tolist() for each in ahead]
        trail, circuit = [self.shifts[0][0] if self.shifts else 0], []
        while trail:
            if onward := ahead[trail[-1]]:
                trail.append(onward.pop())
            else:
                circuit.append(trail.pop())
        return np.array(circuit[:0:-1] or circuit, dtype=np.int64)


def parted(total: int, parts: int, random: np.random.Generator) -> Ints:
    """`total` in that many positive parts, each way of parting it equally likely."""
    cuts = np.sort(random.choice(total - 1, parts - 1, replace=False)) + 1 if parts > 1 else np.empty(0, dtype=np.int64)
    return np.diff(cuts, prepend=0, append=total)


def count_shifts(levels_s: Floats, level: Ints) -> LevelShifts:
    """The counts of a series, its end followed by its start, so that every level is left as often as it is entered."""
    pairs, counts = np.unique(np.stack([level, np.roll(level, -1)], axis=1), axis=0, return_counts=True)
    moved = pairs[:, 0] != pairs[:, 1]
    shifts = np.column_stack([pairs[moved], counts[moved]]).tolist()
    return LevelShifts(
        levels_s=tuple(np.round(levels_s, 9).tolist()),
        samples=tuple(np.bincount(level, minlength=len(levels_s)).tolist()),
        shifts=tuple((left, right, count) for left, right, count in shifts),
    )


def noise_of(rtt_s: Floats) -> float:
    """Median step between neighbouring samples, seconds, or a little where most steps are none."""
    return max(float(np.median(np.abs(np.diff(rtt_s)))), 1.4e-4 * float(np.median(rtt_s)))


def segment(rtt_s: Floats) -> tuple[Floats, Ints]:
    """Levels in ascending order, and each sample's: the least sum of |distance| / noise and shifts, by dynamic programming."""
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
    """Level per sample of least cost, where changing the level costs `_SHIFT`."""
    came = np.empty((len(rtt_s), len(levels_s)), dtype=np.int8)
    stay = np.arange(len(levels_s))
    total = np.zeros(len(levels_s))
    for i, cost in enumerate(np.minimum(np.abs(rtt_s[:, None] - levels_s) / noise_s, _FAR)):
        best = int(total.argmin())
        shift = total[best] + _SHIFT
        came[i] = np.where(total <= shift, stay, best)
        total = np.minimum(total, shift) + cost
    path = np.empty(len(rtt_s), dtype=np.int64)
    path[-1] = total.argmin()
    for i in range(len(rtt_s) - 1, 0, -1):
        path[i - 1] = came[i, path[i]]
    return path
