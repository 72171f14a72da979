"""A request rate over time, held constant in each of its pieces and repeated for ever."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simnmt.streams import BLOCK
from simnmt.workload.arrivals.process import Times

DAY_S = 86_400.0
_MINUTES = 1440


@dataclass(frozen=True, slots=True, eq=False)
class RateCurve:
    """Piece k lasts from `edge_s[k]` to `edge_s[k + 1]` and has `rate_rps[k]`; after the last comes the first again."""

    edge_s: Times
    """Shape (pieces + 1,), ascending from 0."""
    rate_rps: Times
    """Shape (pieces,), none negative, one at least positive."""

    def __post_init__(self) -> None:
        self.edge_s.setflags(write=False)
        self.rate_rps.setflags(write=False)

    @property
    def duration_s(self) -> float:
        """One lap."""
        return float(self.edge_s[-1])

    @property
    def mean_rps(self) -> float:
        """Over time, not over requests."""
        return float(self.rate_rps @ np.diff(self.edge_s)) / self.duration_s

    def scaled_to(self, mean_rps: float) -> RateCurve:
        """The same shape with another mean."""
        return RateCurve(self.edge_s, self.rate_rps * (mean_rps / self.mean_rps))

    def begun_at(self, start_s: float) -> RateCurve:
        """The same curve read from `start_s` (in [0, duration_s)) on."""
        if start_s == 0.0:
            return self
        first = int(np.searchsorted(self.edge_s, start_s, side="right")) - 1
        edge_s = np.concatenate(([start_s], self.edge_s[first + 1 :], self.edge_s[1 : first + 1] + self.duration_s, [start_s]))
        edge_s[-1] += self.duration_s
        return RateCurve(edge_s - start_s, np.concatenate((self.rate_rps[first:], self.rate_rps[: first + 1])))

    def moments_s(self, expected: Times) -> Times:
        """When the expected number of requests since the start reaches `expected`: exact, and written over it.

        `expected`: shape (n,), sorted, from 0. Where the curve is zero no moment lies.
        """
        # Cumulated counts of one lap, and their inverse piece by piece: a zero piece takes no share of the counts, and side
        # "right" steps over it.
        counts = np.concatenate(([0.0], np.cumsum(self.rate_rps * np.diff(self.edge_s))))
        for start in range(0, len(expected), BLOCK):
            block = expected[start : start + BLOCK]
            laps = np.floor(block / counts[-1])
            # Rounding may leave a lap's last count at its end or a hair below its start.
            rest = np.clip(block - laps * counts[-1], 0.0, np.nextafter(counts[-1], 0.0))
            piece = np.searchsorted(counts, rest, side="right") - 1
            block[:] = laps * self.duration_s + (self.edge_s[piece] + (rest - counts[piece]) / self.rate_rps[piece])
        # A hair too low at a piece's end, as sums of floats are, no request may come before the one it follows.
        return np.maximum.accumulate(expected, out=expected)


def daily(mean_rps: float, swing: float, peak_hour: float) -> RateCurve:
    """A day whose rate follows a cosine of relative amplitude `swing`, in each minute held at the cosine's mean over it."""
    edge = np.linspace(0.0, 2 * math.pi, _MINUTES + 1)
    area = np.diff(np.sin(edge - 2 * math.pi * peak_hour / 24)) / np.diff(edge)
    return RateCurve(np.linspace(0.0, DAY_S, _MINUTES + 1), np.maximum(mean_rps * (1 + swing * area), 0.0))


def pieces(piece_s: Sequence[float], rate_rps: Sequence[float]) -> RateCurve:
    """A curve of pieces by how long each lasts."""
    return RateCurve(np.concatenate(([0.0], np.cumsum(piece_s))), np.asarray(rate_rps, dtype=np.float64))
