"""The page of the reproduction on a part of the vocabulary, read and in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from simnmt.papers.fvp.reproduction import judge
from simnmt.papers.kit.rendering import Report
from simnmt.report.charts import Chart
from tests.browser import assert_folded, part_of, rows_of
from tests.papers.vocab_stand_ins import cell, study

DRAWN = "count => document.querySelectorAll('figure[data-drawn]').length === count"


@pytest.fixture(scope="module")
def report() -> Report:
    return judge([study()])


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return report.page()


def first_charts(report: Report) -> dict[str, Chart]:
    """Return the first chart of every section by its id."""
    return {figure.id: next(iter(figure.panels[0].charts.values())) for figure in report.figures}


def test_every_claim_is_on_the_page_with_its_verdict(report: Report, page: str) -> None:
    shown = re.findall(r'data-column="verdict" data-outcome="([^"]*)"', page)
    assert sorted(shown) == sorted(record.verdict for record in report.claims)
    assert page == report.page()
    assert len(page.encode()) < 4_000_000 and not re.search(r'(src|href)="https?:', page)


def test_published_rows_are_marked_and_ours_follow_them(page: str) -> None:
    table = part_of(page, "table-3")
    marks = re.findall(r'<tr data-row="[^"]*"( class="published")?>', table)
    assert [bool(mark) for mark in marks] == [True] * 32 + [False] * 4
    assert rows_of(table)[-1][0].startswith("gru-xx-en, de-en, 500 clusters, K = 3")
    assert "98.50 % of the tokens" in table


def test_without_a_study_the_page_states_that_published_figures_are_alone() -> None:
    page = judge().page()
    assert "Published figures alone" in page and 'class="kind kind-measured"' not in page
    assert part_of(page, "table-4") and not part_of(page, "sweep")


def test_figures_2_and_3_are_ours_with_the_texts_points_marked(report: Report) -> None:
    lines = {identifier: {mark.name: mark for mark in chart.marks} for identifier, chart in first_charts(report).items()}
    both = lines["figure-2-drawn"]["source and target known, K = 1"]
    assert both.x == [100, 400, 500] and both.y[1] == pytest.approx(100 * cell(clusters=400).set_most)
    assert lines["figure-2-drawn"]["published: source and target known"].y == [12.5]
    target = lines["figure-2-drawn"]["published: target known"]
    assert (target.kind, target.x, target.y) == ("points", [400], [17.5])
    assert lines["figure-3-drawn"]["published: fastest here"].x == [1_300, 1_300]
    assert max(lines["figure-3-drawn"]["K = 1"].y) == pytest.approx(30.0)


def test_the_page_names_the_studied_model_and_its_texts(page: str) -> None:
    assert f"SHA-256 {'0' * 16}; " in page and "heldout.fr-en of " in page and "2026-11-21 on a processor" in page


@pytest.mark.deep
def test_figures_are_drawn_on_a_desk_and_a_phone(page: str, open_page: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page, encoding="utf-8")
    with open_page(file, viewport={"width": 390, "height": 844}) as opened:
        assert_folded(opened.page)
        opened.unfold()
        opened.page.wait_for_function(DRAWN, arg=2)
        assert opened.page.evaluate("() => document.documentElement.scrollWidth") == 390
        points = opened.page.locator("#figure-2-drawn figure").evaluate(
            "figure => figure.querySelector('.chart').data.map(({ name, x, y }) => [name, x, y])"
        )
        assert ["published: target known", [400], [17.5]] in points
        opened.page.locator("#figure-3-drawn select").select_option("1")
        assert "clusters and K = 1" in (opened.page.locator("#figure-3-drawn [data-reading]").text_content() or "")
        opened.page.set_viewport_size({"width": 1200, "height": 900})
        opened.page.wait_for_function("() => document.documentElement.scrollWidth === 1200")
        assert opened.problems == []
