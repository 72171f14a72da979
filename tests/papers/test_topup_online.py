"""The load up to which a batching strategy holds a p95."""

from __future__ import annotations

import numpy as np
import pytest

from simnmt.base.random_streams import stream
from simnmt.batching import mini
from simnmt.devices.batch import decode_all
from simnmt.papers.fni.offline import lengths_of
from simnmt.papers.fni.online import HALVINGS, STEP, load_limits, p95_of_rate, rate_limit, rising_rates, run_sentences, solo_s
from tests.papers.fni_stand_ins import cost, decoder

NEAR = STEP ** (0.5**HALVINGS)
"""Factor within which a load is known."""


def hyperbola(rate: float) -> float:
    """Return the latency of a queue that takes 1 s alone and is infinite at 10 a second."""
    return 10.0 / (10.0 - rate) if rate < 10.0 else float("inf")


def test_the_load_is_where_the_p95_crosses_its_bound() -> None:
    rates, p95s = rising_rates([hyperbola], 0.5, 50.0, 20.0)
    assert rates[1] == pytest.approx(STEP * rates[0]) and p95s[-1] > 50.0 >= p95s[-2]
    limit = rate_limit(hyperbola, rates, 4.0)
    assert not limit.saturated and not limit.dips
    assert limit.rate <= 7.5 < limit.rate * NEAR, "10 / (10 - 7.5) = 4"


def test_a_p95_that_dips_holds_up_to_its_last_crossing() -> None:
    def dips(rate: float) -> float:
        return 5.0 if rate < 2.0 else hyperbola(rate)

    rates, _ = rising_rates([dips], 0.5, 50.0, 20.0)
    limit = rate_limit(dips, rates, 4.0)
    assert limit.rate * NEAR > 7.5 and limit.dips


def test_a_p95_that_never_holds_gives_zero_and_one_that_always_holds_gives_the_capacity() -> None:
    rates, _ = rising_rates([hyperbola], 0.5, 50.0, 20.0)
    assert rate_limit(hyperbola, rates, 0.9) == (0.0, False, False)
    rates, p95s = rising_rates([lambda rate: 0.1], 0.5, 50.0, 20.0)
    assert rates[-1] == 20.0 and len(rates) == len(p95s)
    assert rate_limit(lambda rate: 0.1, rates, 0.9) == (20.0, True, False)


def test_no_load_counts_beyond_the_capacity_with_all_sentences_at_hand() -> None:
    """One at a time, a step of 10 ms: 100 tokens a second. A run that ends could hold any p95 at any load."""
    curves, limits = load_limits(decoder(cost(10.0, 0.0)), "opensubtitles", [60.0], (1,), 300)
    (curve,) = (curve for curve in curves if curve.strategy == "single")
    (single,) = (limit for limit in limits if limit.strategy == "single")
    tokens = lengths_of("opensubtitles", 1, 1_200)[1].mean()
    assert curve.capacity_rps == pytest.approx(100.0 / tokens) and max(curve.rate_rps) == curve.capacity_rps
    assert single.up_to_rps == (curve.capacity_rps,) and single.saturated
    assert (curve.beam, single.beam) == (1, 1)


def test_the_first_tenth_of_a_run_does_not_count() -> None:
    device = decoder(cost(10.0, 0.0))
    arrival_s = np.cumsum(stream(1, 0, "topup arrivals opensubtitles").standard_exponential(200)) / 50.0
    finish_s = decode_all(mini(1, 0.0), device.cost, *lengths_of("opensubtitles", 1, 200), arrival_s).finish_s
    run = p95_of_rate(device, mini(1, 0.0), "opensubtitles", 1, 200)
    assert run(50.0) == pytest.approx(np.quantile((finish_s - arrival_s)[20:], 0.95))
    assert run_sentences(128) * 0.9 > 40 * 128 and run_sentences(1) == 1_500 and run_sentences(128, 700) == 700


def test_topping_up_carries_far_more_than_single_sentences_if_larger_batches_cost_nothing() -> None:
    """Steps cost the same at any batch: a server of 16 slots against a server of one slot."""
    device = decoder(cost(10.0, 0.0))
    curves, limits = load_limits(device, "opensubtitles", None, (1,), 300)
    load_rps = {(limit.strategy, round(limit.over_solo)): limit.estimate.mean for limit in limits}
    assert solo_s(device, "opensubtitles") == pytest.approx(0.1), "a mean sentence takes ten steps"
    assert load_rps["half-empty", 8] > 4 * load_rps["single", 8] > 0.0
    assert load_rps["single", 3] < load_rps["single", 8] < 1.1 / 0.1, "the capacity of one slot"
    assert {curve.strategy for curve in curves} == {"single", "mini", "maxi", "half-empty", "immediate"}
    for curve in curves:
        assert curve.p95_ms[-1] > 1.5 * 800.0 >= curve.p95_ms[-2] or curve.rate_rps[-1] == curve.capacity_rps


def test_a_given_p95_is_the_only_bound() -> None:
    _, limits = load_limits(decoder(cost(10.0, 0.0)), "opensubtitles", [0.5], (1,), 200)
    assert {limit.p95_ms for limit in limits} == {500.0} and len(limits) == 5
    assert all(limit.estimate.low is None for limit in limits), "one seed shows no spread"
