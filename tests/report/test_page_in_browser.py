"""The page in a real browser, from disk, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simnmt.report import render
from simnmt.report.page_template import typeset
from simnmt.report.words import verdicts
from simnmt.results.places import Place
from simnmt.results.recommendation import by_objective
from tests.report.conftest import with_quality

FIGURES = ["latency", "parts", "rtt", "plane"]
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
    sentences = [typeset(verdict["sentence"]) for verdict in verdicts(result)]
    assert opened.page.locator(".verdict .lead").all_text_contents() == sentences


def test_every_figure_of_every_cell_has_marks(opened: Any, result: Any) -> None:
    for cell, section in zip(result.cells, opened.page.locator("details.cell").all(), strict=True):
        assert section.get_attribute("data-section") == f"{cell.workload} on {cell.network}"
        figures = section.locator("figure").all()
        assert [figure.get_attribute("data-figure") for figure in figures] == FIGURES
        marks = {name: figure.evaluate(MARKS) for name, figure in zip(FIGURES, figures, strict=True)}
        assert marks["latency"]["lines"] == 5
        assert marks["rtt"]["lines"] == 2
        assert marks["plane"]["lines"] >= 2
        assert marks["plane"]["points"] > 1_000
        assert marks["parts"]["bars"] == 3 * 5
        for name, unit in zip(FIGURES, (", ms", ", ms", ", ms", ", tokens"), strict=True):
            assert unit in marks[name]["words"]


TABLE = """lines => lines.map(line => [
    [...line.closest('tbody').dataset.group.split('/'), line.dataset.row],
    Object.fromEntries([...line.querySelectorAll('td[data-value]')].map(td => [td.dataset.column, Number(td.dataset.value)])),
])"""


def test_the_numbers_of_the_table_are_those_of_the_rows(opened: Any, result: Any) -> None:
    """Unrounded in their attributes, in the order of the objective, with a place for every comparison."""
    lines = opened.page.locator("[data-table=policies] tr[data-row]").evaluate_all(TABLE)
    rows = by_objective(result.summary_rows, result.recommendations)
    assert ["/".join(place) for place, _ in lines] == ["/".join(Place.of(row)) for row in rows]
    changes = {(*Place.of(change), change["baseline"]): change["change_percent"] for change in result.comparisons}
    for (_, cells), row in zip(lines, rows, strict=True):
        for column, value in cells.items():
            name = column.removeprefix("change_vs_")
            assert value == (row[column] if name == column else changes.pop((*Place.of(row), name)))
    assert not changes


def test_a_figure_follows_its_buttons(opened: Any) -> None:
    plane = opened.page.locator("#cell-0-plane")
    assert opened.page.locator("#cell-0-plane button[aria-pressed=true]").all_text_contents() == ["cnmt"]
    plane.get_by_role("button", name="edge").click()
    opened.page.wait_for_function("() => !document.querySelector('#cell-0-plane .chart').textContent.includes('assumed M')")
    assert plane.evaluate("it => [...new Set(it.querySelector('.chart').data.flatMap(trace => trace.text ?? []))]") == [
        "gateway"
    ]
    assert plane.evaluate(MARKS)["points"] > 1_000
    latency = opened.page.locator("#cell-0-latency")
    latency.get_by_role("button", name="slowest").click()
    latency.locator("text=share of requests slower").wait_for()
    assert latency.evaluate(MARKS)["lines"] == 5
    assert opened.problems == []


@pytest.mark.deep
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
        # Printed from this wide window with every section open.
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print", color_scheme="light")
        page.set_viewport_size({"width": 718, "height": 1000})  # A4 between the usual margins
        assert page.locator("details:not([open]), figure[data-figure]:not([data-drawn])").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 718
        assert opened.problems == []


def test_scored_policies_are_drawn_by_chrf_and_latency(open_page: Any, make_result: Any, tmp_path: Path) -> None:
    path = tmp_path / "scored.html"
    scored = with_quality(make_result(requests=300, networks=("cp2",), workloads=("w",)))
    path.write_text(render(scored), encoding="utf-8")
    with open_page(path, viewport={"width": 1280, "height": 900}) as opened:
        opened.page.wait_for_function(OPEN_AND_DRAWN, arg="cell-0")
        figure = opened.page.locator("#cell-0-quality")
        marks = (".scatterlayer path.point", ".scatterlayer path.xerror", ".scatterlayer path.yerror")
        assert [figure.locator(mark).count() for mark in marks] == [5, 5, 5]
        assert all(words in figure.evaluate(MARKS)["words"] for words in ("corpus chrF", "mean latency, ms", "cnmt"))
        figure.get_by_role("button", name="p95 of latency").click()
        figure.locator("text=p95 of latency, ms").wait_for()
        assert opened.problems == []


ORDER = "body => [...body.querySelectorAll('tr[data-row]')].map(row => row.dataset.row)"


def test_the_table_sorts_within_each_cell_when_a_heading_is_clicked(opened: Any, result: Any) -> None:
    """Ascending, descending, and back to the order of the objective; the name of the cell stays above its policies."""
    table = opened.page.locator("[data-table=policies]")
    bodies, heading = table.locator("tbody"), table.get_by_role("button", name="mean ms", exact=True)
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
    assert bodies.first.locator("tr").first.get_attribute("class") == "group"
    assert table.locator("th[aria-sort]").count() == 0
    assert bodies.first.locator("tr.winner").get_attribute("data-row") == "cnmt"
