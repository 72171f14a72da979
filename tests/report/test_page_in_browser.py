"""The page in a real browser, from disk, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.report import render
from simnmt.results.recommendation import by_objective

FIGURES = ["latency", "parts", "share", "rtt", "plane", "misroutes"]
OPEN_AND_DRAWN = "id => [...document.getElementById(id).querySelectorAll('figure')].every(figure => figure.dataset.drawn)"
LEGEND_IS = "ink => getComputedStyle(document.querySelector('#cell-0-latency .legendtext')).fill === ink"
MARKS = """figure => ({
    lines: [...figure.querySelectorAll('.scatterlayer path.js-line')].filter(path => path.getTotalLength() > 0).length,
    points: figure.querySelectorAll('.scatterlayer path.point').length,
    bars: figure.querySelectorAll('.barlayer .point path').length,
    words: figure.querySelector('.chart').textContent,
})"""


@pytest.fixture(scope="module")
def file(result: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(result), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def opened(open_page: Any, file: Path) -> Iterator[Any]:
    """The page with all its sections open."""
    with open_page(file, viewport={"width": 1280, "height": 900}, color_scheme="light") as opened:
        opened.page.wait_for_function(OPEN_AND_DRAWN, arg="cell-0")
        assert opened.page.locator("#cell-1 figure[data-drawn]").count() == 0, "a section is drawn when somebody opens it"
        opened.page.locator("#cell-1 summary").click()
        opened.page.wait_for_function(OPEN_AND_DRAWN, arg="cell-1")
        yield opened


def test_nothing_is_complained_of_and_nothing_is_asked_of_a_network(opened: Any) -> None:
    assert opened.problems == []


def test_the_verdicts_stand_there_word_for_word(opened: Any, result: Any) -> None:
    assert opened.page.locator("[data-verdict]").all_text_contents() == [verdict["sentence"] for verdict in result.verdicts]


def test_every_figure_of_every_cell_has_marks(opened: Any, result: Any) -> None:
    for cell, section in zip(result.cells, opened.page.locator("details.cell").all(), strict=True):
        assert section.get_attribute("data-cell") == f"{cell.workload}/{cell.network}"
        figures = section.locator("figure").all()
        assert [figure.get_attribute("data-figure") for figure in figures] == FIGURES
        marks = {name: figure.evaluate(MARKS) for name, figure in zip(FIGURES, figures, strict=True)}
        assert marks["latency"]["lines"] == marks["share"]["lines"] == 5
        assert marks["rtt"]["lines"] == 2
        assert marks["plane"]["lines"] >= 2
        assert marks["plane"]["points"] > 1_000
        assert marks["parts"]["bars"] == 3 * 5
        assert marks["misroutes"]["points"] == min(cell.misroutes["cnmt"].count, 300) > 0
        for name, unit in zip(FIGURES, (", ms", ", ms", ", tokens", ", ms", ", tokens", ", tokens"), strict=True):
            assert unit in marks[name]["words"]


def test_names_of_the_input_inject_no_element(opened: Any, result: Any) -> None:
    page = opened.page
    assert page.locator("h1").text_content() == result.name
    assert page.locator("img").count() == 0
    scripts = page.locator("script").evaluate_all("all => all.map(one => one.textContent.slice(0, 30))")
    assert not any(text.startswith("alert") for text in scripts)
    assert page.locator("#notes li").all_text_contents() == result.notes
    assert page.locator("#notes b").count() == 0


def test_the_numbers_of_the_table_are_those_of_the_rows(opened: Any, result: Any) -> None:
    page = opened.page
    shown = page.locator("table.policies tr[data-policy]").evaluate_all(
        """lines => lines.map(line => ({
            workload: line.closest('tbody').dataset.workload, network: line.closest('tbody').dataset.network,
            policy: line.dataset.policy,
            cells: Object.fromEntries([...line.querySelectorAll('td')].map(
                ({dataset: {column, value, outcome}, children}) => [column, [value, children[0].textContent, outcome]])),
        }))"""
    )
    assert [(line["workload"], line["network"], line["policy"]) for line in shown] == [
        (row["workload"], row["network"], row["policy"]) for row in by_objective(result.summary_rows, result.recommendations)
    ], "rows stand in the order of the objective"
    factors = {"total_latency_s": 1, "offloaded_share": 100, "misrouted_share": 100}
    changes = {(c["workload"], c["network"], c["policy"], c["baseline"]): c for c in result.comparisons}
    for line, row in zip(shown, by_objective(result.summary_rows, result.recommendations), strict=True):
        for key, (value, text, outcome) in line["cells"].items():
            if key.startswith("change_vs_"):
                change = changes.get((line["workload"], line["network"], line["policy"], key.removeprefix("change_vs_")))
                assert (value == "") == (change is None)
                wanted, factor = (change["change_percent"], 1) if change else (None, 1)
                assert outcome == (change["verdict"] if change else "")
            else:
                wanted, factor = row[key], factors.get(key, 1000)
            if wanted is not None:
                assert float(value) == wanted
                unit = 10.0 ** -len(text.partition(".")[2].rstrip("%")) if "." in text else 1.0
                assert read(text) == pytest.approx(wanted * factor, rel=5e-3, abs=0.51 * unit)


def test_a_figure_follows_its_buttons(opened: Any) -> None:
    plane = opened.page.locator("#cell-0-plane")
    assert opened.page.locator("#cell-0-misroutes button[aria-pressed=true]").all_text_contents() == [
        "cnmt",
        "time lost",
        "most",
    ]
    assert opened.page.locator("#cell-0-plane button[aria-pressed=true]").all_text_contents() == ["cnmt", "most"]
    plane.get_by_role("button", name="edge").click()
    plane.locator("[data-reading]", has_text="edge goes by no assumed length").wait_for()
    assert plane.evaluate("it => [...new Set(it.querySelector('.chart').data.flatMap(trace => trace.text ?? []))]") == [
        "gateway"
    ]
    assert plane.evaluate(MARKS)["points"] > 1_000
    latency = opened.page.locator("#cell-0-latency")
    latency.get_by_role("button", name="slowest").click()
    latency.locator("text=share of requests slower").wait_for()
    assert latency.evaluate(MARKS)["lines"] == 5
    misroutes = opened.page.locator("#cell-0-misroutes")
    misroutes.get_by_role("button", name="all", exact=True).first.click()
    misroutes.get_by_role("button", name="policy", exact=True).click()
    misroutes.locator("[data-reading]", has_text="Misrouted: edge").wait_for()
    assert "oracle nothing" in misroutes.locator("[data-reading]").text_content()
    parts = opened.page.locator("#cell-0-parts")
    parts.get_by_role("button", name="beyond p99").click()
    parts.locator("[data-reading]", has_text="slowest hundredth").wait_for()
    assert opened.problems == []


def test_what_a_figure_shows_when_one_hovers_is_what_it_holds(opened: Any, result: Any) -> None:
    """The bars' lengths are the rows' parts; the dots' losses those of the misroutes."""
    traces = "figure => figure.querySelector('.chart').data.map(({name, x, y}) => ({name, x, y}))"
    parts = opened.page.locator("#cell-1-parts").evaluate(traces)
    rows = [row for row in result.summary_rows if row["network"] == "cp2"]
    assert [trace["name"] for trace in parts[:3]] == ["waiting", "execution", "transfer"]
    for trace, part in zip(parts, ("queue", "execution", "transfer"), strict=False):
        assert trace["x"] == pytest.approx([1e3 * row[f"mean_{part}_s"] for row in rows], rel=1e-4)
    (dots,) = opened.page.locator("#cell-1-misroutes").evaluate(traces)
    assert dots["x"] == result.cells[1].misroutes["cnmt"].src_len.tolist()


PRINTED = """() => [...document.querySelectorAll('figure[data-figure]')].map(figure => {
    const box = figure.getBoundingClientRect(), chart = figure.querySelector('.main-svg').getBoundingClientRect();
    return {name: figure.id, left: box.left, top: box.top, right: box.right, bottom: box.bottom, width: chart.width,
            inside: chart.bottom <= box.bottom + 1 && chart.right <= box.right + 1};
})"""


def test_it_fits_a_phone_and_a_desk_in_the_dark_in_the_light_and_on_paper(open_page: Any, file: Path) -> None:
    with open_page(file, viewport={"width": 390, "height": 844}, color_scheme="dark") as opened:
        page = opened.page
        page.wait_for_function(OPEN_AND_DRAWN, arg="cell-0")
        page.wait_for_function(LEGEND_IS, arg="rgb(229, 233, 232)")
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.wait_for_function(LEGEND_IS, arg="rgb(27, 35, 38)")
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        page.wait_for_function(LEGEND_IS, arg="rgb(229, 233, 232)")
        page.emulate_media(color_scheme="light")
        page.wait_for_function(LEGEND_IS, arg="rgb(27, 35, 38)")
        page.locator("#cell-0 summary").click()
        page.set_viewport_size({"width": 1440, "height": 900})
        page.locator("#cell-0 summary").click()
        page.wait_for_function("() => document.querySelector('#cell-0-latency .main-svg').clientWidth > 500")
        assert page.evaluate("document.documentElement.scrollWidth") == 1440
        # Printed from this wide window: every section open, and no figure over another.
        assert page.locator("details:not([open])").count() > 0
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print", color_scheme="light")
        page.set_viewport_size({"width": 718, "height": 1000})  # A4 between the usual margins
        assert page.locator("details:not([open])").count() == 0
        assert page.locator("figure[data-figure]:not([data-drawn])").count() == 0
        figures = page.evaluate(PRINTED)
        assert len(figures) == 2 * len(FIGURES) + 2
        assert all(figure["inside"] and 0 < figure["width"] <= 690 for figure in figures), figures
        for place, one in enumerate(figures):
            for other in figures[place + 1 :]:
                apart = one["bottom"] <= other["top"] or other["bottom"] <= one["top"]
                assert apart or one["right"] <= other["left"] or other["right"] <= one["left"], (one, other)
        assert page.evaluate("document.documentElement.scrollWidth") <= 718
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("details:not([open])").count() > 0
        assert opened.problems == []


def overloaded(make_result: Any) -> Any:
    """Queues without end at the gateway; requests met a tenth of the trace. On a second network no policy is stable."""
    result = make_result(requests=2_000, networks=("cp1", "cp2"), workloads=("flood",), name="flood")
    cell = result.cells[0]
    for log in cell.logs.values():
        log["rtt_time_s"] = log["rtt_time_s"] / 10
        log["arrival_s"] = np.linspace(0.0, 700.0, 2_000)
        log["t_queue_s"] = np.zeros(2_000)
    slow = cell.logs["edge"]
    slow["t_queue_s"] = np.linspace(0.0, 8_000.0, 2_000)
    slow["latency_s"] = slow["t_queue_s"] + slow["t_exe_s"] + slow["t_tx_s"]
    for row in result.summary_rows:
        row |= {"mean_queue_s": 0.05, "offered_rps": 3.0, "gateway_busiest_load": 0.5, "cloud_busiest_load": 0.0}
    for key in [key for key in result.summary_rows[0] if "latency_s" in key]:
        result.summary_rows[0][key] *= 40_000
    result.summary_rows[0] |= {
        "gateway_busiest_load": 11.76, "unstable": "gateway: load 11.76", "unstable_device": "gateway",
        "unstable_replications": 5, "backlog_growth": 10.76, "gateway_overload": 11.76, "gateway_overloaded_in": 5,
    }  # fmt: skip
    for row in result.summary_rows:
        if row["network"] == "cp2":
            row |= {
                key: value
                for key, value in result.summary_rows[0].items()
                if "unstable" in key or "overload" in key or key == "backlog_growth"
            }
    for change in result.comparisons:
        if change["baseline"] == "edge":
            change |= {"unstable": "baseline"}
            continue
        change |= {"change_percent": 652_677.4, "low_percent": 650_000.0, "high_percent": 655_000.0}
    return result


def test_an_overloaded_device_fits_on_a_desk_and_shows_what_was_used(make_result: Any, open_page: Any, tmp_path: Path) -> None:
    file = tmp_path / "flood.html"
    file.write_text(render(overloaded(make_result)), encoding="utf-8")
    with open_page(file, viewport={"width": 1280, "height": 900}, color_scheme="light") as opened:
        page = opened.page
        page.wait_for_function(OPEN_AND_DRAWN, arg="cell-0")
        assert page.locator("#table .scroll").evaluate("box => box.scrollWidth - box.clientWidth") == 0
        table = page.locator('tbody[data-network="cp1"]')
        assert table.locator('[data-outcome="overloaded"]').all_text_contents() == ["11.76overloaded"]
        assert table.locator('[data-outcome="unstable"]').all_text_contents() == ["unstablewaits grow by 11\u202fs each second"]
        assert table.locator(".bar").count() == 4, "an unstable policy has no mean to be drawn"
        assert table.locator('tr[data-policy="edge"] [data-column="p95_latency_s"]').text_content() == "\u2013"
        assert table.locator('tr[data-policy="cnmt"] [data-column="change_vs_edge"] .remark').text_content() == "this run"
        labels = page.locator("#cell-0-latency .xtick text").all_text_contents()
        assert {"1", "100"} <= set(labels) and page.locator(
            "#cell-0-latency .xtitle"
        ).text_content() == "latency of a request, s"
        assert len(labels) <= 8
        assert page.locator("#cell-0-latency .legendtext").first.text_content() == "edge, unstable"
        assert page.locator("#cell-0-parts .ytick text").all_text_contents() == ["cloud", "oracle", "naive", "cnmt"]
        left_out = page.locator("#cell-0-parts [data-reading]").text_content()
        assert left_out.endswith("Left out, because no steady mean exists: edge (gateway: load 11.76).")
        shown = "figure => figure.querySelector('.chart')._fullLayout.xaxis.range"
        begin, end = page.locator("#cell-0-rtt").evaluate(shown)
        assert (begin, end) == pytest.approx((0.0, 24.0), abs=0.5), "minutes"
        page.locator("#cell-0-rtt").get_by_role("button", name="whole series").click()
        page.wait_for_function("() => document.querySelector('#cell-0-rtt .chart')._fullLayout.xaxis.range[1] > 239")
        timeline = page.locator("#cell-0-timeline")
        assert timeline.locator("button[aria-pressed=true]").all_text_contents() == [
            "gateway", "backlog", "log backlog", "while requests come",
        ]  # fmt: skip
        assert timeline.evaluate(shown) == pytest.approx([0.0, 700 / 3600], rel=1e-3), "hours, for the queue lasts so long"
        timeline.get_by_role("button", name="until the last answer").click()
        page.wait_for_function("() => document.querySelector('#cell-0-timeline .chart')._fullLayout.xaxis.range[1] > 2")
        timeline.get_by_role("button", name="cloud").click()
        timeline.locator("[data-reading]", has_text="Nothing waits there under edge").wait_for()
        page.locator("#cell-1 summary").click()
        page.wait_for_function(OPEN_AND_DRAWN, arg="cell-1")
        assert page.locator("#cell-1-parts .chart").text_content() == "no policy has a steady mean"
        assert "cnmt (gateway: load 11.76)" in page.locator("#cell-1-parts [data-reading]").text_content()
        page.set_viewport_size({"width": 390, "height": 844})
        page.wait_for_function("() => document.documentElement.scrollWidth === 390")
        assert opened.problems == []


def read(text: str) -> float:
    return float(text.replace("\u202f", "").replace("\u2212", "-"))


ORDER = "body => [...body.querySelectorAll('tr[data-policy]')].map(row => row.dataset.policy)"


def test_the_table_sorts_within_each_cell_when_a_heading_is_clicked(opened: Any, result: Any) -> None:
    """Ascending, descending, and back to the order of the objective; the name of the cell stays above its policies."""
    table = opened.page.locator("table.policies")
    bodies, heading = table.locator("tbody"), table.get_by_role("button", name="mean", exact=True)
    means = [
        {row["policy"]: row["mean_latency_s"] for row in result.summary_rows if row["network"] == cell.network}
        for cell in result.cells
    ]
    orders = []
    for _ in range(3):
        heading.click()
        orders.append([bodies.nth(number).evaluate(ORDER) for number in range(len(means))])
    ascending, descending = (
        [sorted(of_cell, key=of_cell.__getitem__, reverse=reverse) for of_cell in means] for reverse in (False, True)
    )
    assert orders == [ascending, descending, ascending]
    assert bodies.first.locator("tr").first.get_attribute("class") == "cell-name"
    assert table.locator("th[aria-sort]").count() == 0
    assert bodies.first.locator("tr.winner").get_attribute("data-policy") == "cnmt"
