"""The page of the reproduction, read and in a browser."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simnmt.papers.cnmt.claims import Profiles
from simnmt.papers.cnmt.replay import Part, replays
from simnmt.papers.cnmt.reproduction import report
from tests.browser import assert_folded, part_of
from tests.papers.stand_ins import write_stand_ins

HOSTILE = "</script><script>alert(1)</script>"
DRAWN = "count => document.querySelectorAll('figure[data-drawn]').length === count"
Replays = tuple[list[Part], Profiles]


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Replays:
    scenario = write_stand_ins(tmp_path_factory.mktemp("stand-ins"), device={"name": HOSTILE})
    return replays(scenario, requests=300)


@pytest.fixture(scope="module")
def page(replayed: Replays) -> str:
    return report(*replayed).page()


def changed(replayed: Replays, *names: str, **changes: Any) -> Replays:
    """Return the replays with changed cells in the parts of these names."""
    parts, profiles = replayed
    return [
        replace(part, cells=[replace(cell, **changes) for cell in part.cells]) if part.name in names else part for part in parts
    ], profiles


def test_every_claim_cell_and_ratio_is_on_the_page_with_its_kind(replayed: Replays, page: str) -> None:
    for record in report(*replayed).claims:
        rows = re.findall(rf'<tr data-row="{re.escape(record.id)}">(.*?)</tr>', page, re.DOTALL)
        assert any(f'data-outcome="{record.verdict}"' in row and f'kind-{record.basis}">' in row for row in rows)
    table = part_of(page, "table-one")
    assert table.count("kind-published") == 6
    assert table.count("kind-inferred") == 6 and table.count("kind-measured") == 6
    for cell in ("+11.74", "\u221226.15", "+8.77"):
        assert f">{cell}<" in table
    ratios = part_of(page, "ratios")
    assert ratios.count(">test<") == 9 and ratios.count(">fitted<") == 15 and "held out" in ratios


def test_the_page_is_one_small_file_with_escaped_names(replayed: Replays, page: str) -> None:
    assert len(page.encode()) < 4_000_000
    assert HOSTILE not in page
    assert not re.search(r'(src|href)="https?:', page)
    assert page == report(*replayed).page()


def test_every_figure_is_drawn_without_errors(open_page: Any, page: str, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page, encoding="utf-8")
    with open_page(file, viewport={"width": 1000, "height": 800}) as opened:
        assert_folded(opened.page)
        opened.unfold()
        opened.page.wait_for_function(DRAWN, arg=7)
        assert opened.problems == []
        times = opened.page.locator("#figure-2a figure")
        assert times.locator(".scatterlayer .trace").count() == 3, "a band, a line and the means"
        assert "R\u00b2 of the means" in (times.locator("[data-reading]").text_content() or "")
        assert opened.page.locator("#figure-3 figure").count() == 4, "EN-ZH by subwords and by characters"
        planes = opened.page.locator("#figure-2b figure")
        before = planes.locator("[data-reading]").text_content()
        planes.locator("select").select_option("5")
        opened.page.wait_for_function(
            "said => document.querySelector('#figure-2b [data-reading]').textContent !== said", arg=before
        )
        assert opened.page.locator("#figure-4 .scatterlayer .trace").count() == 2
        assert opened.page.locator("#figure-1 svg[role=img]").count() == 3
        width = opened.page.evaluate("() => document.documentElement.scrollWidth")
        assert width <= 1000 and opened.problems == []


def test_doubts_of_measured_profiles_stand_beside_what_rests_on_them(replayed: Replays) -> None:
    """A badge of `measured` by itself would vouch for a measurement that its own profile warns of."""
    doubtful = report(*changed(replayed, "measured", profile_warnings=(("the box was busy",), ())))
    doubts = doubtful.document()["doubts"]
    assert {part for doubt in doubts for part in doubt["parts"]} == {"measured"}
    assert all(doubt["devices"] == ["gateway"] and doubt["warnings"] == ["the box was busy"] for doubt in doubts)
    page = doubtful.page()
    assert page.count("<li>the box was busy</li>") == len(doubts) == 3, "one for each model"
    assert part_of(page, "table-one").count("kind-measured-doubtful") == 6
    for record in doubtful.claims:
        rows = re.findall(rf'<tr data-row="{re.escape(record.id)}">(.*?)</tr>', page, re.DOTALL)
        assert any("kind-measured-doubtful" in row for row in rows) == (record.device == "measured"), record.id
