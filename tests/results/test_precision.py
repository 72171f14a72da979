"""How many replications a precision takes, and what a reader is told where they differ by factors."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from simnmt.results.precision import (
    MOST_REPLICATIONS,
    describe_precision,
    describe_short_tail,
    half_width,
    next_replications,
    reliable_requests,
    replications_for,
    spread_notes,
)
from simnmt.results.statistics import over_replications, student_quantile
from simnmt.results.summary import Row, rows

KEY = "mean_latency_s"
SPREADS = np.geomspace(1e-3, 1.0, 10_000)


def row(half: float, replications: int = 5, **others: object) -> Row:
    interval = {f"{KEY}_low": 2.0 * (1.0 - half), f"{KEY}_high": 2.0 * (1.0 + half)}
    return {"workload": "w", "network": "n", "policy": "p", "replications": replications, KEY: 2.0, **interval, **others}


def test_as_many_replications_as_estimated_make_the_interval_that_narrow() -> None:
    random = np.random.default_rng(3)
    sample = random.normal(1.0, 0.2, 12)
    estimate = over_replications(sample.tolist(), positive=True)
    interval = {f"{KEY}_low": estimate.low, f"{KEY}_high": estimate.high}
    needed = replications_for({"replications": 12, KEY: estimate.mean, **interval}, KEY, 0.02)
    spread = float(sample.std(ddof=1) / sample.mean())
    assert needed == pytest.approx((1.96 * spread / 0.02) ** 2, rel=0.01)
    after = over_replications(random.normal(1.0, spread, needed).tolist(), positive=True)
    assert after.high is not None
    assert after.high / after.mean - 1.0 == pytest.approx(0.02, rel=0.3)


def test_few_replications_are_counted_with_students_quantile() -> None:
    """Of a reach of 0.3 with 5 replications: the least number whose own interval is narrow enough, above the normal one's."""
    spread = float(np.interp(np.log(1.3), student_quantile(5, SPREADS) * SPREADS / np.sqrt(5), SPREADS))
    interval = {f"{KEY}_low": 2.0 / 1.3, f"{KEY}_high": 2.0 * 1.3}
    needed = replications_for({"replications": 5, KEY: 2.0, **interval}, KEY, 0.15)
    reach = [float(student_quantile(count, spread)) * spread / np.sqrt(count) for count in (needed - 1, needed)]
    assert reach[0] > 0.15 >= reach[1]
    assert (1.96 * spread / 0.15) ** 2 < needed < 20


def test_replications_are_added_until_the_widest_interval_is_narrow_and_at_most_doubled() -> None:
    assert next_replications([row(0.01), row(0.021)], "mean", 0.02) == 6
    assert next_replications([row(0.5)], "mean", 0.02) == 10
    assert next_replications([row(0.01)], "mean", 0.02) == 5
    assert next_replications([row(0.5, 80)], "mean", 0.02) == MOST_REPLICATIONS
    assert next_replications([row(0.5, MOST_REPLICATIONS)], "mean", 0.02) == MOST_REPLICATIONS
    assert next_replications([row(0.5, unstable="cloud: load 1.30"), row(0.01)], "mean", 0.02) == 5
    assert next_replications([{**row(0.0, 1), f"{KEY}_low": None, f"{KEY}_high": None}], "mean", 0.02) == 5


def test_it_is_told_when_the_most_replications_did_not_suffice() -> None:
    assert (
        describe_precision([row(0.01, 12)], "mean", 0.02) == "12 replications: every interval is within 2 % of the mean latency"
    )
    assert describe_precision([row(0.01, 100), row(0.31, 100)], "mean", 0.02) == (
        "100 replications did not suffice for intervals within 2 % of the mean latency: "
        "that of p for w on n reaches 31 % from it"
    )
    assert half_width({KEY: 1.0, f"{KEY}_low": None, f"{KEY}_high": None}, KEY) == inf


def runs_of(latencies_s: dict[str, list[float]]) -> dict[tuple[str, str, str], list[dict[str, float | None]]]:
    """One run per policy and replication, of one request each."""
    return {
        ("w", "n", policy): [{KEY: mean_s, "total_latency_s": mean_s} for mean_s in means_s]
        for policy, means_s in latencies_s.items()
    }


def test_where_replications_differ_by_factors_a_note_says_how_many_would_do() -> None:
    runs = runs_of({"calm": [1.0, 1.1, 1.05], "wild": [1.0, 4.0, 9.0]})
    (note,) = spread_notes(rows(runs, 1))
    assert "calm" not in note
    assert note.startswith("w on n: replications differ by factors. Greatest over least mean latency: wild 9.0 (some ")
    assert "replications would make its interval ±10 %)" in note
    steady = {place: numbers for place, numbers in runs.items() if place[2] == "calm"}
    assert not list(spread_notes(rows(steady, 1)))


def test_where_the_objective_is_a_quantile_its_spread_has_a_note_of_its_own() -> None:
    """The mean is calm, while p95 differs by factors because a few requests wait for long."""
    runs = runs_of({"cnmt": [1.0, 1.1, 1.05]})
    for replication, numbers in enumerate(runs["w", "n", "cnmt"]):
        waits_s = 0.1 + 8.0 * replication
        parts = {"queue": waits_s, "execution": 1.0, "transfer": 0.5}
        numbers |= {f"mean_{part}_s": 0.3 for part in parts} | {f"beyond_p95_{part}_s": s for part, s in parts.items()}
        numbers |= {"p95_latency_s": 1.0 + waits_s, "cloud_busiest_load": 0.95}
    table = rows(runs, 1)
    assert not list(spread_notes(table)) and not list(spread_notes(table, "p99"))
    (note,) = spread_notes(table, "p95")
    assert note.startswith(
        "w on n: replications differ by factors in their waits, as they do near saturation. Greatest over least p95 latency: "
        "cnmt 15.5 (some "
    )


def test_a_quantile_needs_twenty_requests_beyond_it_for_its_changes_to_be_believed() -> None:
    """The coverage of that many, and of fewer, is counted in test_coverage.py."""
    assert (reliable_requests("mean"), reliable_requests("p95"), reliable_requests("p99")) == (1, 400, 2_000)
    assert describe_short_tail("p99", 2_000, 5) == describe_short_tail("mean", 1, 5) == ""
    assert describe_short_tail("p99", 1_999, 5) == (
        "The interval of a change of p99 from 1,999 requests is not reliable: it takes 2000 requests or more."
    )
    assert (
        describe_short_tail("p95", 60, 1) == "A change of p95 from 60 requests is not reliable: it takes 400 requests or more."
    )


@pytest.mark.parametrize(
    ("part", "load", "cause"),
    [
        ("queue", 0.9, "in their waits, as they do near saturation"),
        ("queue", 0.3, "in their waits, though no box is near saturation"),
        ("transfer", None, "in their transfer times"),
        ("transfer", 0.9, "in their transfer times"),
        ("execution", 0.9, "in their execution times."),
    ],
)
def test_saturation_is_named_only_where_a_box_is_busy_and_waits_differ(part: str, load: float | None, cause: str) -> None:
    runs = runs_of({"wild": [1.0, 4.0, 9.0]})
    for numbers in runs["w", "n", "wild"]:
        numbers |= dict.fromkeys(("mean_queue_s", "mean_execution_s", "mean_transfer_s"), 0.1)
        numbers |= {f"mean_{part}_s": numbers[KEY], "cloud_busiest_load": load}
    (note,) = spread_notes(rows(runs, 1))
    assert note.startswith(f"w on n: replications differ by factors {cause}")
