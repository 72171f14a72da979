"""The page of a sweep, read and in a browser: response and best policy of each point."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from simnmt.report.page_template import write_page
from simnmt.report.study_pages import (
    render_sweep,
    response_panel,
)
from simnmt.results.metrics import Metric, metric
from simnmt.results.sweep_table import BEST, BOUND, TIED, UNSTABLE, WORSE, SweepTable

HOSTILE = "</script><img src=x onerror=alert(1)>"
RATE, KIND = "workloads.news.arrivals.rate_rps", "devices.cloud.profile"
RATES, KINDS = (2.0, 4.0, 8.0), ("small", HOSTILE)
POLICIES = ("edge", "cnmt", "oracle")
LATENCIES = tuple(map(metric, ("mean_ms", "p95_ms")))
ENERGY = metric("energy_j")


def rows(metrics: tuple[Metric, ...] = LATENCIES) -> list[dict[str, Any]]:
    """Rows in which cnmt wins at 2/s, is not distinguishable from edge at 4/s, and nothing is stable at 8/s."""
    standings = {2.0: (WORSE, BEST, BOUND), 4.0: (TIED, BEST, BOUND), 8.0: (UNSTABLE, UNSTABLE, BOUND)}
    table = []
    points = [(rate, kind) for rate in RATES for kind in KINDS]
    for number, (rate, kind) in enumerate(points):
        for place, (policy, standing) in enumerate(zip(POLICIES, standings[rate], strict=True)):
            row: dict[str, Any] = {"point": number, RATE: rate, KIND: kind, "workload": "news", "network": "office"}
            row |= {"policy": policy, "replications": 3, "requests": 100, "standing": standing}
            row["unstable"] = "gateway: load 1.3" if standing == UNSTABLE else None
            for known in metrics:
                value = 100.0 * rate + 10.0 * number - place
                row |= dict(zip(known.columns, (value, value - 5.0, value + 5.0), strict=True))
            table.append(row)
    return table


def table_of(metrics: tuple[Metric, ...] = LATENCIES, **fields: Any) -> SweepTable:
    about: dict[str, Any] = {"name": HOSTILE, "seed": 1, "objective": "mean_ms", "keys": (RATE, KIND), "metrics": metrics}
    return SweepTable(**(about | {"rows": rows(metrics)} | fields))


def test_the_response_is_a_line_with_intervals_for_each_policy_without_unstable_points() -> None:
    panel = response_panel(table_of(), 0, RATE)
    edge = panel.charts["p95_ms", "0"].marks[0]
    assert (list(edge.x), list(edge.y)) == ([2.0, 4.0], [200.0, 420.0])
    assert (list(edge.low or ()), list(edge.high or ())) == ([195.0, 415.0], [205.0, 425.0])
    assert panel.chart.reading == "Left out where unstable: cnmt and edge."
    cases = [label for _, label in panel.controls[1].options]
    assert cases == [f"news on office, cloud.profile {kind}" for kind in KINDS]


def test_the_page_lists_each_point_with_its_best_policy_and_escapes_names() -> None:
    text = render_sweep(table_of(failed=2))
    assert HOSTILE not in text
    assert text.count("<tr data-row=") == 6
    assert text.count("every policy is unstable") == 2
    assert "2 points failed" in text
    assert text == render_sweep(table_of(failed=2))
    alone = dataclasses.replace(table_of(), rows=[row for row in rows() if row["policy"] == "oracle"])
    text = render_sweep(alone)
    assert text.count("no policy that can be deployed") == 6 and "every policy is unstable" not in text
    assert "6 points failed" in render_sweep(dataclasses.replace(table_of(), rows=[], failed=6))


DRAWN = "() => document.querySelectorAll('figure[data-drawn]').length === 2"


def test_a_browser_draws_the_page_without_complaint(open_page: Any, tmp_path: Path) -> None:
    path = tmp_path / "sweep.html"
    write_page(path, render_sweep(table_of((*LATENCIES, ENERGY))))
    with open_page(path, viewport={"width": 1200, "height": 4000}) as opened:
        opened.page.wait_for_function(DRAWN)
        assert opened.problems == []
