"""RTT and bandwidth series: step functions of time that repeat after their last sample (CNMT-04).

Each sample holds until the next one. A series also knows which values are plausible, so that a wrong unit is detected.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from simnmt.base.arrays import Floats
from simnmt.base.errors import InputError

SECONDS_PER: Mapping[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
BPS_PER: Mapping[str, float] = {"gbps": 1e9, "mbps": 1e6, "kbps": 1e3, "bps": 1.0}
Kind = Literal["measured", "synthetic", "constant", "unstated"]


class TraceError(InputError):
    """An RTT series, a bandwidth or a link that cannot be used as given."""


# eq=False: a generated __eq__ would compare arrays, which raises.
@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Samples over one lap, each held until the next; the lap repeats for ever, also before time 0.

    A lost sample has no meaning for a request: the value before it holds on, and the loss is counted. Raises `TraceError` for
    columns of different shapes, times that do not increase from 0, and values that are not positive, or larger than `most`.
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
    typical: ClassVar[float]
    """Median of a usual network, by which the likeliest of several units is chosen."""
    plausible_medians: ClassVar[Mapping[str, tuple[float, float]]]
    """Least and greatest plausible median, in the unit of the series, by the unit in which the values were read."""

    def __post_init__(self) -> None:
        time_s, value = np.array(self.time_s, dtype=np.float64), np.array(self.value, dtype=np.float64)
        if time_s.ndim != 1 or time_s.shape != value.shape or not len(time_s):
            raise self._wrong("needs as many times as values, and at least one")
        if time_s[0] != 0.0 or not np.isfinite(time_s).all() or not (np.diff(time_s) > 0.0).all():
            raise self._wrong("times must start at 0 and increase from sample to sample")
        if not ((value > 0.0) & (value <= self.most)).all():
            raise self._wrong(f"every value must be positive and at most {self.most:,.0f}")
        time_s.flags.writeable = value.flags.writeable = False
        lap_s = float(time_s[-1] + np.median(np.diff(time_s))) if len(time_s) > 1 else 1.0
        built = {"time_s": time_s, "value": value, "duration_s": lap_s}
        for key, content in {**built, "_times": time_s.tolist(), "_values": value.tolist()}.items():
            object.__setattr__(self, key, content)

    @classmethod
    def of_samples(cls, name: str, kind: Kind, source: str, time_s: Floats, value: Floats, least_lost: int = 0) -> Self:
        """Return the series of samples, of which those with the value NaN were lost; time 0 is the first that arrived.

        `least_lost`: at least this many samples were lost, with or without a row.
        """
        is_lost = np.isnan(value)
        first = int(np.argmin(is_lost))
        latest = np.maximum.accumulate(np.where(is_lost, 0, np.arange(len(value))))[first:]
        lost = max(int(is_lost.sum()), least_lost)
        return cls(name, kind, source, time_s[first:] - time_s[first], value[latest], lost, is_lost[first:])

    def named(self, name: str) -> Self:
        """Return the series under another name, with the same arrays."""
        if name == self.name:
            return self
        named = copy(self)
        object.__setattr__(named, "name", name)
        return named

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
        edges = np.flatnonzero(np.diff(self.is_lost.astype(np.int8), prepend=0, append=0))
        bounds_s = np.append(self.time_s, self.duration_s)[edges].tolist()
        return list(zip(bounds_s[::2], bounds_s[1::2], strict=True))

    @property
    def mean(self) -> float:
        """Mean over time, which requests spread evenly meet: each sample weighs as long as it holds."""
        return float(np.average(self.value, weights=np.diff(self.time_s, append=self.duration_s)))

    @classmethod
    def doubt_unit(cls, value: Floats, unit: str, is_stated: bool = False) -> tuple[str, str] | None:
        """Return why values that were read in a unit look wrong, by their median, and the likely unit; None if they do not.

        Ignores NaN. A median that is too small is accepted if the unit `is_stated`. The unit is empty if none is likely.
        """
        least, most = cls.plausible_medians.get(unit, (0.0, np.inf))
        median = float(np.nanmedian(value))
        if median <= most and (median >= least or is_stated):
            return None
        sizes, size = (SECONDS_PER, f"{median:.4g} s") if cls is RttSeries else (BPS_PER, f"{median / 1e9:.4g} Gbit/s")
        low, high = cls.plausible_medians[cls.csv_column.removeprefix("rtt_")]
        medians = {other: median / sizes[unit] * sizes[other] for other in sizes}
        plausible = [other for other in sizes if low <= medians[other] <= high]
        likely = min(plausible, key=lambda other: abs(np.log(medians[other] / cls.typical)), default="")
        what = f"the median would be {size}"
        return (f"{what}, as of values in {likely} read as {unit}" if likely else f"{what}, which no network has"), likely

    def _wrong(self, what: str) -> TraceError:
        return TraceError(f"{self.quantity} series {self.name}: {what}")


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
    typical = 0.05
    # Below 0.5 ms lies a local cable, or seconds that were read as milliseconds.
    plausible_medians = dict.fromkeys(SECONDS_PER, (0.0, 10.0)) | {"ms": (0.5e-3, 10.0)}

    @property
    def rtt_s(self) -> Floats:
        """Round-trip times, seconds; shape (samples,)."""
        return self.value

    mean_s = Series.mean
    """Mean over time, seconds."""

    def scaled_to_mean(self, mean_s: float) -> RttSeries:
        """Return the series with every RTT times one factor, so that `mean_s` is its mean; `source` states the factor."""
        factor = mean_s / self.mean_s
        return self._changed(self.value * factor, f"every RTT times {factor:.4g} for a mean of {mean_s * 1e3:.6g} ms")

    def shifted(self, add_s: float) -> RttSeries:
        """Return the series with `add_s` added to every RTT. Raises `TraceError` if one would not stay above 0."""
        least_s = float(self.value.min())
        if least_s + add_s <= 0.0:
            raise TraceError(f"{add_s * 1e3:+.6g} ms leaves nothing of the least RTT, {least_s * 1e3:.6g} ms")
        return self._changed(self.value + add_s, f"{add_s * 1e3:+.6g} ms on every RTT")

    def _changed(self, rtt_s: Floats, note: str) -> RttSeries:
        return replace(self, value=rtt_s, source="; ".join(filter(None, (self.source, note))))


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
    typical = 2e7
    plausible_medians = dict.fromkeys(BPS_PER, (0.0, 1e12))
