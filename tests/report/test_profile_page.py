"""The page of device profiles, read and in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.base import shipped_files
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.execution_fit import cell_samples, samples_by_tgt_len
from simnmt.profile.profile_file import checked_profile, read_profile
from simnmt.profile.profile_summary import percent
from simnmt.report.profile_page import means_per_tgt_len, profile_panels, render_profiles, write_profile_page
from tests.profile.made_profile import whole_profile

HOSTILE = "</script><script>alert(1)</script>"
DRAWN = "count => document.querySelectorAll('figure[data-drawn]').length === count"


@pytest.fixture(scope="module")
def profiles() -> list[DeviceProfile]:
    hostile = whole_profile() | {"name": HOSTILE, "device": {"name": HOSTILE, "details": HOSTILE}}
    return [checked_profile(hostile), read_profile(shipped_files.find("calibration", "tx2-gru"))]


def test_the_page_holds_what_inspect_says_and_no_name_escapes(profiles: list[DeviceProfile]) -> None:
    page = render_profiles(profiles)
    assert page.count('<section id="profile-') == 2
    assert HOSTILE not in page
    assert "not measured: the numbers are inferred" in page
    assert page == render_profiles(profiles)
    assert [len(profile_panels(profile)) for profile in profiles] == [5, 1]
    leads = re.findall(r"<p class=\"lead\">(.*?)</p>", page)
    assert leads[0].startswith("Measured") and "greatest held-out error" in leads[0]
    assert leads[1].startswith("These numbers are inferred")


def test_the_means_and_bands_are_those_of_all_inferences() -> None:
    """Put together from the cells' own means and spreads, they are what the raw times would have given."""
    random = np.random.default_rng(3)
    src, tgt = np.repeat([5, 10, 20, 5, 10], 8), np.repeat([7, 7, 7, 9, 9], 8)
    time_s = 0.01 * src + random.random(40)
    content = whole_profile()
    content["execution"]["samples"] = [sample.model_dump() for sample in cell_samples(src, tgt, time_s)]
    length, mean, sd, count = means_per_tgt_len(checked_profile(content))
    assert length.tolist() == [7.0, 9.0]
    assert count.tolist() == [24.0, 16.0]
    assert mean == pytest.approx([time_s[:24].mean(), time_s[24:].mean()])
    assert sd == pytest.approx([time_s[:24].std(), time_s[24:].std()])


def test_the_line_of_figure_2a_says_its_r2_and_its_error(profiles: list[DeviceProfile]) -> None:
    plot = profile_panels(profiles[0])[0]
    line = next(mark for mark in plot.chart.marks if mark.name == "fitted line")
    slope_ms = (line.y[1] - line.y[0]) / (line.x[1] - line.x[0])
    assert slope_ms == pytest.approx(3.06, rel=0.01)
    assert re.search(r"R2 (1\.0000|0\.999\d), MSE 0\.0\d+ ms\^2", plot.caption)


def test_captions_say_which_plane_and_which_cells_an_error_is_of(profiles: list[DeviceProfile]) -> None:
    _, against, steps = profile_panels(profiles[0])[:3]
    fit = profiles[0].execution.fit
    assert fit.heldout_error != fit.heldout_error_of_means
    assert f"on the means of undisturbed repeats, {percent(fit.heldout_error_of_means)}, and" in against.caption
    least = f"undisturbed time {percent(fit.heldout_error)} (least times of cells left out in turn)."
    assert least in against.caption
    assert "open ones only to judge" in steps.caption and "batch sizes 6, 12, measured only to judge" in steps.caption
    judges = [mark for mark in steps.chart.marks if mark.symbol == "circle-open"]
    assert [mark.x for mark in judges] == [[6, 12]] * 3


def test_figure_2a_is_drawn_of_single_inferences_summed_up() -> None:
    random = np.random.default_rng(4)
    src, tgt = random.integers(1, 60, 3_000), random.integers(1, 60, 3_000)
    content = whole_profile()
    summed_up = samples_by_tgt_len(src, tgt, 0.0004 * src + 0.003 * tgt + 0.005)
    content["execution"]["samples"] = [sample.model_dump() for sample in summed_up]
    by_length, against = profile_panels(checked_profile(content))[:2]
    means = next(mark for mark in by_length.chart.marks if mark.name == "mean")
    assert len(means.x) == 59
    assert "Each point is a target length at its mean source length" in against.caption
    points = against.chart.marks[1]
    assert points.y == pytest.approx(points.x, rel=0.05), "a plane at the mean lengths is the mean of the plane"


def test_every_plot_is_drawn_and_nothing_is_complained_of(
    open_page: Any, profiles: list[DeviceProfile], tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    write_profile_page(file, profiles)
    with open_page(file, viewport={"width": 1000, "height": 800}) as opened:
        opened.page.wait_for_function(DRAWN, arg=6)
        assert opened.problems == []
        figures = opened.page.locator("section").first.locator("figure")
        assert figures.nth(0).locator(".scatterlayer .trace").count() == 3, "the band, the line, the means"
        assert figures.nth(1).locator(".scatterlayer .point").count() == 36
        assert figures.nth(2).locator(".scatterlayer .point").count() == 18 + 6, "two batch sizes only judge"
        assert "target length, tokens" in (figures.nth(0).text_content() or "")
