"""How many replications a precision takes, and what a reader is told where they differ by factors."""

from __future__ import annotations

import numpy as np
import pytest

from simnmt.results.precision import (
    MOST_REPLICATIONS,
    describe_short_tail,
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


def runs_of(latencies_s: dict[str, list[float]]) -> dict[tuple[str, str, str], list[dict[str, float | None]]]:
    """One run per policy and replication, of one request each."""
    return {
        ("w", "n", policy): [{KEY: mean_s, "total_latency_s": mean_s} for mean_s in means_s]
        for policy, means_s in latencies_s.items()
    }


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
    assert len(list(spread_notes(table, "p95"))) == 1


def test_a_quantile_needs_twenty_requests_beyond_it_for_its_changes_to_be_believed() -> None:
    """The coverage of that many, and of fewer, is counted in test_coverage.py."""
    assert (reliable_requests("mean"), reliable_requests("p95"), reliable_requests("p99")) == (1, 400, 2_000)
    assert describe_short_tail("p99", 2_000, 5) == describe_short_tail("mean", 1, 5) == ""
    assert describe_short_tail("p99", 1_999, 5) and describe_short_tail("p95", 60, 1)
