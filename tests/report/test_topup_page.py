"""The page of top-up batching in a browser: every kind of chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simnmt.papers.fni.topup import reproduce
from tests.browser import assert_folded


@pytest.mark.deep
def test_figures_are_drawn_on_a_desk_and_a_phone(open_page: Any, tmp_path: Path) -> None:
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
