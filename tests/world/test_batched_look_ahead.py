"""What an oracle foresees at batched targets: what comes to pass, at a cost that does not grow, and changing nothing."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from simnmt.batching import Batching, maxi, mini, top_up
from simnmt.policies import Decide, Oracle
from simnmt.results.columns import recorder
from simnmt.results.requests import Block, Trail
from simnmt.world.batch_pool import BatchPool, BatchServerSpec
from simnmt.world.batch_server import BatchServer
from simnmt.world.clock import Clock
from simnmt.world.server import ByNode, FewestTokens, InTurn, RequestEvent, RowLayout, Site
from simnmt.world.simulation import simulate
from tests.world.batched_worlds import BATCHINGS, CLOUD, COST, asked, split
from tests.world.decoding import LEAVING, SECONDS
from tests.worlds import believing


@pytest.mark.parametrize("own", [None, top_up(4, 3)])
@pytest.mark.parametrize("name", BATCHINGS)
@pytest.mark.parametrize("balancer", [ByNode(), InTurn(), FewestTokens()])
def test_an_oracle_is_told_what_a_request_takes_if_nobody_comes_after_it(
    name: str, balancer: Any, own: Batching | None
) -> None:
    """The last request of a world meets what was foretold to it, wherever it goes."""
    batching = BATCHINGS[name]
    foretold: list[list[float]] = []

    def telling(target: int) -> Any:
        return lambda block: (
            lambda in_block, delay_s: (
                foretold.append(list(delay_s)) or (target if block.first + in_block == last else (block.first + in_block) % 2)
            )
        )

    for n in (1, 2, 9, 40):
        requests, last = asked(n, rate_rps=80.0, seed=n), n - 1
        # On a link where nobody overtakes.
        requests = replace(requests, uplink_s=(np.full(n, 0.02),))
        if own is not None:
            requests = replace(requests, execution_s=(requests.execution_s[1],) * 2)
        for target in (0, 1):
            trail = simulate(
                requests,
                telling(target),
                believing(0.1, clairvoyant=True),
                [BatchPool(BatchServerSpec(batching, COST), 2, balancer.copy())],
                local=None if own is None else BatchServerSpec(own, COST),
            )
            taken_s = trail.queue_s[last]
            if trail.batches[target] is not None:
                taken_s += trail.execution_s[last] - requests.execution_s[target][last]
            if target:
                taken_s += requests.uplink_s[0][last] + requests.downlink_s[0][last]
            # Who alone is left of a batch that waits for ever is let go when nothing else is to happen: in the world, later.
            if name != "company for ever" or target == 0:
                assert foretold[-1][target] == pytest.approx(taken_s, abs=1e-9)


def overloaded(batching: Batching, balancer: Any, servers: int, n: int = 250) -> tuple[float, float, Trail]:
    """What the last of many is told that it will take beyond execution alone at a cloud that most of them wait at, and what it
    does take."""
    requests = replace(asked(n, rate_rps=15.0 * servers), uplink_s=(np.full(n, 0.003),))
    foretold: list[float] = []

    def telling(block: Block) -> Decide:
        return lambda in_block, delay_s: foretold.append(delay_s[CLOUD]) or CLOUD  # type: ignore[func-returns-value]

    pool = BatchPool(BatchServerSpec(batching, LEAVING), servers, balancer)
    trail = simulate(requests, telling, believing(0.1, clairvoyant=True), [pool])
    assert trail.execution_s is not None
    taken_s = trail.queue_s[-1] + trail.execution_s[-1] - requests.execution_s[CLOUD][-1]
    return foretold[-1], taken_s + requests.uplink_s[0][-1] + requests.downlink_s[0][-1], trail


@pytest.mark.parametrize(
    ("longest_wait_s", "others", "finish_s"), [(10.0, 0, 13.0), (10.0, 2, 4.0), (inf, 0, 3.0), (0.0, 2, 3.0)]
)
def test_a_batch_is_foreseen_to_begin_when_it_is_due_or_full_with_those_who_are_known_to_come(
    longest_wait_s: float, others: int, finish_s: float
) -> None:
    """Steps of a second, 3 tokens, from 0 s on; the others are on their way and come at 1 s. Who waits for ever does not."""
    pool = BatchPool(BatchServerSpec(mini(3, longest_wait_s), SECONDS))
    row = (0.0, 0, 0.0, 3.0, 0.0, 0.0, 1, 3)
    reaches = pool.open(Site(1, RowLayout(2, has_lengths=True), 8, 0, Clock(), recorder(10), None))
    for number in range(others):
        event = RequestEvent()
        event.request, event.row, event.entry_s = number, row, 0.0
        reaches(event)
    entry_s = 1.0 if others else 0.0
    assert entry_s + pool.wait_s((entry_s, 9, row), []) + 3.0 == (finish_s if longest_wait_s else 6.0)


DEEP = {
    **{name: batching for name, batching in BATCHINGS.items() if name != "company for ever"},
    "capped": Batching(8, 4, padded_tokens=100, encoded_together=3),
    "sorted": maxi(4, 40, longest_wait_s=0.05),
    "sorted top-up": top_up(8, 4, collected=20),
    "encoded few at a time": Batching(8, 4, encoded_together=3),
    "encoded many at a time": Batching(4, 2, encoded_together=30),
}


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize(("balancer", "servers"), [(ByNode(), 1), (InTurn(), 2)])
def test_an_oracle_is_told_the_same_of_a_long_queue(name: str, balancer: Any, servers: int) -> None:
    foretold_s, taken_s, trail = overloaded(DEEP[name], balancer.copy(), servers)
    assert trail.queue_s[-1] > 4.0
    assert foretold_s == pytest.approx(taken_s, rel=1e-9)


@pytest.mark.parametrize("batching", [top_up(8, 4), mini(4, 0.0)])
def test_an_oracle_is_told_nearly_the_same_of_long_queues_that_are_compared(batching: Batching) -> None:
    foretold_s, taken_s, _ = overloaded(batching, FewestTokens(), 2)
    assert foretold_s == pytest.approx(taken_s, rel=0.05)


def test_a_look_ahead_costs_the_same_whatever_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: each decision copied the whole queue and decoded it."""
    acts, copied, act, copy = [0], [0], BatchServer.act, BatchServer.copy

    def counted_act(server: BatchServer) -> Any:
        acts[0] += 1
        return act(server)

    def counted_copy(server: BatchServer) -> BatchServer:
        copied[0] += server.queued
        return copy(server)

    monkeypatch.setattr(BatchServer, "act", counted_act)
    monkeypatch.setattr(BatchServer, "copy", counted_copy)
    per_decision = []
    for n in (200, 800):
        acts[0], copied[0] = 0, 0
        overloaded(top_up(4, 2), ByNode(), 1, n)
        per_decision.append(np.divide((acts[0], copied[0]), n))
    assert (per_decision[1] < 1.2 * per_decision[0]).all(), per_decision
    assert per_decision[1].max() < 60, per_decision


def test_what_a_decision_lost_is_what_the_oracle_foresaw_to_be_less_elsewhere() -> None:
    requests = asked(300, rate_rps=60.0)

    def world(decide_for: Any, **how: Any) -> Trail:
        pools = [BatchPool(BatchServerSpec(top_up(8, 4), COST))]
        return simulate(requests, decide_for, believing(0.1, **how), pools, judged_share=1.0)

    def oracle(block: Block) -> Decide:
        return Oracle(block.execution_s).prepare(block.src_len)

    best = world(oracle, clairvoyant=True)
    assert best.lost_s is not None
    assert best.lost_s.max() < 1e-12
    totals: list[list[float]] = []

    def noting(block: Block) -> Decide:
        alone_s = np.stack(block.execution_s, axis=1).tolist()
        return lambda in_block, delay_s: totals.append(np.add(alone_s[in_block], delay_s).tolist()) or in_block % 2

    blind = world(noting, clairvoyant=True)
    assert blind.lost_s is not None
    expected_s = [total_s[request % 2] - min(total_s) for request, total_s in enumerate(totals)]
    np.testing.assert_allclose(blind.lost_s, expected_s, atol=1e-9)
    assert (blind.lost_s > 1e-3).mean() > 0.2


def test_who_looks_ahead_and_is_judged_by_it_looks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    requests, looks, wait_s = asked(50), list[int](), BatchPool.wait_s

    def counted(pool: BatchPool, arrival: Any, ahead: Any) -> float:
        looks.append(arrival[1])
        return wait_s(pool, arrival, ahead)

    monkeypatch.setattr(BatchPool, "wait_s", counted)
    believes = believing(0.1, clairvoyant=True)
    pools = [BatchPool(BatchServerSpec(top_up(8, 4), COST))]
    trail = simulate(
        requests, lambda block: Oracle(block.execution_s).prepare(block.src_len), believes, pools, judged_share=1.0
    )
    assert looks == list(range(50))
    assert trail.lost_s is not None
    assert trail.lost_s.max() < 1e-12


def test_looking_ahead_changes_nothing() -> None:
    requests = asked(300, rate_rps=60.0)
    trails = [
        simulate(
            requests,
            split(requests),
            believing(0.1),
            [BatchPool(BatchServerSpec(top_up(8, 4), COST), 2, InTurn())],
            local=BatchServerSpec(top_up(4, 2), COST),
            judged_share=float(lost),
        )
        for lost in (False, True)
    ]
    for name in ("queue_s", "execution_s", "first_token_s", "server"):
        np.testing.assert_array_equal(*(getattr(trail, name) for trail in trails))
    assert trails[0].batches[1].as_json() == trails[1].batches[1].as_json()
