"""The words on the gap analysis say what its rows say, for better or worse."""

from __future__ import annotations

from typing import Any

from simnmt.results.recommendation_text import gap_sentences


def gaps(**changes: tuple[float, float | None, float | None]) -> list[dict[str, Any]]:
    whole = changes["everything"][0]
    return [
        {
            "workload": "w", "network": "n", "policy": "cnmt", "removed": removed.replace("_", " "), "replications": 5,
            "total_latency_s": 100 + change, "change_percent": change, "low_percent": low, "high_percent": high,
            "share_of_gap_percent": 100 * change / whole if whole else None,
        }
        for removed, (change, low, high) in {"nothing": (0.0, 0.0, 0.0), **changes}.items()
    ]  # fmt: skip


def test_each_source_is_given_its_share_of_the_gap() -> None:
    said = gap_sentences(
        gaps(length_regression=(-3.0, -3.5, -2.5), stale_transfer_time=(-1.0, -1.2, -0.8), everything=(-4.0, -4.4, -3.6))
    )
    assert said == [
        "With the truth of all that it must estimate, cnmt would be 4.00 % faster [3.60, 4.40]: that is the whole gap.",
        "With the true target lengths alone, it would be 3.0 % faster [2.5, 3.5], 75 % of the gap.",
        "With the present transfer time alone, it would be 1.00 % faster [0.80, 1.20], 25 % of the gap.",
    ]


def test_a_truth_that_makes_it_worse_is_said_to_and_given_a_reason() -> None:
    said = gap_sentences(gaps(length_regression=(2.0, 1.0, 3.0), everything=(-4.0, -4.4, -3.6)))
    assert said[1] == "With the true target lengths alone, it would be 2.0 % slower [1.0, 3.0]."
    assert said[2] == "A single truth makes things worse if two wrong beliefs had compensated each other."


def test_what_is_not_distinguishable_has_no_share() -> None:
    said = gap_sentences(gaps(unseen_queues=(-0.5, -1.5, 0.5), everything=(-4.0, -4.4, -3.6)))
    assert said[1] == "With the true waits alone, it would be no different beyond the interval (-0.5 % [-1.5, +0.5])."
    assert len(said) == 2


def test_shares_of_sources_that_overlap_are_not_to_be_added_up() -> None:
    said = gap_sentences(
        gaps(length_regression=(-3.0, -3.5, -2.5), linear_time_model=(-3.0, -3.5, -2.5), everything=(-4.0, -4.4, -3.6))
    )
    assert said[-1].startswith("The sources overlap")


def test_without_a_gap_there_are_no_shares() -> None:
    said = gap_sentences(gaps(length_regression=(0.0, 0.0, 0.0), everything=(0.0, 0.0, 0.0)))
    assert said[0].endswith("cnmt would be exactly as fast in every replication: its beliefs leave no gap to be explained.")
    assert said[1].endswith("it would be exactly as fast in every replication.")
    unclear = gap_sentences(gaps(length_regression=(-0.1, -0.3, 0.1), everything=(-0.1, -0.4, 0.2)))
    assert unclear[0].endswith("(-0.10 % [-0.40, +0.20]): there is no gap that could be told from chance.")
    assert "of the gap" not in said[1]
    worse = gap_sentences(gaps(length_regression=(1.0, 0.5, 1.5), everything=(2.0, 1.0, 3.0)))
    assert worse[0].endswith("cnmt would be 2.0 % slower [1.0, 3.0]: its beliefs leave no gap to be explained.")


def test_changes_of_a_policy_without_a_steady_state_are_said_to_be_of_this_run() -> None:
    rows = [{"policy": "cnmt", "unstable": "gateway: load 2.38"}, {"policy": "edge", "unstable": None}]
    said = gap_sentences(gaps(unseen_queues=(-99.0, -99.5, -98.5), everything=(-99.0, -99.5, -98.5)), rows)
    assert said[-1].startswith("As it is, cnmt is unstable (gateway: load 2.38): these changes are this run's")
    assert not any("unstable" in sentence for sentence in gap_sentences(gaps(everything=(-1.0, -2.0, -0.5)), rows[1:]))


def test_one_replication_has_no_interval() -> None:
    said = gap_sentences(
        gaps(length_regression=(-3.0, None, None), stale_transfer_time=(0.0, None, None), everything=(-4.0, None, None))
    )
    assert said[1:] == [
        "With the true target lengths alone, it would be 3.00 % faster [one replication: no interval], 75 % of the gap.",
        "With the present transfer time alone, it would be exactly as fast [one replication: no interval].",
    ]


def test_no_analysis_has_no_words() -> None:
    assert gap_sentences([]) == []
