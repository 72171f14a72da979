"""Batched targets in the world: every balancer, both disciplines, what answers tell, and what an oracle foresees."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from simnmt.batching import Batching, maxi, mini, top_up
from simnmt.policies import Decide, Oracle, TransferEstimate
from simnmt.policies.batch_view import BatchView
from simnmt.world.answers import Answers
from simnmt.world.batch_balancers import BatchEntry, ByNode, FewestTokens, InTurn, OfDrawn
from simnmt.world.batch_pools import Batched, BatchPool
from simnmt.world.batch_server import BatchServer
from simnmt.world.closed_loop import Clients
from simnmt.world.decode_all import decode_all
from simnmt.world.pools import OneServer
from simnmt.world.requests import Block, Requests
from simnmt.world.simulate import Beliefs, Trail, simulate
from tests.world.decoding import EIGHTHS, LEAVING, SECONDS, cost
from tests.worlds import believing, everything_to

COST = cost()
BATCHINGS = {
    "mini": mini(4, longest_wait_s=0.05),
    "half-empty": top_up(8, 4),
    "immediate": top_up(8, 7),
    "one": top_up(1, 0),
    "company for ever": mini(4),
}
CLOUD = 1


def asked(n: int = 400, rate_rps: float = 15.0, seed: int = 1, nodes: int = 5) -> Requests:
    """Requests of several end nodes that a gateway of twice the cloud's time decides on."""
    random = np.random.default_rng(seed)
    src_len = random.integers(1, 40, n)
    tgt_len = random.integers(0, 40, n)
    arrival_s = np.cumsum(random.exponential(1 / rate_rps, n))
    alone_s = COST.solo_s(src_len, tgt_len)
    uplink_s, downlink_s = 0.02 * random.lognormal(0.0, 1.0, (2, n))
    execution_s = (2 * alone_s, alone_s)
    return Requests(src_len, execution_s, (uplink_s,), (downlink_s,), arrival_s, np.arange(n) % nodes, tgt_len=tgt_len)


def split(requests: Requests) -> Any:
    """Even requests stay, odd ones go."""
    return lambda block: lambda in_block, delay_s: (block.first + in_block) % 2


def entered(requests: Requests, trail: Trail) -> np.ndarray:
    return np.asarray(requests.arrival_s) + requests.uplink_s[0]


def agrees(requests: Requests, trail: Trail, batching: Batching, which: np.ndarray, entry_s: np.ndarray) -> None:
    """One server by itself does the same with them, but to the last if these wait for company: it knows that nobody comes."""
    order = which[np.lexsort((which, entry_s[which]))]
    alone = decode_all(batching, COST, requests.src_len[order], requests.tgt_len[order], entry_s[order])
    begin_s = entry_s + trail.queue_s
    known = slice(None, -batching.size) if batching.longest_wait_s > 0.0 else slice(None)
    np.testing.assert_allclose(begin_s[order][known], alone.begin_s[known], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose((begin_s + trail.execution_s)[order][known], alone.finish_s[known], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(trail.first_token_s[order][known], alone.first_token_s[known], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", BATCHINGS)
@pytest.mark.parametrize("balancer", ["one", "attached", "round robin", "one drawn", "two drawn", "fewest tokens"])
def test_every_server_of_a_tier_does_what_it_would_do_by_itself(name: str, balancer: str) -> None:
    requests, batching = asked(rate_rps=60.0), BATCHINGS[name]
    servers = 1 if balancer == "one" else 3
    choices = np.random.default_rng(2).permuted(np.tile(np.arange(3), (len(requests), 1)), axis=1)
    balancers = {
        "one": None,
        "attached": ByNode(),
        "round robin": InTurn(),
        "one drawn": OfDrawn(choices[:, :1]),
        "two drawn": OfDrawn(choices[:, :2]),
        "fewest tokens": FewestTokens(),
    }
    pool = BatchPool(Batched(batching, COST), servers, balancers[balancer])
    trail = simulate(requests, everything_to(CLOUD), believing(0.1), [pool])
    entry_s = entered(requests, trail)
    for server in range(servers):
        agrees(requests, trail, batching, np.flatnonzero(trail.server == server), entry_s)
    order = np.lexsort((np.arange(len(requests)), entry_s))
    if balancer == "attached":
        assert (trail.server == requests.node % 3).all()
    elif balancer == "round robin":
        assert (trail.server[order] == np.arange(len(requests)) % 3).all()
    elif balancer == "one drawn":
        assert (trail.server == choices[:, 0]).all()
    elif balancer == "two drawn":
        assert (trail.server != choices[:, 2]).all()
        assert 0.1 < (trail.server == choices[:, 1]).mean() < 0.6
    account = trail.batches[CLOUD]
    assert account is not None
    assert (account.sentences, account.tokens) == (len(requests), requests.tgt_len.sum())


def test_comparing_servers_shortens_the_wait() -> None:
    """One server gets the long sentences by turn: the others are found by who looks."""
    requests = asked(1_200, rate_rps=18.0)
    tgt_len = np.where(np.arange(1_200) % 3 == 0, 80, 5)
    requests = replace(requests, tgt_len=tgt_len, uplink_s=(np.full(1_200, 0.01),))
    batched = Batched(top_up(4, 2), COST)
    wait_s = {
        balancer.__class__.__name__: simulate(
            requests, everything_to(CLOUD), believing(0.1), [BatchPool(batched, 3, balancer)]
        ).queue_s.mean()
        for balancer in (InTurn(), FewestTokens())
    }
    assert wait_s["FewestTokens"] < wait_s["InTurn"] / 2


@pytest.mark.parametrize("name", BATCHINGS)
@pytest.mark.parametrize("deciders", [1, 5])
def test_the_deciders_own_devices_batch_as_well(name: str, deciders: int) -> None:
    """What they send away goes to a plain server, whose columns stay empty."""
    requests, batching = asked(rate_rps=30.0), BATCHINGS[name]
    own = Batched(batching, COST)
    trail = simulate(requests, split(requests), believing(0.1), [OneServer()], deciders=deciders, own=own)
    kept = trail.target == 0
    for decider in range(deciders):
        agrees(requests, trail, batching, np.flatnonzero(kept & (requests.node % deciders == decider)), requests.arrival_s)
    assert np.isnan(trail.execution_s).tolist() == (~kept).tolist()
    assert trail.batches[0] is not None
    assert trail.batches[1] is None
    assert not trail.server.any()


def test_without_a_batched_target_nothing_is_kept_of_batches() -> None:
    requests = asked()
    trail = simulate(requests, split(requests), believing(0.1), [OneServer()])
    assert (trail.execution_s, trail.first_token_s, trail.batches, trail.lost_s) == (None, None, (), None)


@pytest.mark.parametrize("name", BATCHINGS)
@pytest.mark.parametrize("keeps", [0, 1])
def test_clients_wait_for_their_batch(name: str, keeps: int) -> None:
    """Each asks again when its answer has come and it has thought; so many are never under way at once."""
    n, clients = 300, 6
    requests = replace(asked(n), arrival_s=None)
    think_s = np.random.default_rng(3).exponential(0.05, clients + n)
    trail = simulate(
        requests,
        everything_to(1 - keeps),
        believing(0.1),
        [BatchPool(Batched(BATCHINGS[name], COST), 2, FewestTokens())],
        route=lambda request, node, at_s: ((0.02,), (0.03,), 0.01, 0.01),
        clients=Clients(clients, clients, think_s),
        own=Batched(BATCHINGS[name], COST),
    )
    assert trail.execution_s is not None
    assert np.isfinite(trail.execution_s).all()
    way_s = 0.02 if keeps else 0.07
    answered_s = trail.arrival_s + trail.queue_s + trail.execution_s + way_s
    assert trail.node is not None
    for client in range(clients):
        own = np.flatnonzero(trail.node == client)
        again_s = answered_s[own] + think_s[clients + own]
        np.testing.assert_allclose(trail.arrival_s[own][1:], again_s[:-1])


@pytest.mark.parametrize("batching", [mini(32), maxi(32, 40)])
def test_clients_too_few_to_fill_a_batch_are_waited_for_again_and_again(batching: Batching) -> None:
    """20 at each of two boxes of 32: when all wait, those who wait are let go, and the next batch is waited for like the first.

    Found: after the first time nobody waited any longer.
    """
    n, clients = 400, 40
    requests = replace(asked(n, nodes=clients), arrival_s=None)
    trails = [
        simulate(
            requests,
            everything_to(CLOUD),
            believing(0.1),
            [BatchPool(Batched(how, COST), 2, ByNode())],
            route=lambda request, node, at_s: ((0.02,), (0.03,), 0.0, 0.0),
            clients=Clients(clients, clients, np.random.default_rng(3).exponential(2.0, clients + n)),
        )
        for how in (batching, replace(batching, longest_wait_s=0.0))
    ]
    waiting, hasty = (trail.batches[CLOUD] for trail in trails)
    assert waiting is not None
    assert hasty is not None
    assert waiting.sentences == hasty.sentences == n
    assert waiting.sentences / waiting.refills > 15 > 5 > hasty.sentences / hasty.refills


def test_events_of_one_moment_who_reaches_a_server_is_there_when_a_step_ends() -> None:
    """Steps of a second: the second request reaches the cloud at 2 s sharp, the third a moment later."""
    columns: Any = np.full((3, 3), [[1.0], [1.0], [0.0]])
    requests = Requests(
        np.ones(3, np.int64),
        (columns[0], columns[1]),
        (np.array([0.5, 0.75, 1.0]),),
        (columns[2],),
        np.array([0.0, 1.75, 1.75]),
        tgt_len=np.array([4, 1, 1]),
    )
    trail = simulate(requests, everything_to(CLOUD), believing(0.1), [BatchPool(Batched(top_up(3, 2), SECONDS))])
    assert (requests.arrival_s + requests.uplink_s[0] + trail.queue_s).tolist() == [0.5, 2.5, 3.5]
    assert trail.execution_s is not None
    assert trail.execution_s.tolist() == [4.0, 1.0, 1.0]


@pytest.mark.parametrize("name", BATCHINGS)
@pytest.mark.parametrize("target", [0, CLOUD])
def test_arrivals_of_a_moment_are_there_before_a_server_acts_in_it(name: str, target: int) -> None:
    """All times are eighths of seconds, many arrive at once, and no link is between: a server by itself takes all of them."""
    random = np.random.default_rng(5)
    n = 400
    gap_s = random.choice([0.0, 0.0, 0.125, 0.25, 1.0, 4.0], n)
    src_len, tgt_len, nothing = random.integers(1, 5, n), random.integers(0, 5, n), np.zeros(n)
    requests = Requests(src_len, (nothing, nothing), (nothing,), (nothing,), np.cumsum(gap_s), tgt_len=tgt_len)
    batched = Batched(replace(BATCHINGS[name], longest_wait_s=0.125 if name == "mini" else 0.0), EIGHTHS)
    trail = simulate(requests, everything_to(target), believing(0.1), [BatchPool(batched)], own=batched)
    alone = decode_all(batched.batching, EIGHTHS, src_len, tgt_len, requests.arrival_s)
    assert (requests.arrival_s + trail.queue_s).tolist() == alone.begin_s.tolist()
    assert (requests.arrival_s + trail.queue_s + trail.execution_s).tolist() == alone.finish_s.tolist()


def test_clients_that_ask_in_one_moment_are_encoded_together() -> None:
    """Found: at a gateway that batches the first was encoded alone, and the others waited for it."""
    ones: Any = np.ones(6)
    requests = Requests(np.ones(6, np.int64), (ones, ones), (ones,), (ones,), tgt_len=np.full(6, 3))
    for there_s in (0.0, 0.5):
        trail = simulate(
            requests,
            everything_to(0),
            believing(0.1),
            [OneServer()],
            route=lambda request, node, at_s, there_s=there_s: ((0.0,), (0.0,), there_s, 0.0),
            clients=Clients(6, 6, np.ones(12)),
            own=Batched(top_up(8, 4), SECONDS),
        )
        assert trail.batches[0] is not None
        assert (trail.batches[0].encodings, trail.batches[0].steps[6]) == (1, 3)


class Listening(BatchView):
    """Keeps what it was told."""

    def __init__(self, told: list[tuple[Any, ...]]) -> None:
        super().__init__(lambda active: 1.0, 4)
        self._told, self._number = told, 0

    def added_s(self, at_s: float, tgt_len_predicted: float) -> float:
        self._told.append(("asked", at_s, tgt_len_predicted))
        return 0.25

    def sent(self, now_s: float, tgt_len_predicted: float) -> int:
        self._told.append(("sent", now_s, tgt_len_predicted))
        self._number += 1
        return self._number - 1

    def reported(self, number: int, wait_s: float, active: int, waiting: int, at_s: float) -> None:
        self._told.append(("reported", number, wait_s, active, waiting, at_s))


def test_an_answer_tells_who_was_left_active_and_waiting_when_it_set_out() -> None:
    """Steps of a second, batches of two, 0.5 s each way: 0 and 1 together from 1 s on (2 steps and 4), 2 waits for 1's end."""
    told: list[tuple[Any, ...]] = []
    seen: list[float] = []
    requests = Requests(
        np.ones(4, np.int64),
        (np.ones(4), np.ones(4)),
        (np.full(4, 0.5),),
        (np.full(4, 0.5),),
        np.array([0.5, 0.5, 1.0, 20.0]),
        tgt_len=np.array([2, 4, 1, 1]),
    )

    def decide_for(block: Block) -> Decide:
        return lambda in_block, delay_s: seen.append(delay_s[1]) or 1  # type: ignore[func-returns-value]

    beliefs = Beliefs(lambda decider, target: TransferEstimate(3.0), batch_views=(None, lambda: Listening(told)))
    simulate(
        requests,
        decide_for,
        beliefs,
        [BatchPool(Batched(mini(2, longest_wait_s=0.0), SECONDS))],
        predicted_tgt_len_for=lambda block: [7.0 + block.first + i for i in range(len(block))],
    )
    assert [row for row in told if row[0] != "reported"] == [
        (what, at_s, 7.0 + request) for request, at_s in enumerate([0.5, 0.5, 1.0, 20.0]) for what in ("asked", "sent")
    ]
    assert [row for row in told if row[0] == "reported"] == [
        ("reported", 0, 0.0, 1, 1, 3.5),
        ("reported", 1, 0.0, 0, 1, 5.5),
        ("reported", 2, 3.5, 0, 0, 6.5),
    ]
    assert seen == [3.25, 3.25, 3.25, 1.25]


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
                [BatchPool(Batched(batching, COST), 2, balancer.copy())],
                own=None if own is None else Batched(own, COST),
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

    pool = BatchPool(Batched(batching, LEAVING), servers, balancer)
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
    pool = BatchPool(Batched(mini(3, longest_wait_s), SECONDS))
    for number in range(others):
        pool.enter(BatchEntry(0.0, number, 1, 3, 0))
    assert pool.finish_s(BatchEntry(1.0 if others else 0.0, 9, 1, 3, 0), []) == (finish_s if longest_wait_s else 6.0)


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
        pools = [BatchPool(Batched(top_up(8, 4), COST))]
        return simulate(requests, decide_for, believing(0.1, **how), pools, records_lost=True)

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
    requests, looks, finish_s = asked(50), list[int](), BatchPool.finish_s

    def counted(pool: BatchPool, entry: Any, ahead: Any) -> float:
        looks.append(entry.request)
        return finish_s(pool, entry, ahead)

    monkeypatch.setattr(BatchPool, "finish_s", counted)
    believes = believing(0.1, clairvoyant=True)
    pools = [BatchPool(Batched(top_up(8, 4), COST))]
    trail = simulate(
        requests, lambda block: Oracle(block.execution_s).prepare(block.src_len), believes, pools, records_lost=True
    )
    assert looks == list(range(50))
    assert trail.lost_s is not None
    assert trail.lost_s.max() < 1e-12


def test_who_has_no_view_of_its_own_device_hears_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer for each request that it keeps would be forgotten unread; one that sees its backlog needs them."""
    requests, heard, add = asked(60), list[int](), Answers.add

    def noted(answers: Answers, answer: Any, server: int = 0) -> None:
        heard.append(answer[2])
        add(answers, answer, server)

    monkeypatch.setattr(Answers, "add", noted)
    for own in (None, Batched(mini(4, 0.0), COST)):
        for sees_backlog in (False, True):
            heard.clear()
            beliefs = Beliefs(
                lambda decider, target: TransferEstimate(0.1),
                sees_backlog=sees_backlog,
                parallel=(1, 1),
                batch_views=(None, lambda: Listening([])),
            )
            simulate(
                requests,
                split(requests),
                beliefs,
                [BatchPool(Batched(mini(4, 0.0), COST))],
                predicted_for=lambda block: [[1.0] * len(block)] * 2,
                predicted_tgt_len_for=lambda block: [7.0] * len(block),
                own=own,
            )
            assert (heard.count(0), heard.count(CLOUD)) == (30 if sees_backlog else 0, 30)


def test_looking_ahead_changes_nothing() -> None:
    requests = asked(300, rate_rps=60.0)
    trails = [
        simulate(
            requests,
            split(requests),
            believing(0.1),
            [BatchPool(Batched(top_up(8, 4), COST), 2, InTurn())],
            own=Batched(top_up(4, 2), COST),
            records_lost=lost,
        )
        for lost in (False, True)
    ]
    for name in ("queue_s", "execution_s", "first_token_s", "server"):
        np.testing.assert_array_equal(*(getattr(trail, name) for trail in trails))
    assert trails[0].batches[1].as_json() == trails[1].batches[1].as_json()
