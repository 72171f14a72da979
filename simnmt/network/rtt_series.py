"""RTT as a step function of time: sample and hold, wrapping around at its end (CNMT-04)."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.network.errors import TraceError

Kind = Literal["measured", "synthetic", "constant", "unstated"]

_LONE_SAMPLE_LAP_S = 1.0


# eq=False: a generated __eq__ would compare arrays, which raises.
@dataclass(frozen=True, slots=True, eq=False)
class RttSeries:
    """Round-trip times over one lap; after the lap it begins again, and before time 0 it has already run.

    Each sample holds until the next. A lost sample has no meaning for a request, so the value before it holds
    on and the loss is counted; outages belong to a fault model. Raises `TraceError` where the columns make no
    such function.
    """

    name: str
    kind: Kind
    """Whether somebody measured it, a process drew it, it is one number, or nobody says."""
    source: str
    """Where it came from, in words."""
    time_s: NDArray[np.float64]
    """Shape (samples,); starts at 0 and strictly increases."""
    rtt_s: NDArray[np.float64]
    """Shape (samples,); positive."""
    lost: int = 0
    """Samples that were lost and replaced by the value before them, or dropped from the start."""
    duration_s: float = field(init=False)
    """One lap: the last time plus the median spacing; 1 s where there is one sample only."""
    # Lists for `at_one`: bisect on an array, and numpy scalars in the clock, are several times slower.
    _times: list[float] = field(init=False, repr=False)
    _rtts: list[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        time_s, rtt_s = np.array(self.time_s, dtype=np.float64), np.array(self.rtt_s, dtype=np.float64)
        if time_s.ndim != 1 or time_s.shape != rtt_s.shape or not len(time_s):
            raise self._wrong("needs as many times as RTTs, and at least one")
        if time_s[0] != 0.0 or not np.isfinite(time_s).all() or not (np.diff(time_s) > 0.0).all():
            raise self._wrong("times must start at 0 and increase from sample to sample")
        if not (np.isfinite(rtt_s).all() and (rtt_s > 0.0).all()):
            raise self._wrong("every RTT must be a positive number of seconds")
        time_s.flags.writeable = rtt_s.flags.writeable = False
        lap_s = float(time_s[-1] + np.median(np.diff(time_s))) if len(time_s) > 1 else _LONE_SAMPLE_LAP_S
        built = {"time_s": time_s, "rtt_s": rtt_s, "duration_s": lap_s}
        for key, value in {**built, "_times": time_s.tolist(), "_rtts": rtt_s.tolist()}.items():
            object.__setattr__(self, key, value)

    def at(self, time_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """RTT in seconds at each time, of any sign and any number of laps away; same shape.

        Raises `TraceError` on a time that is not finite.
        """
        if not np.isfinite(time_s).all():
            raise self._wrong("looked up at a time that is not finite")
        # A tiny negative time gives a remainder of the full lap, which rightly finds the last sample.
        found = np.searchsorted(self.time_s, np.mod(time_s, self.duration_s), side="right") - 1
        return np.asarray(self.rtt_s[found], dtype=np.float64)

    def at_one(self, time_s: float) -> float:
        """RTT in seconds at one finite time: what `at` says, on plain floats for a moving clock."""
        return self._rtts[bisect_right(self._times, time_s % self.duration_s) - 1]

    @property
    def mean_s(self) -> float:
        """Mean over time, which requests spread evenly meet: each sample weighs as long as it holds."""
        return float(np.average(self.rtt_s, weights=np.diff(self.time_s, append=self.duration_s)))

    def scaled_to_mean(self, mean_s: float) -> RttSeries:
        """The same shape at another mean: every RTT times one factor, which `source` then states."""
        if not (math.isfinite(mean_s) and mean_s > 0.0):
            raise self._wrong(f"cannot be scaled to a mean of {mean_s} s, which is not positive")
        factor = mean_s / self.mean_s
        note = f"every RTT times {factor:.4g} for a mean of {mean_s * 1e3:.6g} ms"
        return replace(self, rtt_s=self.rtt_s * factor, source=f"{self.source}; {note}" if self.source else note)

    def _wrong(self, what: str) -> TraceError:
        return TraceError(f"RTT series {self.name}: {what}")


def constant(rtt_s: float, name: str = "constant") -> RttSeries:
    """A network whose RTT never changes."""
    return RttSeries(name, "constant", f"{rtt_s * 1e3:.6g} ms at all times", np.zeros(1), np.array([rtt_s]))
