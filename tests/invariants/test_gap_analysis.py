"""The gap analysis (CNMT-19): each belief replaced by the truth, and what becomes of C-NMT that is told everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.experiment.run import gap_rows
from simnmt.results.places import ALL, Place
from tests.invariants.conftest import DISCIPLINES
from tests.units import plan_of, unit_of, watched

MakeScenario = Callable[..., dict[str, Any]]
SUBJECTS = {
    "the paper's": {"kind": "cnmt"},
    "queue-aware": {"kind": "cnmt", "sees_backlog": True},
    "p95 of a distribution, smoothed": {
        "kind": "cnmt",
        "lengths": "distribution",
        "minimises": "p95",
        "transfer_estimate": "smoothed",
    },
}


@pytest.mark.parametrize("policy", SUBJECTS)
@pytest.mark.parametrize("arrivals", DISCIPLINES)
def test_told_everything_it_decides_as_the_oracle_does_request_by_request(
    make_tiers: MakeScenario, monkeypatch: pytest.MonkeyPatch, arrivals: str, policy: str
) -> None:
    """In three tiers, over access links, with queues: so what lies between is made of the sources alone."""
    scenario = make_tiers(
        arrivals=DISCIPLINES[arrivals],
        requests=1_500,
        gap_analysis=True,
        policies={"oracle": {}, "analysed": SUBJECTS[policy]},
    )
    runs, outcome = watched(monkeypatch, unit_of(plan_of(scenario)))
    (oracle, analysed), by_variant = runs[:2], dict(zip(outcome.gap_totals_s, runs[2:], strict=True))
    np.testing.assert_array_equal(by_variant["everything"].trail.target, oracle.trail.target)
    np.testing.assert_array_equal(by_variant["nothing"].trail.target, analysed.trail.target)
    for name in ("arrival_s", "queue_s", "server"):
        np.testing.assert_array_equal(getattr(by_variant["everything"].trail, name), getattr(oracle.trail, name), err_msg=name)
    # And it takes more than one of them: each alone leaves other decisions.
    for removed, run in by_variant.items():
        if removed != "everything":
            assert (run.trail.target != oracle.trail.target).mean() > 0.005, removed


@pytest.mark.parametrize("arrivals", DISCIPLINES)
def test_the_rows_hold_the_totals_of_the_runs(make_tiers: MakeScenario, arrivals: str) -> None:
    policies = {"oracle": {}, "edge": {}, "cnmt": {}, "second": {"kind": "cnmt", "sees_backlog": True}}
    scenario = make_tiers(arrivals=DISCIPLINES[arrivals], requests=800, replications=2, gap_analysis=True, policies=policies)
    result = simnmt.run(scenario)
    totals = {row["policy"]: row["total_latency_s"] for row in result.summary_rows}
    gaps = {row["removed"]: row for row in result.gaps}
    assert {row["policy"] for row in result.gaps} == {"cnmt"}
    assert gaps["nothing"]["total_latency_s"] == totals["cnmt"]
    assert gaps["everything"]["total_latency_s"] == totals["oracle"]
    assert (gaps["nothing"]["change_percent"], gaps["nothing"]["share_of_gap_percent"]) == (0.0, 0.0)
    assert gaps["everything"]["share_of_gap_percent"] == 100.0
    assert gaps["everything"]["change_percent"] == pytest.approx(100 * (totals["oracle"] / totals["cnmt"] - 1), rel=0.05)
    assert ("unseen queues" in gaps) == (arrivals != "back to back")
    assert set(gaps) >= {"length regression", "scatter of execution times", "stale transfer time"}


def test_where_the_rtt_alone_is_unknown_the_present_one_closes_all_of_the_gap(
    tmp_path: Any, make_scenario: MakeScenario, make_profile: Callable[..., Any]
) -> None:
    """Lengths that follow from source lengths, times without noise: C-NMT errs by its estimate alone."""
    pairs = "".join(f"{'w ' * n}\t{'v ' * n}\n" for n in range(1, 41)) * 20
    (tmp_path / "pairs.tsv").write_text(pairs, encoding="utf-8")
    lengths = {"tsv": str(tmp_path / "pairs.tsv"), "src_unit": "word", "tgt_unit": "word"}
    scenario = make_scenario(
        relative_sd=0.0,
        workloads={"same": {"lengths": lengths}},
        gap_analysis=True,
        fit={"inferences": 0},
        policies={"oracle": {}, "cnmt": {}},
    )
    shares = {row["removed"]: row["share_of_gap_percent"] for row in simnmt.run(scenario).gaps}
    assert shares["stale transfer time"] == pytest.approx(100.0)
    assert shares["scatter of execution times"] == pytest.approx(0.0, abs=1e-9)
    assert shares["length regression"] == pytest.approx(0.0, abs=1e-9)


PLACE = Place(ALL, "w", "n", "p")


def test_a_share_is_the_change_over_that_of_everything_even_where_one_replication_outweighs_all_others() -> None:
    totals_s = {"nothing": [10.0, 10.0, 1_000.0], "length regression": [5.0, 5.0, 1_100.0], "everything": [4.0, 4.0, 900.0]}
    nothing, alone, everything = gap_rows(PLACE, totals_s)
    assert alone["change_percent"] == pytest.approx(100.0 * (alone["total_latency_s"] / nothing["total_latency_s"] - 1.0))
    assert alone["share_of_gap_percent"] == pytest.approx(100.0 * alone["change_percent"] / everything["change_percent"])


def test_where_the_truth_does_not_help_no_share_is_claimed() -> None:
    """With queues the greedy truth may even be slower; then there is no gap to share out."""
    rows = list(gap_rows(PLACE, {"nothing": [10.0, 10.0], "length regression": [9.0, 9.5], "everything": [11.0, 10.5]}))
    assert [row["share_of_gap_percent"] for row in rows] == [None, None, None]
    assert rows[1]["change_percent"] == pytest.approx(100 * (18.5 / 20.0 - 1))


@pytest.mark.parametrize("policy", SUBJECTS)
def test_a_true_time_model_changes_nothing_for_a_policy_that_had_it_already(
    make_tiers: MakeScenario, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """Planes known and times without noise: whoever minimises a percentile must go on doing so when told."""
    scenario = make_tiers(
        relative_sd=0.0,
        fit={"inferences": 0},
        arrivals=DISCIPLINES["back to back"],
        requests=1_500,
        gap_analysis=True,
        policies={"analysed": SUBJECTS[policy]},
    )
    runs, outcome = watched(monkeypatch, unit_of(plan_of(scenario)))
    by_variant = dict(zip(outcome.gap_totals_s, runs[1:], strict=True))
    np.testing.assert_array_equal(by_variant["scatter of execution times"].trail.target, by_variant["nothing"].trail.target)
