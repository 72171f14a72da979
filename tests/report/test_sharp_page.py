"""The page of the reproduction of the sharp decoder, read and in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from simnmt.papers.kit.rendering import Report
from simnmt.papers.sharp import reproduction as sharp
from tests.browser import assert_folded, part_of, rows_of
from tests.papers.sharp_stand_ins import as_published

DRAWN = "count => document.querySelectorAll('figure[data-drawn]').length === count"


@pytest.fixture(scope="module")
def report() -> Report:
    return sharp.report(as_published(table={"activations": 360.0, "merge": 390.0}))


@pytest.fixture(scope="module")
def document(report: Report) -> dict[str, Any]:
    return report.document()


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return report.page()


def test_every_claim_is_on_the_page_with_its_verdict(report: Report, document: dict[str, Any], page: str) -> None:
    shown = re.findall(r'data-column="verdict" data-outcome="([^"]*)"', page)
    assert sorted(shown) == sorted(record["verdict"] for record in document["claims"])
    assert page == report.page()
    assert len(page.encode()) < 4_000_000 and not re.search(r'(src|href)="https?:', page)


def test_a_rung_is_exact_only_over_the_rung_before_it(page: str) -> None:
    """Words a second and noise are of all rungs so far: + merge has the noise of 16 bits."""
    translations = {row[0]: row[-1] for row in rows_of(part_of(page, "table-1"))}
    assert (
        translations["baseline"] == "exact"
        and translations["+ 16-bit product"] == translations["+ SSE, lookup"] == "adds noise"
    )
    assert (
        translations["+ embeddings"] == translations["+ attention"] == translations["+ merge"] == "exact over the rung before"
    )


def test_the_columns_of_a_table_have_distinct_heads(page: str) -> None:
    for section in re.findall(r'<section id="[^"]*">.*?</section>', page, re.DOTALL):
        heads = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', section, re.DOTALL)
        assert len(set(heads)) == len(heads), heads
    assert "published factor" in page and "measured factor" in page


@pytest.mark.deep
def test_figures_are_drawn_on_a_desk_and_a_phone(page: str, open_page: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page, encoding="utf-8")
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
