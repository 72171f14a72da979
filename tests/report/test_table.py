"""One table for terminal, page and Markdown: numbers with their intervals, escaped texts, and what the tables of a run show."""

from __future__ import annotations

import re
from typing import Any

from simnmt.report.page_template import significant, typeset
from simnmt.report.run_tables import policies_table, recommendation_badges
from simnmt.report.table import Column, Table, TableCell, change, estimate, latency, share
from simnmt.results import Run

HOSTILE = "<script>alert(1)</script>|"


def table(*rows: dict[str, Any], **parts: Any) -> Table:
    columns = [
        Column("policy", "policy", words=True),
        latency("mean ms", "mean_s"),
        share("sent %", "sent", small=lambda row: "all" if row["sent"] == 1 else ""),
        change("vs edge %", lambda row: row.get("change")),
    ]
    return Table("Policies", columns, rows, **parts)


EDGE = {"policy": "edge", "mean_s": 1.2345678, "sent": 0.0, "place": "cp1"}
CLOUD = {"policy": HOSTILE, "mean_s": 0.1, "mean_s_low": 0.09, "mean_s_high": 0.112, "sent": 1.0, "place": "cp2"} | {
    "change": {"change_percent": -1.0, "low_percent": -2.25, "high_percent": 0.25, "effect": "not distinguishable"}
}


def test_a_table_is_the_same_on_a_terminal_in_markdown_and_on_a_page() -> None:
    shown = table(EDGE, CLOUD, chosen=lambda row: row["policy"] == "edge", groups=("place",), note="a *note*")
    lines = shown.to_text().splitlines()
    assert lines[0] == "Policies" and lines[1].split("  ")[0] == "place"
    assert lines[3].split() == ["cp1", "edge", "<", "1,235", "0.0", "-"]
    assert lines[4].split() == ["cp2", HOSTILE, "100", "100.0", "-1.0~"]
    assert shown.to_markdown().splitlines()[3] == f"| cp2 | {HOSTILE[:-1]}\\| | 100 | 100.0 | -1.0~ |"
    page = str(shown.to_html())
    assert HOSTILE not in page and "&lt;script&gt;" in page
    assert re.findall(r'data-group="(\w+)"', page) == ["cp1", "cp2"]
    assert re.search(r'<tr data-row="edge" class="winner">', page)
    assert re.findall(r'data-column="mean_s" data-value="([\d.]+)"><span class="value">([^<]+)<', page) == [
        ("1.2345678", "1\u202f235"), ("0.1", "100"),
    ]  # fmt: skip
    assert '<small class="interval">[90, 112]</small>' in page and '<small class="interval">all</small>' in page
    assert re.search(r'data-outcome="not distinguishable"><span class="value">\u22121.0~<', page)
    assert '<p class="note">a *note*</p>' in page


def test_of_the_keys_that_group_rows_the_last_one_and_those_of_several_values_are_shown() -> None:
    groups = ("site", "workload", "place")
    rows = [EDGE | {"site": site, "workload": "news"} for site in ("berlin", "rome")]
    shown = table(*rows, groups=groups)
    assert shown.to_text().splitlines()[1].split()[:3] == ["site", "place", "policy"]
    assert re.findall(r'rowgroup".*<b>([^<]+)</b>', str(shown.to_html())) == ["berlin on cp1", "rome on cp1"]
    alone = table(rows[0], groups=groups)
    assert alone.to_text().splitlines()[1].split()[:2] == ["place", "policy"]
    assert re.findall(r'rowgroup".*<b>([^<]+)</b>', str(alone.to_html())) == ["cp1"]


def test_a_cell_without_a_number_is_a_dash_and_no_zero() -> None:
    column = estimate("mean ms", "mean_s")
    for value in (None, float("nan")):
        assert column.text({"mean_s": value}) == ""
        assert column.page_cell({"mean_s": value}) == TableCell("\u2013", key="mean_s")
    assert Column("x", "x", 2).text({"x": -0.001}) == "0.00" and Column("x", "x", 1, signed=True).text({"x": 0.0}) == "0.0"


def test_a_table_of_texts_takes_the_rows_as_they_are() -> None:
    shown = Table.of_texts("", ["key", "value"], [("a", "1"), ("b", "-2")])
    assert shown.to_text().splitlines()[2:] == ["a        1", "b       -2"]
    assert shown.to_text(most=1).splitlines()[2:] == ["a        1"]
    assert [line.cells[0].text for line in shown.lines[()]] == ["1", "\u22122"]


def test_numbers_in_texts_are_set_like_ours() -> None:
    assert typeset("18,730 pairs, 2009,2010, (-3.5) 26.15 - 4.78, CP-2, 1,200,300") == (
        "18\u202f730 pairs, 2009,2010, (\u22123.5) 26.15 \u2212 4.78, CP-2, 1\u202f200\u202f300"
    )
    shown = [significant(value) for value in (0.0, 13.5153, 0.002125, -0.00004269, 18_730.2, 9.99999e-5)]
    assert shown == ["0", "13.52", "0.002125", "\u22124.269\u202f\u00b7\u202f10\u207b\u2075", "18\u202f730", "0.0001"]


def one_row(**other: Any) -> dict[str, Any]:
    return {"site": "all", "workload": "w", "network": "n", "policy": "edge",
            "total_latency_s": 1234.5678, "mean_latency_s": 0.2, "p50_latency_s": 0.19, "replications": 3, **other}  # fmt: skip


def policies(*rows: dict[str, Any], **parts: Any) -> Table:
    return policies_table(Run("run", 1, list(rows), **parts))


def heads(shown: Table) -> list[str]:
    return [column.head for column in shown.columns]


def test_waiting_and_what_somebody_asked_for_have_columns() -> None:
    asked = {
        "p90_latency_s": 0.3, "p975_latency_s": 0.4, "p999_latency_s": 0.5,
        "deadline_met_share": 0.875, "goodput_rps": 7.25, "good_within_s": 0.25, "mean_queue_s": 0.1, "lost_share": 0.0,
    }  # fmt: skip
    shown = policies(one_row(**asked))
    assert {"p97.5 ms", "in deadline %", "goodput /s", "waiting ms"} <= {*heads(shown)}
    assert not {"p90 ms", "p99.9 ms", "lost %", "misrouted %"} & {*heads(shown)}
    assert "waiting ms" not in heads(policies(one_row(mean_queue_s=0.0)))


def test_an_unstable_policy_has_its_overload_in_place_of_its_mean() -> None:
    overload = {
        "unstable": "gateway: load 1.30", "unstable_device": "gateway", "unstable_replications": 3, "backlog_growth": 0.3,
        "gateway_overload": 1.3, "gateway_overloaded_in": 3, "gateway_busiest_load": 1.3, "cloud_busiest_load": 0.1,
    }  # fmt: skip
    shown = policies(one_row(**overload, mean_latency_s_predicted_low=0.1, mean_latency_s_predicted_high=0.2))
    ((line,),) = shown.lines.values()
    cells = {cell.key: cell for cell in line.cells}
    assert (cells["mean_latency_s"].text, cells["mean_latency_s"].value) == ("unstable", None)
    assert cells["mean_latency_s"].small == "gateway: load 1.30" and cells["p50_latency_s"].text == "\u2013"
    assert cells["total_latency_s"].text == "1\u202f235*"
    assert [cells[f"{name}_busiest_load"].outcome for name in ("gateway", "cloud")] == ["overloaded", ""]


def test_each_policy_has_the_badge_of_the_recommendation(result: Any) -> None:
    record = result.recommendations[0] | {"indistinguishable": ["naive", "cloud"], "as_good": ["cloud"]}
    badges = recommendation_badges([record])
    assert {policy: badge for (*_, policy), badge in badges.items()} == {
        "cnmt": "recommended", "naive": "not distinguishable from cnmt", "cloud": "as good as cnmt",
    }  # fmt: skip


def test_of_more_than_two_devices_the_table_shows_shares_and_loads() -> None:
    row = one_row(unstable="cloud: load 1.20", unstable_device="cloud", cloud_overload=1.2)
    for name, load in (("node", 0.5), ("gateway", 0.25), ("cloud", 1.2)):
        row |= {f"{name}_share": 0.5, f"{name}_busiest_load": load}
    ((line,),) = policies(row).lines.values()
    shown = {cell.key: (cell.text, cell.small, cell.outcome) for cell in line.cells}
    assert [shown[f"{name}_share"] for name in ("node", "gateway", "cloud")] == [
        ("50.0", "load 0.50", ""), ("50.0", "load 0.25", ""), ("50.0", "load 1.20", "overloaded"),
    ]  # fmt: skip
