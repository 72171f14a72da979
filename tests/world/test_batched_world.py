"""Batched targets in the world: every balancer, both disciplines, what happens in one moment, and what answers tell."""

from __future__ import annotations

import itertools
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from simnmt.batching import Batching, maxi, mini, top_up
from simnmt.devices import Batched, Fifo
from simnmt.devices.device import Balancer, ByNode, InTurn, LeastWork
from simnmt.policies.batch_view import BatchView
from simnmt.results.requests import Requests
from simnmt.world.engine import decode_all
from simnmt.world.inputs import Clients
from tests.world.batched_worlds import BATCHINGS, COST, EIGHTHS, SECONDS, asked
from tests.worlds import CLOUD, alternately, believing, everything_to, in_reference, simulate


@pytest.mark.parametrize("batching", BATCHINGS.values(), ids=BATCHINGS)
@pytest.mark.parametrize("balancer", [ByNode(), InTurn(), LeastWork()], ids=lambda balancer: type(balancer).__name__)
def test_every_box_does_what_it_would_do_by_itself(batching: Batching, balancer: Balancer) -> None:
    """Of a gateway and of a cloud; to the last sentences if these wait for company: a box by itself knows that none follows."""
    requests = asked(rate_rps=60.0)
    gateways, kind = Batched(batching, COST).of(2), Batched(batching, COST).of(3, balancer)
    trail = simulate(requests, alternately, believing(0.1), [kind], local=gateways)
    entry_s = requests.arrival_s + np.where(trail.target == CLOUD, requests.uplink_s[0], 0.0)
    begin_s, box = entry_s + trail.queue_s, np.where(trail.target == CLOUD, 2 + trail.server, requests.node % 2)
    assert set(box) == set(range(5))
    for number in range(5):
        there = np.flatnonzero(box == number)
        there = there[np.lexsort((there, entry_s[there]))]
        alone = decode_all(batching, COST, requests.src_len[there], requests.tgt_len[there], entry_s[there])
        known = there[: -batching.size if batching.longest_wait_s > 0.0 else None]
        for column, expected in (
            (begin_s, alone.begin_s),
            (begin_s + trail.execution_s, alone.finish_s),
            (trail.first_token_s, alone.first_token_s),
        ):
            np.testing.assert_allclose(column[known], expected[: len(known)], rtol=1e-9, atol=1e-9)
    for target, account in enumerate(trail.batches):
        assert account.sentences == (trail.target == target).sum()
        assert account.tokens == requests.tgt_len[trail.target == target].sum()


@pytest.mark.parametrize("batching", [mini(32), maxi(32, 40)])
def test_clients_too_few_to_fill_a_batch_are_waited_for_again_and_again(batching: Batching) -> None:
    """20 at each of two boxes of 32: when all wait, the box takes them, and waits for the next batch as for the first."""
    n, clients = 400, 40
    requests = replace(asked(n, nodes=clients), arrival_s=None)
    trails = [
        in_reference(
            requests,
            everything_to(CLOUD),
            believing(0.1),
            [Batched(rule, COST).of(2, ByNode())],
            route=lambda request, node, at_s: ((0.02,), (0.03,), 0.0, 0.0),
            clients=Clients(clients, clients, np.random.default_rng(3).exponential(2.0, clients + n)),
        )
        for rule in (batching, replace(batching, longest_wait_s=0.0))
    ]
    waiting, hasty = (trail.batches[CLOUD] for trail in trails)
    assert waiting.sentences == hasty.sentences == n
    assert waiting.sentences / waiting.refills > 15 > 5 > hasty.sentences / hasty.refills


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
    """At a gateway that batches, with a way to it and without."""
    ones = np.ones(6)
    requests = Requests(np.ones(6, np.int64), (ones, ones), (ones,), (ones,), tgt_len=np.full(6, 3))
    for there_s in (0.0, 0.5):
        trail = in_reference(
            requests,
            everything_to(0),
            believing(0.1),
            [Fifo()],
            route=lambda request, node, at_s, there_s=there_s: ((0.0,), (0.0,), there_s, 0.0),
            clients=Clients(6, 6, np.ones(12)),
            local=Batched(top_up(8, 4), SECONDS),
        )
        assert (trail.batches[0].encodings, trail.batches[0].steps[6]) == (1, 3)


def test_an_answer_reports_the_sentences_active_and_waiting_when_it_was_sent() -> None:
    """Steps of a second, batches of two, 0.5 s each way: 0 and 1 together from 1 s on (2 steps and 4), 2 waits for 1's end."""
    view = mock.create_autospec(BatchView, instance=True)
    view.at_entry, view.added_s.return_value, view.sent.side_effect = False, 0.25, itertools.count()
    seen: list[float] = []
    ones, half_s = np.ones(4), (np.full(4, 0.5),)
    arrival_s, tgt_len = np.array([0.5, 0.5, 1.0, 20.0]), np.array([2, 4, 1, 1])
    in_reference(
        Requests(ones.astype(np.int64), (ones, ones), half_s, half_s, arrival_s, tgt_len=tgt_len),
        lambda block: lambda in_block, delay_s: seen.append(delay_s[1]) or 1,
        believing(3.0, views=(None, lambda: view)),
        [Batched(mini(2, longest_wait_s=0.0), SECONDS)],
        expected_for=lambda block: [[7.0 + block.first + i for i in range(len(block))]] * 2,
    )
    asked_at = [mock.call(at_s, 7.0 + request) for request, at_s in enumerate([0.5, 0.5, 1.0, 20.0])]
    assert view.added_s.mock_calls == view.sent.mock_calls == asked_at
    assert [reported.args for reported in view.reported.mock_calls] == [
        (0, 0.0, (1, 1), 3.5), (1, 0.0, (0, 1), 5.5), (2, 3.5, (0, 0), 6.5), (3, 0.0, (0, 0), 22.0)
    ]  # fmt: skip
    assert seen == [3.25, 3.25, 3.25, 1.25]


@pytest.mark.parametrize(
    ("batching", "arrival_s", "factor", "ends_s"),
    [
        # Two steps together at 1.5 s, then the slower one alone: two steps at 2 s.
        (mini(2), [0.0, 0.0], [1.0, 2.0], [3.0, 7.0]),
        # A step of 1 s alone, three at 2 s with the one that joined, which then takes one of 3 s alone.
        (top_up(2, 1), [0.0, 0.5], [1.0, 3.0], [7.0, 10.0]),
    ],
)
def test_a_batch_takes_the_mean_of_the_factors_of_its_active_sentences(
    batching: Batching, arrival_s: list[float], factor: list[float], ends_s: list[float]
) -> None:
    ones, tgt_len = np.ones(2, np.int64), np.array([2 if batching.threshold == 0 else 4, 4])
    requests = Requests(ones, (SECONDS.solo_s(ones, tgt_len) * factor,), arrival_s=np.array(arrival_s), tgt_len=tgt_len)
    trail = simulate(requests, everything_to(0), believing(0.1), [], local=Batched(batching, SECONDS, varies=True))
    assert (requests.arrival_s + trail.queue_s + trail.execution_s).tolist() == ends_s


def test_a_batch_that_is_decoded_in_one_call_is_answered_at_its_end() -> None:
    """Two sentences of two and four steps."""
    ones, tgt_len, ends_s = np.ones(2, np.int64), np.array([2, 4]), []
    requests = Requests(ones, (SECONDS.solo_s(ones, tgt_len),), arrival_s=np.zeros(2), tgt_len=tgt_len)
    for ends_together in (False, True):
        local = Batched(mini(2), SECONDS, ends_together=ends_together)
        trail = simulate(requests, everything_to(0), believing(0.1), [], local=local)
        ends_s.append(trail.queue_s[:] + trail.execution_s[:])
    apart_s, together_s = ends_s
    assert apart_s[0] < apart_s[1]
    assert together_s == pytest.approx(np.full(2, apart_s[1]))
