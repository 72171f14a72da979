"""The page of RTT and bandwidth traces: facts and figures in one HTML file that opens without a network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simnmt.network.traces.readings import NOUN, Trace
from simnmt.network.traces.summary import format_facts, format_title, lost_runs, summarise, time_unit
from simnmt.report.charts import Axis, Chart, Mark, Panel, extremes, numbers, quantile_shares, quantiles
from simnmt.report.page_template import Section, render_page

POINTS = 4_000
"""Most points of a series; its peaks and troughs are kept."""
MOST_OUTAGES = 2_000


def render_traces(name: str, traces: Sequence[Trace]) -> str:
    """Return the page as text; the same traces give the same text, and every name that came with the input is escaped."""
    sections = []
    for place, trace in enumerate(traces):
        summary = summarise(trace)
        text, facts = [summary.source, *summary.remarks], format_facts(summary)
        sections.append(Section(format_title(summary), f"series-{place}", text, facts, trace_panels(trace)))
    return render_page("simnmt trace", name, sections)


def trace_panels(trace: Trace) -> list[Panel]:
    """Return the figures of one trace: over time, and its distribution; milliseconds or Mbit/s."""
    lap_s = trace.duration_s
    per_unit, unit = (1e3, "ms") if trace.quantity == "rtt" else (1e-6, "Mbit/s")
    length_s, unit_of_time = time_unit(lap_s)
    title = f"{NOUN[trace.quantity]}, {unit}"
    kept = extremes(trace.value, POINTS)
    value, until = trace.value * per_unit, np.append(trace.time_s, lap_s) / length_s
    time = numbers(np.append(trace.time_s[kept], lap_s) / length_s, 7)
    hover = f"%{{y:,.4~g}} {unit} at %{{x:.4~g}} {unit_of_time}"
    series = Mark("line", time, np.append(value[kept], value[-1]), colour="accent", width=1.2, step=True, hover=hover)
    lost = _outages(trace, until, unit_of_time)
    over_time = Chart([series, *lost], Axis(f"time, {unit_of_time}"), Axis(title, from_zero=True))
    arrived = value[~trace.lost]
    grid = quantile_shares(arrived.size)
    drawn = numbers(quantiles(arrived, grid))
    share = np.round(grid, 7).tolist()
    symbol = "circle" if drawn and drawn[0] == drawn[-1] else ""
    curve = Mark("line", drawn, share, colour="accent", symbol=symbol, hover=f"%{{y:.2%}} up to %{{x:,.4~g}} {unit}")
    distribution = Chart([curve], Axis(title), Axis("share of samples", span=(0.0, 1.01), tick_format=".0%"))
    return [
        Panel("time", "Over time, lost samples held", f"{title} over time", lambda: over_time, across=True),
        Panel("distribution", "Share of samples up to a value", f"Distribution of {title}", lambda: distribution),
    ]


def _outages(trace: Trace, until: NDArray[np.float64], unit: str) -> list[Mark]:
    """Return a mark with begin, end and a break of each run of lost samples; none if no sample was lost."""
    begins, ends = (edges[:MOST_OUTAGES] for edges in lost_runs(trace.lost))
    points: list[float | None] = []
    for begin, end in zip(until[begins].tolist(), until[ends].tolist(), strict=True):
        points += [round(begin, 7), round(end, 7), None]
    if not points:
        return []
    floor = [None if at is None else 0.0 for at in points]
    return [
        Mark("line", points, floor, "lost", "bad", width=4.0, symbol="circle", size=5.0, hover=f"lost at %{{x:.5~g}} {unit}")
    ]
