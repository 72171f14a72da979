"""Streamed targets in the world: behind balancers, in every discipline, and the delays of an oracle (XP-04)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from simnmt.devices import Fifo
from simnmt.devices.device import Balancer, ByNode, InTurn, LeastLoadedOfDrawn, LeastWork
from simnmt.policies import BacklogView, LeastTotal, PlanView
from simnmt.results.requests import Requests
from tests.world.streamed_boxes import STREAMED, asked
from tests.worlds import alternately, believing, everything_to, in_reference, recording, simulate

CHOICES = np.random.default_rng(2).permuted(np.tile(np.arange(3), (400, 1)), axis=1)[:, :2].astype(np.int16)


@pytest.mark.parametrize("balancer", [ByNode(), LeastLoadedOfDrawn(CHOICES)], ids=["attached", "two drawn"])
def test_with_nothing_to_read_it_is_the_plain_world_to_the_bit(balancer: Balancer) -> None:
    """Crowded; of two drawn boxes the one that comes free first is taken."""
    states = tuple(replace(state, load_s=(0.0,) * len(state.load_s)) for state in STREAMED.states)
    requests, still = asked(gap_s=0.05), replace(STREAMED, states=states)
    one = simulate(requests, alternately, believing(0.1), [still.of(3, balancer)], local=still.of(2))
    other = simulate(requests, alternately, believing(0.1), [Fifo(3, balancer=balancer)], deciders=2)
    for name in ("arrival_s", "decided_s", "target", "server", "queue_s", "estimate_s", "measured_at_s"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert not one.stall_s.any()
    np.testing.assert_allclose(one.execution_s, np.choose(one.target, requests.execution_s))
    assert (one.queue_s > 0.0).sum() > 100


@pytest.mark.parametrize("balancer", [InTurn(), LeastWork()], ids=lambda balancer: type(balancer).__name__)
def test_every_box_of_a_tier_does_what_it_would_do_by_itself(balancer: Balancer) -> None:
    requests = asked(gap_s=0.5)
    trail = simulate(requests, everything_to(1), believing(0.1), [STREAMED.of(3, balancer)])
    entry_s = requests.arrival_s + requests.uplink_s[0]
    for box in range(3):
        there = np.flatnonzero(trail.server == box)
        there = there[np.argsort(entry_s[there], kind="stable")]
        assert len(there) > 20
        lengths, execution_s = {"tgt_len": requests.tgt_len[there]}, (requests.execution_s[1][there],)
        alone = Requests(requests.src_len[there], execution_s, arrival_s=entry_s[there], **lengths)
        by_itself = simulate(alone, everything_to(0), believing(0.1), [], local=STREAMED)
        for name in ("queue_s", "execution_s", "state", "stall_s", "first_token_s", "deadline_missed"):
            np.testing.assert_allclose(getattr(trail, name)[there], getattr(by_itself, name), 1e-9, 1e-9, err_msg=name)


def test_back_to_back_a_box_cools_while_others_work() -> None:
    """Five requests of 20 s to the cloud: then the gateway's engagement is over, and after ten its memory is gone."""
    turns = [0, 0, 0, *[1] * 3, 0, 0, *[1] * 5, 0]
    n = len(turns)
    src_len, tgt_len = np.full(n, 10), np.full(n, 15)
    here_s = STREAMED.compute.in_memory_s(src_len, tgt_len)
    columns = Requests(src_len, (here_s, np.full(n, 20.0)), (np.full(n, 0.1),), (np.full(n, 0.1),), tgt_len=tgt_len)
    trail = simulate(
        columns,
        lambda block: lambda in_block, delay_s: turns[in_block],
        believing(0.2),
        [Fifo()],
        local=STREAMED,
        judged_share=1.0,
    )
    assert trail.state.tolist() == [0, 2, 3, -1, -1, -1, 0, 2, -1, -1, -1, -1, -1, 0]
    assert trail.arrival_s[1] == trail.execution_s[0] == STREAMED.states[0].alone_s(STREAMED.compute, 10, 15)
    assert trail.decision_regret_s[:3].tolist() == [0.0] * 3
    assert trail.decision_regret_s[3] == pytest.approx(20.2 - STREAMED.states[3].alone_s(STREAMED.compute, 10, 15))
    assert np.isnan(trail.execution_s[3]) and trail.streamed[1] is None


@pytest.mark.parametrize("gap_s", [0.3, 3.0])
@pytest.mark.parametrize("balancer", [InTurn(), LeastWork()], ids=lambda balancer: type(balancer).__name__)
def test_the_delays_of_an_oracle_are_those_that_the_request_meets(gap_s: float, balancer: Balancer) -> None:
    """Requests on the uplink are counted in; it takes a second, the same for all, so that none overtakes another."""
    requests = asked(gap_s=gap_s)
    requests = replace(requests, uplink_s=(np.ones(len(requests)),))
    delays, decide_for = recording(alternately)
    pool = STREAMED.of(2, balancer)
    trail = in_reference(requests, decide_for, believing(0.1, clairvoyant=True), [pool], local=STREAMED.of(2))
    transfer_s = np.where(trail.target == 1, requests.uplink_s[0] + requests.downlink_s[0], 0.0)
    met_s = transfer_s + trail.queue_s + trail.execution_s - np.choose(trail.target, requests.execution_s)
    np.testing.assert_allclose(np.array(delays)[np.arange(len(delays)), trail.target], met_s, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("open_loop", [True, False])
def test_the_oracle_loses_nothing_and_others_never_less(open_loop: bool) -> None:
    requests = asked(open_loop=open_loop, gap_s=3.0)
    oracle, other = (
        simulate(requests, decide_for, beliefs, [STREAMED.of(2)], local=STREAMED.of(2), judged_share=1.0)
        for decide_for, beliefs in (
            (lambda block: LeastTotal(block.execution_s), believing(0.1, clairvoyant=True)),
            (alternately, believing(0.1)),
        )
    )
    assert np.abs(oracle.decision_regret_s).max() < 1e-12
    assert other.decision_regret_s.min() >= 0.0 and other.decision_regret_s.mean() > 0.01
    if not open_loop:
        end_s = [trail.arrival_s[-1] for trail in (oracle, other)]
        assert end_s[0] < end_s[1]


def test_the_wait_for_a_cold_request_ahead_is_known() -> None:
    """By a policy whose plane is the truth: the stall of the one ahead is part of what it is expected to take."""
    src_len, tgt_len, nothing = np.full(3, 10), np.full(3, 15), np.zeros(3)
    alone_s = STREAMED.compute.in_memory_s(src_len, tgt_len)
    requests = Requests(src_len, (alone_s,) * 2, (nothing,), (nothing,), np.array([0.0, 0.1, 0.2]), tgt_len=tgt_len)
    view = partial(PlanView, STREAMED.lifecycle.next_state, len(STREAMED.states))
    delays, decide_for = recording(everything_to(0))
    trail = in_reference(
        requests,
        decide_for,
        believing(0.2, views=(partial(BacklogView, 1),) * 2, plan_views=(view, None)),
        [Fifo()],
        local=STREAMED,
        plan_beyond_for=lambda block: [STREAMED.beyond_s(block.src_len)] * 2,
        expected_for=lambda block: [alone_s.tolist()] * 2,
    )
    beyond_s = [float(state.alone_s(STREAMED.compute, 10, 15)) - alone_s[0] for state in STREAMED.states]
    assert trail.state.tolist() == [0, 2, 3]
    assert [delays[0][0], delays[1][0]] == pytest.approx([beyond_s[0], trail.queue_s[1] + beyond_s[2]])
