"""Pages of real runs in a real browser: what they say is what `summary.json` beside them says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import simnmt
from simnmt.results.recommendation import by_objective
from tests.campaigns.harness import thinned

FIGURES = ["latency", "parts", "share", "rtt", "plane", "misroutes"]
QUEUEING_FIGURES = ["latency", "parts", "timeline", "share", "rtt", "plane", "misroutes"]
DESK = {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"}
FACTORS = {"goodput_rps": 1, "total_latency_s": 1, "offloaded_share": 100, "misrouted_share": 100}
"""From the summary's unit to the one shown: seconds, percent; all other columns but loads are milliseconds."""
OPEN_AND_DRAWN = "id => [...document.getElementById(id).querySelectorAll('figure')].every(figure => figure.dataset.drawn)"
MARKS = """figure => ({
    name: figure.dataset.figure,
    lines: [...figure.querySelectorAll('.scatterlayer path.js-line')].filter(path => path.getTotalLength() > 0).length,
    points: figure.querySelectorAll('.scatterlayer path.point').length,
    bars: figure.querySelectorAll('.barlayer .point path').length,
})"""
TABLE = """lines => lines.map(line => ({
    place: [line.closest('tbody').dataset.workload, line.closest('tbody').dataset.network, line.dataset.policy],
    cells: [...line.querySelectorAll('td')].map(td => ({
        column: td.dataset.column, value: td.dataset.value, outcome: td.dataset.outcome,
        text: td.querySelector('.value').textContent, interval: td.querySelector('.interval')?.textContent,
    })),
}))"""
DEVICES = """rows => rows.map(row => ({
    name: row.dataset.device, boxes: row.querySelector('th small').textContent,
    entries: [...row.querySelectorAll('td')].map(td => [
        td.querySelector('.share').textContent, td.querySelector('.interval')?.textContent ?? null,
    ]),
}))"""
MARKERS = """articles => articles.map(article => [
    article.dataset.network, article.querySelector('[data-trivial]')?.textContent ?? null,
])"""

STEADY = {f"{name}_latency_s" for name in ("mean", "p50", "p95", "p99")} | {"mean_queue_s"}
"""Columns that hold nothing where there is no steady state."""
QUEUES = {"kind": "poisson", "rate_rps": 6.0}
SCENARIOS: dict[str, dict[str, Any]] = {
    "two workloads, two networks": {
        "workloads": {"de-en": {"lengths": "@de-en-news"}, "fr-en": {"lengths": "@fr-en-mixed", "arrivals": QUEUES}},
        "networks": {"cp1": {"rtt": "@cp1"}, "still": {"rtt": {"constant_ms": 80}}},
    },
    "one policy that does not predict": {"policies": {"edge": {}}, "requests": 1_600},
}

RTTS_MS = (1, 70, 85, 120, 160, 240, 2_000)


@pytest.mark.parametrize("name", thinned(SCENARIOS, ("two workloads, two networks",)))
def test_the_page_of_a_run_shows_what_its_summary_says(
    tmp_path: Path, make_scenario: Callable[..., Any], open_page: Any, name: str
) -> None:
    scenario = make_scenario(name=name, replications=3, **SCENARIOS[name])
    simnmt.run(scenario, out=tmp_path / "run")
    with open_page(tmp_path / "run" / "report.html", **DESK) as opened:
        queues = any("arrivals" in workload for workload in scenario["workloads"].values())
        shows_what_its_summary_says(opened, tmp_path / "run", scenario, queues)


@pytest.mark.deep
def test_a_network_on_which_a_fixed_policy_suffices_is_marked_and_no_costly_choice_is_called_trivial(
    tmp_path: Path, make_scenario: Callable[..., Any], open_page: Any
) -> None:
    """From a cloud next door to one so far that C-NMT sends it nothing: one device wins, but the other is many times slower."""
    networks = {f"{ms} ms": {"rtt": {"constant_ms": ms}} for ms in RTTS_MS}
    scenario = make_scenario(networks=networks)
    simnmt.run(scenario, out=tmp_path / "run")
    summary = summary_of(tmp_path / "run")
    mean_s = {(row["network"], row["policy"]): row["mean_latency_s"] for row in summary["rows"]}
    assert mean_s["2000 ms", "cloud"] > 4 * mean_s["2000 ms", "edge"]
    with open_page(tmp_path / "run" / "report.html", **DESK) as opened:
        assert opened.page.locator("table.overview [data-overview]").count() == len(networks)
        opened.page.locator("details.words > summary").click()
        shown = dict(opened.page.locator("article.verdict").evaluate_all(MARKERS))
        assert shown == {verdict["network"]: verdict["triviality"] or None for verdict in summary["verdicts"]}
        assert not any("nearly trivial" in (text or "") for text in shown.values())
        suffices = [f"{ms} ms" for ms in RTTS_MS if "A fixed policy suffices" in (shown[f"{ms} ms"] or "")]
        assert {"1 ms", "2000 ms"} <= set(suffices) and "85 ms" not in suffices
        every_figure_is_drawn(opened.page, f"cell-{len(networks) - 1}", scenario["policies"])
        assert opened.problems == []


@pytest.mark.deep
def test_the_quickstart_leaves_a_choice_on_either_network(tmp_path: Path, open_page: Any) -> None:
    result = simnmt.run("@quickstart", out=tmp_path / "run", requests=5_000, replications=2)
    summary = summary_of(tmp_path / "run")
    assert [verdict["network"] for verdict in summary["verdicts"]] == ["cp1", "cp2"]
    oracle = [row["offloaded_share"] for row in summary["rows"] if row["policy"] == "oracle"]
    assert all(0.2 <= share <= 0.8 for share in oracle)
    with open_page(tmp_path / "run" / "report.html", **DESK) as opened:
        assert opened.page.locator("article.verdict").evaluate_all(MARKERS) == [["cp1", None], ["cp2", None]]
        shows_what_its_summary_says(opened, tmp_path / "run", result.scenario, queues=False)


@pytest.mark.deep
def test_a_run_over_three_tiers_shows_regions_gaps_and_who_worked_how_much(tmp_path: Path, open_page: Any) -> None:
    scenario = simnmt.run("@tiers", out=tmp_path / "run", requests=3_000, replications=3).scenario
    summary = summary_of(tmp_path / "run")
    with open_page(tmp_path / "run" / "report.html", **DESK) as opened:
        page = opened.page
        columns = table_is_that_of(page, summary)
        assert {"gateway_busiest_load", "region_busiest_load", "cloud_busiest_load", "change_vs_cnmt"} <= columns
        page.wait_for_function(OPEN_AND_DRAWN, arg="cell-0")
        page.wait_for_function(OPEN_AND_DRAWN, arg="fit-0")
        assert page.locator("#cell-0-plane .heatmaplayer image").count() == 1
        assert page.locator('tr[data-policy="region"] th small').first.text_content() == "region only"
        assert "region only" in page.locator("table.policies thead").text_content()
        shown = page.locator("table.devices tbody tr").evaluate_all(DEVICES)
        assert [device["name"] for device in shown] == list(scenario["devices"])
        assert [device["boxes"] for device in shown] == ["3 boxes", "2 boxes, 2 workers each", "4 boxes"]
        for device in shown:
            for (share, load), row in zip(device["entries"], summary["rows"], strict=True):
                mean, busiest = (row[f"{device['name']}{suffix}"] for suffix in ("_load", "_busiest_load"))
                if row[f"{device['name']}_share"] == 0:
                    assert (share, load) == ("\u2013", None)
                    continue
                assert rounds_to(share, 100 * row[f"{device['name']}_share"])
                of_all, _, of_busiest = load.removeprefix("load ").partition(", busiest ")
                assert rounds_to(of_all, mean)
                assert rounds_to(of_busiest or of_all, busiest)
        lines = page.locator("table.gaps tbody tr").evaluate_all(
            "rows => rows.map(row => [row.dataset.removed, ...row.innerText.split(/[\\t\\n]+/)])"
        )
        assert [line[0] for line in lines] == [gap["removed"] for gap in summary["gaps"]]
        for line, gap in zip(lines, summary["gaps"], strict=True):
            assert rounds_to(line[2], gap["total_latency_s"])
            assert rounds_to(line[3].lstrip("+"), gap["change_percent"])
        assert page.locator("[data-gap-word]").count() >= 1 + len(summary["gaps"]) - 2
        assert page.locator("[data-variants]").text_content() == summary["verdicts"][0]["variants"]
        share = page.locator("#cell-0-share")
        share.get_by_role("button", name="region", exact=True).click()
        share.locator("text=sent to the region, %").wait_for()
        assert opened.problems == []


@pytest.mark.deep
def test_a_sweep_over_load_says_and_draws_from_which_load_on(
    tmp_path: Path, make_scenario: Callable[..., Any], open_page: Any
) -> None:
    workloads = {
        f"{rate} a second": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": rate}}
        for rate in (1.0, 4.0, 16.0)
    }
    policies = {"cloud": {}, "cnmt": {}, "queue-aware": {"kind": "cnmt", "sees_backlog": True}}
    simnmt.run(make_scenario(name="sweep", replications=3, workloads=workloads, policies=policies), out=tmp_path / "run")
    summary = summary_of(tmp_path / "run")
    (sweep,) = summary["load_sweeps"]
    assert [point["workload"] for point in sweep["points"]] == list(workloads)
    with open_page(tmp_path / "run" / "report.html", **DESK) as opened:
        page = opened.page
        assert page.locator("[data-sweep]").all_text_contents() == [sweep["sentence"]]
        page.wait_for_function(OPEN_AND_DRAWN, arg="load-0")
        figure = page.locator("#load-0-load")
        traces = "figure => figure.querySelector('.chart').data.map(({name, x, y}) => ({name, x, y}))"
        for trace in figure.evaluate(traces):
            assert trace["x"] == pytest.approx([point["load"] for point in sweep["points"]], abs=1e-4)
            rows = [row for row in summary["rows"] if row["policy"] == trace["name"]]
            for value, row in zip(trace["y"], rows, strict=True):
                assert value == (None if row["unstable"] else pytest.approx(1e3 * row["mean_latency_s"], rel=1e-4))
        figure.get_by_role("button", name="change against cnmt").click()
        page.wait_for_function("() => document.querySelector('#load-0-load .chart').data.length === 1")
        (change,) = figure.evaluate(traces)
        assert change["y"] == pytest.approx([point["change_percent"] for point in sweep["points"]])
        assert opened.problems == []


@pytest.mark.deep
def test_twenty_devices_and_eight_policies_fit_a_desk_and_a_phone(
    tmp_path: Path, make_scenario: Callable[..., Any], open_page: Any
) -> None:
    arrivals = {"kind": "poisson", "rate_rps": 12.0}
    workloads = {"de-en": {"lengths": "@de-en-news", "arrivals": arrivals, "end_nodes": 9}}
    scenario = make_scenario(name="many", replications=1, requests=500, gap_analysis=True, workloads=workloads)
    tiers = [f"a_tier_with_a_long_name_{number:02d}" for number in range(18)]
    gateway, cloud = scenario["devices"]["gateway"], scenario["devices"]["cloud"]
    scenario["devices"] = {"gateway": gateway, **dict.fromkeys(tiers, gateway), "cloud": cloud}
    scenario["networks"] = {"n": {"rtt": {"constant_ms": 70}, "hops": {tier: {"rtt": {"constant_ms": 2}} for tier in tiers}}}
    scenario["policies"] |= {f"a policy whose name leaves little room {number}": {"kind": "cnmt"} for number in range(3)}
    simnmt.run(scenario, out=tmp_path / "run")
    assert (tmp_path / "run" / "report.html").stat().st_size < 2_500_000
    with open_page(tmp_path / "run" / "report.html", **DESK) as opened:
        page = opened.page
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_function(OPEN_AND_DRAWN, arg="cell-0")
            page.wait_for_function(
                "most => [...document.querySelectorAll('#cell-0 .main-svg')].every(plot => plot.clientWidth < most)", arg=width
            )
            assert page.evaluate("document.documentElement.scrollWidth") == width
            for plot in page.locator("#cell-0 figure .chart .nsewdrag").all():
                assert plot.bounding_box()["height"] > 120, "the legend left room to draw in"
            timeline = page.locator("#cell-0-timeline")
            timeline.locator("select").select_option(label=tiers[7 if width == 1280 else 8])
            timeline.locator("[data-reading]", has_text=tiers[7 if width == 1280 else 8]).wait_for()
            assert opened.problems == []


def shows_what_its_summary_says(opened: Any, directory: Path, scenario: Any, queues: bool) -> None:
    """All of a page of two devices: its head, its verdicts, its table, and every figure of every cell."""
    page, summary = opened.page, summary_of(directory)
    cells = [f"{workload}/{network}" for workload in scenario["workloads"] for network in scenario["networks"]]
    assert len(summary["rows"]) == len(cells) * len(scenario["policies"])
    assert page.locator("h1").text_content() == scenario["name"]
    assert page.locator(".facts span").all_text_contents() == [
        f"{scenario['requests']:,} requests under each policy".replace(",", "\u202f"),
        f"{scenario['replications']} replications",
        f"seed {scenario['seed']}",
    ]
    assert page.locator("[data-verdict]").all_text_contents() == [verdict["sentence"] for verdict in summary["verdicts"]]
    assert ("mean_queue_s" in table_is_that_of(page, summary)) == queues
    assert page.locator("details.cell").evaluate_all("all => all.map(one => one.dataset.cell)") == cells
    for index, cell in enumerate(cells):
        rows = [row for row in summary["rows"] if f"{row['workload']}/{row['network']}" == cell]
        every_figure_is_drawn(page, f"cell-{index}", scenario["policies"], sum(bool(row["unstable"]) for row in rows))
    used = [device for device in scenario["devices"] if any(row[f"{device}_share"] for row in summary["rows"])]
    fits_are_drawn(page, summary, used)
    assert opened.problems == []


def summary_of(directory: Path) -> Any:
    return json.loads((directory / "summary.json").read_text(encoding="utf-8"))


FITTED = """id => Object.fromEntries([...document.querySelectorAll(`#${id} [data-figure]`)].map(figure => [
    figure.dataset.figure, figure.querySelector('.chart').data.map(({name, mode, x, y}) => ({name, mode, x, y})),
]))"""


def fits_are_drawn(page: Any, summary: Any, devices: Any) -> None:
    """Means and band of each device, and the line and planes of the summary."""
    page.wait_for_function(OPEN_AND_DRAWN, arg="fit-0")
    fit = {entry["of"]: entry for entry in summary["fits"] if entry["workload"] == summary["rows"][0]["workload"]}
    drawn = page.evaluate(FITTED, "fit-0")
    band, means, line = drawn["lengths"]
    assert len(means["x"]) > 50 and len(band["x"]) > 100
    length = line["x"][-1]
    of = fit["target length over source length"]
    assert line["y"][-1] == pytest.approx(of["len_slope"] * length + of["len_offset"])
    assert [trace["name"] for trace in drawn["execution"] if trace["mode"] == "markers"] == list(devices)
    words = page.locator("#fit-0-execution [data-reading]").text_content()
    for device in devices:
        if "mse_ms2" in fit[f"execution time on the {device}"]:
            assert re.search(rf"{device}: .*?requests.*? fitted with R².*? squared error of [\d.·⁻\d\u202f⁰-⁹]+ ms²", words)


def every_figure_is_drawn(page: Any, section: str, policies: Any, unstable: int = 0) -> None:
    """Opens a section if it is closed; every policy has its line, every sampled request its point.

    `unstable`: policies that have no mean to be drawn.
    """
    if page.locator(f"#{section}").get_attribute("open") is None:
        page.locator(f"#{section} summary").click()
    page.wait_for_function(OPEN_AND_DRAWN, arg=section)
    marks = {
        figure.pop("name"): figure
        for figure in page.locator(f"#{section} [data-figure]").evaluate_all(f"all => all.map({MARKS})")
    }
    assert list(marks) in (FIGURES, QUEUEING_FIGURES)
    assert marks["parts"]["bars"] == 3 * (len(policies) - unstable)
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
    rows = by_objective(summary["rows"], summary["recommendations"])
    assert [tuple(line["place"]) for line in lines] == [place_of(row) for row in rows]
    shown = 0
    for line, row in zip(lines, rows, strict=True):
        for cell in line["cells"]:
            column = cell["column"]
            if column.startswith("change_vs_"):
                change = changes.pop((*line["place"], column.removeprefix("change_vs_")), {})
                wanted, low, high = (change.get(key) for key in ("change_percent", "low_percent", "high_percent"))
                factor = 1
                assert cell["outcome"] == change.get("verdict", "")
            else:
                wanted, low, high = row[column], row.get(f"{column}_low"), row.get(f"{column}_high")
                factor = 1 if column.endswith("_load") else FACTORS.get(column, 1_000)
            if row["unstable"] and column in STEADY:
                assert (cell["value"], cell["text"]) == ("", "unstable" if column == "mean_latency_s" else "\u2013")
                continue
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
            elif column.startswith("change_vs_") or (column == "mean_latency_s" and not row["unstable"]):
                assert low is None
    assert not changes, "every comparison has its place in the table"
    assert shown >= 3 * len(lines)
    return {cell["column"] for cell in lines[0]["cells"]}


def place_of(record: Any) -> tuple[str, str, str]:
    return record["workload"], record["network"], record["policy"]


def rounds_to(text: str, value: float) -> bool:
    """Whether a number as the page writes it is `value` to the digits it shows."""
    plain = text.replace("\u202f", "").replace("\u2212", "-")
    decimals = len(re.sub(r"^[^.]*\.?", "", plain))
    return abs(float(plain) - value) <= 0.5000001 * 10**-decimals
