"""The table says what the rows say, to a person."""

from __future__ import annotations

from typing import Any

import pytest

from simnmt.report.tables import policy_table
from simnmt.report.typography import number, signed, significant, typeset

ROLES = {"edge": "gateway only", "cloud": "cloud only", "oracle": "knows the truth"}
COLOURS = {"edge": 0, "cloud": 1, "oracle": 2, "naive": 3, "cnmt": 4}


def one_row(**other: Any) -> dict[str, Any]:
    return {"workload": "w", "network": "n", "policy": "edge", "total_latency_s": 1234.5678, "mean_latency_s": 0.2, **other}


def compared(percent: float | None, low: float | None, high: float | None, verdict: str) -> dict[str, Any]:
    return {
        "workload": "w", "network": "n", "policy": "edge", "baseline": "cloud", "change_percent": percent,
        "low_percent": low, "high_percent": high, "verdict": verdict,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (1234567.891, 1, "1\u202f234\u202f567.9"),
        (-13.554, 2, "\u221213.55"),
        (-0.001, 2, "0.00"),
        (0.0, 0, "0"),
        (-1000.0, 0, "\u22121\u202f000"),
    ],
)
def test_numbers_read_well(value: float, decimals: int, text: str) -> None:
    assert number(value, decimals) == text


def test_a_change_shows_its_sign_unless_it_rounds_to_nothing() -> None:
    assert [signed(1.5), signed(-1.5), signed(0.001), signed(-0.001)] == ["+1.50", "\u22121.50", "0.00", "0.00"]


def test_a_missing_number_is_a_dash_and_no_zero() -> None:
    (line,) = policy_table([one_row(p99_latency_s=None, p95_latency_s=float("nan"))], [], COLOURS).lines["w", "n"]
    shown = {figure.key: (figure.value, figure.text) for figure in line.figures}
    assert shown["p99_latency_s"] == shown["p95_latency_s"] == (None, "\u2013")
    assert "misrouted_share" not in shown, "left out where no policy's is known"


def test_waiting_is_shown_only_where_somebody_waited() -> None:
    def keys(row: dict[str, Any]) -> list[str]:
        return [column.key for column in policy_table([row], [], COLOURS).columns]

    assert "mean_queue_s" not in keys(one_row(mean_queue_s=0.0))
    assert keys(one_row(mean_queue_s=0.1))[5] == "mean_queue_s"


def test_metrics_that_somebody_asked_for_have_columns() -> None:
    asked = {
        "p90_latency_s": 0.3, "p975_latency_s": 0.4, "p999_latency_s": 0.5, "answered_within_250ms_share": 0.9,
        "deadline_met_share": 0.875, "goodput_rps": 7.25, "good_within_s": 0.25,
    }  # fmt: skip
    table = policy_table([one_row(**asked)], [], COLOURS)
    heads = {column.key: column.head for column in table.columns}
    assert heads["p975_latency_s"] == "p97.5" and "p90_latency_s" not in heads and "p999_latency_s" not in heads
    assert heads["answered_within_250ms_share"] == "within 250 ms" and heads["deadline_met_share"] == "in deadline"
    assert heads["goodput_rps"] == "within 250 ms"
    (line,) = table.lines["w", "n"]
    texts = {figure.key: figure.text for figure in line.figures}
    assert (texts["goodput_rps"], texts["deadline_met_share"], texts["p975_latency_s"]) == ("7.25", "87.50", "400")
    objective = policy_table([one_row(p90_latency_s=0.3, p90_latency_spread=1.0)], [], COLOURS)
    assert "p90" in [column.head for column in objective.columns]
    any_answer = policy_table([one_row(goodput_rps=7.25, good_within_s=None)], [], COLOURS)
    assert "goodput_rps" not in [column.key for column in any_answer.columns], "every answer counts: the rate of answers"


def test_a_change_that_cannot_be_told_from_none_says_so() -> None:
    shown = policy_table([one_row()], [compared(-0.5, -1.25, 0.25, "not distinguishable")], COLOURS)
    (change,) = shown.lines["w", "n"][0].changes
    assert (change.text, change.interval, change.verdict) == ("\u22120.5", "[\u22121.2, +0.2]", "not distinguishable")
    assert shown.unclear
    assert not shown.bare


def test_one_replication_has_no_interval() -> None:
    shown = policy_table(
        [one_row(total_latency_s_low=None, total_latency_s_high=None)], [compared(-0.5, None, None, "one replication")], COLOURS
    )
    assert shown.bare
    assert shown.lines["w", "n"][0].changes[0].interval == ""


def test_the_papers_baselines_come_first_and_in_its_order() -> None:
    comparisons = [{**compared(1.0, 0.5, 1.5, "slower"), "baseline": name} for name in ("mine", "oracle", "cloud", "edge")]
    assert policy_table([one_row()], comparisons, COLOURS, ROLES).baselines == [
        ("edge", "gateway only"), ("cloud", "cloud only"), ("oracle", "oracle"), ("mine", "mine"),
    ]  # fmt: skip


def test_numbers_in_the_text_of_others_are_set_like_ours() -> None:
    assert typeset("18,730 pairs, 2009,2010, (-3.5) 26.15 - 4.78, CP-2, 1,200,300") == (
        "18\u202f730 pairs, 2009,2010, (\u22123.5) 26.15 \u2212 4.78, CP-2, 1\u202f200\u202f300"
    )
    assert [typeset(text) for text in ("-", "-13.55", "+0.11")] == ["\u2013", "\u221213.55", "+0.11"]


def test_a_small_number_keeps_its_digits() -> None:
    shown = [significant(value) for value in (0.0, 13.5153, 0.51, 0.002125, -0.00004269, 18_730.2, 9.99999e-5)]
    assert shown == ["0", "13.52", "0.51", "0.002125", "\u22124.269\u202f\u00b7\u202f10\u207b\u2075", "18\u202f730", "0.0001"]


def loads(gateway: float | None, cloud: float | None) -> dict[str, float | None]:
    return {"gateway_busiest_load": gateway, "cloud_busiest_load": cloud}


def unstable(load: float, of: int = 3, in_all: bool = True) -> dict[str, Any]:
    text = f"gateway: load {load:.2f}" + ("" if in_all else f" in 1 of {of} replications")
    return {
        "unstable": text, "unstable_device": "gateway", "unstable_replications": of if in_all else 1, "replications": of,
        "backlog_growth": load - 1, "gateway_overload": load, "gateway_overloaded_in": of if in_all else 1,
    }  # fmt: skip


def test_long_queues_turn_milliseconds_into_seconds_where_they_are_and_nowhere_else() -> None:
    calm = one_row(mean_queue_s=0.0004, p99_latency_s=2.4804, **loads(0.4, 0.0))
    flood = one_row(
        network="flood", total_latency_s=3.6e8, mean_latency_s=3584.26, p50_latency_s=0.0621, mean_queue_s=3583.9,
        p99_latency_s=None, **loads(0.99, 0.0),
    )  # fmt: skip
    shown = policy_table([calm, flood], [], COLOURS)
    texts = {
        cell: {figure.key: f"{figure.text}{figure.unit}" for figure in lines[0].figures} for cell, lines in shown.lines.items()
    }
    assert texts["w", "n"]["total_latency_s"] == "1\u202f235s"
    assert texts["w", "flood"]["total_latency_s"] == "100\u202f000h"
    assert [texts["w", "n"][key] for key in ("mean_latency_s", "mean_queue_s", "p99_latency_s")] == [
        "200ms",
        "0ms",
        "2\u202f480ms",
    ]
    assert [texts["w", "flood"][key] for key in ("mean_latency_s", "p50_latency_s")] == ["3\u202f584s", "0.062s"]
    assert shown.groups == [
        ("total time", 1), ("latency of a request", 5), ("requests, %", 1), ("load", 2),
    ]  # fmt: skip


def test_load_is_not_shown_where_requests_come_back_to_back() -> None:
    shown = policy_table([one_row(**loads(None, None))], [], COLOURS)
    assert not shown.loads
    assert shown.groups[0] == ("total time, s", 1)


def test_a_huge_change_has_no_decimals() -> None:
    (change,) = (
        policy_table([one_row()], [compared(652677.4, 652000.1, 653000.9, "slower")], COLOURS).lines["w", "n"][0].changes
    )
    assert (change.text, change.interval) == ("+652\u202f677", "[+652\u202f000, +653\u202f001]")


def test_an_unstable_policy_shows_no_mean_but_how_fast_waits_grow() -> None:
    """And its total, which is this run's, does not set the unit of those that have a steady state."""
    calm = one_row(policy="cloud", p50_latency_s=0.19, **loads(0.1, 0.5), unstable=None)
    flood = one_row(
        total_latency_s=3.6e8, total_latency_s_low=-1e8, total_latency_s_high=8e8, mean_latency_s=3584.26, p50_latency_s=3500.0,
        mean_queue_s=3584.0, **loads(1.3, 0.0), **unstable(1.3),
    )  # fmt: skip
    changes = [{**compared(-99.0, -99.5, -98.5, "faster"), "policy": "cloud", "baseline": "edge", "unstable": "baseline"}]
    shown = policy_table([calm, flood], changes, COLOURS)
    assert shown.unstable
    one, other = shown.lines["w", "n"]
    figures = {figure.key: figure for figure in other.figures}
    assert (figures["mean_latency_s"].value, figures["mean_latency_s"].text) == (None, "unstable")
    assert figures["mean_latency_s"].remark == "waits grow by 0.30\u202fs each second"
    assert [figures[key].text for key in ("p50_latency_s", "p95_latency_s", "mean_queue_s")] == ["\u2013"] * 3
    total = figures["total_latency_s"]
    assert (total.text, total.remark, total.interval) == ("360\u202f000\u202f000", "this run", "")
    assert (figures["gateway_busiest_load"].verdict, figures["cloud_busiest_load"].verdict) == ("overloaded", "")
    assert (one.bar_percent, other.bar_percent) == (100.0, 0.0)
    assert {figure.key: figure.text for figure in one.figures}["mean_latency_s"] == "200"
    assert (one.changes[0].remark, other.changes[0].remark) == ("this run", "")


def test_a_load_that_is_too_much_in_some_replications_alone_says_in_how_many() -> None:
    shown = policy_table([one_row(**loads(0.9, 0.1), **unstable(1.05, of=5, in_all=False))], [], COLOURS)
    (line,) = shown.lines["w", "n"]
    figures = {figure.key: figure for figure in line.figures}
    assert (figures["gateway_busiest_load"].text, figures["gateway_busiest_load"].verdict) == ("0.90", "overloaded in 1 of 5")


def test_of_many_devices_the_busiest_is_shown() -> None:
    many = {f"tier_{number}_busiest_load": number / 10 for number in range(9)}
    shown = policy_table([one_row(**many), one_row(policy="cloud", **dict.fromkeys(many))], [], COLOURS)
    assert [column.head for column in shown.columns][-1] == "busiest"
    busy, idle = (line.figures[-1] for line in shown.lines["w", "n"])
    assert (busy.value, busy.text, busy.remark) == (0.8, "0.80", "tier_8")
    assert (idle.value, idle.text) == (None, "\u2013")
