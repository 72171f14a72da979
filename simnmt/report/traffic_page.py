"""The traffic of a log of requests: facts and tables for the terminal and the page, and the figures of the page."""

from __future__ import annotations

import numpy as np

from simnmt.report.charts import Axis, Chart, Control, Mark, Panel, numbers, quantile_shares, quantiles
from simnmt.report.page_template import Section, render_page
from simnmt.report.table import Column, Table
from simnmt.results.number_text import digits, duration, percent
from simnmt.workload.arrivals.traffic import Traffic

MOST_POINTS = 2_000
"""Most windows of the figure of the rate over time."""
MOST_PAIRS = 100


def traffic_facts(traffic: Traffic) -> list[tuple[str, str]]:
    """Return the (name, value) of each figure that stands in no table."""
    process, repeats = traffic.process, traffic.repeats
    facts = [
        ("requests", f"{process.requests:,.0f} over {duration(traffic.duration_s)} from {traffic.moment(0.0)} on"),
        ("mean rate", f"{digits(traffic.rate_rps)} requests/s"),
        ("source", f"{traffic.source}; {'kind unstated' if traffic.kind == 'unstated' else traffic.kind}"),
    ]
    if process.least:
        rows = "rates of rows from" if traffic.format == "rates" else "times on a grid of"
        facts.append(("resolution", f"{rows} {duration(process.resolution_s)}: no shorter window can be counted"))
    if repeats is not None:
        again = f"{percent(repeats.repeated_share)} of the requests repeat an earlier one"
        facts.append(
            ("repeats", f"{again} ({repeats.column}: {repeats.distinct:,} distinct, at most {repeats.most_frequent:,} times)")
        )
    return facts


def traffic_tables(traffic: Traffic) -> list[Table]:
    """Return the tables for which the log has numbers."""
    rates = Table(
        "Requests/s in windows",
        [
            Column("window", lambda row: duration(row.window_s), words=True),
            Column("peak", "peak_rps"),
            *(Column(name, f"{name}_rps") for name in ("p50", "p95", "p99")),
            Column("windows", "windows", 0),
            Column("peak from", lambda row: traffic.moment(row.peak_s)),
        ],
        traffic.rates,
        id="rates",
    )
    dispersions = Table(
        "Index of dispersion: variance over mean of the requests in a window",
        [
            Column("window", lambda row: duration(row.window_s), words=True),
            Column("index", "index"),
            Column("Poisson", lambda row: f"{row.poisson_low:.3f} to {row.poisson_high:.3f}"),
            Column("arrivals", "verdict"),
            Column("windows", "windows", 0),
        ],
        traffic.dispersions,
        id="dispersion",
    )
    lengths = Table(
        "Lengths",
        [
            Column("length", "name", words=True),
            Column("column", "column", words=True),
            *(
                Column(name, key)
                for name, key in (("mean", "mean"), ("p50", "p50"), ("p95", "p95"), ("p99", "p99"), ("max", "most"))
            ),
            Column("requests", "requests", 0),
        ],
        traffic.lengths,
        id="lengths",
    )
    pairs = Table(
        "Language pairs",
        [
            Column("pair", "pair", words=True),
            Column("requests", "requests", 0),
            Column("share, %", "share", 1, scale=100.0),
            Column("requests/s", "rate_rps"),
            Column("busiest minute", "busiest_minute_rps"),
            *([Column(f"mean {traffic.lengths[0].name}", "mean_length")] if traffic.lengths else []),
        ],
        traffic.pairs[:MOST_PAIRS],
        id="pairs",
    )
    return [table for table in (rates, dispersions, lengths, pairs) if table.rows]


def traffic_panels(traffic: Traffic) -> list[Panel]:
    """Return the figures for which the log has numbers."""
    panels = [_rate_panel(traffic)]
    if traffic.dispersions:
        panels.append(_dispersion_panel(traffic))
    if traffic.lengths:
        panels.append(_length_panel(traffic))
    return panels


def _rate_panel(traffic: Traffic) -> Panel:
    process, least_s = traffic.process, traffic.duration_s / MOST_POINTS
    nice_s = [length_s * unit_s for unit_s in (1.0, 60.0, 3600.0, 24.0 * 3600.0) for length_s in (1, 2, 5, 10, 20, 30)]
    window_s = max(next((window_s for window_s in nice_s if window_s >= least_s), least_s), process.resolution_s)
    width = process.width(window_s) or process.ticks
    windows, index, count = process.counts(width)
    rate = np.zeros(windows)
    rate[index] = count / (width * process.tick_s)
    unit_s, unit = next(
        ((length_s, name) for length_s, name in ((3600.0, "h"), (60.0, "min")) if traffic.duration_s > 2 * length_s), (1.0, "s")
    )
    at = np.arange(windows + 1) * (width * process.tick_s / unit_s)
    hover = f"%{{y:,.4~g}} requests/s at %{{x:.5~g}} {unit}"
    drawn = numbers(np.append(rate, rate[-1:]), 5)
    marks = [
        Mark(
            "line", numbers(at, 7), drawn, f"in {duration(width * process.tick_s)}", "accent", width=1.2, step=True, hover=hover
        )
    ]
    for place, row in enumerate(traffic.rates):
        middle = (row.peak_s + row.window_s / 2.0) / unit_s
        name = f"busiest {duration(row.window_s)}"
        marks.append(Mark("points", [middle], [row.peak_rps], name, f"policy-{place}", symbol="diamond", size=9.0, hover=hover))
    chart = Chart(marks, Axis(f"time from {traffic.moment(0.0)} on, {unit}"), Axis("requests/s", from_zero=True))
    return Panel("rate", "Rate over time", "Requests/s over time, with the busiest windows", lambda: chart, across=True)


def _dispersion_panel(traffic: Traffic) -> Panel:
    rows = traffic.dispersions
    window, index, low, high = (
        [getattr(row, key) for row in rows] for key in ("window_s", "index", "poisson_low", "poisson_high")
    )
    positive = numbers(np.maximum(index, 1e-3), 5)  # a periodic process has 0, which a logarithmic axis lacks
    marks = [
        Mark("band", window, [], "95 % of Poisson logs", "rtt", low=low, high=high, opacity=0.25, hover=""),
        Mark("line", window, positive, "log", "accent", symbol="circle", hover="%{y:,.4~g} in windows of %{x:,.4~g} s"),
    ]
    caption = (
        "Variance over mean of the requests in a window. Requests that come together lift all windows alike; an index that "
        "grows with the window shows a rate that changes."
    )
    chart = Chart(marks, Axis("window, s", log=True), Axis("index of dispersion", log=True))
    return Panel(
        "dispersion", "Burstiness", "Index of dispersion over the window, with that of Poisson", lambda: chart, caption=caption
    )


def _length_panel(traffic: Traffic) -> Panel:
    def draw(name: str = traffic.lengths[0].name) -> Chart:
        values = traffic.lengths_of[name]
        grid = quantile_shares(values.size)
        hover = "%{y:.2%} up to %{x:,.5~g}"
        curve = Mark("line", numbers(quantiles(values, grid)), np.round(grid, 7).tolist(), colour="accent", hover=hover)
        return Chart([curve], Axis(name), Axis("share of requests", span=(0.0, 1.01), tick_format=".0%"))

    control = Control("length", "Length", [(row.name, row.name) for row in traffic.lengths])
    return Panel("lengths", "Lengths", "Share of requests up to a length", draw, [control] if len(control.options) > 1 else [])


def render_traffic(traffic: Traffic) -> str:
    """Return the page as text; the same log gives the same text, and every name that came with the input is escaped."""
    title = f"{traffic.process.requests:,.0f} requests"
    section = Section(
        title, "traffic", facts=traffic_facts(traffic), panels=traffic_panels(traffic), tables=traffic_tables(traffic)
    )
    return render_page("simnmt traffic", traffic.name, [section])
