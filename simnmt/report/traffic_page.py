"""The traffic of a log of requests: facts and tables for the terminal and the page, and the figure of the page."""

from __future__ import annotations

import numpy as np

from simnmt.network.traces.summary import time_unit
from simnmt.report.charts import Axis, Chart, Mark, Panel, numbers
from simnmt.report.page_template import Section, render_page
from simnmt.report.table import Column, Table
from simnmt.results.number_text import digits, duration, percent
from simnmt.workload.arrivals.traffic import Traffic

MOST_POINTS = 2_000
"""Most windows of the figure of the rate over time."""
MOST_PAIRS = 100


def traffic_facts(traffic: Traffic) -> list[tuple[str, str]]:
    """Return the (name, value) of each figure that stands in no table."""
    recording, repeats = traffic.recording, traffic.repeats
    requests = len(traffic.process.tick)
    facts = [
        ("requests", f"{requests:,} over {duration(recording.duration_s)} from {recording.moment(0.0)} on"),
        ("mean rate", f"{digits(traffic.rate_rps)} requests/s"),
        ("source", f"{recording.source}; {'kind unstated' if recording.kind == 'unstated' else recording.kind}"),
    ]
    if recording.step_s:
        facts.append(("resolution", f"times on a grid of {duration(recording.step_s)}: no shorter window can be counted"))
    if repeats is not None:
        share, column = percent(repeats["repeated_share"]), repeats["column"]
        texts = f"{column}: {repeats['distinct']:,} distinct, at most {repeats['most_frequent']:,} times"
        facts.append(("repeats", f"{share} of the requests repeat an earlier one ({texts})"))
    return facts


def traffic_tables(traffic: Traffic) -> list[Table]:
    """Return the tables for which the log has numbers."""
    window = Column("window", lambda row: duration(row.window_s), words=True)
    windows, requests = Column("windows", "windows", 0), Column("requests", "requests", 0)
    rates = [
        window,
        Column("peak", "peak_rps"),
        *(Column(name, f"{name}_rps") for name in ("p50", "p95", "p99")),
        windows,
        Column("peak from", lambda row: traffic.recording.moment(row.peak_s)),
    ]
    dispersions = [
        window,
        Column("index", "index"),
        Column("Poisson", lambda row: f"{row.poisson_low:.3f} to {row.poisson_high:.3f}"),
        Column("arrivals", "verdict"),
        windows,
    ]
    lengths = [
        Column("length", "name", words=True),
        Column("column", "column", words=True),
        *(Column(name, name) for name in ("mean", "p50", "p95", "p99")),
        Column("max", "most"),
        requests,
    ]
    pairs = [
        Column("pair", "pair", words=True),
        requests,
        Column("share, %", "share", 1, scale=100.0),
        Column("requests/s", "rate_rps"),
    ]
    hits = [Column("entries", "entries", 0), Column("hits, %", "share", 1, scale=100.0)]
    index = "Index of dispersion: variance over mean of the requests in a window"
    tables = [
        Table("Requests/s in windows", rates, traffic.rates, id="rates"),
        Table(index, dispersions, traffic.dispersions, id="dispersion"),
        Table("Lengths", lengths, traffic.lengths, id="lengths"),
        Table("Language pairs", pairs, traffic.pairs[:MOST_PAIRS], id="pairs"),
        Table("Hits of a least-recently-used cache", hits, traffic.repeats["hit_rates"] if traffic.repeats else [], id="hits"),
    ]
    return [table for table in tables if table.rows]


def rate_panel(traffic: Traffic) -> Panel:
    """Return the figure of the rate over time."""

    def rate() -> Chart:
        process, recording = traffic.process, traffic.recording
        least_s = recording.duration_s / MOST_POINTS
        nice_s = [length_s * unit_s for unit_s in (1.0, 60.0, 3600.0, 86_400.0) for length_s in (1, 2, 5, 10, 20, 30)]
        window_s = max(next((window_s for window_s in nice_s if window_s >= least_s), least_s), recording.step_s)
        width = process.width(window_s) or process.ticks
        width_s = width * process.tick_s
        windows, index, count = process.counts(width)
        rate_rps = np.zeros(windows + 1)
        rate_rps[index] = count / width_s
        rate_rps[-1] = rate_rps[windows - 1]
        unit_s, unit = time_unit(recording.duration_s)
        hover = f"%{{y:,.4~g}} requests/s at %{{x:.5~g}} {unit}"
        at, drawn = numbers(np.arange(windows + 1) * (width_s / unit_s), 7), numbers(rate_rps, 5)
        marks = [Mark("line", at, drawn, f"in {duration(width_s)}", "accent", width=1.2, step=True, hover=hover)]
        for place, row in enumerate(traffic.rates):
            middle, name = (row.peak_s + row.window_s / 2.0) / unit_s, f"busiest {duration(row.window_s)}"
            peak = Mark("points", [middle], [row.peak_rps], name, f"policy-{place}", symbol="diamond", size=9.0, hover=hover)
            marks.append(peak)
        time = Axis(f"time from {recording.moment(0.0)} on, {unit}")
        return Chart(marks, time, Axis("requests/s", from_zero=True))

    return Panel("rate", "Rate over time", "Requests/s over time, with the busiest windows", rate, across=True)


def render_traffic(traffic: Traffic) -> str:
    """Return the page as text; the same log gives the same text, and every name that came with the input is escaped."""
    facts, panels, tables = traffic_facts(traffic), [rate_panel(traffic)], traffic_tables(traffic)
    section = Section(f"{len(traffic.process.tick):,} requests", "traffic", facts=facts, panels=panels, tables=tables)
    return render_page("simnmt traffic", traffic.name, [section])
