"""The table says what the rows say, to a person."""

from __future__ import annotations

from typing import Any

import pytest

from simnmt.report.table import number, signed, table

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
    (line,) = table([one_row(p99_latency_s=None, p95_latency_s=float("nan"))], [], COLOURS).lines["w", "n"]
    shown = {figure.key: (figure.value, figure.text) for figure in line.figures}
    assert shown["p99_latency_s"] == shown["p95_latency_s"] == shown["misrouted_share"] == (None, "\u2013")


def test_waiting_is_shown_only_where_somebody_waited() -> None:
    def keys(row: dict[str, Any]) -> list[str]:
        return [column.key for column in table([row], [], COLOURS).columns]

    assert "mean_queue_s" not in keys(one_row(mean_queue_s=0.0))
    assert keys(one_row(mean_queue_s=0.1))[5] == "mean_queue_s"


def test_a_change_that_cannot_be_told_from_none_says_so() -> None:
    shown = table([one_row()], [compared(-0.5, -1.25, 0.25, "not distinguishable")], COLOURS)
    (change,) = shown.lines["w", "n"][0].changes
    assert (change.text, change.interval, change.verdict) == ("\u22120.50", "[\u22121.25, +0.25]", "not distinguishable")
    assert shown.unclear
    assert not shown.bare


def test_one_replication_has_no_interval() -> None:
    shown = table(
        [one_row(total_latency_s_low=None, total_latency_s_high=None)], [compared(-0.5, None, None, "one replication")], COLOURS
    )
    assert shown.bare
    assert shown.lines["w", "n"][0].changes[0].interval == ""


def test_the_papers_baselines_come_first_and_in_its_order() -> None:
    comparisons = [{**compared(1.0, 0.5, 1.5, "slower"), "baseline": name} for name in ("mine", "oracle", "cloud", "edge")]
    assert table([one_row()], comparisons, COLOURS).baselines == [
        ("edge", "gateway only"), ("cloud", "cloud only"), ("oracle", "oracle"), ("mine", "mine"),
    ]  # fmt: skip
