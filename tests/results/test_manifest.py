"""What the manifest says of the time that a run took."""

from __future__ import annotations

import time

from simnmt.api import Times, _manifest
from simnmt.results import RunResult


def test_the_runs_of_the_gap_analysis_count_among_the_requests_that_the_time_was_spent_on() -> None:
    rows = [{"policy": policy, "requests": 1_000, "replications": 3} for policy in ("edge", "cnmt")]
    gaps = [{"removed": removed, "replications": 3} for removed in ("nothing", "stale transfer time", "everything")]
    times = Times(time.time(), 15.0)
    assert _manifest(RunResult("r", 1, rows, [], [], [], []), times, {}, {})["replay_s_per_100k_requests"] == 250.0
    assert _manifest(RunResult("r", 1, rows, [], [], [], [], gaps=gaps), times, {}, {})["replay_s_per_100k_requests"] == 100.0
