"""The page of RTT and bandwidth traces: facts and plots in one HTML file that opens without a network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from simnmt.base.errors import InputError
from simnmt.base.files import written_whole
from simnmt.network.traces.readings import NOUN, Trace
from simnmt.network.traces.summary import autocorrelation, format_facts, format_title, lost_runs, summarise, time_unit
from simnmt.report import thinning
from simnmt.report.page_template import embedded_json, render_template

POINTS = 4_000
"""Of a series; its peaks and troughs stay."""
MOST_LAGS = 100
MOST_OUTAGES = 2_000


def write_trace_page(path: str | os.PathLike[str], name: str, traces: Sequence[Trace]) -> None:
    """Write the page whole or not at all. Raises `InputError` where the file cannot be written."""
    try:
        with written_whole(path) as partial:
            partial.write_text(render_traces(name, traces), encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=path, remedy="choose another folder") from None


def render_traces(name: str, traces: Sequence[Trace]) -> str:
    """The page as text; the same traces give the same text, and every name that came with the input is escaped."""
    summaries = [summarise(trace) for trace in traces]
    return render_template(
        "trace_page.html.j2",
        ("plain_plots.js", "trace_page.js"),
        name=name,
        sections=[
            {"index": index, "title": format_title(summary), "summary": summary, "facts": format_facts(summary)}
            for index, summary in enumerate(summaries)
        ],
        content=embedded_json({"series": [trace_plots(trace) for trace in traces]}),
    )


def trace_plots(trace: Trace) -> dict[str, Any]:
    """The content of one trace's plots, ready for JSON: milliseconds or Mbit/s, because a person reads them."""
    lap_s = trace.duration_s
    per_unit, unit = (1e3, "ms") if trace.quantity == "rtt" else (1e-6, "Mbit/s")
    length_s, unit_of_time = time_unit(lap_s)
    kept = thinning.extremes(trace.value, POINTS)
    value, until_s = trace.value * per_unit, np.append(trace.time_s, lap_s)
    arrived = value[~trace.lost]
    grid = thinning.shares(arrived.size)
    lags = range(1, min(MOST_LAGS, len(value) // 4) + 1)
    return {
        "what": NOUN[trace.quantity],
        "unit": unit,
        "time_unit": unit_of_time,
        "time": thinning.numbers(np.append(trace.time_s[kept], lap_s) / length_s, 7),
        "value": thinning.numbers(np.append(value[kept], value[-1])),
        "outages": _outages(trace, until_s / length_s),
        "share": [round(share, 7) for share in grid.tolist()],
        "quantile": thinning.numbers(thinning.quantiles(arrived, grid)),
        "lag": list(lags),
        "autocorrelation": [autocorrelation(trace, lag) for lag in lags],
    }


def _outages(trace: Trace, until: np.ndarray[Any, np.dtype[np.float64]]) -> list[float | None]:
    """Begin, end and a break of each run of lost samples, in the time unit of the plot."""
    begins, ends = (edges[:MOST_OUTAGES] for edges in lost_runs(trace.lost))
    points: list[float | None] = []
    for begin, end in zip(until[begins].tolist(), until[ends].tolist(), strict=True):
        points += [round(begin, 7), round(end, 7), None]
    return points
