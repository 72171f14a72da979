"""C-NMT with target lengths as a distribution: the percentile of a request's time, whichever way its plane leans."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.base import shipped_files
from simnmt.policies import CNmt, constant_length
from simnmt.profile.execution_plane import ExecutionPlane
from simnmt.workload.length_regression import LengthDistribution
from simnmt.workload.length_table import read_table

TABLE = read_table(shipped_files.find("traces/lengths", "fr-en-mixed"))
DISTRIBUTION = LengthDistribution.of(TABLE)
PERCENTILES = (lambda n: DISTRIBUTION.quantile(n, 0.05), lambda n: DISTRIBUTION.quantile(n, 0.95))
SECONDS = st.floats(-0.02, 0.02)
PLANE = st.builds(ExecutionPlane, st.floats(0.0, 0.01), SECONDS, st.floats(0.0, 0.5))


def border_s(policy: CNmt, src_len: int) -> float:
    """The transfer time at which the policy is indifferent between two targets; found by halving."""
    decide = policy.prepare(np.array([src_len]))
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if decide(0, (0.0, middle)) == 0 else (middle, high)
    return high


@settings(max_examples=40)
@given(PLANE, st.integers(1, 60))
def test_the_p95_rule_reckons_with_the_95th_percentile_of_the_time_rising_or_falling_with_the_length(
    plane: ExecutionPlane, src_len: int
) -> None:
    """The oracle: lengths drawn evenly from the whole distribution, put through the plane, and sorted."""
    local = ExecutionPlane(0.0, 0.0, 5.0)
    found_s = 5.0 - border_s(CNmt((local, plane), DISTRIBUTION.mean, PERCENTILES), src_len)
    drawn = np.array([DISTRIBUTION.quantile(np.array([src_len]), q)[0] for q in (np.arange(300) + 0.5) / 300])
    assert found_s == pytest.approx(np.quantile(plane.seconds(src_len, drawn), 0.95), abs=0.01 + 0.02 * abs(found_s))


def test_a_length_without_spread_makes_both_rules_one() -> None:
    random = np.random.default_rng(1)
    planes = [ExecutionPlane(*random.uniform(0.0, 0.01, 3)) for _ in range(3)]
    length, src_len = constant_length(17.0), random.integers(1, 90, 500)
    delay_s = random.uniform(0.0, 0.3, (500, 3)).tolist()
    by_mean, by_p95 = (CNmt(planes, length, tails).prepare(src_len) for tails in (None, (length, length)))
    assert [by_mean(k, delay_s[k]) for k in range(500)] == [by_p95(k, delay_s[k]) for k in range(500)]


@pytest.mark.parametrize("percentiles", [None, PERCENTILES])
def test_what_a_request_adds_to_a_queue_is_its_expected_time_whatever_the_rule_minimises(percentiles: object) -> None:
    src_len = np.array([3, 30, 90])
    planes = (ExecutionPlane(0.001, 0.008, 0.010), ExecutionPlane(0.0002, 0.002, 0.005))
    policy = CNmt(planes, DISTRIBUTION.mean, percentiles)  # type: ignore[arg-type]
    for plane, column in zip(planes, policy.execution_s(src_len), strict=True):
        assert (column == plane.seconds(src_len, DISTRIBUTION.mean(src_len))).all()
    assert (policy.predicted_tgt_len(src_len) == DISTRIBUTION.mean(src_len)).all()
