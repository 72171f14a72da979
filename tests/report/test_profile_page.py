"""The page of device profiles, read and in a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt import shipped
from simnmt.costs import DeviceProfile, cell_samples, checked_profile, read_profile
from simnmt.report.profile_page import render_profiles, write_profile_page
from simnmt.report.profile_plots import drawn, means_per_tgt_len
from tests.costs.made_profile import whole_profile

HOSTILE = "</script><script>alert(1)</script>"
DRAWN = "count => document.querySelectorAll('figure[data-drawn]').length === count"


@pytest.fixture(scope="module")
def profiles() -> list[DeviceProfile]:
    hostile = whole_profile() | {"name": HOSTILE, "device": {"name": HOSTILE, "details": HOSTILE}}
    return [checked_profile(hostile), read_profile(shipped.find("calibration", "tx2-gru"))]


def test_the_page_holds_what_inspect_says_and_no_name_escapes(profiles: list[DeviceProfile]) -> None:
    page = render_profiles(profiles)
    assert page.count("<section data-profile") == 2
    assert HOSTILE not in page
    assert "not measured: the numbers are inferred" in page
    assert page == render_profiles(profiles)
    content = re.search(r'<script type="application/json" id="content">(.*)</script>', page)
    assert content is not None
    assert [len(plots) for plots in json.loads(content[1])["profiles"]] == [5, 1]


def test_the_means_and_bands_are_those_of_all_inferences() -> None:
    """Put together from the cells' own means and spreads, they are what the raw times would have given."""
    random = np.random.default_rng(3)
    src, tgt = np.repeat([5, 10, 20, 5, 10], 8), np.repeat([7, 7, 7, 9, 9], 8)
    time_s = 0.01 * src + random.random(40)
    content = whole_profile()
    content["execution"] = content["execution"] | {"samples": cell_samples(src, tgt, time_s)}
    length, mean, sd, count = means_per_tgt_len(checked_profile(content))
    assert length.tolist() == [7.0, 9.0]
    assert count.tolist() == [24.0, 16.0]
    assert mean == pytest.approx([time_s[:24].mean(), time_s[24:].mean()])
    assert sd == pytest.approx([time_s[:24].std(), time_s[24:].std()])


def test_the_line_of_figure_2a_says_its_r2_and_its_error(profiles: list[DeviceProfile]) -> None:
    plot = drawn(profiles[0])[0]
    line = next(series for series in plot["series"] if series["name"] == "fitted line")
    slope_ms = (line["y"][1] - line["y"][0]) / (line["x"][1] - line["x"][0])
    assert slope_ms == pytest.approx(3.06, rel=0.01)
    assert re.search(r"R2 (1\.0000|0\.999\d), MSE 0\.0\d+ ms\^2", plot["caption"])


def test_every_plot_is_drawn_and_nothing_is_complained_of(
    open_page: Any, profiles: list[DeviceProfile], tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    write_profile_page(file, profiles)
    with open_page(file, viewport={"width": 1000, "height": 800}) as opened:
        opened.page.wait_for_function(DRAWN, arg=6)
        assert opened.problems == []
        figures = opened.page.locator("section").first.locator("figure")
        assert figures.nth(0).locator(".scatterlayer .trace").count() == 4, "two edges of the band, the line, the means"
        assert figures.nth(1).locator(".scatterlayer .point").count() == 36
        assert figures.nth(2).locator(".scatterlayer .point").count() == 18
        assert "target length, tokens" in (figures.nth(0).text_content() or "")
