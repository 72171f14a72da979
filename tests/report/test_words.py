"""The words of a report are filled from the facts of its records, whatever these are."""

from __future__ import annotations

from typing import Any

import pytest

from simnmt.report.words import gap_outcome, gap_words, verdicts
from simnmt.results import Run
from simnmt.results.metrics import Requirement
from simnmt.results.places import ALL, Place
from simnmt.results.recommendation import Goal, Roles, recommend
from simnmt.results.run import LiveMeasurement
from simnmt.results.stability import with_stability
from simnmt.results.summary import Device, rows

TOTALS_S = {"edge": [130.0, 131.0, 132.0], "cloud": [100.0, 100.5, 99.5], "cnmt": [80.0, 82.0, 81.0]}


def words_of(
    totals_s: dict[str, list[float]],
    *,
    goal: Goal | None = None,
    loads: dict[str, float] | None = None,
    lost: dict[str, float] | None = None,
    devices: tuple[str, ...] = ("gateway", "cloud"),
    requests: int = 6_000,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The words on made-up totals of 1,000 requests per policy and replication, and the recommendation behind them.

    `loads`: of the gateway, by policy; requests come 20 a second. `lost`: shares lost.
    """
    shares = {"edge": 0.0, "cloud": 1.0, "oracle": 0.5}
    runs: dict[Place, list[dict[str, float | None]]] = {
        Place(ALL, "de-en", "cp1", policy): [
            {
                "total_latency_s": total_s,
                "mean_latency_s": total_s / 1_000,
                "p95_latency_s": total_s / 500,
                "offloaded_share": shares.get(policy, 0.38),
                "offered_rps": 20.0,
                "lost_share": (lost or {}).get(policy, 0.0),
                "gateway_share": 0.5,
                "gateway_load": (loads or {}).get(policy, 0.3),
                "gateway_busiest_load": (loads or {}).get(policy, 0.3),
            }
            for total_s in replications
        ]
        for policy, replications in totals_s.items()
    }
    fixed = [name for name in ("edge", "cloud") if name in totals_s]
    roles = Roles([name for name in totals_s if name != "oracle"], fixed, "oracle" if "oracle" in totals_s else None)
    table = with_stability(rows(runs, requests), runs, {("all", "de-en"): [Device("gateway", 1, 1)]})
    kept = {"cnmt": "up to 17 tokens"}
    reason = {"transfer_s": 0.08, "kept": kept, "best_offloaded_share": 0.6, "queues": True, "devices": list(devices)}
    record = recommend(table, runs, roles, goal or Goal(), reason)
    (words,) = verdicts(Run("run", 1, table, recommendations=[record]))
    return words, record


def test_a_verdict_names_the_policy_its_distance_from_the_oracle_and_the_reason() -> None:
    words, record = words_of(TOTALS_S | {"oracle": [75.0, 76.0, 77.0]})
    assert (words["workload"], words["network"], record["policy"]) == ("de-en", "cp1", "cnmt")
    assert "deploy cnmt" in words["sentence"] and "81.0 ms [78.5, 83.5]" in words["sentence"]
    for pair in record["against"]:
        assert f"{100 * pair['change']:.1f} % [" in words["sentence"] and f"against {pair['baseline']}" in words["sentence"]
    assert f"{100 * record['above_oracle']:+.1f} % [" in words["gap"] and "the best fixed policy (cloud)" in words["gap"]
    assert "80 ms" in words["reason"] and "up to 17 tokens" in words["reason"] and "38 %" in words["reason"]


def test_a_loss_of_requests_stands_before_the_policy() -> None:
    words, record = words_of(TOTALS_S, lost={"edge": 0.02, "cnmt": 0.031})
    assert record["policy"] == "cloud"
    assert 0 < words["sentence"].index("cnmt (3.1 %)") < words["sentence"].index("deploy cloud")


def test_where_no_policy_is_stable_none_is_recommended_and_what_the_device_can_take_is_stated() -> None:
    """Load 1.25 at 20 requests a second: 16 could be served."""
    words, _ = words_of(TOTALS_S, loads={"cnmt": 1.25, "edge": 2.0, "cloud": 1.5})
    assert "deploy" not in words["sentence"].replace("deployable", "")
    assert "take 16 requests/s, but 20 arrive" in words["sentence"] and "grows by 0.25 s" in words["sentence"]
    assert "edge (gateway: load 2.00)" in words["sentence"]


@pytest.mark.parametrize("limit_ms", [50, 195, 1_000])
def test_each_requirement_of_the_service_level_is_named_with_its_value(limit_ms: int) -> None:
    words, record = words_of(TOTALS_S, goal=Goal("mean", [Requirement.parse(f"p95_ms<={limit_ms}")]))
    assert f"p95_ms<={limit_ms}" in words["sentence"] and "162" in words["sentence"]
    assert record["slo_met"] == (limit_ms > 50)
    assert all(name in words["sentence"] for name in record["slo_missed_by"])


@pytest.mark.parametrize(
    "parts",
    [
        {"totals_s": {"cnmt": [90.0]}},
        {"totals_s": {"edge": [100.0, 101.0]}, "devices": ("gateway",)},
        {"totals_s": {"oracle": [90.0, 91.0]}},
        {"totals_s": {"edge": [101.0, 102.0], "cnmt": [101.0, 102.0]}},
        {"totals_s": {"edge": [101.0, 102.0], "cloud": [100.0, 101.0], "cnmt": [99.0, 100.0]}},
        {"totals_s": {"oracle": [95.0, 96.0], "edge": [130.0] * 2, "cloud": [100.0] * 2, "cnmt": [90.0, 91.0]}},
        {"totals_s": {"oracle": [95.0, 96.0], "edge": [130.0] * 2, "cloud": [95.0, 96.0], "cnmt": [120.0, 122.0]}},
        {"totals_s": TOTALS_S, "loads": {"edge": 3.0}},
        {"totals_s": TOTALS_S, "devices": ("end_node", "gateway", "cloud")},
        {"totals_s": TOTALS_S, "goal": Goal("p95"), "requests": 100},
    ],
)
def test_every_kind_of_recommendation_has_plain_sentences(parts: dict[str, Any]) -> None:
    words, record = words_of(**parts)
    for text in (words["sentence"], words["gap"], words["reason"]):
        assert "None" not in text and "{" not in text and "  " not in text and " ." not in text and " ," not in text
        assert text == "" or text.endswith(".")
    assert words["sentence"] and record["caution"] in words["sentence"]
    if record["policy"] is not None:
        assert record["policy"] in words["sentence"]


def test_a_live_replay_states_what_was_measured(result: Any) -> None:
    outcomes = {"done": 8, "fallback": 1, "timeout": 1}
    live = LiveMeasurement("http://gateway", "2026-07-01", "2026-07-01", outcomes, {"p99": 0.1})
    ends = {f"mean_latency_s_{end}": None for end in ("low", "high")}
    row = result.summary_rows[0] | ends | {"offloaded_share": 0.25}
    (words,) = verdicts(Run("live", 1, [row], live=live))
    assert "9 of 10 requests" in words["sentence"] and "25 % of them went to the cloud" in words["sentence"]
    assert (words["gap"], words["reason"]) == ("", "")


def gaps(**changes: tuple[float, float | None, float | None]) -> list[dict[str, Any]]:
    return [
        {"policy": "cnmt", "removed": removed.replace("_", " "), "change_percent": change, "low_percent": low,
         "high_percent": high}
        for removed, (change, low, high) in {"nothing": (0.0, 0.0, 0.0), **changes}.items()
    ]  # fmt: skip


def test_the_words_on_a_gap_depend_on_its_interval() -> None:
    whole = gaps(length_regression=(-3.0, -3.5, -2.5), everything=(-4.0, -4.4, -3.6))
    assert [gap_outcome(row) for row in whole] == ["same", "faster", "faster"]
    (sentence,) = gap_words(whole)
    assert "-4.00 % [-4.40, -3.60]" in sentence
    unclear = gaps(everything=(-0.1, -0.4, 0.2))
    assert gap_outcome(unclear[-1]) == "not distinguishable" and gap_words(unclear)[0] != sentence
    assert any(
        "gateway: load 2.38" in text for text in gap_words(whole, [{"policy": "cnmt", "unstable": "gateway: load 2.38"}])
    )
    assert gap_words([]) == []
    assert gap_words(gaps(everything=(-4.0, None, None)))
