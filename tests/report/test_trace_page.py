"""The page of a trace, read and in a browser."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.network.traces.trace import Trace, mend
from simnmt.report.input_pages import TRACE_POINTS, render_traces, trace_panels

HOSTILE = "</script><script>alert(1)</script>"
DRAWN = "count => document.querySelectorAll('figure[data-drawn]').length === count"


def trace(quantity: Any, values: list[float]) -> Trace:
    value = np.array(values)
    return mend(quantity, np.arange(float(len(value))), value, "measured", f"{quantity} of {HOSTILE}", (HOSTILE,))


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    random = np.random.default_rng(1)
    rtts = [math.nan if second % 50 == 49 else rtt for second, rtt in enumerate(random.lognormal(-3, 0.3, 400).tolist())]
    return [trace("rtt", rtts), trace("downlink", [5e6]), trace("uplink", [2e6] * 60)]


def test_the_page_holds_what_inspect_says_and_no_name_escapes(traces: list[Trace]) -> None:
    page = render_traces(HOSTILE, traces)
    assert page.count('<section id="series-') == 3
    assert HOSTILE not in page
    assert "8 (2 %) in 8 runs, the longest of 1, 1 s; held at the value before" in page
    assert page == render_traces(HOSTILE, traces)
    assert [panel.alt for item in traces for panel in trace_panels(item)][::2] == [
        "RTT, ms over time", "downlink, Mbit/s over time", "uplink, Mbit/s over time",
    ]  # fmt: skip


def test_a_long_trace_is_thinned_but_keeps_its_peaks() -> None:
    values = [0.05] * 50_000
    values[31_007] = 0.9
    over_time, distribution = (panel.chart for panel in trace_panels(trace("rtt", values)))
    (series,), (curve,) = over_time.marks, distribution.marks
    assert len(series.x) == len(series.y) <= TRACE_POINTS + 1
    assert max(series.y) == 900.0
    assert over_time.x.title == "time, h"
    assert series.x[-1] == pytest.approx(50_000 / 3600, rel=1e-5)
    assert (curve.x[0], curve.x[-1]) == (50.0, 900.0)


def test_every_plot_is_drawn_and_nothing_is_complained_of(open_page: Any, traces: list[Trace], tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(render_traces(HOSTILE, traces), encoding="utf-8")
    with open_page(file, viewport={"width": 1000, "height": 800}) as opened:
        opened.page.wait_for_function(DRAWN, arg=6)
        assert opened.problems == []
        assert opened.page.locator("h1").text_content() == HOSTILE
        first = opened.page.locator("section").first
        assert first.locator("[data-figure=time] .scatterlayer .trace").count() == 2, "the series, and what was lost"
        labels = first.locator("[data-figure=time]").text_content() or ""
        assert "RTT, ms" in labels
        assert "time, min" in labels
