"""The page of the reproduction of the sharp decoder in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simnmt.papers.sharp.reproduction import report
from tests.browser import assert_folded
from tests.papers.sharp_stand_ins import as_published

DRAWN = "count => document.querySelectorAll('figure[data-drawn]').length === count"


@pytest.mark.deep
def test_figures_are_drawn_on_a_desk_and_a_phone(open_page: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(report(as_published()).page(), encoding="utf-8")
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
