"""The page of the reproduction on a part of the vocabulary, read and in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from simnmt.papers.fvp.reproduction import judge
from simnmt.papers.kit.page import ChartSection
from simnmt.papers.kit.report import PaperReport
from simnmt.report.charts import Chart
from tests.browser import assert_folded
from tests.papers.vocab_stand_ins import cell, study

DRAWN = "count => document.querySelectorAll('figure[data-drawn]').length === count"


@pytest.fixture(scope="module")
def report() -> PaperReport:
    return judge([study()]).report()


@pytest.fixture(scope="module")
def page(report: PaperReport) -> str:
    return report.page()


def first_charts(report: PaperReport) -> dict[str, Chart]:
    """Return the first chart of every section by its id."""
    return {section.id: next(iter(section.charts.values())) for section in report.charts if isinstance(section, ChartSection)}


def section(page: str, identifier: str) -> str:
    return page.partition(f'<section id="{identifier}">')[2].partition("</section>")[0]


def test_every_claim_is_on_the_page_with_its_verdict(report: PaperReport, page: str) -> None:
    shown = re.findall(r'<tr data-claim="[^"]*" data-verdict="([^"]*)">', page)
    assert sorted(shown) == sorted(record.verdict for record in report.claims)
    assert page == report.page()
    assert len(page.encode()) < 4_000_000 and not re.search(r'(src|href)="https?:', page)


def test_published_rows_are_marked_and_ours_follow_them(page: str) -> None:
    rows = re.findall(r"<tr( class=\"published\")?><th scope=\"row\">([^<]+)", section(page, "table-3"))
    published = [bool(mark) for mark, _ in rows]
    assert published == [True] * 32 + [False] * 5
    assert rows[-1][1] == "gru-xx-en, fr-en, lists of 20 by IBM model 1"
    assert "98.50 % of the tokens" in section(page, "table-3")


def test_both_means_of_every_average_are_named(page: str) -> None:
    """FVP-17: 47.81 is neither."""
    averages = section(page, "averages")
    (row,) = re.findall(r"<tr[^>]*><th[^>]*>ZCode M3, XE</th>(?:(?!</tr>).)*47\.81(?:(?!</tr>).)*</tr>", averages)
    assert "48.14" in row and "48.17" in row and "neither" in row
    assert "simple mean" in averages and "weighted by sentences" in averages


def test_no_two_columns_of_a_table_are_called_the_same(page: str) -> None:
    sections = re.findall(r'<section id="[^"]*">.*?</section>', page, re.DOTALL)
    tables = [heads for table in sections if (heads := re.findall(r'<th scope="col"[^>]*>(.*?)</th>', table, re.DOTALL))]
    assert len(tables) > 3
    for heads in tables:
        assert len(set(heads)) == len(heads), heads


def test_without_a_study_the_page_states_that_published_figures_are_alone() -> None:
    page = judge().report().page()
    assert "Published figures alone" in page and 'class="kind kind-measured"' not in page
    assert section(page, "table-4") and not section(page, "sweep")


def test_figures_2_to_4_are_ours_with_the_texts_points_marked(report: PaperReport) -> None:
    lines = {identifier: {mark.name: mark for mark in chart.marks} for identifier, chart in first_charts(report).items()}
    both = lines["figure-2-drawn"]["source and target known, K = 1"]
    assert both.x == [100, 400, 500] and both.y[1] == pytest.approx(100 * cell(clusters=400).sets.most)
    assert lines["figure-2-drawn"]["published: source and target known"].y == [12.5]
    target = lines["figure-2-drawn"]["published: target known"]
    assert (target.kind, target.x, target.y) == ("points", [400], [17.5])
    assert lines["figure-3-drawn"]["published: fastest here"].x == [1_300, 1_300]
    assert max(lines["figure-3-drawn"]["K = 1"].y) == pytest.approx(30.0)
    sets = lines["figure-4-drawn"]["K = 3"]
    assert sets.x[0] == 1 and sets.x[-1] == 1_300 and len(sets.x) <= 301
    assert sets.y[0] == pytest.approx(100 * 1_200 / 10_000) and sets.y == sorted(sets.y, reverse=True)
    assert lines["figure-4-drawn"]["published: cluster 0, K = 5"].y == [6.0, 6.0]


def test_each_figure_of_the_paper_is_drawn(page: str) -> None:
    assert page.count('class="drawing"') == 3


def test_the_studied_files_are_identified_by_their_sums(page: str) -> None:
    studied = section(page, "studied")
    assert studied.count("0" * 16) == 7 and "heldout.fr-en" in studied and "a processor; 2026-11-21" in studied


def test_figures_are_drawn_on_a_desk_and_a_phone(page: str, open_page: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page, encoding="utf-8")
    with open_page(file, viewport={"width": 390, "height": 844}) as opened:
        assert_folded(opened.page)
        opened.unfold()
        opened.page.wait_for_function(DRAWN, arg=3)
        assert opened.page.evaluate("() => document.documentElement.scrollWidth") == 390
        wide = "() => [...document.querySelectorAll('.scroll')].filter(each => each.scrollWidth > each.clientWidth + 1).length"
        assert opened.page.evaluate(wide) == 0, "a row is a card on a phone"
        head = opened.page.locator("#table-2 tbody tr").first.locator("td").nth(2).get_attribute("data-head")
        assert head == "active, %"
        record = opened.page.locator("#claims tr[data-claim]").first
        assert record.locator("td").last.get_attribute("data-head") == "why"
        points = opened.page.locator("#figure-2-drawn-0").evaluate(
            "figure => figure.querySelector('.chart').data.map(({ name, x, y }) => [name, x, y])"
        )
        assert ["published: target known", [400], [17.5]] in points
        opened.page.locator("#figure-3-drawn-0 [data-option]").nth(1).click()
        assert "clusters, K = 1" in (opened.page.locator("#figure-3-drawn-0 [data-reading]").text_content() or "")
        opened.page.set_viewport_size({"width": 1200, "height": 900})
        opened.page.wait_for_function("() => document.documentElement.scrollWidth === 1200")
        assert opened.problems == []
