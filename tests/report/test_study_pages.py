"""The pages of several runs, read and in a browser: a comparison, a sweep, a plan."""

from __future__ import annotations

import dataclasses
from math import inf
from pathlib import Path
from typing import Any

import pytest

import simnmt
from simnmt.base.files import write_text
from simnmt.report.study_pages import (
    change_panel,
    front_table,
    render_comparison,
    render_plan,
    render_sweep,
    response_panel,
)
from simnmt.results.comparison import Comparison
from simnmt.results.metrics import Metric, metric
from simnmt.results.places import ALL, Place
from simnmt.results.sweep_table import BEST, BOUND, TIED, UNSTABLE, WORSE, SweepTable
from tests.world.theory import queue_of

HOSTILE = "<img src=x onerror=alert(1)>"
DRAWN = "() => document.querySelectorAll('figure[data-drawn]').length === 1"


def made_run(name: str, seed: int = 1, **keys: Any) -> simnmt.Run:
    return simnmt.run(
        {
            "version": 1, "name": name, "requests": 200, "replications": 3, "seed": seed,
            "workloads": {"news": {"lengths": "@de-en-news"}, HOSTILE: {"lengths": "@fr-en-news"}},
            "networks": {"office": {"rtt": "@cp1"}}, "policies": {"edge": {}, "cloud": {}, HOSTILE: {"kind": "cnmt"}},
            "devices": {"gateway": {"profile": "@tx2-gru"}, "cloud": {"profile": "@titan-xp-gru"} | keys},
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    """Two runs against the first: one with a slower cloud, and one of other requests."""
    return simnmt.compare(made_run("first"), made_run(HOSTILE, profile="@tx2-gru"), made_run("seeded", 2))


def test_the_figure_has_a_point_with_whiskers_for_each_policy_and_run(comparison: Comparison) -> None:
    panel = change_panel(comparison)
    assert [option for _, option in panel.controls[0].options] == ["news on office", f"{HOSTILE} on office"]
    rows = [row for row in comparison.changes if (row["workload"], row["run"]) == ("news", HOSTILE)]
    first, second = panel.charts["0",].marks
    for shown, key in ((first.x, "change_percent"), (first.low, "low_percent"), (first.high, "high_percent")):
        assert shown == [row[key] for row in rows]
    assert [round(y) for y in first.y] == [0, 1, 2] and list(first.y) != list(second.y), "runs do not hide each other"
    assert first.colour != second.colour


def test_no_name_escapes_and_the_page_is_the_same_each_time(comparison: Comparison) -> None:
    page = render_comparison(comparison)
    assert HOSTILE not in page and "<img" not in page
    assert page == render_comparison(comparison)


def test_the_page_shows_tables_and_chart_in_a_browser(open_page: Any, comparison: Comparison, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    write_text(file, render_comparison(comparison))
    with open_page(file, viewport={"width": 1200, "height": 800}) as opened:
        page = opened.page
        page.wait_for_function(DRAWN)
        assert opened.problems == []
        assert page.locator("h1").text_content() == f"{HOSTILE} and seeded against first"
        figure = page.locator("[data-figure=changes]")
        assert figure.locator(".scatterlayer .trace").count() == 2
        assert figure.locator(".scatterlayer .point").count() == 6
        figure.locator("select").select_option("1")
        rows = page.locator("[data-table=changes] [data-group='all/news/office'] tr[data-row=cloud]")
        assert rows.count() == 2
        assert rows.first.locator("[data-outcome=slower]").count() == 1
        assert rows.nth(1).locator("[data-column=how]").inner_text().split("\n") == ["unpaired", "seed 2 instead of 1"]
        assert page.locator("#runs li").count() == len(comparison.notes)
        keys = page.locator("[data-table=keys] th[scope=row]").all_inner_texts()
        assert keys == [row["key"] for row in comparison.scenario_differences]
        assert page.locator("[data-table=best] td").count() == 2 * (1 + 3), "network, and a run each"
        page.locator("[data-table=changes] thead button").nth(4).click()
        cells = page.locator("[data-group='all/news/office'] [data-column=change_percent]")
        values = [float(cell.get_attribute("data-value")) for cell in cells.all()]
        assert values == sorted(values)
        page.set_viewport_size({"width": 400, "height": 800})
        page.wait_for_function("() => document.documentElement.scrollWidth === 400")
        assert opened.problems == []


RATE, KIND = "workloads.news.arrivals.rate_rps", "devices.cloud.profile"
RATES, KINDS = (2.0, 4.0, 8.0), ("small", HOSTILE)
SWEPT = ("edge", "cnmt", "oracle")
LATENCIES = tuple(map(metric, ("mean_ms", "p95_ms")))
ENERGY, CHRF = metric("energy_j"), metric("chrf")


def swept_rows(metrics: tuple[Metric, ...] = LATENCIES) -> list[dict[str, Any]]:
    """Rows in which cnmt wins at 2/s, is not distinguishable from edge at 4/s, and nothing is stable at 8/s."""
    standings = {2.0: (WORSE, BEST, BOUND), 4.0: (TIED, BEST, BOUND), 8.0: (UNSTABLE, UNSTABLE, BOUND)}
    table = []
    points = [(rate, kind) for rate in RATES for kind in KINDS]
    for number, (rate, kind) in enumerate(points):
        for place, (policy, standing) in enumerate(zip(SWEPT, standings[rate], strict=True)):
            row: dict[str, Any] = {"point": number, RATE: rate, KIND: kind, **Place(ALL, "news", "office", policy)._asdict()}
            row |= {"replications": 3, "requests": 100, "standing": standing}
            row["unstable"] = "gateway: load 1.3" if standing == UNSTABLE else None
            for known in metrics:
                value = 100.0 * rate + 10.0 * number - place
                row |= {known.name: value, f"{known.name}_low": value - 5.0, f"{known.name}_high": value + 5.0}
            table.append(row)
    return table


def table_of(metrics: tuple[Metric, ...] = LATENCIES, **fields: Any) -> SweepTable:
    about: dict[str, Any] = {"name": HOSTILE, "seed": 1, "objective": "mean_ms", "keys": (RATE, KIND), "metrics": metrics}
    return SweepTable(**(about | {"rows": swept_rows(metrics)} | fields))


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
    alone = dataclasses.replace(table_of(), rows=[row for row in swept_rows() if row["policy"] == "oracle"])
    text = render_sweep(alone)
    assert text.count("no policy that can be deployed") == 6 and "every policy is unstable" not in text
    assert "6 points failed" in render_sweep(dataclasses.replace(table_of(), rows=[], failed=6))


def scored_row(point: int, rate: float, kind: str, policy: str, ms: float, chrf: float | None, **more: Any) -> dict[str, Any]:
    about = {"point": point, RATE: rate, KIND: kind, **Place(ALL, "news", "office", policy)._asdict()}
    values = {f"{name}{end}": value for name, value in (("mean_ms", ms), ("chrf", chrf)) for end in ("", "_low", "_high")}
    return about | {"replications": 3, "requests": 100, "standing": WORSE, "unstable": None} | values | more


def test_a_front_is_of_one_network_and_rate_and_of_policies_that_answer() -> None:
    rows = [
        scored_row(0, 2.0, "small", "edge", 10.0, 50.0),
        scored_row(0, 2.0, "small", "cnmt", 20.0, 49.0),
        scored_row(0, 2.0, "small", "cloud", 30.0, 60.0),
        scored_row(0, 2.0, "small", "drops", 5.0, 70.0, refused_share=0.5),
        scored_row(0, 2.0, "small", "oracle", 1.0, 80.0, standing=BOUND),
        scored_row(1, 2.0, "large", "cloud", 25.0, 62.0),
        scored_row(1, 2.0, "large", "late", 2.0, 90.0, standing=UNSTABLE, unstable="gateway"),
        scored_row(2, 8.0, "small", "edge", 40.0, 50.0),
        scored_row(2, 8.0, "small", "cloud", 90.0, 60.0),
        scored_row(2, 8.0, "small", "cloud", 91.0, 55.0, network="far"),
        scored_row(2, 8.0, "small", "cnmt", 90.0, None),
    ]
    table = front_table(table_of((*LATENCIES, CHRF), rows=rows))
    shown = [(row["point"], row["place"], row["policy"]) for row in table.rows]
    near = "news on office"
    assert shown == [(0, near, "edge"), (1, near, "cloud"), (2, near, "edge"), (2, near, "cloud"), (2, "news on far", "cloud")]
    assert "of each workload, network and value of arrivals.rate_rps: no other policy and deployment" in table.note
    costs = front_table(table_of((*LATENCIES, CHRF), rows=rows, keys=(KIND,)))
    assert [row["point"] for row in costs.rows] == [0, 1, 2], "all rates are one where none is swept"


def test_a_workload_without_a_metric_of_others_has_no_line_of_it() -> None:
    """Two workloads that do not share devices: one has scores, the other has no column of them."""
    scored = [scored_row(at, rate, "small", "edge", 10.0, 50.0 + at) for at, rate in enumerate(RATES)]
    plain = [row | {"workload": "plain"} for row in swept_rows() if row[KIND] == "small"]
    table = table_of((*LATENCIES, CHRF), rows=[*scored, *plain], keys=(RATE,))
    charts = response_panel(table, 0, RATE).charts
    assert list(charts["chrf", "0"].marks[0].y) == [50.0, 51.0, 52.0] and not any(mark.y for mark in charts["chrf", "1"].marks)
    page = render_sweep(table)
    assert page.count("95 % intervals over replications, of chrF and BLEU over sentences") == 2
    assert "over replications, of chrF over sentences" in page and "over sentences" not in render_sweep(table_of())


BOTH_DRAWN = "() => document.querySelectorAll('figure[data-drawn]').length === 2"


def test_a_browser_draws_the_page_without_complaint(open_page: Any, tmp_path: Path) -> None:
    path = tmp_path / "sweep.html"
    write_text(path, render_sweep(table_of((*LATENCIES, ENERGY))))
    with open_page(path, viewport={"width": 1200, "height": 4000}) as opened:
        opened.page.wait_for_function(BOTH_DRAWN)
        assert opened.problems == []


@pytest.mark.parametrize(
    "options",
    [{"precision": 0.5}, {"rate": 200.0, "vary": ["devices.gateway.workers=3:4"], "minimise": "latency"}],
)
def test_a_browser_shows_the_page_of_a_plan_without_complaint(open_page: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    answer = simnmt.plan(queue_of(1, "exponential", requests=300), "mean_ms<=40", replications=2, **options)
    write_text(tmp_path / "plan.html", render_plan(answer))
    with open_page(tmp_path / "plan.html", viewport={"width": 400, "height": 800}) as opened:
        opened.unfold()
        assert opened.page.locator("#answer p").count() >= 2
        shown = opened.page.locator("#warnings li").all_inner_texts()
        assert len(shown) == len(answer.warnings) >= 1 and "give 400 requests or more" in shown[0]
        assert opened.page.evaluate("() => document.documentElement.scrollWidth") == 400
        assert not opened.problems


def test_a_candidate_that_loses_all_requests_is_on_the_page() -> None:
    scenario = queue_of(1, "exponential", requests=200)
    gateway = scenario["devices"]["gateway"]
    scenario["devices"]["cloud"] = {**gateway, "balancer": "least_work", "failures": {"mttf_s": 0.001, "mttr_s": 1e9}}
    scenario["policies"] = {"cloud": {}, "edge": {}}
    vary = ["devices.cloud.count=1,2"]
    plan = simnmt.plan(scenario, "mean_ms<=1000", rate=20.0, vary=vary, minimise="latency", replications=2)
    assert plan.choice.policy == "edge"
    assert any(plan.value(candidate) == inf for candidate in plan.candidates if candidate.trials)
    assert "infinite" in render_plan(plan)
