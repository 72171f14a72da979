"""Summary of a trace: spacing, losses, distribution and autocorrelation, as numbers and as text."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.network.traces.trace import NOUN, Quantity, Trace

SHARES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)  # of the quantiles
LEAST_FOR_P999, LEAST_PAIRS = 10_000, 20
"""Least samples for a 99.9th percentile, beyond which ten of them lie, and least pairs for a correlation."""
GAP = 2.5  # a spacing of more than this many median spacings is a gap


def summarise(trace: Trace) -> dict[str, Any]:
    """Return the figures of a trace in SI units, as plain data.

    `spacing_s` has the median and the extremes, None for one sample; `lost` counts all lost samples, `outages` the runs of them
    after the first that arrived; `mean` is over time; `quantiles` and `autocorrelation` are of the samples that arrived, None
    where too few did.
    """
    arrived = trace.value[~trace.lost]
    spacing_s = np.diff(trace.time_s)
    starts, ends = lost_runs(trace.lost)
    until_s = np.append(trace.time_s, trace.duration_s)
    outages_s = until_s[ends] - until_s[starts]
    usual_s = float(np.median(spacing_s)) if spacing_s.size else 0.0
    return {
        "quantity": trace.quantity,
        "kind": trace.kind,
        "source": trace.source,
        "unit": "s" if trace.quantity == "rtt" else "bit/s",
        "remarks": list(trace.remarks),
        "samples": len(trace.value),
        "duration_s": trace.duration_s,
        "spacing_s": [usual_s, float(spacing_s.min()), float(spacing_s.max())] if spacing_s.size else None,
        "gaps": int((spacing_s > GAP * usual_s).sum()),
        "lost": trace.lost_samples,
        "lost_share": trace.lost_samples / (len(trace.value) + trace.lost_before),
        "outages": len(starts),
        "outage_most_samples": int((ends - starts).max(initial=0)),
        "outage_most_s": float(outages_s.max(initial=0.0)),
        "outage_s": float(outages_s.sum()),
        "mean": trace.series("trace").mean,
        "quantiles": {f"p{100 * share:.4g}": float(np.quantile(arrived, share)) for share in SHARES}
        | ({} if len(arrived) >= LEAST_FOR_P999 else {"p99.9": None}),
        "autocorrelation": {f"lag_{lag}": autocorrelation(trace, lag) for lag in (1, 10)},
    }


def autocorrelation(trace: Trace, lag: int) -> float | None:
    """Return the correlation of samples with those `lag` later, without pairs that have a lost sample.

    None if fewer than `LEAST_PAIRS` are left, or if the samples are all equal.
    """
    both = ~(trace.lost[:-lag] | trace.lost[lag:])
    arrived = trace.value[~trace.lost]
    mean, spread = arrived.mean(), float(arrived.var())
    # A constant series may differ from its mean by rounding.
    if both.sum() < LEAST_PAIRS or spread <= 1e-24 * float(mean) ** 2:
        return None
    return float(np.mean((trace.value[:-lag][both] - mean) * (trace.value[lag:][both] - mean)) / spread)


def lost_runs(lost: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first index of each run of lost samples, and the index after its last."""
    edges = np.diff(lost.astype(np.int8), prepend=0, append=0)
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)


def format_title(trace: Trace) -> str:
    """Return the quantity and kind of a trace, such as `RTT, measured`."""
    return f"{NOUN[trace.quantity]}, {'kind unstated' if trace.kind == 'unstated' else trace.kind}"


def format_facts(trace: Trace) -> list[tuple[str, str]]:
    """Return the (name, value) of each figure."""
    summary = summarise(trace)
    facts = [("samples", f"{summary['samples']:,} over {format_duration(summary['duration_s'])}")]
    if summary["spacing_s"] is not None:
        usual, least, most = map(format_duration, summary["spacing_s"])
        gaps = f"; {summary['gaps']:,} of more than {GAP:g} times that" if summary["gaps"] else ""
        facts.append(("spacing", f"{usual} usually, from {least} to {most}{gaps}"))
    lost = f"{summary['lost']:,} ({100 * summary['lost_share']:.3g} %)"
    if count := summary["outages"]:
        longest = f"the longest of {summary['outage_most_samples']:,}, {format_duration(summary['outage_most_s'])}"
        lost += f" in {count:,} run{'s' * (count != 1)}, {longest}; held at the value before"
    facts += [("lost", lost), ("mean", f"{format_value(trace.quantity, summary['mean'])} over time")]
    facts += [(name, format_value(trace.quantity, value)) for name, value in summary["quantiles"].items() if value is not None]
    for name, correlation in summary["autocorrelation"].items():
        lag = name.replace("_", " ")
        facts.append((f"autocorrelation, {lag}", "not defined" if correlation is None else f"{correlation:.3f}"))
    return facts


def format_value(quantity: Quantity, number: float) -> str:
    """Return an RTT in ms or a bandwidth in Mbit/s as text with four significant digits."""
    return f"{_digits(number * 1e3)} ms" if quantity == "rtt" else f"{_digits(number / 1e6)} Mbit/s"


def format_duration(seconds: float) -> str:
    """Return a duration in seconds, minutes, hours or days as text."""
    length_s, unit = time_unit(seconds)
    return f"{_digits(seconds / length_s)} {unit}"


def time_unit(seconds: float) -> tuple[float, str]:
    """Return (length in seconds, name) of the unit that keeps the number small."""
    units = ((86_400.0, "days"), (3_600.0, "h"), (60.0, "min"))
    return next(((length_s, unit) for length_s, unit in units if seconds > 2 * length_s), (1.0, "s"))


def _digits(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1e4 else f"{number:.4g}"
