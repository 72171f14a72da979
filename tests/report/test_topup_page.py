"""The page of top-up batching in a browser: made-up results, every kind of chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simnmt.papers.fni.devices import decoders
from simnmt.papers.fni.offline import ONLINE, Moments, refill_limits
from simnmt.papers.fni.online import Curve, LoadLimit
from simnmt.papers.fni.published import TABLE_ONE
from simnmt.papers.fni.topup import Reproduction
from tests.browser import assert_folded
from tests.papers.fni_stand_ins import as_published, profile, speeds

DRAWN = "count => document.querySelectorAll('figure[data-drawn]').length === count"


def reproduction() -> Reproduction:
    moments = [Moments(test_set, test_set.mean, test_set.sd) for test_set in TABLE_ONE]
    strategies = [strategy.key for strategy in ONLINE]
    limits = [
        LoadLimit("box", 1, "europarl", strategy, strategy, p95_ms, p95_ms / 100.0, (p95_ms / 10.0, p95_ms / 9.0))
        for p95_ms in (300.0, 800.0)
        for strategy in strategies
    ]
    curves = [Curve("box", 1, "europarl", strategy, 90.0, (1.0, 10.0, 90.0), (200.0, 300.0, 900.0)) for strategy in strategies]
    known, by_key = decoders([profile("box")]), speeds()
    cells = {(decoder, test_set.key) for decoder in known for test_set in TABLE_ONE}
    refills = [
        limit
        for decoder, test_set in cells
        for limit in refill_limits(
            {key[3]: timed for key, timed in by_key.items() if key[1:3] == (decoder.beam, test_set)}, decoder
        )
    ]
    return Reproduction(as_published(), moments, known, dict(by_key), refills, curves, limits, [])


@pytest.mark.deep
def test_figures_are_drawn_on_a_desk_and_a_phone(open_page: Any, tmp_path: Path) -> None:
    report = reproduction().report()
    file = tmp_path / "page.html"
    file.write_text(report.page(), encoding="utf-8")
    with open_page(file, viewport={"width": 390, "height": 844}) as opened:
        assert_folded(opened.page)
        opened.unfold()
        opened.page.wait_for_function(DRAWN, arg=3)
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
