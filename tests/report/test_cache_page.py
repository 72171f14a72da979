"""The page of what a cache saves, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from simnmt.report.cache_page import render_savings
from simnmt.workload.cache_savings import RequestedTexts, cache_savings

HOSTILE = "</script><script>alert(1)</script>"


def test_hits_are_drawn_over_the_sizes(open_page: Any, tmp_path: Path) -> None:
    texts = np.random.default_rng(1).zipf(1.3, 3_000) % 500
    source = RequestedTexts(HOSTILE, HOSTILE, texts, np.full(3_000, 40.0))
    page, file = render_savings(cache_savings(source, 20.0, 60.0), 100), tmp_path / "page.html"
    assert HOSTILE not in page and page == render_savings(cache_savings(source, 20.0, 60.0), 100)
    file.write_text(page, encoding="utf-8")
    with open_page(file, viewport={"width": 1000, "height": 800}) as opened:
        opened.page.locator("figure[data-drawn]").wait_for()
        assert opened.problems == []
        figure = opened.page.locator("[data-figure=savings]")
        assert figure.locator(".scatterlayer .trace").count() == 3 + 1, (
            "requests, without a lifetime, characters, and 100 entries"
        )
        assert "answered by the cache, %" in (figure.text_content() or "")
