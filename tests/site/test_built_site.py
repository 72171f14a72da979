"""The built site, read from disk by a real browser without a network.

`make check` builds it and names its folder in SIMNMT_SITE; without that these tests are skipped: a build takes half a minute.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

SITE = Path(os.environ.get("SIMNMT_SITE", "-"))
PAGES = sorted(page for page in SITE.rglob("*.html") if page.name != "404.html")  # which a server shows, with its own addresses
ELSEWHERE = re.compile(
    r"""<(?:script|img|iframe|source|video)\b[^>]*\bsrc=["']?(?:https?:)?//|<link\b[^>]*\bhref=["']?https?://(?!simnmt\.github\.io)"""
)

pytestmark = pytest.mark.skipif("SIMNMT_SITE" not in os.environ, reason="SIMNMT_SITE names no built site (make docs)")
OpenPage = Callable[..., AbstractContextManager[Any]]


def test_no_page_loads_anything_from_elsewhere() -> None:
    assert len(PAGES) > 25
    assert {page.name: parts for page in PAGES if (parts := ELSEWHERE.findall(page.read_text(encoding="utf-8")))} == {}
    styles = [path for path in SITE.rglob("*.css") if re.search(r"url\(.?https?:|@import", path.read_text(encoding="utf-8"))]
    assert styles == []


def test_the_site_is_smaller_than_twenty_megabytes_with_one_plotly() -> None:
    files = [path for path in SITE.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 20e6
    assert len([path for path in files if path.stat().st_size > 3e6]) <= 1, "plotly.js is the only large file"
    assert [path.name for path in files if path.suffix in (".ipynb", ".py")] == []


def test_every_page_opens_from_disk_without_a_network(open_page: OpenPage) -> None:
    problems: dict[str, list[str]] = {}
    with open_page(PAGES[0]) as opened:  # one window for all: a new one takes longer than the page
        for page in PAGES:
            opened.problems.clear()
            opened.page.goto(page.as_uri())
            headings = opened.page.locator("h1").count()
            problems |= {page.name: [*opened.problems, f"{headings} headings"]} if opened.problems or headings < 1 else {}
    assert problems == {}


def test_the_search_finds_top_up_from_disk(open_page: OpenPage) -> None:
    with open_page(SITE / "index.html") as opened:
        opened.page.locator(".md-search__input").click()
        # At once: typed by letters, `top-` on the way is a query that the theme warns of. It searches at a key.
        opened.page.locator(".md-search__input").fill("top-up")
        opened.page.locator(".md-search__input").press("End")
        first = opened.page.locator(".md-search-result__item a").first
        first.wait_for(timeout=20_000)
        results = opened.page.locator(".md-search-result__item").all_inner_texts()
        assert any("top-up" in text.lower() for text in results)
        first.click()
        opened.page.wait_for_load_state("load")
        assert opened.page.url.startswith("file:") and "top-up" in opened.page.inner_text("body").lower()
        assert opened.problems == []
