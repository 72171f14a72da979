"""The page of device profiles, read and in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.base import shipped_files
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.execution_fit import cell_samples
from simnmt.profile.profile_file import checked_profile, read_profile
from simnmt.report.input_pages import means_per_tgt_len, percent, profile_panels, render_profiles
from simnmt.report.page_template import write_page
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
    assert page == render_profiles(profiles)
    assert [len(profile_panels(profile)) for profile in profiles] == [3, 1]
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
    length, mean, sd, believed = means_per_tgt_len(checked_profile(content))
    assert length.tolist() == [7.0, 9.0]
    plane = checked_profile(content).of_forced_lengths.plane.seconds(src, tgt)
    assert believed == pytest.approx([plane[:24].mean(), plane[24:].mean()])
    assert mean == pytest.approx([time_s[:24].mean(), time_s[24:].mean()])
    assert sd == pytest.approx([time_s[:24].std(), time_s[24:].std()])
    for sample in content["execution"]["samples"]:
        sample["sd_s"] = sample["sd_s"] if sample["tgt_len"] == 7 else None
    _, _, known, _ = means_per_tgt_len(checked_profile(content))
    assert known == pytest.approx([time_s[:24].std(), np.nan], nan_ok=True)
    band = profile_panels(checked_profile(content))[0].chart.marks[0]
    assert band.kind == "band" and band.x == [7.0]


def test_captions_say_which_errors_and_the_figure_which_cells_only_judge(profiles: list[DeviceProfile]) -> None:
    times, steps, _ = profile_panels(profiles[0])
    fit = profiles[0].execution.fit
    assert fit.heldout_error != fit.heldout_error_of_means
    assert percent(fit.heldout_error) in times.caption and percent(fit.heldout_error_of_means) in times.caption
    judges = [mark for mark in steps.chart.marks if mark.symbol == "circle-open"]
    assert [mark.x for mark in judges] == [[6, 12]] * 3


def test_of_single_inferences_summed_up_the_plane_lies_on_the_means() -> None:
    random = np.random.default_rng(4)
    src, tgt = random.integers(1, 60, 3_000), random.integers(1, 60, 3_000)
    content = whole_profile()
    summed_up = cell_samples(src, tgt, 0.0004 * src + 0.003 * tgt + 0.005, by_tgt_len=True)
    content["execution"]["samples"] = [sample.model_dump() for sample in summed_up]
    _, plane, means = profile_panels(checked_profile(content))[0].chart.marks
    assert len(means.x) == 59
    assert plane.y == pytest.approx(means.y, rel=0.05), "a plane at the mean lengths is the mean of the plane"


def test_every_plot_is_drawn_and_nothing_is_complained_of(
    open_page: Any, profiles: list[DeviceProfile], tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    write_page(file, render_profiles(profiles))
    with open_page(file, viewport={"width": 1000, "height": 800}) as opened:
        opened.page.wait_for_function(DRAWN, arg=4)
        assert opened.problems == []
        figures = opened.page.locator("section").first.locator("figure")
        assert figures.nth(0).locator(".scatterlayer .trace").count() == 3, "the band, the line, the means"
        assert figures.nth(1).locator(".scatterlayer .point").count() == 18 + 6, "two batch sizes only judge"
        assert "target length, tokens" in (figures.nth(0).text_content() or "")
