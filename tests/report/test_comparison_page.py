"""The page of a comparison, read and in a browser."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from simnmt.report.page_template import write_page
from simnmt.report.study_pages import change_panel, render_comparison
from simnmt.results.comparison import Comparison

HOSTILE = "</script><img src=x onerror=alert(1)>"
DRAWN = "() => document.querySelectorAll('figure[data-drawn]').length === 1"
PLACES = (("news", "office"), (HOSTILE, "far"))
POLICIES = ("edge", "cloud", HOSTILE)
CHANGES = ((0.0, 0.0, 0.0), (-12.5, -14.0, -11.0), (3.0, None, None))
VERDICTS = ("same", "faster", "one replication")


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    names = ["first", HOSTILE, "seeded"]
    rows = [
        {
            "workload": workload, "network": network, "policy": policy, "run": name, "baseline": "first",
            "mean_latency_s": 0.08, "baseline_latency_s": 0.09, "change_percent": change, "low_percent": low,
            "high_percent": high, "paired": name != "seeded",
            "unpaired_because": ["seed 2 instead of 1"] if name == "seeded" else [],
            "unstable_in": [HOSTILE] if policy == HOSTILE else [], "effect": effect,
        }
        for name in names[1:]
        for workload, network in PLACES
        for policy, (change, low, high), effect in zip(POLICIES, CHANGES, VERDICTS, strict=True)
        if (network, policy) != ("far", "edge")
    ]  # fmt: skip
    best = {
        "policy": HOSTILE,
        "objective": "p95",
        "objective_value": 0.08,
        "objective_value_low": 0.079,
        "objective_value_high": 0.081,
    }
    return Comparison(
        names=names,
        changes=rows,
        scenario_differences=[{"key": HOSTILE, "first": None, HOSTILE: {"kind": HOSTILE}, "seeded": [1, 2]}],
        runs=[
            {"run": name, "directory": HOSTILE, "seed": 1, "replications": 5, "requests": 2000, "live": name == "seeded"}
            for name in names
        ],
        best=[{"workload": "news", "network": "office", "run": name, **best} for name in names[:2]],
        not_in_all=[],
        notes=[f"{HOSTILE} against first: paired by replication.", "seeded against first: unpaired (seed 2 instead of 1)."],
    )


def test_the_figure_has_a_point_with_whiskers_for_each_policy_and_run(comparison: Comparison) -> None:
    panel = change_panel(comparison)
    assert [option for _, option in panel.controls[0].options] == ["news on office", f"{HOSTILE} on far"]
    first, second = panel.charts["0",].marks
    assert (list(first.x), list(first.low or ()), list(first.high or ())) == tuple(map(list, zip(*CHANGES, strict=True)))
    assert [round(y) for y in first.y] == [0, 1, 2] and list(first.y) != list(second.y), "runs do not hide each other"
    assert first.colour != second.colour


def test_no_name_escapes_and_the_page_is_the_same_each_time(comparison: Comparison) -> None:
    page = render_comparison(comparison)
    assert HOSTILE not in page and "<img" not in page
    assert page == render_comparison(comparison)


def test_runs_without_anything_in_common_have_a_page_without_a_figure(comparison: Comparison) -> None:
    page = render_comparison(dataclasses.replace(comparison, changes=[], best=[], scenario_differences=[]))
    assert "The runs have no workload, network and policy in common." in page and "The scenarios do not differ." in page
    assert "<figure" not in page and "plotly-packed" not in page


def test_the_page_shows_tables_and_chart_in_a_browser(open_page: Any, comparison: Comparison, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    write_page(file, render_comparison(comparison))
    with open_page(file, viewport={"width": 1200, "height": 800}) as opened:
        page = opened.page
        page.wait_for_function(DRAWN)
        assert opened.problems == []
        assert page.locator("h1").text_content() == f"{HOSTILE} and seeded against first"
        figure = page.locator("[data-figure=changes]")
        assert figure.locator(".scatterlayer .trace").count() == 2
        assert figure.locator(".scatterlayer .point").count() == 6
        assert figure.locator(".errorbar").count() >= 4
        figure.locator("select").select_option("1")
        page.wait_for_function("() => document.querySelectorAll('[data-figure=changes] .scatterlayer .point').length === 4")
        rows = page.locator("[data-table=changes] [data-group='news/office'] tr[data-row=cloud]")
        assert rows.count() == 2
        assert rows.first.locator("[data-outcome=faster] .value").text_content() == "\u221212.5"
        assert rows.nth(1).locator("[data-column=how]").inner_text().split("\n") == ["unpaired", "seed 2 instead of 1"]
        assert page.locator("#runs li").count() == 2
        assert page.locator("[data-table=keys] td").all_text_contents() == ["\u2013", f'{{"kind": "{HOSTILE}"}}', "[1, 2]"]
        best = page.locator("[data-table=best] td").all_text_contents()
        assert best[1:] == [f"{HOSTILE}, p95 latency 80.0 ms"] * 2 + ["\u2013"]
        page.locator("[data-table=changes] thead button").nth(4).click()
        order = page.locator("[data-group='news/office'] [data-column=change_percent] .value").all_text_contents()
        assert order == ["\u221212.5"] * 2 + ["0.00"] * 2 + ["+3.00*"] * 2
        page.set_viewport_size({"width": 400, "height": 800})
        page.wait_for_function("() => document.documentElement.scrollWidth === 400")
        assert opened.problems == []
