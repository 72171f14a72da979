"""The page of a log's traffic, read and in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.report.traffic_page import render_traffic, traffic_tables
from simnmt.workload.arrivals.traffic import Traffic, read_traffic

HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Traffic:
    random = np.random.default_rng(1)
    moment_s = np.cumsum(random.exponential(60.0, 3_000))
    moment_s[2_000:] += 9_000.0
    rows = "".join(
        f"{moment:.3f};{HOSTILE};{size};{2 * size}\n" for moment, size in zip(moment_s, random.poisson(9, 3_000), strict=True)
    )
    path = tmp_path_factory.mktemp("log") / "log.csv"
    path.write_text(f"# source: {HOSTILE}\nt_s;pair;src_len;chars\n{rows}", encoding="utf-8")
    return read_traffic(path)


def test_the_page_holds_every_table_and_no_name_escapes(traffic: Traffic) -> None:
    page = render_traffic(traffic)
    assert HOSTILE not in page and page == render_traffic(traffic)
    assert [table.id for table in traffic_tables(traffic)] == ["rates", "dispersion", "lengths", "pairs"]
    assert all(f'data-table="{table.id}"' in page for table in traffic_tables(traffic))


def test_the_rate_is_drawn_with_the_peaks(open_page: Any, traffic: Traffic, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(render_traffic(traffic), encoding="utf-8")
    with open_page(file, viewport={"width": 1000, "height": 800}) as opened:
        opened.page.locator("figure[data-drawn]").wait_for()  # the page's policy lets no function be polled
        assert opened.problems == []
        rate = opened.page.locator("[data-figure=rate]")
        assert rate.locator(".scatterlayer .trace").count() == 1 + 3, "the rate and three peaks"
        assert "requests/s" in (rate.text_content() or "")


@pytest.mark.parametrize("text", ["t_s,in_tokens\n0,9\n1,7\n1.5,3\n", "t_s\n0\n1\n", "t_s,requests\n0,9\n1,7\n"])
def test_a_small_log_has_a_page(tmp_path: Path, text: str) -> None:
    (tmp_path / "log.csv").write_text(text)
    assert "requests/s" in render_traffic(read_traffic(tmp_path / "log.csv"))
