"""RTT and bandwidth series: step functions of time that repeat after their last sample (CNMT-04).

Each sample holds until the next one. The first functions of this file detect numbers that were read in a wrong unit.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.network.errors import TraceError

PLAUSIBLE_MEDIAN_S = 10.0
"""A median RTT above this is a wrong unit, not a network."""
LAN_MEDIAN_S = 0.5e-3
"""A median RTT below this is that of a cable across a room, or of seconds read as milliseconds."""
PLAUSIBLE_MEDIAN_BPS = 1e12
"""A median bandwidth above this is a wrong unit, not a network."""

MOST_RTT_S = 86_400.0
"""A single round trip above this, a day, is a slip of whoever wrote the file; sums of such times overflow."""
MOST_BANDWIDTH_BPS = 1e15

_SMALLER = {"s": "milliseconds read as seconds", "ms": "microseconds read as milliseconds"}


def check_rtt_unit(rtt_s: NDArray[np.float64], unit: str, what: str, path: str | os.PathLike[str] | None, remedy: str) -> None:
    """Raise `TraceError` if the median shows that `what` was not in `unit`; NaN is ignored."""
    median_s = float(np.nanmedian(rtt_s))
    if median_s > PLAUSIBLE_MEDIAN_S:
        cause = _SMALLER.get(unit, "numbers of a smaller unit")
        raise TraceError(f"the median {what} would be {median_s:.4g} s; these look like {cause}", path=path, remedy=remedy)


def like_seconds_read_as_ms(rtt_s: NDArray[np.float64]) -> str | None:
    """Return why a series that was read as milliseconds may hold seconds; None where it need not. NaN does not count."""
    known = rtt_s[~np.isnan(rtt_s)]
    median_s = float(np.median(known)) if known.size else LAN_MEDIAN_S
    if median_s >= LAN_MEDIAN_S:
        return None
    return f"the median would be {median_s * 1e3:.3g} ms, as across a room: these look like seconds read as milliseconds"


def check_rate_unit(
    rate_bps: NDArray[np.float64], unit: str, what: str, path: str | os.PathLike[str] | None, remedy: str
) -> None:
    """Raise `TraceError` if the median shows that `what` was not in `unit`; NaN is ignored."""
    median_bps = float(np.nanmedian(rate_bps))
    if median_bps > PLAUSIBLE_MEDIAN_BPS:
        cause = f"a smaller unit read as {unit}"
        message = f"the median {what} would be {median_bps / 1e9:.4g} Gbit/s; these look like {cause}"
        raise TraceError(message, path=path, remedy=remedy)


Column = NDArray[np.float64]
Kind = Literal["measured", "synthetic", "constant", "unstated"]

_LONE_SAMPLE_LAP_S = 1.0


# eq=False: a generated __eq__ would compare arrays, which raises.
@dataclass(frozen=True, slots=True, eq=False)
class Series(ABC):
    """Samples over one lap, each held until the next; after the lap it begins again, and before time 0 it has already run.

    A lost sample has no meaning for a request, so the value before it holds on and the loss is counted; outages belong to a
    fault model. Raises `TraceError` where the columns make no such function.
    """

    name: str
    kind: Kind
    """Whether the series was measured, was drawn by a process, is one number, or has no stated origin."""
    source: str
    """Origin in words."""
    time_s: Column
    """Shape (samples,); starts at 0 and strictly increases."""
    value: Column
    """Shape (samples,), seconds or bit/s; positive."""
    lost: int = 0
    """Samples that were lost and replaced by the value before them, or dropped from the start."""
    duration_s: float = field(init=False)
    """One lap: the last time plus the median spacing; 1 s where there is one sample only."""
    # Lists for `at_one`: bisect on an array, and numpy scalars in the clock, are several times slower.
    _times: list[float] = field(init=False, repr=False)
    _values: list[float] = field(init=False, repr=False)

    quantity: ClassVar[str]
    """Name of the quantity in messages and in the header of a file."""
    csv_column: ClassVar[str]
    """Name of the column in a file, which ends with the unit."""

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
        """Return the value at each time, of any sign and any number of laps away; same shape.

        Raises `TraceError` on a time that is not finite.
        """
        if not np.isfinite(time_s).all():
            raise self._wrong("looked up at a time that is not finite")
        # A tiny negative time gives a remainder of the full lap, which rightly finds the last sample.
        indices = np.searchsorted(self.time_s, np.mod(time_s, self.duration_s), side="right") - 1
        return np.asarray(self.value[indices], dtype=np.float64)

    def at_one(self, time_s: float) -> float:
        """Return the value at one finite time, equal to that of `at`, on plain floats for a moving clock."""
        return self._values[bisect_right(self._times, time_s % self.duration_s) - 1]

    @property
    def mean(self) -> float:
        """Mean over time, which requests spread evenly meet: each sample weighs as long as it holds."""
        return float(np.average(self.value, weights=np.diff(self.time_s, append=self.duration_s)))

    @property
    @abstractmethod
    def csv_values(self) -> Column:
        """Values in the unit of `csv_column`."""

    def _wrong(self, what: str, remedy: str | None = None) -> TraceError:
        return TraceError(f"{self.quantity} series {self.name}: {what}", remedy=remedy)


class RttSeries(Series):
    """Round-trip times over one lap, seconds."""

    __slots__ = ()
    quantity = "RTT"
    csv_column = "rtt_ms"

    def __post_init__(self) -> None:
        if np.size(self.value) and np.nanmax(self.value) > MOST_RTT_S:
            what = f"a round trip of {np.nanmax(self.value):.3g} s, where {MOST_RTT_S:,.0f} s is the most"
            raise self._wrong(what, "correct the sample, or leave it out")
        super().__post_init__()

    @property
    def rtt_s(self) -> Column:
        """Round-trip times, seconds; shape (samples,)."""
        return self.value

    @property
    def csv_values(self) -> Column:
        """Round-trip times in milliseconds."""
        return self.value * 1e3

    @property
    def mean_s(self) -> float:
        """Mean over time, seconds."""
        return self.mean

    def scaled_to_mean(self, mean_s: float) -> RttSeries:
        """Return the same shape at another mean: every RTT times one factor, which `source` then states."""
        if not (math.isfinite(mean_s) and mean_s > 0.0):
            raise self._wrong(f"cannot be scaled to a mean of {mean_s} s, which is not positive")
        factor = mean_s / self.mean_s
        note = f"every RTT times {factor:.4g} for a mean of {mean_s * 1e3:.6g} ms"
        return replace(self, value=self.value * factor, source=f"{self.source}; {note}" if self.source else note)


def constant_rtt(rtt_s: float, name: str = "constant") -> RttSeries:
    """Return the series of a network whose RTT never changes."""
    return RttSeries(name, "constant", f"{rtt_s * 1e3:.6g} ms at all times", np.zeros(1), np.array([rtt_s]))


class BandwidthSeries(Series):
    """Bandwidths over one lap, bit/s.

    A moment without bandwidth would hold a request for ever, so zero counts as lost: the value before it holds on.
    """

    __slots__ = ()
    quantity = "bandwidth"
    csv_column = "mbps"

    @property
    def rate_bps(self) -> Column:
        """Bits per second; shape (samples,)."""
        return self.value

    @property
    def csv_values(self) -> Column:
        """Bandwidths in Mbit/s."""
        return self.value / 1e6
