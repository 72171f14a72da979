"""The page of the reproduction of the fused kernel, read and in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from simnmt.papers.fni import offline
from simnmt.papers.fni.fused_page import render_fused
from simnmt.papers.fni.fused_reproduction import document as document_of
from simnmt.papers.fni.fused_reproduction import reproduce
from tests.papers.fused_stand_ins import fused_profile

HOSTILE = "</script><img src=x onerror=alert(1)>"
DRAWN = "count => document.querySelectorAll('figure[data-drawn]').length === count"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(offline, "SENTENCES", {"europarl": 600, "opensubtitles": 600})
        found = reproduce(profiles=[fused_profile(HOSTILE, box=HOSTILE), fused_profile("other", {1: 3.0, 5: 2.0}, box="b")])
    return document_of(found)


@pytest.fixture(scope="module")
def page(document: dict[str, Any]) -> str:
    return render_fused(document)


def test_every_claim_stands_on_the_page_with_its_verdict_and_no_name_breaks_out(document: dict[str, Any], page: str) -> None:
    shown = re.findall(r'<tr data-claim="[^"]*" data-verdict="([^"]*)">', page)
    assert sorted(shown) == sorted(record["verdict"] for record in document["claims"])
    assert HOSTILE not in page and "&lt;img src=x" in page
    assert page == render_fused(document)
    assert len(page.encode()) < 4_000_000 and not re.search(r'(src|href)="https?:', page)


def test_the_slip_of_table_3_stands_beside_what_its_seconds_give(page: str) -> None:
    section = page.partition('<section id="table-2-3">')[2].partition("</section>")[0]
    row = section.partition("OpenSubtitles, beam 5<small>published</small>")[2].partition("</tr>")[0]
    assert "+0.44" in row and "printed +4.4" in row and "2.81" in row and "1.629" in row
    assert section.count("printed ") == 1, "the one slip"


def test_the_page_opens_with_what_fusing_gains_and_how_many_claims_hold(document: dict[str, Any], page: str) -> None:
    header = page.partition('<section id="summary">')[2].partition("</section>")[0].replace("\u2212", "-")
    rows = next(table["rows"] for table in document["tables"] if table["id"] == "amdahl")
    gains = [100 * (row["end_to_end"] - 1.0) for row in rows if row["source"] == "other"]
    alone = [100 * (row["predicted_product_left_alone"] - 1.0) for row in rows if row["source"] == "other"]
    assert "On other (b, " in header and f"changes the speed of translating by {min(gains):+.1f}" in header
    assert f"the product left alone, as in the paper, {min(alone):+.1f} to {max(alone):+.1f} % would be left of it" in header
    by_claim: dict[str, set[str]] = {}
    for record in document["claims"]:
        by_claim.setdefault(record["bare"], set()).add(record["verdict"])
    holding = sum(found - {"not measurable here"} == {"holds"} for found in by_claim.values())
    assert f"{holding} of {len(by_claim)} claims hold" in header


def test_text_has_no_backticks_and_what_needs_an_option_says_which(page: str) -> None:
    shown = page.partition("<header>")[2].partition('<script type="text/plain" id="plotly-packed"')[0]
    assert "`" not in shown and "<code>simnmt reproduce topup</code>" in shown
    row = page.partition('data-claim="FNI-11"')[2].partition("</tr>")[0]
    assert "needs --measure" in row and "none needed" not in row and "not at hand" not in row


def test_without_devices_the_papers_own_figures_remain(document: dict[str, Any]) -> None:
    tables = [
        table | ({"rows": []} if table["id"] in {"shares", "speeds", "amdahl", "real"} else {}) for table in document["tables"]
    ]
    claims = [record for record in document["claims"] if not record["device"]]
    text = render_fused(document | {"devices": [], "tables": tables, "claims": claims})
    assert 'id="tables-2-3-drawn"' in text and 'id="figures-1-5"' not in text and 'id="speeds"' not in text


def test_figures_are_drawn_on_a_desk_and_a_phone(document: dict[str, Any], page: str, open_page: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page, encoding="utf-8")
    rows = {table["id"]: table["rows"] for table in document["tables"]}
    with open_page(file, viewport={"width": 390, "height": 844}) as opened:
        opened.unfold()
        opened.page.wait_for_function(DRAWN, arg=5)
        assert opened.page.evaluate("() => document.documentElement.scrollWidth") == 390
        shares = opened.page.locator("#figures-1-5-0")
        stacked = shares.evaluate("figure => figure.querySelector('.chart').data.map(({ y }) => y)")
        assert [sum(column) for column in zip(*stacked, strict=True)] == pytest.approx([100.0] * 4)
        speeds = opened.page.locator("#figures-3-4-0")
        bars = speeds.evaluate("figure => figure.querySelector('.chart').data.map(({ y }) => y)")
        first = rows["speeds"][0]
        mini = [row for row in rows["speeds"] if row["strategy"] == "mini" and _same(row, first, "device", "set")]
        for own, fused in zip(bars, (False, True), strict=True):
            assert own == pytest.approx([row["relative"] for row in mini if row["fused"] is fused])
        assert "mini, fused up to 1.23" in (speeds.locator("[data-reading]").text_content() or "")
        speeds.locator("select").select_option("1")
        speeds.locator("[data-reading]", has_text="OpenSubtitles").wait_for()
        opened.page.set_viewport_size({"width": 1200, "height": 900})
        opened.page.wait_for_function("() => document.documentElement.scrollWidth === 1200")
        assert opened.problems == []


def _same(row: dict[str, Any], other: dict[str, Any], *keys: str) -> bool:
    return all(row[key] == other[key] for key in keys)
