"""A trace: what a tool measured, in order of time, each time once, lost samples marked; mended, lengthened and written here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.base.files import is_standard
from simnmt.base.random_streams import stream
from simnmt.network.series import BandwidthSeries, Kind, RttSeries, TraceError
from simnmt.network.series_csv import series_text, write_texts

Quantity = Literal["rtt", "downlink", "uplink", "bandwidth"]
"""`bandwidth` if a file does not name the direction."""

NOUN: dict[Quantity, str] = {"rtt": "RTT", "downlink": "downlink", "uplink": "uplink", "bandwidth": "bandwidth"}
"""Name of the quantity in messages."""

_MOST_SAMPLES = 20_000_000  # more would not fit into memory


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Choices between several replies, probes or columns; None: take it from the file."""

    reply: Literal["min", "mean"] = "min"
    """Value of a round of several replies: the least, or their mean."""
    probe: int | None = None
    """The RIPE Atlas probe to read, of several."""
    columns: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    """Name and unit of the columns of a CSV file by role: time, rtt, downlink, uplink."""
    interval_s: float | None = None
    """Time between requests of `ping` output that holds no times; None: by the summary of ping, else 1 s."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Samples of one quantity: times from 0 in order, each once; lost samples hold the value before them and stay marked."""

    quantity: Quantity
    time_s: Floats
    """Shape (samples,)."""
    value: Floats
    """Shape (samples,), seconds or bit/s; positive."""
    lost: NDArray[np.bool_]
    """Shape (samples,); the first is never lost."""
    lost_before: int
    """Lost samples that are not among the values, such as those before the first that arrived."""
    began_s: float
    """Time 0 on the tool's own clock, often Unix time."""
    kind: Kind
    source: str
    """Origin in words."""
    remarks: tuple[str, ...] = ()
    """Assumptions, suspicions, and what was left out or changed: a sentence each."""

    @property
    def lost_samples(self) -> int:
        """Number of all lost samples."""
        return int(self.lost.sum()) + self.lost_before

    def series(self, name: str) -> RttSeries | BandwidthSeries:
        """Return the series that a link looks values up in."""
        kind = RttSeries if self.quantity == "rtt" else BandwidthSeries
        return kind(name, self.kind, self.source, self.time_s, self.value, self.lost_samples)

    @property
    def duration_s(self) -> float:
        """Length of one lap of the series."""
        return self.series("trace").duration_s


def mend(
    quantity: Quantity,
    time_s: Floats,
    value: Floats,
    kind: Kind,
    source: str,
    remarks: Iterable[str] = (),
    *,
    lost_before: int = 0,
    path: Path | None = None,
) -> Trace:
    """Return the trace of samples in any order: sorted, one sample per time, the value before a lost sample held over it.

    `time_s`, on the tool's clock, and `value`, NaN for a lost sample, have the shape (samples,). Lost samples before the first
    that arrived are dropped and counted. Each repair follows the `remarks` of the reader; times are rounded to microseconds.
    Raises `TraceError`, with the path, if no sample arrived.
    """
    notes = list(remarks)
    least, most = (1e-9, RttSeries.most) if quantity == "rtt" else (1.0, BandwidthSeries.most)
    impossible = ~np.isnan(value) & ~((value >= least) & (value <= most))
    if impossible.any():
        notes.append(f"values that no network has, such as 0, so lost: {int(impossible.sum()):,}")
    missing = np.isnan(value) | impossible
    if missing.all():
        what = f"{NOUN[quantity]}: no sample of {len(value):,} arrived{': ' if notes else ''}{'; '.join(notes)}"
        raise TraceError(what, path=path, remedy="give at least one that arrived")
    steps_s = np.diff(time_s)
    if back := int((steps_s < 0.0).sum()):
        notes.append(f"{_samples(back)} stood behind a later one, by {-steps_s.min():.6g} s at most: sorted by time")
    since_s = np.round(time_s - time_s.min(), 6)
    # Among the samples of one time, the first that arrived comes first, else the first that was written.
    order = np.lexsort((missing, since_s))
    again = np.diff(since_s[order], prepend=-np.inf) == 0.0
    if again.any():
        notes.append(f"{_samples(int(again.sum()))} repeated the time of another: the first that arrived was kept")
    kept = order[~again]
    first = int(np.argmin(missing[kept]))
    kept = kept[first:]
    if len(kept) == 1:
        notes.append("one sample alone: the same value at all times")
    lost = missing[kept]
    return Trace(
        quantity,
        np.round(since_s[kept] - since_s[kept[0]], 6),
        value[kept][np.maximum.accumulate(np.where(lost, 0, np.arange(len(kept))))],
        lost,
        lost_before + first,
        float(time_s[kept[0]]),
        kind,
        source,
        tuple(notes),
    )


def _samples(count: int) -> str:
    return f"{count:,} sample{'s' * (count != 1)}"


def align_starts(traces: Sequence[Trace]) -> list[Trace]:
    """Return traces of one clock with a common time 0: the first moment at which every trace has a value."""
    begin_s = max(trace.began_s for trace in traces)
    aligned = []
    for trace in traces:
        late_s = round(begin_s - trace.began_s, 6)  # in microseconds: a float holds a Unix time to a quarter of one
        first = int(np.searchsorted(trace.time_s, late_s, side="right")) - 1
        time_s, lost = np.round(trace.time_s[first:] - late_s, 6), trace.lost[first:].copy()
        before = trace.lost_before + int(trace.lost[: first + 1].sum())
        time_s[0], lost[0] = 0.0, False
        began_s, value = trace.began_s + late_s, trace.value[first:]
        aligned.append(replace(trace, time_s=time_s, value=value, lost=lost, lost_before=before, began_s=began_s))
    return aligned


def resample(trace: Trace, duration_s: float, seed: int, block_s: float | None = None) -> Trace:
    """Draw a trace of random blocks of another: the stationary block bootstrap of Politis and Romano (1994).

    A block is continued at the start of the trace where the trace ends. Quantiles, losses and the dependence of neighbours
    within a block are those of the trace, whose samples are taken to be evenly spaced; changes slower than a block are not.
    Traces of one length and one seed are drawn from the same places. The length of a block is geometrically distributed, with
    the mean `block_s`; None: a twentieth of the trace.
    """
    step_s = trace.duration_s / len(trace.value)
    samples = duration_s / step_s
    if not 1.0 <= samples <= _MOST_SAMPLES:
        what = f"{duration_s:g} s are {samples:,.3g} samples of {step_s:g} s"
        raise TraceError(what, remedy=f"draw between 1 and {_MOST_SAMPLES:,} samples")
    block = max(len(trace.value) / 20 if block_s is None else block_s / step_s, 1.0)
    random = stream(seed, 0, "resampled trace")
    position = np.arange(round(samples))
    begin = np.maximum.accumulate(np.where(random.random(len(position)) * block < 1.0, position, 0))
    jump = random.integers(len(trace.value), size=len(position))
    jump[0] = random.choice(np.flatnonzero(~trace.lost))
    origin = (jump[begin] + position - begin) % len(trace.value)
    lost = trace.lost[origin]
    return replace(
        trace,
        time_s=np.round(position * step_s, 6),
        value=trace.value[origin][np.maximum.accumulate(np.where(lost, 0, position))],
        lost=lost,
        lost_before=0,
        kind="synthetic",
        source=f"{trace.source}; drawn in blocks of {block:.4g} samples on average, seed {seed}",
        remarks=(),
    )


def output_paths(traces: Sequence[Trace], out: str | os.PathLike[str]) -> list[Path]:
    """Return the file of each trace: `out` itself for a single one, else `out` with the quantity before its suffix.

    Raises `TraceError` if `out` names no file.
    """
    path = Path(out)
    if not path.name or (len(traces) > 1 and is_standard(path)):
        what = f"--out {os.fspath(out)!r} names no file for {', '.join(NOUN[trace.quantity] for trace in traces)}"
        raise TraceError(what, remedy="give the name of a CSV file")
    if len(traces) == 1:
        return [path]
    return [path.with_name(f"{path.stem}.{trace.quantity}{path.suffix or '.csv'}") for trace in traces]


def write_traces(traces: Sequence[Trace], out: str | os.PathLike[str], made: str = "simnmt trace import") -> list[Path]:
    """Write each trace as a series to its file, all or none; lost samples stay marked. Raises `TraceError`.

    `made` names the command in the file's header.
    """
    paths = output_paths(traces, out)
    texts: dict[Path, str] = {}
    for trace, path in zip(traces, paths, strict=True):
        notes = {"made": made, "began": "", "remarks": "; ".join(trace.remarks)}
        if 0.5e9 < trace.began_s < 4e9:  # else it is no Unix time
            notes["began"] = datetime.fromtimestamp(int(trace.began_s), timezone.utc).isoformat(sep=" ")
        notes = {key: text for key, text in notes.items() if text}
        decimals = 6 if trace.quantity == "rtt" else None
        texts[path] = series_text(trace.series(path.stem), notes=notes, decimals=decimals, lost=trace.lost)
    write_texts(texts)
    return paths
