"""Pages of real runs in a real browser: what they say is what `summary.json` beside them says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import simnmt

FIGURES = ["latency", "share", "rtt", "plane"]
DESK = {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"}
FACTORS = {"total_latency_s": 1, "offloaded_share": 100, "misrouted_share": 100, "gateway_load": 1, "cloud_load": 1}
"""From the summary's unit to the one shown: seconds, percent; all other columns are milliseconds."""
OPEN_AND_DRAWN = "id => document.getElementById(id).querySelectorAll('figure[data-drawn]').length === 4"
MARKS = """figure => ({
    name: figure.dataset.figure,
    lines: [...figure.querySelectorAll('.scatterlayer path.js-line')].filter(path => path.getTotalLength() > 0).length,
    points: figure.querySelectorAll('.scatterlayer path.point').length,
})"""
TABLE = """lines => lines.map(line => ({
    place: [line.closest('tbody').dataset.workload, line.closest('tbody').dataset.network, line.dataset.policy],
    cells: [...line.querySelectorAll('td')].map(td => ({
        column: td.dataset.column, value: td.dataset.value, outcome: td.dataset.outcome,
        text: td.querySelector('.value').textContent, interval: td.querySelector('.interval')?.textContent,
    })),
}))"""
MARKERS = """articles => articles.map(article => [
    article.dataset.network, article.querySelector('[data-trivial]')?.textContent ?? null,
])"""

QUEUES = {"kind": "poisson", "rate_rps": 6.0}
SCENARIOS: dict[str, dict[str, Any]] = {
    "back to back": {},
    "open loop": {"workloads": {"de-en": {"lengths": "@de-en-news", "arrivals": QUEUES}}},
    "two workloads, two networks": {
        "workloads": {"de-en": {"lengths": "@de-en-news"}, "fr-en": {"lengths": "@fr-en-mixed", "arrivals": QUEUES}},
        "networks": {"cp1": {"rtt": "@cp1"}, "still": {"rtt": {"constant_ms": 80}}},
    },
    "one policy that predicts": {"policies": {"cnmt": {}}},
    "one policy that does not": {"policies": {"edge": {}}},
}

RTTS_MS = (1, 70, 85, 120, 160, 240, 2_000)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_page_of_a_run_shows_what_its_summary_says(
    tmp_path: Path, make_scenario: Callable[..., Any], open_page: Any, name: str
) -> None:
    scenario = make_scenario(name=name, replications=3, **SCENARIOS[name])
    simnmt.run(scenario, out=tmp_path / "run")
    summary = summary_of(tmp_path / "run")
    cells = [f"{workload}/{network}" for workload in scenario["workloads"] for network in scenario["networks"]]
    assert len(summary["rows"]) == len(cells) * len(scenario["policies"])
    with open_page(tmp_path / "run" / "report.html", **DESK) as opened:
        page = opened.page
        assert page.locator("h1").text_content() == name
        facts = ["2\u202f000 requests under each policy", "3 replications", "seed 7"]
        assert page.locator(".facts span").all_text_contents() == facts
        sentences = [verdict["sentence"] for verdict in summary["verdicts"]]
        assert page.locator("[data-verdict]").all_text_contents() == sentences
        columns = table_is_that_of(page, summary)
        assert ("mean_queue_s" in columns) == any("arrivals" in workload for workload in scenario["workloads"].values())
        assert page.locator("details.cell").evaluate_all("all => all.map(one => one.dataset.cell)") == cells
        for index in range(len(cells)):
            every_figure_is_drawn(page, f"cell-{index}", scenario["policies"])
        assert opened.problems == []


def test_a_network_that_leaves_little_to_choose_is_marked(
    tmp_path: Path, make_scenario: Callable[..., Any], open_page: Any
) -> None:
    """From a cloud next door to one so far that C-NMT sends it nothing and its estimate never moves."""
    networks = {f"{ms} ms": {"rtt": {"constant_ms": ms}} for ms in RTTS_MS}
    scenario = make_scenario(networks=networks, replications=3)
    simnmt.run(scenario, out=tmp_path / "run")
    rows = summary_of(tmp_path / "run")["rows"]
    share = {row["network"]: row["offloaded_share"] for row in rows if row["policy"] == "oracle"}
    assert share["1 ms"] > 0.99
    assert share["2000 ms"] < 0.01
    with open_page(tmp_path / "run" / "report.html", **DESK) as opened:
        shown = dict(opened.page.locator("article.verdict").evaluate_all(MARKERS))
        assert shown == {
            network: None
            if 0.2 <= offloaded <= 0.8
            else f"The oracle offloads {100 * offloaded:.0f}\u202f% here: the choice is nearly trivial."
            for network, offloaded in share.items()
        }
        assert [shown[f"{ms} ms"] is not None for ms in RTTS_MS] == [True, True, False, False, False, True, True]
        every_figure_is_drawn(opened.page, f"cell-{len(networks) - 1}", scenario["policies"])
        assert opened.problems == []


def test_the_quickstart_leaves_a_choice_on_either_network(tmp_path: Path, open_page: Any) -> None:
    simnmt.run("@quickstart", out=tmp_path / "run", requests=5_000, replications=2)
    summary = summary_of(tmp_path / "run")
    assert [verdict["network"] for verdict in summary["verdicts"]] == ["cp1", "cp2"]
    oracle = [row["offloaded_share"] for row in summary["rows"] if row["policy"] == "oracle"]
    assert all(0.2 <= share <= 0.8 for share in oracle)
    with open_page(tmp_path / "run" / "report.html", **DESK) as opened:
        assert opened.page.locator("article.verdict").evaluate_all(MARKERS) == [["cp1", None], ["cp2", None]]
        table_is_that_of(opened.page, summary)
        for index in range(2):
            every_figure_is_drawn(opened.page, f"cell-{index}", ["edge", "cloud", "oracle", "naive", "cnmt"])
        assert opened.problems == []


def summary_of(directory: Path) -> Any:
    return json.loads((directory / "summary.json").read_text(encoding="utf-8"))


def every_figure_is_drawn(page: Any, section: str, policies: Any) -> None:
    """Opens a section if it is closed; every policy has its line, every sampled request its point."""
    if page.locator(f"#{section}").get_attribute("open") is None:
        page.locator(f"#{section} summary").click()
    page.wait_for_function(OPEN_AND_DRAWN, arg=section)
    marks = {
        figure.pop("name"): figure
        for figure in page.locator(f"#{section} [data-figure]").evaluate_all(f"all => all.map({MARKS})")
    }
    assert list(marks) == FIGURES
    assert marks["latency"]["lines"] == marks["share"]["lines"] == len(policies)
    estimate = 1 if {"naive", "cnmt"} & {*policies} else 0
    assert marks["rtt"]["lines"] == 1 + estimate
    assert marks["plane"]["lines"] >= 1 + estimate
    assert marks["plane"]["points"] == 1_500


def table_is_that_of(page: Any, summary: Any) -> set[str]:
    """Each figure is the summary's, unrounded in its attribute and rounded for the eye; so is each interval.

    Returns the names of the columns.
    """
    lines = page.locator("table.policies tr[data-policy]").evaluate_all(TABLE)
    changes = {(*place_of(change), change["baseline"]): change for change in summary["comparisons"]}
    assert [tuple(line["place"]) for line in lines] == [place_of(row) for row in summary["rows"]]
    shown = 0
    for line, row in zip(lines, summary["rows"], strict=True):
        for cell in line["cells"]:
            column = cell["column"]
            if column.startswith("change_vs_"):
                change = changes.pop((*line["place"], column.removeprefix("change_vs_")), {})
                wanted, low, high = (change.get(key) for key in ("change_percent", "low_percent", "high_percent"))
                factor = 1
                assert cell["outcome"] == change.get("verdict", "")
            else:
                wanted, low, high = row[column], row.get(f"{column}_low"), row.get(f"{column}_high")
                factor = FACTORS.get(column, 1_000)
            assert (cell["value"] == "") == (wanted is None)
            if wanted is None:
                assert cell["text"] == "\u2013"
                continue
            assert float(cell["value"]) == wanted
            assert rounds_to(cell["text"], wanted * factor)
            shown += 1
            if cell["interval"]:
                for text, end in zip(cell["interval"].strip("[]").split(", "), (low, high), strict=True):
                    assert rounds_to(text, end * factor)
            elif column.startswith("change_vs_") or column == "total_latency_s":
                assert low is None
    assert not changes, "every comparison has its place in the table"
    assert shown >= 7 * len(lines)
    return {cell["column"] for cell in lines[0]["cells"]}


def place_of(record: Any) -> tuple[str, str, str]:
    return record["workload"], record["network"], record["policy"]


def rounds_to(text: str, value: float) -> bool:
    """Whether a number as the page writes it is `value` to the digits it shows."""
    plain = text.replace("\u202f", "").replace("\u2212", "-")
    decimals = len(re.sub(r"^[^.]*\.?", "", plain))
    return abs(float(plain) - value) <= 0.5000001 * 10**-decimals
