"""How many replications a precision takes, and how many requests a percentile."""

from __future__ import annotations

from simnmt.results.recommendation import (
    MOST_REPLICATIONS,
    describe_short_tail,
    next_replications,
    reliable_requests,
)
from simnmt.results.summary import Row

KEY = "mean_latency_s"


def row(half: float, replications: int = 5, **others: object) -> Row:
    interval = {f"{KEY}_low": 2.0 * (1.0 - half), f"{KEY}_high": 2.0 * (1.0 + half)}
    return {"workload": "w", "network": "n", "policy": "p", "replications": replications, KEY: 2.0, **interval, **others}


def test_replications_are_added_until_the_widest_interval_is_narrow_and_at_most_doubled() -> None:
    assert next_replications([row(0.01), row(0.021)], "mean", 0.02) == 6
    assert next_replications([row(0.5)], "mean", 0.02) == 10
    assert next_replications([row(0.01)], "mean", 0.02) == 5
    assert next_replications([row(0.5, 80)], "mean", 0.02) == MOST_REPLICATIONS
    assert next_replications([row(0.5, MOST_REPLICATIONS)], "mean", 0.02) == MOST_REPLICATIONS
    assert next_replications([row(0.5, unstable="cloud: load 1.30"), row(0.01)], "mean", 0.02) == 5
    assert next_replications([{**row(0.0, 1), f"{KEY}_low": None, f"{KEY}_high": None}], "mean", 0.02) == 5


def test_a_quantile_needs_twenty_requests_beyond_it_for_its_changes_to_be_believed() -> None:
    """The coverage of that many, and of fewer, is counted in test_coverage.py."""
    assert (reliable_requests("mean"), reliable_requests("p95"), reliable_requests("p99")) == (1, 400, 2_000)
    assert describe_short_tail("p99", 2_000) == describe_short_tail("mean", 1) == ""
    assert describe_short_tail("p99", 1_999) and describe_short_tail("p95", 60)
