"""RTT and bandwidth series: step functions of time that repeat after their last sample (CNMT-04).

Each sample holds until the next one. A series also knows which values are plausible, so that a wrong unit is detected.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.network.errors import TraceError

LAN_MEDIAN_S = 0.5e-3
"""A median RTT below this is that of a local cable, or of seconds read as milliseconds."""

SECONDS_PER: Mapping[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
BPS_PER: Mapping[str, float] = {"gbps": 1e9, "mbps": 1e6, "kbps": 1e3, "bps": 1.0}


def like_seconds_read_as_ms(rtt_s: NDArray[np.float64]) -> str | None:
    """Return why a series that was read as milliseconds may hold seconds; None if it need not. NaN is ignored."""
    known = rtt_s[~np.isnan(rtt_s)]
    median_s = float(np.median(known)) if known.size else LAN_MEDIAN_S
    if median_s >= LAN_MEDIAN_S:
        return None
    return f"the median would be {median_s * 1e3:.3g} ms, as across a room: these look like seconds read as milliseconds"


Kind = Literal["measured", "synthetic", "constant", "unstated"]

_LONE_SAMPLE_LAP_S = 1.0


# eq=False: a generated __eq__ would compare arrays, which raises.
@dataclass(frozen=True, slots=True, eq=False)
class Series(ABC):
    """Samples over one lap, each held until the next; the lap repeats for ever, also before time 0.

    A lost sample has no meaning for a request: the value before it holds on, and the loss is counted. Raises `TraceError` for
    columns of different shapes, times that do not increase from 0, and values that are not positive and finite.
    """

    name: str
    kind: Kind
    """`measured`, `synthetic` (drawn by a process), `constant` (one number) or `unstated`."""
    source: str
    """Origin in words."""
    time_s: Floats
    """Shape (samples,); starts at 0 and strictly increases."""
    value: Floats
    """Shape (samples,), seconds or bit/s; positive."""
    lost: int = 0
    """Samples that were lost and replaced by the value before them, or dropped from the start."""
    is_lost: NDArray[np.bool_] | None = None
    """Shape (samples,): True where the sample was lost and replaced by the value before it; None if that is unknown."""
    duration_s: float = field(init=False)
    """Length of a lap: the last time plus the median spacing; 1 s for a single sample."""
    # Lists for `at_one`: bisect on an array, and numpy scalars in the clock, are several times slower.
    _times: list[float] = field(init=False, repr=False)
    _values: list[float] = field(init=False, repr=False)

    quantity: ClassVar[str]
    """Name of the quantity in messages and in the header of a file."""
    csv_column: ClassVar[str]
    """Name of the column in a file, which ends with the unit."""
    most: ClassVar[float]
    """Greatest credible sample, seconds or bit/s; sums of much greater ones would overflow."""
    plausible_median: ClassVar[float]
    """A median above this, in the unit of the series, shows a wrong unit."""

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

    def at(self, time_s: Floats) -> Floats:
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
    def lost_spans_s(self) -> list[tuple[float, float]]:
        """Begin and end of each time in which samples were lost, from the first of them to the next that was not, in a lap."""
        if self.is_lost is None:
            return []
        edges = np.flatnonzero(np.diff(np.concatenate(([False], self.is_lost, [False])).astype(np.int8)))
        bounds_s = np.append(self.time_s, self.duration_s)[edges].tolist()
        return list(zip(bounds_s[::2], bounds_s[1::2], strict=True))

    @property
    def mean(self) -> float:
        """Mean over time, which requests spread evenly meet: each sample weighs as long as it holds."""
        return float(np.average(self.value, weights=np.diff(self.time_s, append=self.duration_s)))

    @property
    @abstractmethod
    def csv_values(self) -> Floats:
        """Values in the unit of `csv_column`."""

    @classmethod
    def check_unit(cls, value: Floats, unit: str, what: str, path: str | os.PathLike[str] | None, remedy: str) -> None:
        """Raise `TraceError` if the median shows that `what` was not in `unit`; NaN is ignored."""
        median = float(np.nanmedian(value))
        if median > cls.plausible_median:
            message = f"the median {what} would be {cls.wrong_unit(median, unit)}"
            raise TraceError(message, path=path, remedy=remedy)

    @staticmethod
    @abstractmethod
    def wrong_unit(median: float, unit: str) -> str:
        """Describe an implausible median and the slip that explains it."""

    def _wrong(self, what: str, remedy: str | None = None) -> TraceError:
        return TraceError(f"{self.quantity} series {self.name}: {what}", remedy=remedy)


class RttSeries(Series):
    """Round-trip times over one lap, seconds.

    Example:
        >>> series = simnmt.RttSeries("office", "measured", "ping of a morning", [0.0, 60.0], [0.040, 0.090])
        >>> series.at_one(75.0), series.duration_s
        (0.09, 120.0)
    """

    __slots__ = ()
    quantity = "RTT"
    csv_column = "rtt_ms"
    most = 86_400.0
    plausible_median = 10.0

    def __post_init__(self) -> None:
        if np.size(self.value) and np.nanmax(self.value) > self.most:
            what = f"a round trip of {np.nanmax(self.value):.3g} s, where {self.most:,.0f} s is the most"
            raise self._wrong(what, "correct the sample, or leave it out")
        super().__post_init__()

    @property
    def rtt_s(self) -> Floats:
        """Round-trip times, seconds; shape (samples,)."""
        return self.value

    @property
    def csv_values(self) -> Floats:
        """Round-trip times in milliseconds."""
        return self.value * 1e3

    @staticmethod
    def wrong_unit(median: float, unit: str) -> str:
        """Describe an implausible median in seconds and the slip that explains it."""
        slips = {"s": "milliseconds read as seconds", "ms": "microseconds read as milliseconds"}
        return f"{median:.4g} s; these look like {slips.get(unit, 'numbers of a smaller unit')}"

    @property
    def mean_s(self) -> float:
        """Mean over time, seconds."""
        return self.mean

    def scaled_to_mean(self, mean_s: float) -> RttSeries:
        """Return the series with every RTT times one factor, so that `mean_s` is its mean; `source` states the factor."""
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

    Zero counts as a lost sample, since without bandwidth a request would never end.

    Example:
        >>> uplink = simnmt.BandwidthSeries("drive", "measured", "a drive", [0.0, 60.0], [10e6, 2e6])
        >>> uplink.at_one(75.0)
        2000000.0
    """

    __slots__ = ()
    quantity = "bandwidth"
    csv_column = "mbps"
    most = 1e15
    plausible_median = 1e12

    @property
    def rate_bps(self) -> Floats:
        """Bits per second; shape (samples,)."""
        return self.value

    @property
    def csv_values(self) -> Floats:
        """Bandwidths in Mbit/s."""
        return self.value / 1e6

    @staticmethod
    def wrong_unit(median: float, unit: str) -> str:
        """Describe an implausible median in bit/s and the slip that explains it."""
        return f"{median / 1e9:.4g} Gbit/s; these look like a smaller unit read as {unit}"
