"""The pages of reproductions, read and in a browser."""

from __future__ import annotations

import re

import pytest

from simnmt.papers.fvp.reproduction import judge
from simnmt.papers.kit.rendering import Report
from simnmt.papers.sti import reproduction
from simnmt.papers.sti.claims import PipelineMeasurement
from tests.browser import part_of, rows_of
from tests.papers.sti_stand_ins import pipeline, studied
from tests.papers.vocab_stand_ins import study


@pytest.fixture(scope="module")
def of_vocabulary() -> Report:
    return judge([study()])


@pytest.fixture(scope="module")
def page(of_vocabulary: Report) -> str:
    return of_vocabulary.page()


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


@pytest.fixture(scope="module")
def of_sti() -> Report:
    return reproduction.report([studied()], PipelineMeasurement.model_validate(pipeline()))


@pytest.fixture(scope="module")
def sti_page(of_sti: Report) -> str:
    return of_sti.page()


def test_every_claim_and_every_table_with_rows_is_on_the_page(of_sti: Report, sti_page: str) -> None:
    shown = set(re.findall(r'<tr data-row="([^"]*)"', part_of(sti_page, "claims")))
    assert shown == {record.id.replace("&", "&amp;") for record in of_sti.claims}
    assert {table.id for table in of_sti.tables if table.columns} <= set(re.findall(r' id="([^"]+)"', sti_page))
    assert "Not in source text" in sti_page
