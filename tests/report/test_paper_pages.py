"""The pages of reproductions, read and in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from simnmt.papers.fni.topup import reproduce
from simnmt.papers.fvp.reproduction import judge
from simnmt.papers.kit.rendering import Report
from simnmt.papers.sharp.reproduction import report as report_sharp
from simnmt.papers.sti import reproduction
from simnmt.papers.sti.pipeline import PipelineMeasurement
from simnmt.report.charts import Chart
from tests.browser import assert_folded, part_of, rows_of
from tests.papers.sharp_stand_ins import as_published
from tests.papers.sti_stand_ins import pipeline, studied
from tests.papers.vocab_stand_ins import cell, study

DRAWN = "count => document.querySelectorAll('figure[data-drawn]').length === count"


@pytest.mark.deep
def test_figures_of_the_sharp_decoder_are_drawn(open_page: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(report_sharp(as_published()).page(), encoding="utf-8")
    with open_page(file, viewport={"width": 390, "height": 844}) as opened:
        assert_folded(opened.page)
        opened.unfold()
        opened.page.wait_for_function(DRAWN, arg=1)
        assert opened.page.evaluate("() => document.documentElement.scrollWidth") == 390
        products = opened.page.locator("#figure-1-drawn figure")
        assert products.locator(".scatterlayer .trace").count() == 4
        assert "2.50 at 2" in (products.locator("[data-reading]").text_content() or "")
        opened.page.set_viewport_size({"width": 1200, "height": 900})
        opened.page.wait_for_function("() => document.documentElement.scrollWidth === 1200")
        assert opened.problems == []


@pytest.mark.deep
def test_figures_of_top_up_are_drawn(open_page: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(reproduce(profile=["@cpu1-gru"], requests=100).page(), encoding="utf-8")
    with open_page(file, viewport={"width": 390, "height": 844}) as opened:
        assert_folded(opened.page)
        opened.unfold()
        opened.page.wait_for_function("() => document.querySelectorAll('figure[data-drawn]').length === 3")
        assert opened.page.evaluate("() => document.documentElement.scrollWidth") == 390
        shares = opened.page.locator("#figure-2 figure")
        assert "(published: 42 %)" in (shares.locator("[data-reading]").text_content() or "")
        shares.locator("select").select_option("0")
        shares.locator("[data-reading]", has_not_text="published").wait_for()
        patterns = "figure => figure.querySelector('.chart').data.map(({ marker }) => marker.pattern?.shape ?? '')"
        assert len(set(opened.page.locator("#figures-6-7 figure").evaluate(patterns))) == 6, "told apart without colour"
        opened.page.set_viewport_size({"width": 1200, "height": 900})
        opened.page.wait_for_function("() => document.documentElement.scrollWidth === 1200")
        assert opened.problems == []


@pytest.fixture(scope="module")
def of_vocabulary() -> Report:
    return judge([study()])


@pytest.fixture(scope="module")
def page(of_vocabulary: Report) -> str:
    return of_vocabulary.page()


def first_charts(of_vocabulary: Report) -> dict[str, Chart]:
    """Return the first chart of every section by its id."""
    return {figure.id: next(iter(figure.panels[0].charts.values())) for figure in of_vocabulary.figures}


def test_every_claim_is_on_the_page_with_its_verdict(of_vocabulary: Report, page: str) -> None:
    shown = re.findall(r'data-column="verdict" data-outcome="([^"]*)"', page)
    assert sorted(shown) == sorted(record.verdict for record in of_vocabulary.claims)
    assert page == of_vocabulary.page()
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


def test_figures_2_and_3_are_ours_with_the_texts_points_marked(of_vocabulary: Report) -> None:
    lines = {identifier: {mark.name: mark for mark in chart.marks} for identifier, chart in first_charts(of_vocabulary).items()}
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
def test_figures_of_the_vocabulary_are_drawn(page: str, open_page: Any, tmp_path: Path) -> None:
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


@pytest.fixture(scope="module")
def of_sti() -> Report:
    return reproduction.report([studied()], PipelineMeasurement.model_validate(pipeline()))


@pytest.fixture(scope="module")
def sti_page(of_sti: Report) -> str:
    return of_sti.page()


@pytest.fixture(scope="module")
def rows(of_sti: Report) -> dict[str, Any]:
    return {table.id: table.rows for table in of_sti.tables}


def test_every_claim_and_every_table_with_rows_is_on_the_page(of_sti: Report, sti_page: str) -> None:
    shown = set(re.findall(r'<tr data-row="([^"]*)"', part_of(sti_page, "claims")))
    assert shown == {record.id.replace("&", "&amp;") for record in of_sti.claims}
    assert {table.id for table in of_sti.tables if table.columns} <= set(re.findall(r' id="([^"]+)"', sti_page))
    assert "Not in source text" in sti_page


def test_each_group_of_pipelines_is_one_picture(sti_page: str) -> None:
    assert sti_page.count('<svg class="pipelines"') == 4 and sti_page.count('class="deadline"') == 3


def test_a_page_without_a_study_has_no_empty_section() -> None:
    alone = reproduction.report([], None).page()
    assert 'id="submodels"' not in alone and 'id="figure-7-drawn"' not in alone
    assert alone.count('<svg class="pipelines"') == 1 and "Published figures alone" in alone


def test_figure_7_is_of_parameters_held_and_level_where_none_are(of_sti: Report, rows: dict[str, Any]) -> None:
    """STI-22, STI-23: a point for each buffer, one for the model in memory, lines for what holds nothing."""
    (figure,) = of_sti.figures
    (panel,) = figure.panels
    (place,) = (place for place, name in panel.controls[0].options if name == "small on sst2, GPU, 5 MB, 50 %")
    chart = panel.draw(place)
    curves = {mark.name: mark for mark in chart.marks}
    (whole,) = (
        row
        for row in rows["grid"]
        if (row["device"], row["deadline_share"], row["method"]) == ("GPU, 5 MB", 0.5, "PreloadModel-32")
    )
    assert curves["PreloadModel-32"].x == [round(whole["held_mb"], 6)]
    assert curves["PreloadModel-32"].y == [round(100 * whole["accuracy"], 4)]
    assert len(curves["STI"].x) > 2 and curves["STI"].x == sorted(curves["STI"].x)
    level = curves["StdPL-6"]
    assert level.y[0] == level.y[1] and level.x == [curves["STI"].x[0], curves["PreloadModel-32"].x[0]]
    values = [value for mark in chart.marks for value in mark.y]
    assert chart.y.span is not None and chart.y.span[0] <= min(values) and max(values) <= chart.y.span[1]
