"""Sentences that take longer or shorter than usual in batches: the factor of a batch, and its bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simnmt.batching import Batching, mini, top_up
from simnmt.devices import Batched
from simnmt.profile.batch_cost import DecodingCost
from simnmt.results.requests import Requests
from tests.world.batched_worlds import BATCHINGS, COST, asked
from tests.world.decoding import SECONDS
from tests.world.engines import simulate
from tests.worlds import believing, everything_to


def finishes_s(batching: Batching, cost: DecodingCost, *sentences: tuple[float, int, float]) -> list[float]:
    """Moments at which a box is done with sentences, given as (arrival, target tokens, factor)."""
    arrival_s, tgt_len, factor = (np.array(column) for column in zip(*sentences, strict=True))
    ones = np.ones(len(arrival_s), np.int64)
    execution_s = cost.solo_s(ones, tgt_len) * factor
    requests = Requests(ones, (execution_s,), arrival_s=arrival_s, tgt_len=tgt_len)
    kind = Batched(batching, cost, varies=True)
    trail = simulate(requests, everything_to(0), believing(0.1), [], local=kind)
    return (arrival_s + trail.queue_s + trail.execution_s).tolist()


def test_a_batch_takes_the_mean_of_the_factors_of_its_active_sentences() -> None:
    # Two steps together at 1.5 s, then the slower one alone: two steps at 2 s.
    assert finishes_s(mini(2), SECONDS, (0.0, 2, 1.0), (0.0, 4, 2.0)) == [3.0, 7.0]


def test_a_sentence_that_joins_changes_the_factor_from_then_on() -> None:
    # A step of 1 s alone, three at 2 s with the one that joined, which then takes one of 3 s alone.
    assert finishes_s(top_up(2, 1), SECONDS, (0.0, 4, 1.0), (0.5, 4, 3.0)) == [7.0, 10.0]


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_equal_factors_stretch_time(factor: float) -> None:
    arrivals = np.cumsum(np.random.default_rng(1).exponential(2.0, 40))
    lengths = np.random.default_rng(2).integers(1, 9, 40)
    usual = ((at, int(length), 1.0) for at, length in zip(arrivals, lengths, strict=True))
    stretched = ((factor * at, int(length), factor) for at, length in zip(arrivals, lengths, strict=True))
    usual_s, other_s = finishes_s(top_up(4, 2), COST, *usual), finishes_s(top_up(4, 2), COST, *stretched)
    assert other_s != usual_s
    # Encoding and steps are stretched; joining, a tenth of a millisecond here, is not.
    assert other_s == pytest.approx([factor * at for at in usual_s], rel=1e-3)


@pytest.mark.parametrize("name", list(BATCHINGS))
def test_executions_alone_are_those_of_the_requests_and_vary_more_in_batches(name: str) -> None:
    requests = asked(300)
    random = np.random.default_rng(7)
    factors = random.uniform(0.5, 2.0, 300)
    requests = replace(requests, execution_s=(requests.execution_s[0], requests.execution_s[1] * factors))
    spec = Batched(BATCHINGS[name], COST, varies=True)
    trail = simulate(requests, everything_to(1), believing(0.1), [spec])
    if BATCHINGS[name].size == 1:
        np.testing.assert_allclose(trail.execution_s, requests.execution_s[1], rtol=0.05)
    plain = simulate(requests, everything_to(1), believing(0.1), [replace(spec, varies=False)])
    assert trail.execution_s.std() > plain.execution_s.std(), "times vary more than lengths"
