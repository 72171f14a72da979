"""The claims hold on the published totals and flip where a row is tampered with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simnmt.reproduce.cnmt.claims import SLIPS, evaluate, reductions
from tests.reproduce.conftest import comparisons_of

Rows = list[dict[str, Any]]
KEYS = {"id", "claim", "published", "ours", "verdict", "why", "hardware_dependent", "basis"}


def verdicts(rows: Rows, gaps: Rows | None = None, comparisons: Rows | None = None) -> dict[str, str]:
    records = evaluate(rows, gaps=gaps or (), comparisons=comparisons or ())
    return {record["id"][-2]: record["verdict"] for record in records}


def test_all_five_hold_on_the_published_totals_if_these_are_known_well(published_rows: Rows, published_gaps: Rows) -> None:
    compared = comparisons_of(published_rows)
    assert verdicts(published_rows, published_gaps, compared) == dict.fromkeys("abcde", "holds")


def test_one_table_without_replications_shows_no_more_than_orders(published_rows: Rows, published_gaps: Rows) -> None:
    """(a) is a theorem of every request."""
    unclear = dict.fromkeys("bcde", "not distinguishable")
    assert verdicts(published_rows, published_gaps) == {"a": "holds"} | unclear
    told = {record["id"][-2]: record["why"] for record in evaluate(published_rows, gaps=published_gaps)}
    assert all("one replication does not show how far chance moves it" in told[letter] for letter in "bcde")
    assert "chance has no part in it" in told["a"]


TAMPERED = [
    ("a", ("fr-en", "cp1", "naive"), 800.0),  # below the oracle's 869
    ("b", ("de-en", "cp2", "cnmt"), 950.0),  # above the server's 902
    ("c", ("fr-en", "cp2", "naive"), 815.0),  # a second lost cell beside EN-ZH CP2
    ("d", ("fr-en", "cp1", "edge"), 1200.0),  # the gain against the gateway becomes larger on CP1
    ("e", ("fr-en", "cp1", "cnmt"), 960.0),  # a GRU gap of 10 %
]


@pytest.mark.parametrize("half_width", [None, 0.1])
@pytest.mark.parametrize(("claim", "cell", "total_s"), TAMPERED)
def test_a_claim_flips_when_its_row_is_tampered_with(
    tampered: Callable[..., Rows], half_width: float | None, claim: str, cell: tuple[str, str, str], total_s: float
) -> None:
    rows = tampered(*cell, total_latency_s=total_s)
    compared = [] if half_width is None else comparisons_of(rows, half_width)
    assert verdicts(rows, comparisons=compared)[claim] == "does not hold"


@pytest.mark.parametrize(
    ("claim", "half_width"),
    [
        ("b", 11.0),  # C-NMT saves 10.6 % where it saves least
        ("c", 12.0),  # 7 and 4 % before Naive in EN-ZH, 14 and more in the other four cells
        ("d", 2.0),  # the least difference, EN-ZH against the server, is 1.9 points
        ("e", 4.0),  # 8.8 against 1.2 %
    ],
)
def test_an_effect_within_its_noise_is_not_distinguishable(
    published_rows: Rows, published_gaps: Rows, claim: str, half_width: float
) -> None:
    compared = comparisons_of(published_rows, half_width)
    assert verdicts(published_rows, published_gaps, compared)[claim] == "not distinguishable"
    told = {record["id"][-2]: record for record in evaluate(published_rows, (), published_gaps, compared)}[claim]
    assert "noise" in told["why"] or "overlap" in told["why"]
    assert claim not in "bc" or not told["ours"].startswith("in 6 of 6 cells"), "cells that chance could turn do not count"
    assert verdicts(published_rows, published_gaps, comparisons_of(published_rows, half_width / 15))[claim] == "holds"


def test_four_clear_cells_before_naive_are_one_too_few_and_a_near_tie_may_be_open(published_rows: Rows) -> None:
    """(c) wants five of six, whatever the sixth is."""
    rows = [row for row in published_rows if row["policy"] in ("cnmt", "naive")]
    compared = comparisons_of(rows)
    for row in compared:
        if (row["workload"], row["network"]) == ("en-zh", "cp2"):
            row |= {"low_percent": -5.0, "high_percent": 5.0}
    assert verdicts(rows, comparisons=compared)["c"] == "holds"
    for row in compared:
        if (row["workload"], row["network"]) == ("de-en", "cp1"):
            row |= {"low_percent": -50.0, "high_percent": 5.0}
    assert verdicts(rows, comparisons=compared)["c"] == "not distinguishable"


def test_a_headline_saving_within_its_noise_is_not_distinguishable(published_rows: Rows) -> None:
    for half_width, verdict in ((0.1, "holds"), (80.0, "not distinguishable")):
        assert reductions(published_rows, (), comparisons_of(published_rows, half_width))["verdict"] == verdict
    assert reductions(published_rows)["verdict"] == "not distinguishable"


def test_a_run_of_one_data_set_leaves_what_needs_others_unmeasured(published_rows: Rows) -> None:
    rows = [row for row in published_rows if row["workload"] == "de-en"]
    assert verdicts(rows, comparisons=comparisons_of(rows)) == {
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
    assert ours["b"].startswith("in 5 of 5 cells by order, least saving +") and "EN-ZH" not in ours["d"]


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
    records = evaluate(published_rows, (), gaps, comparisons_of(published_rows))
    (record,) = (each for each in records if each["id"] == "CNMT-17 (e)")
    assert record["verdict"] == verdict
    assert ("not the paper's cause" in record["why"]) == (verdict == "does not hold")
    without = next(each for each in evaluate(published_rows) if each["id"] == "CNMT-17 (e)")
    assert without["verdict"] == "not measurable here", "order alone supports no cause"
    assert "was not looked at" in without["why"]
