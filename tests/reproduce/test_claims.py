"""The claims hold on the published totals and flip where a row is tampered with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simnmt.reproduce.cnmt.claims import SLIPS, evaluate

Rows = list[dict[str, Any]]
KEYS = {"id", "claim", "published", "ours", "verdict", "why", "hardware_dependent", "basis"}


def verdicts(rows: Rows, gaps: Rows | None = None) -> dict[str, str]:
    return {record["id"][-2]: record["verdict"] for record in evaluate(rows, gaps=gaps or ())}


def over_replications(gaps: Rows, half_width: float = 0.1) -> Rows:
    """The same gap analysis with intervals."""
    return [
        row | {"low_percent": row["change_percent"] - half_width, "high_percent": row["change_percent"] + half_width}
        for row in gaps
    ]


def test_all_five_hold_on_the_published_totals(published_rows: Rows, published_gaps: Rows) -> None:
    assert verdicts(published_rows, over_replications(published_gaps)) == dict.fromkeys("abcde", "holds")


@pytest.mark.parametrize(
    ("claim", "cell", "total_s"),
    [
        ("a", ("fr-en", "cp1", "naive"), 800.0),  # below the oracle's 869
        ("b", ("de-en", "cp2", "cnmt"), 950.0),  # above the server's 902
        ("c", ("fr-en", "cp2", "naive"), 815.0),  # a second lost cell beside EN-ZH CP2
        ("d", ("fr-en", "cp1", "edge"), 1200.0),  # the gain against the gateway becomes larger on CP1
        ("e", ("fr-en", "cp1", "cnmt"), 960.0),  # a GRU gap of 10 %
    ],
)
def test_a_claim_flips_when_its_row_is_tampered_with(
    tampered: Callable[..., Rows], claim: str, cell: tuple[str, str, str], total_s: float
) -> None:
    assert verdicts(tampered(*cell, total_latency_s=total_s))[claim] == "does not hold"


def test_a_run_of_one_data_set_leaves_what_needs_others_unmeasured(published_rows: Rows) -> None:
    rows = [row for row in published_rows if row["workload"] == "de-en"]
    assert verdicts(rows) == {
        "a": "holds",
        "b": "holds",
        "c": "holds",
        "d": "holds",
        "e": "not measurable here",
    }
    assert set(verdicts([]).values()) == {"not measurable here"}


def test_with_less_than_six_cells_only_the_near_tie_may_be_lost(published_rows: Rows) -> None:
    lost = {"policy": "naive", "total_latency_s": 1.0}
    rows = [{**row, **lost} if row["policy"] == "naive" else row for row in published_rows if row["workload"] == "de-en"]
    assert verdicts(rows)["c"] == "does not hold"


def test_cells_where_the_oracle_uses_one_device_are_left_out(tampered: Callable[..., Rows]) -> None:
    rows = tampered("en-zh", "cp2", "oracle", offloaded_share=1.0)
    ours = {record["id"][-2]: record["ours"] for record in evaluate(rows)}
    assert ours["b"] == "in 5 of 5 cells" and "EN-ZH" not in ours["d"]


def test_inferred_profiles_are_shown_as_fitted(published_rows: Rows, published_gaps: Rows) -> None:
    fitted = evaluate(published_rows, {"inferred", "measured"}, published_gaps)
    assert all(set(record) == KEYS and record["basis"] == "fitted" for record in fitted)
    assert all(("fitted" in record["why"]) == record["hardware_dependent"] for record in fitted)
    assert {record["basis"] for record in evaluate(published_rows, {"measured"})} == {"measured"}


def test_the_slips_are_listed() -> None:
    assert len(SLIPS) == 7


@pytest.mark.parametrize(("lengths", "scatter", "verdict"), [(-6.0, -2.0, "holds"), (-0.5, -8.2, "does not hold")])
def test_a_larger_gap_of_the_transformer_holds_only_by_its_lengths(
    published_rows: Rows, published_gaps: Rows, lengths: float, scatter: float, verdict: str
) -> None:
    """The paper explains the gap on EN-ZH by lengths; with fitted profiles 93 % of it was the scatter of execution times."""
    changes = {"nothing": 0.0, "length regression": lengths, "scatter of execution times": scatter, "everything": -8.9}
    gaps = [row for row in published_gaps if row["workload"] != "en-zh"] + [
        {"workload": "en-zh", "network": network, "removed": removed, "change_percent": change}
        for network in ("cp1", "cp2")
        for removed, change in changes.items()
    ]
    (record,) = (each for each in evaluate(published_rows, (), over_replications(gaps)) if each["id"] == "CNMT-17 (e)")
    assert record["verdict"] == verdict
    assert ("not the paper's cause" in record["why"]) == (verdict == "does not hold")
    without = next(each for each in evaluate(published_rows) if each["id"] == "CNMT-17 (e)")
    assert without["verdict"] == "not measurable here", "order alone supports no cause"
    assert "was not looked at" in without["why"]


@pytest.mark.parametrize(
    ("half_width", "verdict"), [(None, "not distinguishable"), (0.1, "holds"), (9.0, "not distinguishable")]
)
def test_a_larger_gap_of_the_transformer_holds_only_beyond_its_noise(
    published_rows: Rows, published_gaps: Rows, half_width: float | None, verdict: str
) -> None:
    """The least gap of EN-ZH is 8.8 %, the greatest of the others 1.2 %."""
    gaps = published_gaps if half_width is None else over_replications(published_gaps, half_width)
    (record,) = (each for each in evaluate(published_rows, (), gaps) if each["id"] == "CNMT-17 (e)")
    assert record["verdict"] == verdict
    assert ("one replication" in record["why"]) == (half_width is None)
