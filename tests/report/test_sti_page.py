"""The page on elastic pipelines: its claims, tables, pictures, and what its figures are drawn from."""

from __future__ import annotations

import re
from typing import Any

import pytest

from simnmt.papers.kit.rendering import Report
from simnmt.papers.sti import reproduction
from simnmt.papers.sti.pipeline import PipelineMeasurement
from tests.browser import part_of
from tests.papers.sti_stand_ins import pipeline, studied


@pytest.fixture(scope="module")
def report() -> Report:
    return reproduction.report([studied()], PipelineMeasurement.model_validate(pipeline()))


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return report.page()


@pytest.fixture(scope="module")
def rows(report: Report) -> dict[str, Any]:
    return {table.id: table.rows for table in report.tables}


def test_every_claim_and_every_table_with_rows_is_on_the_page(report: Report, page: str) -> None:
    shown = set(re.findall(r'<tr data-row="([^"]*)"', part_of(page, "claims")))
    assert shown == {record.id.replace("&", "&amp;") for record in report.claims}
    assert {table.id for table in report.tables if table.columns} <= set(re.findall(r' id="([^"]+)"', page))
    assert "Not in source text" in page


def test_each_group_of_pipelines_is_one_picture(page: str) -> None:
    assert page.count('<svg class="pipelines"') == 4 and page.count('class="deadline"') == 3


def test_a_page_without_a_study_has_no_empty_section() -> None:
    alone = reproduction.report([], None).page()
    assert 'id="submodels"' not in alone and 'id="figure-7-drawn"' not in alone
    assert alone.count('<svg class="pipelines"') == 1 and "Published figures alone" in alone


def test_figure_7_is_of_parameters_held_and_level_where_none_are(report: Report, rows: dict[str, Any]) -> None:
    """STI-22, STI-23: a point for each buffer, one for the model in memory, lines for what holds nothing."""
    (figure,) = report.figures
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
