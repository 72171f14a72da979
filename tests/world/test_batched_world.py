"""Batched targets in the world: every balancer, both disciplines, what happens in one moment, and what answers tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simnmt.batching import Batching, maxi, mini, top_up
from simnmt.devices import Batched, Fifo
from simnmt.devices.batch import decode_all
from simnmt.devices.device import ByNode, InTurn, LeastLoadedOfDrawn, LeastWork
from simnmt.policies import Decide, TransferEstimate
from simnmt.policies.views import BatchView
from simnmt.results.requests import Block, Requests, Trail
from simnmt.world.deciders import Beliefs
from simnmt.world.reference import Clients, simulate
from tests.world.batched_worlds import BATCHINGS, CLOUD, COST, asked, split
from tests.world.decoding import EIGHTHS, SECONDS
from tests.worlds import believing, everything_to


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
        "one drawn": LeastLoadedOfDrawn(choices[:, :1]),
        "two drawn": LeastLoadedOfDrawn(choices[:, :2]),
        "fewest tokens": LeastWork(),
    }
    pool = Batched(batching, COST).of(servers, balancers[balancer])
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
            requests, everything_to(CLOUD), believing(0.1), [batched.of(3, balancer)]
        ).queue_s.mean()
        for balancer in (InTurn(), LeastWork())
    }
    assert wait_s["LeastWork"] < wait_s["InTurn"] / 2


@pytest.mark.parametrize("name", BATCHINGS)
@pytest.mark.parametrize("deciders", [1, 5])
def test_the_deciders_own_devices_batch_as_well(name: str, deciders: int) -> None:
    """What they send away goes to a plain server, whose columns stay empty."""
    requests, batching = asked(rate_rps=30.0), BATCHINGS[name]
    own = Batched(batching, COST)
    trail = simulate(requests, split(requests), believing(0.1), [Fifo()], deciders=deciders, local=own.of(deciders))
    kept = trail.target == 0
    for decider in range(deciders):
        agrees(requests, trail, batching, np.flatnonzero(kept & (requests.node % deciders == decider)), requests.arrival_s)
    assert np.isnan(trail.execution_s).tolist() == (~kept).tolist()
    assert trail.batches[0] is not None
    assert trail.batches[1] is None
    assert not trail.server.any()


def test_without_a_batched_target_nothing_is_kept_of_batches() -> None:
    requests = asked()
    trail = simulate(requests, split(requests), believing(0.1), [Fifo()])
    assert (trail.execution_s, trail.first_token_s, trail.batches, trail.decision_regret_s) == (None, None, (), None)


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
        [Batched(BATCHINGS[name], COST).of(2, LeastWork())],
        route=lambda request, node, at_s: ((0.02,), (0.03,), 0.01, 0.01),
        clients=Clients(clients, clients, think_s),
        local=Batched(BATCHINGS[name], COST),
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
            [Batched(how, COST).of(2, ByNode())],
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
    trail = simulate(requests, everything_to(CLOUD), believing(0.1), [Batched(top_up(3, 2), SECONDS)])
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
    trail = simulate(requests, everything_to(target), believing(0.1), [batched], local=batched)
    alone = decode_all(batched.batching, EIGHTHS, src_len, tgt_len, requests.arrival_s)
    np.testing.assert_allclose(requests.arrival_s + trail.queue_s, alone.begin_s, 1e-9, 1e-9)
    np.testing.assert_allclose(requests.arrival_s + trail.queue_s + trail.execution_s, alone.finish_s, 1e-9, 1e-9)


def test_clients_that_ask_in_one_moment_are_encoded_together() -> None:
    """Found: at a gateway that batches the first was encoded alone, and the others waited for it."""
    ones: Any = np.ones(6)
    requests = Requests(np.ones(6, np.int64), (ones, ones), (ones,), (ones,), tgt_len=np.full(6, 3))
    for there_s in (0.0, 0.5):
        trail = simulate(
            requests,
            everything_to(0),
            believing(0.1),
            [Fifo()],
            route=lambda request, node, at_s, there_s=there_s: ((0.0,), (0.0,), there_s, 0.0),
            clients=Clients(6, 6, np.ones(12)),
            local=Batched(top_up(8, 4), SECONDS),
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

    def reported(self, number: int, wait_s: float, report: tuple[int, int], at_s: float) -> None:
        self._told.append(("reported", number, wait_s, *report, at_s))


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

    beliefs = Beliefs(lambda decider, target: TransferEstimate(3.0), views=(None, lambda: Listening(told)))
    simulate(
        requests,
        decide_for,
        beliefs,
        [Batched(mini(2, longest_wait_s=0.0), SECONDS)],
        expected_for=lambda block: [[7.0 + block.first + i for i in range(len(block))]] * 2,
    )
    assert [row for row in told if row[0] != "reported"] == [
        (what, at_s, 7.0 + request) for request, at_s in enumerate([0.5, 0.5, 1.0, 20.0]) for what in ("asked", "sent")
    ]
    assert [row for row in told if row[0] == "reported"] == [
        ("reported", 0, 0.0, 1, 1, 3.5),
        ("reported", 1, 0.0, 0, 1, 5.5),
        ("reported", 2, 3.5, 0, 0, 6.5),
        ("reported", 3, 0.0, 0, 0, 22.0),
    ]
    assert seen == [3.25, 3.25, 3.25, 1.25]
