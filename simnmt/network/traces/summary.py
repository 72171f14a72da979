"""Summary of a trace: spacing, losses, distribution, autocorrelation and levels, as numbers and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.network.series import Kind
from simnmt.network.traces.levels import segment
from simnmt.network.traces.readings import NOUN, Quantity, Trace

SHARES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
"""Shares of the quantiles."""
LEAST_FOR_P999 = 10_000
"""Least samples for a 99.9th percentile; of fewer, less than ten lie beyond it."""
LAGS = (1, 10)
"""Lags of the autocorrelations, in samples."""
LEAST_PAIRS = 20
"""Least pairs of samples for a correlation."""
LEVELS_WITHIN = (50, 50_000)
"""Least and most samples of a trace in which levels are searched: fewer show nothing, more take too long."""
GAP = 2.5
"""A spacing of more than this many median spacings is a gap."""


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """Figures of one trace, in SI units."""

    quantity: Quantity
    kind: Kind
    source: str
    remarks: tuple[str, ...]
    """Assumptions and repairs."""
    samples: int
    """Number of samples, lost ones included except at the start."""
    duration_s: float
    """Length of one lap."""
    spacing_s: float | None
    """Median spacing; None for one sample."""
    spacing_least_s: float | None
    spacing_most_s: float | None
    gaps: int
    """Number of spacings of more than `GAP` medians."""
    lost: int
    """Number of all lost samples, at the start too."""
    lost_share: float
    outages: int
    """Number of runs of lost samples after the first that arrived."""
    outage_most_samples: int
    outage_most_s: float
    """From the first lost sample to the next that arrived, or to the end of the lap."""
    outage_s: float
    """Length of all outages together."""
    mean: float
    """Mean over time, seconds or bit/s; lost samples hold the value before them."""
    quantiles: dict[float, float | None]
    """Quantiles of the samples that arrived, by share."""
    autocorrelation: dict[int, float | None]
    """Autocorrelation of the samples that arrived, by lag in samples; None if undefined."""
    levels: int | None
    """Number of levels of an RTT; None for a bandwidth, and for fewer or more samples than `LEVELS_WITHIN`."""
    level_shifts: int | None
    """Number of changes from one level to another."""

    def as_json(self) -> dict[str, Any]:
        """Return plain data, with quantiles and autocorrelations by names such as `p99` and `lag_1`."""
        plain = {"said" if name == "remarks" else name: getattr(self, name) for name in self.__slots__}
        plain["said"] = list(self.remarks)
        plain["unit"] = "s" if self.quantity == "rtt" else "bit/s"
        plain["quantiles"] = {quantile_name(share): value for share, value in self.quantiles.items()}
        plain["autocorrelation"] = {f"lag_{lag}": value for lag, value in self.autocorrelation.items()}
        return plain


def quantile_name(share: float) -> str:
    """Return the name of a quantile, such as `p99.9` for 0.999."""
    return f"p{100 * share:.4g}"


def outline(trace: Trace) -> Mapping[str, Any]:
    """Return what tells a trace from others: quantity, kind, samples, length, mean and origin; SI units."""
    return {
        "quantity": trace.quantity,
        "kind": trace.kind,
        "points": len(trace.value),
        "duration_s": trace.duration_s,
        "lost": trace.lost_samples,
        "mean": _mean_over_time(trace),
        "unit": "s" if trace.quantity == "rtt" else "bit/s",
        "source": trace.source,
    }


def _mean_over_time(trace: Trace) -> float:
    return float(np.average(trace.value, weights=np.diff(np.append(trace.time_s, trace.duration_s))))


def summarise(trace: Trace) -> TraceSummary:
    """Return the figures of a trace."""
    arrived = trace.value[~trace.lost]
    spacing = np.diff(trace.time_s)
    usual_s = float(np.median(spacing)) if spacing.size else None
    starts, ends = lost_runs(trace.lost)
    until_s = np.append(trace.time_s, trace.duration_s)
    outages_s = until_s[ends] - until_s[starts]
    levels, shifts = _levels(trace)
    with_start = len(trace.value) + trace.lost_before
    return TraceSummary(
        quantity=trace.quantity,
        kind=trace.kind,
        source=trace.source,
        remarks=trace.remarks,
        samples=len(trace.value),
        duration_s=trace.duration_s,
        spacing_s=usual_s,
        spacing_least_s=float(spacing.min()) if spacing.size else None,
        spacing_most_s=float(spacing.max()) if spacing.size else None,
        gaps=int((spacing > GAP * usual_s).sum()) if usual_s is not None else 0,
        lost=trace.lost_samples,
        lost_share=trace.lost_samples / with_start,
        outages=len(starts),
        outage_most_samples=int((ends - starts).max(initial=0)),
        outage_most_s=float(outages_s.max(initial=0.0)),
        outage_s=float(outages_s.sum()),
        mean=_mean_over_time(trace),
        quantiles={
            share: float(np.quantile(arrived, share)) if share < 0.999 or len(arrived) >= LEAST_FOR_P999 else None
            for share in SHARES
        },
        autocorrelation={lag: autocorrelation(trace, lag) for lag in LAGS},
        levels=levels,
        level_shifts=shifts,
    )


def autocorrelation(trace: Trace, lag: int) -> float | None:
    """Return the correlation of samples with those `lag` later, without pairs that have a lost sample.

    None if fewer than `LEAST_PAIRS` are left, or if the samples are all equal.
    """
    early, late = trace.value[:-lag], trace.value[lag:]
    both = ~(trace.lost[:-lag] | trace.lost[lag:])
    arrived = trace.value[~trace.lost]
    spread = float(np.mean((arrived - arrived.mean()) ** 2))
    # A constant series may differ from its mean by rounding.
    if both.sum() < LEAST_PAIRS or spread <= 1e-24 * float(arrived.mean()) ** 2:
        return None
    mean = arrived.mean()
    return float(np.mean((early[both] - mean) * (late[both] - mean)) / spread)


def _levels(trace: Trace) -> tuple[int | None, int | None]:
    fewest, most = LEVELS_WITHIN
    if trace.quantity != "rtt" or not fewest <= len(trace.value) <= most:
        return None, None
    levels_s, level = segment(trace.value)
    return len(levels_s), int((np.diff(level) != 0).sum())


def lost_runs(lost: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first index of each run of lost samples, and the index after its last."""
    edges = np.diff(lost.astype(np.int8), prepend=0, append=0)
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)


_MANY = 1e4
_UNITS = ((86_400.0, "days"), (3_600.0, "h"), (60.0, "min"))


def format_title(summary: TraceSummary) -> str:
    """Return the quantity and kind of a trace, such as `RTT, measured`."""
    return f"{NOUN[summary.quantity]}, {'kind unstated' if summary.kind == 'unstated' else summary.kind}"


def format_facts(summary: TraceSummary) -> list[tuple[str, str]]:
    """Return the (name, value) of each figure."""
    facts = [("samples", f"{summary.samples:,} over {format_duration(summary.duration_s)}")]
    if summary.spacing_s is not None and summary.spacing_least_s is not None and summary.spacing_most_s is not None:
        ends = f"from {format_duration(summary.spacing_least_s)} to {format_duration(summary.spacing_most_s)}"
        gaps = f"; {summary.gaps:,} gap{'s' * (summary.gaps != 1)} of more than {GAP:g} times that" if summary.gaps else ""
        facts.append(("spacing", f"{format_duration(summary.spacing_s)} usually, {ends}{gaps}"))
    lost = f"{summary.lost:,} ({100 * summary.lost_share:.3g} %)"
    if summary.outages:
        longest = f"the longest of {summary.outage_most_samples:,}, {format_duration(summary.outage_most_s)}"
        lost += f" in {summary.outages:,} run{'s' * (summary.outages != 1)}, {longest}; held at the value before"
    facts += [("lost", lost), ("mean", f"{format_value(summary.quantity, summary.mean)} over time")]
    known = [(quantile_name(share), number) for share, number in summary.quantiles.items() if number is not None]
    facts += [(name, format_value(summary.quantity, number)) for name, number in known]
    for lag, correlation in summary.autocorrelation.items():
        facts.append((f"autocorrelation, lag {lag}", "not defined" if correlation is None else f"{correlation:.3f}"))
    if summary.levels is not None and summary.level_shifts is not None:
        between = f"{summary.level_shifts:,} between {summary.levels:,} levels" if summary.level_shifts else "none"
        facts.append(("level shifts", between))
    return facts


def describe_use_of_losses(summary: TraceSummary) -> list[str]:
    """Return what a run makes of the lost samples of an RTT; empty without lost samples between others."""
    if summary.quantity != "rtt" or not summary.outages:
        return []
    return [f"lost samples: {summary.lost:,}; a run feels them only with --set networks.NAME.outages=trace"]


def format_value(quantity: Quantity, number: float) -> str:
    """Return an RTT in ms or a bandwidth in Mbit/s as text with four significant digits."""
    return f"{_digits(number * 1e3)} ms" if quantity == "rtt" else f"{_digits(number / 1e6)} Mbit/s"


def format_duration(seconds: float) -> str:
    """Return a duration in seconds, minutes, hours or days as text."""
    length_s, unit = time_unit(seconds)
    return f"{_digits(seconds / length_s)} {unit}"


def time_unit(seconds: float) -> tuple[float, str]:
    """Return (length in seconds, name) of the unit that keeps the number small."""
    return next(((length_s, unit) for length_s, unit in _UNITS if seconds > 2 * length_s), (1.0, "s"))


def _digits(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= _MANY else f"{number:.4g}"
