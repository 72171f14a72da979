"""The page of the reproduction of top-up batching, read and in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from simnmt.papers.fni import offline, online, topup_reproduction
from simnmt.papers.fni.devices import decoders, doubtful_profiles
from simnmt.papers.fni.topup_page import render_topup
from simnmt.papers.fni.topup_reproduction import document as document_of
from tests.papers.topup_stand_ins import profile

HOSTILE = "</script><img src=x onerror=alert(1)>"
DRAWN = "count => document.querySelectorAll('figure[data-drawn]').length === count"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(topup_reproduction, "SEEDS", (1,))
        patched.setattr(offline, "SENTENCES", {"europarl": 1_500, "opensubtitles": 1_500})
        patched.setattr(online, "SEEDS", (1,))
        found = topup_reproduction.reproduce(
            profiles=[profile(HOSTILE, box=HOSTILE), profile("five", beam=5, box="b")], requests=100
        )
    return document_of(found)


@pytest.fixture(scope="module")
def page(document: dict[str, Any]) -> str:
    return render_topup(document)


def test_every_claim_stands_on_the_page_with_its_verdict_and_no_name_breaks_out(document: dict[str, Any], page: str) -> None:
    shown = re.findall(r'<tr data-claim="[^"]*" data-verdict="([^"]*)">', page)
    assert sorted(shown) == sorted(record["verdict"] for record in document["claims"])
    assert HOSTILE not in page and "&lt;img src=x" in page
    assert page == render_topup(document)
    assert len(page.encode()) < 4_000_000 and not re.search(r'(src|href)="https?:', page)


def test_published_and_stated_stand_beside_ours(page: str) -> None:
    table = page.partition('<table class="occupancies">')[2].partition("</table>")[0]
    row = table.partition("Europarl, maxi</th>")[2].partition("</tr>")[0]
    assert "published 42.0, stated 42.5" in row and "stated 10\u202f300" in row


def test_without_devices_the_occupancies_remain(document: dict[str, Any]) -> None:
    own = {"speeds", "refill-limits", "p95-load", "p95-curves"}
    tables = [table | ({"rows": []} if table["id"] in own else {}) for table in document["tables"]]
    claims = [record for record in document["claims"] if not record["device"]]
    text = render_topup(document | {"devices": [], "tables": tables, "claims": claims})
    assert 'id="figures-2-8"' in text and 'id="figures-6-7"' not in text and 'id="loads"' not in text


def test_figures_are_drawn_on_a_desk_and_a_phone(document: dict[str, Any], page: str, open_page: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page, encoding="utf-8")
    with open_page(file, viewport={"width": 390, "height": 844}) as opened:
        opened.page.wait_for_function(DRAWN, arg=5)
        assert opened.page.evaluate("() => document.documentElement.scrollWidth") == 390
        shares = opened.page.locator("#figures-2-8-0")
        assert "(published: 42 %)" in (shares.locator("[data-reading]").text_content() or "")
        bars = shares.evaluate("figure => figure.querySelector('.chart').data[0].y")
        rows = next(table["rows"] for table in document["tables"] if table["id"] == "active")
        (maxi,) = [row for row in rows if (row["set"], row["strategy"]) == ("europarl", "maxi")]
        assert bars == pytest.approx([100 * share for share in maxi["share_by_active"]], rel=1e-4)
        shares.locator("select").select_option("0")
        shares.locator("[data-reading]", has_not_text="published").wait_for()
        patterns = "figure => figure.querySelector('.chart').data.map(({ marker }) => marker.pattern.shape)"
        found = opened.page.locator("#figures-6-7-0").evaluate(patterns)
        assert len(set(found)) == 6, "told apart without colour"
        assert "beam 1" in (opened.page.locator("#online-0 select").text_content() or "")
        assert opened.page.locator("#online-0 .scatterlayer .trace").count() == 5 + 2
        opened.page.set_viewport_size({"width": 1200, "height": 900})
        opened.page.wait_for_function("() => document.documentElement.scrollWidth === 1200")
        assert opened.problems == []


def test_doubts_of_step_costs_stand_beside_the_device_and_its_claims(document: dict[str, Any]) -> None:
    sound = profile("five", beam=5, box="b")
    assert sound.step is not None
    step = sound.step.model_copy(update={"kind": "measured", "heldout_error": 0.3})
    (doubtful,) = decoders([sound.model_copy(update={"step": step})], beams=(5,))
    assert doubtful.shown_kind == "measured, doubtful"
    doubts = doubtful_profiles([doubtful])
    [doubt] = doubts
    assert (doubt["profile"], doubt["kind"], doubt["devices"]) == ("five", "measured", ["five"])
    assert "step: a held-out error of 30 %, above 10 % (measure again)" in doubt["warnings"]
    claims = [{**record, "basis": "measured"} for record in document["claims"]]
    page = render_topup(document | {"doubts": doubts, "claims": claims})
    assert "<li data-warning>step: a held-out error of 30 %, above 10 % (measure again)</li>" in page
    of_device = sum(record["device"] == "five" for record in claims)
    assert page.count('class="kind kind-measured-doubtful"') == of_device > 0
    assert "data-warning" not in render_topup(document | {"doubts": []})
