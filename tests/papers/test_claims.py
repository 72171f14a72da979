"""The claims hold on the published totals and fail if one row is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from simnmt.papers.cnmt.claims import evaluate, judge_reductions
from simnmt.papers.cnmt.published import SLIPS
from simnmt.papers.cnmt.table_one import TableRun
from simnmt.papers.kit.claim import ClaimRecord
from simnmt.results.statistics import change_percent
from tests.papers.conftest import Totals, replications_of

Rows = list[dict[str, Any]]


def by_letter(rows: Rows, gaps: Rows | None = None, totals_s: Totals | None = None) -> dict[str, ClaimRecord]:
    return {record.identifier[-2]: record for record in evaluate(TableRun.of(rows, gaps or (), totals_s))}


def saved_at_best(rows: Rows, totals_s: Totals | None = None) -> str:
    """Return the verdict on the paper's headline figures."""
    return judge_reductions(TableRun.of(rows, (), totals_s)).verdict


def verdicts(rows: Rows, gaps: Rows | None = None, totals_s: Totals | None = None) -> dict[str, str]:
    return {letter: record.verdict for letter, record in by_letter(rows, gaps, totals_s).items()}


def test_all_five_claims_hold_on_the_published_totals_with_small_noise(published_rows: Rows, published_gaps: Rows) -> None:
    totals_s = replications_of(published_rows)
    assert verdicts(published_rows, published_gaps, totals_s) == dict.fromkeys("abcde", "holds")


def test_a_table_without_replications_shows_orders_alone(published_rows: Rows, published_gaps: Rows) -> None:
    """(a) is a theorem for every request."""
    unclear = dict.fromkeys("bcde", "not distinguishable")
    assert verdicts(published_rows, published_gaps) == {"a": "holds"} | unclear
    records = by_letter(published_rows, published_gaps)
    assert all("one replication does not show how far chance moves it" in records[letter].why for letter in "bcde")
    assert "chance has no part in it" in records["a"].why


TAMPERED = [
    ("a", ("fr-en", "cp1", "naive"), 800.0),  # below the oracle's 869
    ("b", ("de-en", "cp2", "cnmt"), 950.0),  # above the server's 902
    ("c", ("fr-en", "cp2", "naive"), 815.0),  # a second lost cell beside EN-ZH CP2
    ("d", ("fr-en", "cp1", "edge"), 1200.0),  # the gain against the gateway becomes larger on CP1
    ("e", ("fr-en", "cp1", "cnmt"), 960.0),  # a GRU gap of 10 %
]


@pytest.mark.parametrize("half_width", [None, 0.1])
@pytest.mark.parametrize(("claim", "cell", "total_s"), TAMPERED)
def test_a_claim_fails_if_its_row_is_changed(
    tampered: Callable[..., Rows], half_width: float | None, claim: str, cell: tuple[str, str, str], total_s: float
) -> None:
    rows = tampered(*cell, total_latency_s=total_s)
    totals_s = None if half_width is None else replications_of(rows, half_width)
    assert verdicts(rows, totals_s=totals_s)[claim] == "does not hold"


@pytest.mark.parametrize(
    ("claim", "half_width"),
    [
        ("b", 14.0),  # C-NMT saves 10.6 % where it saves least
        ("c", 12.0),  # 7 and 4 % before Naive in EN-ZH, 14 and more in the other four cells
        ("d", 2.0),  # the least difference, EN-ZH against the server, is 1.9 points
        ("e", 8.0),  # 8.8 against 1.2 %
    ],
)
def test_an_effect_within_its_noise_is_not_distinguishable(
    published_rows: Rows, published_gaps: Rows, claim: str, half_width: float
) -> None:
    totals_s = replications_of(published_rows, half_width)
    record = by_letter(published_rows, published_gaps, totals_s)[claim]
    assert record.verdict == "not distinguishable"
    assert "within the noise of the replications" in record.why
    assert claim not in "bc" or not record.ours.startswith("in 6 of 6 cells"), "cells that chance could turn do not count"
    precise = replications_of(published_rows, half_width / 15)
    assert verdicts(published_rows, published_gaps, precise)[claim] == "holds"


def test_c_needs_five_clear_cells_of_six(published_rows: Rows) -> None:
    """The sixth cell, a near tie, may be unclear."""
    rows = [row for row in published_rows if row["policy"] in ("cnmt", "naive")]
    noisy = {("en-zh", "cp2"): 50.0}
    assert verdicts(rows, totals_s=replications_of(rows, cells=noisy))["c"] == "holds"
    noisy["de-en", "cp1"] = 50.0
    assert verdicts(rows, totals_s=replications_of(rows, cells=noisy))["c"] == "not distinguishable"


def test_a_headline_saving_within_its_noise_is_not_distinguishable(published_rows: Rows) -> None:
    for half_width, verdict in ((0.1, "holds"), (80.0, "not distinguishable")):
        assert saved_at_best(published_rows, replications_of(published_rows, half_width)) == verdict
    assert saved_at_best(published_rows) == "not distinguishable"


def test_the_difference_of_two_gains_is_paired_by_replication(published_rows: Rows) -> None:
    """Noise shared by both networks moves the gains and keeps their order (d), however wide the gains' intervals are."""
    factors = [0.92, 0.96, 1.0, 1.04, 1.08]
    totals_s = {
        (row["workload"], row["network"], row["policy"]): [
            row["total_latency_s"] * (factor if row["policy"] == "cnmt" else 1.0) for factor in factors
        ]
        for row in published_rows
    }
    changes = [change_percent(totals_s["de-en", name, "cnmt"], totals_s["de-en", name, "edge"]) for name in ("cp1", "cp2")]
    assert changes[0].low is not None and changes[1].high is not None
    assert changes[0].low < changes[1].high, "separate intervals overlap"
    assert verdicts(published_rows, totals_s=totals_s)["d"] == "holds"
    shuffled = {
        name: [values[index] for index in ((3, 0, 4, 1, 2) if name[1] == "cp1" else range(5))]
        for name, values in totals_s.items()
    }
    assert verdicts(published_rows, totals_s=shuffled)["d"] == "not distinguishable"


def draws_of(total_s: Totals, spread: float, seed: int, count: int) -> list[Totals]:
    """Return `count` draws of five replications of these totals with independent relative noise."""
    random = np.random.default_rng(seed)
    return [{name: (mean * random.normal(1.0, spread, 5)).tolist() for name, (mean,) in total_s.items()} for _ in range(count)]


@pytest.mark.deep
def test_the_worst_of_eight_pairs_does_not_refute_a_claim_at_its_border(published_rows: Rows) -> None:
    """(e): the true gaps are equal. Plain intervals of 95 % for each of the pairs refuted it in 11 % of runs."""
    rows = [
        row | {"policy": policy, "total_latency_s": factor * row["total_latency_s"]}
        for row in published_rows
        if row["policy"] == "oracle"
        for policy, factor in (("oracle", 1.0), ("cnmt", 1.05))
    ]
    means = {(row["workload"], row["network"], row["policy"]): [row["total_latency_s"]] for row in rows}
    draws = draws_of(means, 0.01, seed=5, count=300)
    refuted = sum(verdicts(rows, totals_s=totals_s)["e"] == "does not hold" for totals_s in draws)
    assert refuted <= 0.025 * len(draws)


@pytest.mark.deep
def test_the_best_of_four_savings_is_not_judged_as_one_picked_in_advance(published_rows: Rows) -> None:
    """The true saving on DE-EN is 0. The plain interval of the best saving showed one in 4 % of runs."""
    means = {
        (row["workload"], row["network"], row["policy"]): [1000.0 if row["workload"] == "de-en" else row["total_latency_s"]]
        for row in published_rows
    }
    draws = draws_of(means, 0.001, seed=6, count=300)
    held = sum(saved_at_best(published_rows, totals_s) == "holds" for totals_s in draws)
    assert held <= 0.025 * len(draws)


def test_a_run_of_one_data_set_leaves_claims_on_several_unmeasured(published_rows: Rows) -> None:
    rows = [row for row in published_rows if row["workload"] == "de-en"]
    assert verdicts(rows, totals_s=replications_of(rows)) == {
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
    ours = {letter: record.ours for letter, record in by_letter(rows).items()}
    assert ours["b"].startswith("in 5 of 5 cells by order, least saving +") and "EN-ZH" not in ours["d"]


def test_claims_on_inferred_profiles_are_marked_as_fitted(published_rows: Rows, published_gaps: Rows) -> None:
    fitted = evaluate(TableRun.of(published_rows, published_gaps), {"inferred", "measured"})
    assert all(record.basis == "fitted" for record in fitted)
    assert all(("fitted" in record.why) == record.hardware_dependent for record in fitted)
    assert {record.basis for record in evaluate(TableRun.of(published_rows), {"measured"})} == {"measured"}


def test_the_slips_are_listed() -> None:
    assert len(SLIPS) == 7


@pytest.mark.parametrize(("lengths", "scatter", "verdict"), [(-6.0, -2.0, "holds"), (-0.5, -8.2, "does not hold")])
def test_a_larger_gap_of_the_transformer_holds_only_by_its_lengths(
    published_rows: Rows, published_gaps: Rows, lengths: float, scatter: float, verdict: str
) -> None:
    """The paper explains the gap on EN-ZH by lengths; with fitted profiles the scatter of execution times made 93 % of it."""
    changes = {"nothing": 0.0, "length regression": lengths, "scatter of execution times": scatter, "everything": -8.9}
    gaps = [row for row in published_gaps if row["workload"] != "en-zh"] + [
        {"workload": "en-zh", "network": network, "removed": removed, "change_percent": change}
        for network in ("cp1", "cp2")
        for removed, change in changes.items()
    ]
    record = by_letter(published_rows, gaps, replications_of(published_rows))["e"]
    assert record.verdict == verdict
    assert ("not the paper's cause" in record.why) == (verdict == "does not hold")
    without = by_letter(published_rows)["e"]
    assert without.verdict == "not measurable here", "order alone supports no cause"
    assert "was not analysed" in without.why
