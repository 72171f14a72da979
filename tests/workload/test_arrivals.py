from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from simnmt.workload.arrivals import Arrivals, BackToBack, Poisson, times

arrivals = TypeAdapter(Arrivals)


def test_back_to_back_leaves_the_pace_to_the_world() -> None:
    assert times(BackToBack(), 1000, seed=1, replication=0) is None


@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 2**32), st.floats(0.001, 1000))
def test_a_longer_run_begins_with_exactly_the_shorter_one(one: int, two: int, seed: int, rate_rps: float) -> None:
    short, long = sorted((one, two))
    config = Poisson(kind="poisson", rate_rps=rate_rps)
    first, second = times(config, short, seed, 2), times(config, long, seed, 2)
    assert first is not None and second is not None
    assert first.shape == (short,) and np.array_equal(first, second[:short])
    assert np.all(np.diff(second) >= 0) and np.all(second >= 0)


def test_the_prefix_holds_across_the_blocks_of_a_stream() -> None:
    config = Poisson(kind="poisson", rate_rps=3.0)
    assert np.array_equal(times(config, 70_000, 1, 0), times(config, 140_000, 1, 0)[:70_000])


def test_gaps_are_exponential_with_the_mean_rate() -> None:
    arrival_s = times(Poisson(kind="poisson", rate_rps=4.0), 100_000, seed=5, replication=0)
    gap_s = np.diff(arrival_s, prepend=0.0)
    assert stats.kstest(gap_s, stats.expon(scale=0.25).cdf).pvalue > 0.001
    assert arrival_s[-1] / 100_000 == pytest.approx(0.25, rel=4 / np.sqrt(100_000))
    assert abs(np.corrcoef(gap_s[1:], gap_s[:-1])[0, 1]) < 4 / np.sqrt(100_000)


def test_half_the_rate_takes_exactly_twice_the_time() -> None:
    """Rates share their random numbers, so that a sweep over the rate compares like with like."""
    slow, fast = (times(Poisson(kind="poisson", rate_rps=rate), 1000, 1, 0) for rate in (2.0, 4.0))
    assert np.array_equal(slow, 2 * fast)


def test_replications_and_seeds_differ() -> None:
    config = Poisson(kind="poisson", rate_rps=1.0)
    assert len({times(config, 10, seed, replication).tobytes() for seed in (1, 2) for replication in (0, 1)}) == 4


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"kind": "poisson"}, "Field required"),
        ({"kind": "poisson", "rate_rps": 0}, "greater than or equal to"),
        ({"kind": "poisson", "rate_rps": -2.0}, "greater than or equal to"),
        ({"kind": "poisson", "rate_rps": float("nan")}, "finite number"),
        ({"kind": "poisson", "rate_rps": "4"}, "valid number"),
        ({"kind": "poisson", "rate_rps": 4, "burst": 2}, "Extra inputs are not permitted"),
        ({"kind": "back_to_back", "rate_rps": 4}, "Extra inputs are not permitted"),
        ({"kind": "posson", "rate_rps": 4}, "expected tags: 'back_to_back', 'poisson'"),
        ({"rate_rps": 4}, "discriminator 'kind'"),
    ],
)
def test_what_arrivals_cannot_be(value: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message) as caught:
        arrivals.validate_python(value)
    assert caught.value.error_count() == 1


def test_a_whole_number_is_a_rate_too() -> None:
    assert arrivals.validate_python({"kind": "poisson", "rate_rps": 4}) == Poisson(kind="poisson", rate_rps=4.0)
