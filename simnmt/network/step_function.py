"""A positive quantity as a step function of time: sample and hold, wrapping around at its end (CNMT-04)."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simnmt.network.errors import TraceError

Column = NDArray[np.float64]

_LONE_SAMPLE_LAP_S = 1.0


# eq=False: a generated __eq__ would compare arrays, which raises.
@dataclass(frozen=True, slots=True, eq=False)
class StepFunction:
    """Samples over one lap, each held until the next; after the lap it begins again, and before time 0 it has already run.

    Raises `TraceError` where the columns make no such function.
    """

    label: str
    """What complaints call it."""
    time_s: Column
    """Shape (samples,); starts at 0 and strictly increases."""
    value: Column
    """Shape (samples,); positive."""
    duration_s: float = field(init=False)
    """One lap: the last time plus the median spacing; 1 s where there is one sample only."""
    # Lists for `at_one`: bisect on an array, and numpy scalars in the clock, are several times slower.
    _times: list[float] = field(init=False, repr=False)
    _values: list[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        time_s, value = np.array(self.time_s, dtype=np.float64), np.array(self.value, dtype=np.float64)
        if time_s.ndim != 1 or time_s.shape != value.shape or not len(time_s):
            raise self._wrong("needs as many times as values, and at least one")
        if time_s[0] != 0.0 or not np.isfinite(time_s).all() or not (np.diff(time_s) > 0.0).all():
            raise self._wrong("times must start at 0 and increase from sample to sample")
        if not (np.isfinite(value).all() and (value > 0.0).all()):
            raise self._wrong("every value must be positive and finite")
        time_s.flags.writeable = value.flags.writeable = False
        lap_s = float(time_s[-1] + np.median(np.diff(time_s))) if len(time_s) > 1 else _LONE_SAMPLE_LAP_S
        built = {"time_s": time_s, "value": value, "duration_s": lap_s}
        for key, content in {**built, "_times": time_s.tolist(), "_values": value.tolist()}.items():
            object.__setattr__(self, key, content)

    def at(self, time_s: Column) -> Column:
        """The value at each time, of any sign and any number of laps away; same shape.

        Raises `TraceError` on a time that is not finite.
        """
        if not np.isfinite(time_s).all():
            raise self._wrong("looked up at a time that is not finite")
        # A tiny negative time gives a remainder of the full lap, which rightly finds the last sample.
        found = np.searchsorted(self.time_s, np.mod(time_s, self.duration_s), side="right") - 1
        return np.asarray(self.value[found], dtype=np.float64)

    def at_one(self, time_s: float) -> float:
        """The value at one finite time: what `at` says, on plain floats for a moving clock."""
        return self._values[bisect_right(self._times, time_s % self.duration_s) - 1]

    @property
    def mean(self) -> float:
        """Mean over time, which requests spread evenly meet: each sample weighs as long as it holds."""
        return float(np.average(self.value, weights=np.diff(self.time_s, append=self.duration_s)))

    def _wrong(self, what: str) -> TraceError:
        return TraceError(f"{self.label}: {what}")
