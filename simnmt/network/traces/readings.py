"""Readings of a measuring tool, and the trace made from them: samples in order of time, each time once, lost samples marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.network.errors import TraceError
from simnmt.network.series import BandwidthSeries, Kind, RttSeries
from simnmt.network.trace_options import Role

Quantity = Literal["rtt", "downlink", "uplink", "bandwidth"]
"""`bandwidth` if a file does not name the direction."""

NOUN: dict[Quantity, str] = {"rtt": "RTT", "downlink": "downlink", "uplink": "uplink", "bandwidth": "bandwidth"}
"""Name of the quantity in messages."""

ROLE: dict[Quantity, Role] = {"rtt": "rtt", "downlink": "downlink", "uplink": "uplink", "bandwidth": "downlink"}
"""Role of the column in `--column ROLE=NAME`; a bandwidth without a direction has the role of the downlink."""

POSSIBLE: dict[Quantity, tuple[float, float]] = {
    "rtt": (1e-9, 3600.0),
    **dict.fromkeys(("downlink", "uplink", "bandwidth"), (1.0, 1e15)),
}
"""Least and greatest credible sample, seconds or bit/s."""

_FEW_STEPS, _MANY_SAMPLES = 3, 10


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """Samples of one quantity in the order in which a tool wrote them, with lost samples and the errors of its clock."""

    quantity: Quantity
    time_s: Floats
    """Shape (samples,), on the tool's own clock; finite, in any order."""
    value: Floats
    """Shape (samples,), seconds or bit/s; positive, or NaN where the sample was lost."""
    kind: Kind
    source: str
    """Origin in words."""
    mended: tuple[str, ...] = ()
    """Repairs: what was left out or changed, a sentence each."""
    granted: tuple[str, ...] = ()
    """Assumptions and suspicions, a sentence each."""
    lost_before: int = 0
    """Lost samples that are not among the values."""
    unit: str = "ms"
    """Unit in which the values were read."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Assumptions and repairs."""
        return (*self.granted, *self.mended)

    @property
    def series_kind(self) -> type[RttSeries] | type[BandwidthSeries]:
        """Class of series that the values make."""
        return RttSeries if self.quantity == "rtt" else BandwidthSeries


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Trace(Readings):
    """Repaired readings: times from 0 in order, each once; lost samples hold the value before them and stay marked.

    `lost_before` counts the lost samples before the first that arrived, too.
    """

    lost: NDArray[np.bool_]
    """Shape (samples,); the first is never lost."""
    began_s: float
    """Time 0 on the tool's own clock, often Unix time."""

    @property
    def lost_samples(self) -> int:
        """Number of all lost samples."""
        return int(self.lost.sum()) + self.lost_before

    def series(self, name: str) -> RttSeries | BandwidthSeries:
        """Return the series that a link looks values up in."""
        return self.series_kind(name, self.kind, self.source, self.time_s, self.value, self.lost_samples)

    @property
    def duration_s(self) -> float:
        """Length of one lap of the series."""
        return self.series("trace").duration_s


def mended(readings: Readings, path: Path | None = None) -> Trace:
    """Sort by time, keep one sample per time, drop lost samples before the first that arrived, and hold the value over others.

    `mended` counts each repair; times are rounded to microseconds. Raises `TraceError` if no sample arrived, or if the median
    shows a wrong unit.
    """
    noun, samples = NOUN[readings.quantity], len(readings.value)
    least, most = POSSIBLE[readings.quantity]
    repairs, granted = [*readings.mended], [*readings.granted]
    if not np.isnan(readings.value).all():
        remedy = f"say which unit it is by --column {ROLE[readings.quantity]}=NAME:UNIT"
        readings.series_kind.check_unit(readings.value, readings.unit, readings.series_kind.quantity, path, remedy)
        impossible = int(((readings.value < least) | (readings.value > most)).sum())
        repairs += [f"values that no network has, so lost: {impossible:,}"] * (impossible > 0)
    missing = ~((readings.value >= least) & (readings.value <= most))
    if missing.all():
        why = f": {'; '.join([*granted, *repairs])}" * bool(repairs or granted)
        what = f"{noun}: no sample of {samples:,} arrived{why}" if samples else f"{noun}: no samples"
        raise TraceError(what, path=path, remedy="give at least one that arrived")
    repairs += _backward(readings.time_s)
    since_s = np.round(readings.time_s - readings.time_s.min(), 6)
    # Among the samples of one time, the first that arrived comes first, else the first that was written.
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
    """Return traces of one clock with a common time 0: the first moment at which every trace has a value."""
    begin_s = max(trace.began_s for trace in traces)
    # Rounded to microseconds: a float holds a Unix time to a quarter of one.
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


def _backward(time_s: Floats) -> list[str]:
    steps = np.diff(time_s)
    back = steps < 0.0
    if not back.any():
        return []
    times, most_s = int(back.sum()), float(-steps.min())
    repairs = [f"{_counted(times)} stood behind a later one, by {most_s:.6g} s at most: sorted by time"]
    if times <= _FEW_STEPS and most_s > _MANY_SAMPLES * float(np.median(np.abs(steps))):
        repairs.append("the clock seems to have been set back: samples from before and after now lie between each other")
    return repairs


def _counted(count: int) -> str:
    return f"{count:,} sample{'s' * (count != 1)}"
