"""Readings as a tool wrote them, and the trace they become: samples in order of time, each time once, lost samples marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.network.errors import TraceError
from simnmt.network.series import BandwidthSeries, Kind, RttSeries, check_rate_unit, check_rtt_unit
from simnmt.network.trace_options import Role

Column = NDArray[np.float64]
Quantity = Literal["rtt", "downlink", "uplink", "bandwidth"]
"""Of one way where a file says which; `bandwidth` where it does not."""

NOUN: dict[Quantity, str] = {"rtt": "RTT", "downlink": "downlink", "uplink": "uplink", "bandwidth": "bandwidth"}
"""What a complaint calls it."""

ROLE: dict[Quantity, Role] = {"rtt": "rtt", "downlink": "downlink", "uplink": "uplink", "bandwidth": "downlink"}
"""What a user calls its column; a bandwidth of no said way goes by the downlink's name."""

POSSIBLE: dict[Quantity, tuple[float, float]] = {
    "rtt": (1e-9, 3600.0),
    **dict.fromkeys(("downlink", "uplink", "bandwidth"), (1.0, 1e15)),
}
"""Least and greatest value, seconds or bit/s, that a sample may have; another is no measurement."""

_FEW_STEPS, _MANY_SAMPLES = 3, 10


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """Samples of one quantity in the order they were written, lost ones and oddities of the clock included."""

    quantity: Quantity
    time_s: Column
    """Shape (samples,), on the tool's own clock; finite, in any order."""
    value: Column
    """Shape (samples,), seconds or bit/s; positive, or NaN where the sample was lost."""
    kind: Kind
    source: str
    """Where they came from, in words."""
    mended: tuple[str, ...] = ()
    """What the reader left out or changed, a sentence each."""
    granted: tuple[str, ...] = ()
    """What it took for granted, or suspects."""
    lost_before: int = 0
    """Lost samples that are marked nowhere any more: not among the values."""
    unit: str = "ms"
    """The unit that the values were read in."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Readings mended: times from 0 in order, each once; lost samples hold the value before them and stay marked."""

    quantity: Quantity
    time_s: Column
    """Shape (samples,); starts at 0 and strictly increases."""
    value: Column
    """Shape (samples,), seconds or bit/s."""
    lost: NDArray[np.bool_]
    """Shape (samples,); the first is never lost."""
    lost_before: int
    """Lost samples before the first that arrived, and those marked nowhere any more."""
    began_s: float
    """Time 0 on the tool's own clock, often Unix time."""
    kind: Kind
    source: str
    mended: tuple[str, ...]
    """What was left out or changed, a sentence each."""
    granted: tuple[str, ...]
    """What was taken for granted, or is suspected."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """All notes on how the trace was read."""
        return (*self.granted, *self.mended)

    @property
    def lost_samples(self) -> int:
        """All that were lost."""
        return int(self.lost.sum()) + self.lost_before

    def series(self, name: str) -> RttSeries | BandwidthSeries:
        """Return the series that a link looks values up in."""
        series = RttSeries if self.quantity == "rtt" else BandwidthSeries
        return series(name, self.kind, self.source, self.time_s, self.value, self.lost_samples)

    @property
    def duration_s(self) -> float:
        """One lap of the series."""
        return self.series("trace").duration_s


def mended(readings: Readings, path: Path | None = None) -> Trace:
    """Sort by time, keep one sample per time, drop what was lost before the first that arrived, hold what was lost later.

    Each is counted in `mended`; times are rounded to microseconds. Raises `TraceError` where no sample arrived, or the median
    betrays a wrong unit.
    """
    noun, samples = NOUN[readings.quantity], len(readings.value)
    least, most = POSSIBLE[readings.quantity]
    repairs, granted = [*readings.mended], [*readings.granted]
    if not np.isnan(readings.value).all():
        _check_unit(readings, path)
        impossible = int(((readings.value < least) | (readings.value > most)).sum())
        repairs += [f"values that no network has, so lost: {impossible:,}"] * (impossible > 0)
    missing = ~((readings.value >= least) & (readings.value <= most))
    if missing.all():
        why = f": {'; '.join([*granted, *repairs])}" if repairs or granted else ""
        what = f"{noun}: no sample of {samples:,} arrived{why}" if samples else f"{noun}: no samples"
        raise TraceError(what, path=path, remedy="give at least one that arrived")
    repairs += _backward(readings.time_s)
    since_s = readings.time_s - readings.time_s.min()
    since_s = np.round(since_s, 6)
    # Of the samples of one time the first that arrived comes first, else the first that was written.
    order = np.lexsort((missing, since_s))
    again = np.diff(since_s[order], prepend=-np.inf) == 0.0
    if again.any():
        repairs.append(f"{_counted(int(again.sum()))} repeated the time of another: the first that arrived was kept")
    kept = order[~again]
    first = int(np.argmin(missing[kept]))
    kept = kept[first:]
    lost = missing[kept]
    held = np.maximum.accumulate(np.where(lost, 0, np.arange(len(kept))))
    if len(kept) == 1:
        granted.append("one sample alone: the same value at all times")
    return Trace(
        quantity=readings.quantity,
        time_s=np.round(since_s[kept] - since_s[kept[0]], 6),
        value=readings.value[kept][held],
        lost=lost,
        lost_before=readings.lost_before + first,
        began_s=float(readings.time_s[kept[0]]),
        kind=readings.kind,
        source=readings.source,
        mended=tuple(repairs),
        granted=tuple(granted),
    )


def align_starts(traces: Sequence[Trace]) -> list[Trace]:
    """Traces of one clock, begun at one moment: the first at which each has a value, which it then holds at time 0."""
    begin_s = max(trace.began_s for trace in traces)
    # Microseconds, as the times themselves: a float holds a Unix time to a quarter of one.
    return [_begun_at(trace, round(begin_s - trace.began_s, 6)) for trace in traces]


def _begun_at(trace: Trace, begin_s: float) -> Trace:
    first = int(np.searchsorted(trace.time_s, begin_s, side="right")) - 1
    time_s = np.round(trace.time_s[first:] - begin_s, 6)
    time_s[0] = 0.0
    lost = trace.lost[first:].copy()
    before = trace.lost_before + int(trace.lost[:first].sum()) + int(lost[0])
    lost[0] = False
    return replace(
        trace, time_s=time_s, value=trace.value[first:], lost=lost, lost_before=before, began_s=trace.began_s + begin_s
    )


def _backward(time_s: Column) -> list[str]:
    steps = np.diff(time_s)
    back = steps < 0.0
    if not back.any():
        return []
    times, most_s = int(back.sum()), float(-steps.min())
    repairs = [f"{_counted(times)} stood behind a later one, by {most_s:.6g} s at most: sorted by time"]
    if times <= _FEW_STEPS and most_s > _MANY_SAMPLES * float(np.median(np.abs(steps))):
        repairs.append("the clock seems to have been set back: samples from before and after now lie between each other")
    return repairs


def _check_unit(readings: Readings, path: Path | None) -> None:
    check = check_rtt_unit if readings.quantity == "rtt" else check_rate_unit
    noun = "RTT" if readings.quantity == "rtt" else "bandwidth"
    remedy = f"say which unit it is by --column {ROLE[readings.quantity]}=NAME:UNIT"
    check(readings.value, readings.unit, noun, path, remedy)


def _counted(count: int) -> str:
    return f"{count:,} sample{'s' * (count != 1)}"
