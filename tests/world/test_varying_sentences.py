"""Sentences that take longer or shorter than usual in batches: the factor of a batch, its bounds, and its foresight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simnmt.batching import mini, top_up
from simnmt.devices import Batched
from simnmt.world.reference import simulate
from tests.world.batched_worlds import BATCHINGS, COST, asked
from tests.world.decoding import SECONDS
from tests.worlds import believing, everything_to


def finishes_s(server: BatchServer, *sentences: tuple[float, int, float]) -> list[float]:
    """Moments at which a server is done with sentences, given as (arrival, target tokens, factor)."""
    done: dict[int, float] = {}

    def act() -> None:
        for sentence in server.act():
            done[sentence.request] = sentence.finish_s

    for request, (arrival_s, tgt_len, factor) in enumerate(sentences):
        while server.next_s < arrival_s:
            act()
        server.arrive(request, 1, tgt_len, arrival_s, factor)
    server.close(sentences[-1][0])
    while server.holds:
        act()
    return [done[request] for request in range(len(sentences))]


@pytest.mark.parametrize("foretells", [False, True])
def test_a_batch_takes_the_mean_of_the_factors_of_its_active_sentences(foretells: bool) -> None:
    server = BatchServer(mini(2), SECONDS, foretells=foretells)
    # Two steps together at 1.5 s, then the slower one alone: two steps at 2 s.
    assert finishes_s(server, (0.0, 2, 1.0), (0.0, 4, 2.0)) == [3.0, 7.0]


def test_a_sentence_that_joins_changes_the_factor_from_then_on() -> None:
    server = BatchServer(top_up(2, 1), SECONDS)
    # A step of 1 s alone, three at 2 s with the one that joined, which then takes one of 3 s alone.
    assert finishes_s(server, (0.0, 4, 1.0), (0.5, 4, 3.0)) == [7.0, 10.0]


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_equal_factors_stretch_time(factor: float) -> None:
    arrivals = np.cumsum(np.random.default_rng(1).exponential(2.0, 40))
    lengths = np.random.default_rng(2).integers(1, 9, 40)
    usual, other = BatchServer(top_up(4, 2), COST), BatchServer(top_up(4, 2), COST)
    usual_s = finishes_s(usual, *((at, int(length), 1.0) for at, length in zip(arrivals, lengths, strict=True)))
    other_s = finishes_s(other, *((factor * at, int(length), factor) for at, length in zip(arrivals, lengths, strict=True)))
    assert other_s != usual_s
    # Encoding and steps are stretched; joining, a tenth of a millisecond here, is not.
    assert other_s == pytest.approx([factor * at for at in usual_s], rel=1e-3)


@pytest.mark.parametrize("name", list(BATCHINGS))
def test_executions_alone_are_those_of_the_requests_foreseen_and_vary_more_in_batches(name: str) -> None:
    requests = asked(300)
    random = np.random.default_rng(7)
    factors = random.uniform(0.5, 2.0, 300)
    requests = replace(requests, execution_s=(requests.execution_s[0], requests.execution_s[1] * factors))
    spec = Batched(BATCHINGS[name], COST, varies=True)
    foreseen_s: list[float] = []

    def decide_for(block: Any) -> Any:
        return lambda in_block, delay_s: foreseen_s.append(delay_s[1]) or 1

    trail = simulate(requests, decide_for, believing(0.1, clairvoyant=True), [spec.of()])
    beyond_s = trail.queue_s + trail.execution_s - requests.execution_s[1]
    right = np.abs(np.array(foreseen_s) - requests.uplink_s[0] - requests.downlink_s[0] - beyond_s) < 1e-9
    if BATCHINGS[name].size == 1:
        np.testing.assert_allclose(trail.execution_s, requests.execution_s[1], rtol=0.05)
        assert right.mean() > 0.7, "unless a later request overtakes it on the uplink"
    plain = simulate(requests, everything_to(1), believing(0.1), [replace(spec, varies=False).of()])
    assert trail.execution_s.std() > plain.execution_s.std(), "times vary more than lengths"
