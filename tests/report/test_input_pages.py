"""The pages of device profiles and of traces, read and in a browser."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.base import shipped_files
from simnmt.base.files import write_text
from simnmt.network.traces.trace import Trace, mend
from simnmt.profile.device_profile import DeviceProfile, checked_profile, read_profile
from simnmt.profile.execution_fit import cell_samples
from simnmt.report.input_pages import (
    means_per_tgt_len,
    profile_panels,
    render_profiles,
    render_traces,
    trace_panels,
)
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


def test_every_plot_is_drawn_and_nothing_is_complained_of(
    open_page: Any, profiles: list[DeviceProfile], tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    write_text(file, render_profiles(profiles))
    with open_page(file, viewport={"width": 1000, "height": 800}) as opened:
        opened.page.wait_for_function(DRAWN, arg=4)
        assert opened.problems == []
        figures = opened.page.locator("section").first.locator("figure")
        assert figures.nth(0).locator(".scatterlayer .trace").count() == 3, "the band, the line, the means"
        assert figures.nth(1).locator(".scatterlayer .point").count() == 18 + 6, "two batch sizes only judge"
        assert "target length, tokens" in (figures.nth(0).text_content() or "")


def trace(quantity: Any, values: list[float]) -> Trace:
    value = np.array(values)
    return mend(quantity, np.arange(float(len(value))), value, "measured", f"{quantity} of {HOSTILE}", (HOSTILE,))


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    random = np.random.default_rng(1)
    rtts = [math.nan if second % 50 == 49 else rtt for second, rtt in enumerate(random.lognormal(-3, 0.3, 400).tolist())]
    return [trace("rtt", rtts), trace("downlink", [5e6]), trace("uplink", [2e6] * 60)]


def test_the_page_of_traces_holds_what_inspect_says_and_no_name_escapes(traces: list[Trace]) -> None:
    page = render_traces(HOSTILE, traces)
    assert page.count('<section id="series-') == 3
    assert HOSTILE not in page
    assert "8 (2 %) in 8 runs, the longest of 1, 1 s; held at the value before" in page
    assert page == render_traces(HOSTILE, traces)
    assert [panel.alt for item in traces for panel in trace_panels(item)][::2] == [
        "RTT, ms over time", "downlink, Mbit/s over time", "uplink, Mbit/s over time",
    ]  # fmt: skip


def test_every_plot_of_traces_is_drawn(open_page: Any, traces: list[Trace], tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(render_traces(HOSTILE, traces), encoding="utf-8")
    with open_page(file, viewport={"width": 1000, "height": 800}) as opened:
        opened.page.wait_for_function(DRAWN, arg=6)
        assert opened.problems == []
        assert opened.page.locator("h1").text_content() == HOSTILE
        first = opened.page.locator("section").first
        assert first.locator("[data-figure=time] .scatterlayer .trace").count() == 2, "the series, and what was lost"
        labels = first.locator("[data-figure=time]").text_content() or ""
        assert "RTT, ms" in labels
        assert "time, min" in labels
