"""Streamed targets in the world: behind balancers, in every discipline, and what an oracle is told of them (XP-04)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from simnmt.devices import Fifo, Kind, Streamed
from simnmt.devices.device import Balancer, ByNode, InTurn, LeastLoadedOfDrawn, LeastWork
from simnmt.policies import BacklogView, Oracle, PlanView, TransferEstimate, least_total
from simnmt.results import requests as requests_module
from simnmt.results.requests import Block, Requests, Trail
from simnmt.world.deciders import Beliefs
from simnmt.world.reference import Clients, simulate
from tests.world.streamed_boxes import STREAMED, asked
from tests.worlds import believing, everything_to

COLUMNS = ("arrival_s", "decided_s", "target", "server", "queue_s", "estimate_s", "measured_at_s")
STREAMED_COLUMNS = (*COLUMNS, "execution_s", "state", "stall_s", "deadline_missed", "first_token_s")
CHOICES = np.random.default_rng(2).permuted(np.tile(np.arange(3), (400, 1)), axis=1)


def nothing_to_read() -> Streamed:
    states = tuple(replace(state, load_s=(0.0,) * len(state.load_s)) for state in STREAMED.states)
    return replace(STREAMED, states=states)


def alternately(block: Block) -> Any:
    """Even requests stay, odd ones go."""
    return lambda in_block, delay_s: (block.first + in_block) % 2


def same(one: Trail, other: Trail, names: Sequence[str] = STREAMED_COLUMNS) -> None:
    for name in names:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize(
    ("streamed", "plain"),
    [
        (ByNode(), Fifo(3)),
        (InTurn(), Fifo(3, balancer=InTurn())),
        (LeastLoadedOfDrawn(CHOICES[:, :1]), Fifo(3, balancer=LeastLoadedOfDrawn(CHOICES[:, :1]))),
        (LeastLoadedOfDrawn(CHOICES[:, :2]), Fifo(3, balancer=LeastLoadedOfDrawn(CHOICES[:, :2]))),
    ],
    ids=["attached", "turns", "one drawn", "two drawn"],
)
def test_with_nothing_to_read_it_is_the_plain_world_to_the_bit(streamed: Balancer, plain: Kind) -> None:
    """Crowded; `two drawn` compares boxes by when they come free."""
    requests, still = asked(gap_s=0.05), nothing_to_read()
    one = simulate(requests, alternately, believing(0.1), [still.of(3, streamed)], deciders=2, local=still.of(2))
    other = simulate(requests, alternately, believing(0.1), [plain], deciders=2)
    same(one, other, COLUMNS)
    assert one.stall_s is not None and one.execution_s is not None
    assert not one.stall_s.any()
    np.testing.assert_allclose(one.execution_s, np.choose(one.target, requests.execution_s))
    assert (one.queue_s > 0.0).sum() > 100


@pytest.mark.parametrize(
    "balancer", [ByNode(), InTurn(), LeastWork(), LeastLoadedOfDrawn(CHOICES[:, :2])], ids=lambda b: type(b).__name__
)
def test_every_box_of_a_tier_does_what_it_would_do_by_itself(balancer: Balancer) -> None:
    requests = asked(gap_s=0.5)
    trail = simulate(requests, everything_to(1), believing(0.1), [STREAMED.of(3, balancer)])
    entry_s = np.asarray(requests.arrival_s) + requests.uplink_s[0]
    for box in range(3):
        there = np.flatnonzero(trail.server == box)
        there = there[np.argsort(entry_s[there], kind="stable")]
        assert len(there) > 20
        alone = Requests(
            requests.src_len[there],
            (requests.execution_s[1][there],),
            (),
            (),
            entry_s[there],
            np.zeros(len(there), np.int32),
            tgt_len=requests.tgt_len[there],
        )
        by_itself = simulate(alone, everything_to(0), believing(0.1), [], local=STREAMED)
        for name in ("queue_s", "execution_s", "state", "stall_s", "first_token_s", "deadline_missed"):
            np.testing.assert_allclose(
                getattr(trail, name)[there], getattr(by_itself, name), rtol=1e-9, atol=1e-9, err_msg=name
            )


def test_of_idle_boxes_the_balancer_that_compares_them_keeps_one_warm() -> None:
    """Turns spread engagements over all boxes, so each finds its box cold more often."""
    requests = asked(gap_s=3.0)
    cold = {}
    for balancer in (InTurn(), LeastWork()):
        trail = simulate(requests, everything_to(1), believing(0.1), [STREAMED.of(3, balancer)])
        assert trail.state is not None
        cold[type(balancer).__name__] = (trail.state == 0).mean()
    assert cold["LeastWork"] < cold["InTurn"]


def knowing(streamed: Streamed, requests: Requests, **others: Any) -> dict[str, Any]:
    """How a policy knows the states of both targets, of which it expects other lengths."""
    view = partial(PlanView, streamed.lifecycle.next_state, len(streamed.states))
    tgt_len = np.random.default_rng(7).uniform(5.0, 25.0, (2, len(requests)))
    believed_s = [streamed.compute.in_memory_s(requests.src_len, lengths) for lengths in tgt_len]

    def beyond_s(block: Block) -> list[list[list[float]] | None]:
        return [streamed.beyond_s(block.src_len)] * 2

    def decide_for(block: Block) -> Any:
        return least_total([column[block.first : block.first + len(block)] for column in believed_s])

    beliefs = Beliefs(lambda decider, target: TransferEstimate(0.1), plan_views=(view, view), **others)
    expected_for = lambda block: [column[block.first : block.first + len(block)].tolist() for column in believed_s]  # noqa: E731
    return {"decide_for": decide_for, "beliefs": beliefs, "plan_beyond_for": beyond_s, "expected_for": expected_for}


def route(request: int, node: int, moment_s: float) -> tuple[tuple[float], tuple[float], float, float]:
    """Links that change with time, and ways from end nodes."""
    return (0.03 + 0.01 * (moment_s % 3.0),), (0.04,), 0.01 * node, 0.02


@pytest.mark.parametrize("discipline", ["open", "closed", "back to back", "back to back on an own clock"])
@pytest.mark.parametrize("sees_backlog", [False, True])
def test_blocks_change_nothing(discipline: str, sees_backlog: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What boxes need to know of requests reaches them in every discipline, whatever has been prepared meanwhile."""
    requests = asked(120, gap_s=0.3, open_loop=discipline == "open")
    how = knowing(STREAMED, requests, views=(partial(BacklogView, 1), partial(BacklogView, 2)) if sees_backlog else ())
    if discipline == "closed":
        how |= {"clients": Clients(9, 4, np.random.default_rng(3).exponential(6.0, 9 + len(requests))), "route": route}
    elif discipline == "back to back on an own clock":
        how |= {"route": route}
    trails = []
    for block in (1, 7, 4096):
        monkeypatch.setattr(requests_module, "BLOCK", block)
        pool = STREAMED.of(2, LeastWork())
        trails.append(simulate(requests, kinds=[pool], local=STREAMED.of(2), deciders=2, **how))
    same(trails[0], trails[2])
    same(trails[1], trails[2])
    assert trails[0].state is not None
    assert set(np.unique(trails[0].target)) == {0, 1} and len(set(trails[0].state)) >= 3
    assert (trails[0].execution_s > 0.0).all()


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
    assert trail.state is not None and trail.execution_s is not None and trail.decision_regret_s is not None
    assert trail.state.tolist() == [0, 2, 3, -1, -1, -1, 0, 2, -1, -1, -1, -1, -1, 0]
    assert trail.arrival_s[1] == trail.execution_s[0] == STREAMED.states[0].alone_s(STREAMED.compute, 10, 15)
    assert trail.decision_regret_s[:3].tolist() == [0.0] * 3
    assert trail.decision_regret_s[3] == pytest.approx(20.2 - STREAMED.states[3].alone_s(STREAMED.compute, 10, 15))
    assert np.isnan(trail.execution_s[3]) and trail.streamed[1] is None


@pytest.mark.parametrize("gap_s", [0.3, 3.0])
@pytest.mark.parametrize("balancer", [ByNode(), InTurn(), LeastWork()], ids=lambda each: type(each).__name__)
def test_what_the_oracle_is_told_is_what_the_request_then_meets(gap_s: float, balancer: Balancer) -> None:
    """Those still on the uplink are counted in; it takes a second, the same for all, so that nobody overtakes."""
    requests = asked(gap_s=gap_s)
    requests = replace(requests, uplink_s=(np.ones(len(requests)),))
    told: list[tuple[float, ...]] = []

    def decide_for(block: Block) -> Any:
        def decide(in_block: int, delay_s: Sequence[float]) -> int:
            told.append(tuple(delay_s))
            return (block.first + in_block) % 2

        return decide

    pool = STREAMED.of(2, balancer)
    trail = simulate(requests, decide_for, believing(0.1, clairvoyant=True), [pool], deciders=2, local=STREAMED.of(2))
    assert trail.execution_s is not None
    there_s = np.choose(trail.target, requests.execution_s)
    transfer_s = np.where(trail.target == 1, requests.uplink_s[0] + requests.downlink_s[0], 0.0)
    met_s = transfer_s + trail.queue_s + trail.execution_s - there_s
    told_s = np.array(told)[np.arange(len(told)), trail.target]
    np.testing.assert_allclose(told_s, met_s, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("open_loop", [True, False])
def test_the_oracle_loses_nothing_and_others_never_less(open_loop: bool) -> None:
    requests = asked(open_loop=open_loop, gap_s=3.0)
    oracle = simulate(
        requests,
        lambda block: Oracle(block.execution_s).prepare(block.src_len),
        believing(0.1, clairvoyant=True),
        [STREAMED.of(2)],
        deciders=2,
        local=STREAMED.of(2),
        judged_share=1.0,
    )
    other = simulate(
        requests, alternately, believing(0.1), [STREAMED.of(2)], deciders=2, local=STREAMED.of(2), judged_share=1.0
    )
    assert oracle.decision_regret_s is not None and other.decision_regret_s is not None
    assert np.abs(oracle.decision_regret_s).max() < 1e-12
    assert other.decision_regret_s.min() >= 0.0 and other.decision_regret_s.mean() > 0.01
    if not open_loop:
        end_s = [trail.arrival_s[-1] for trail in (oracle, other)]
        assert end_s[0] < end_s[1]


def test_how_long_a_cold_start_takes_changes_no_decision_before_its_answer() -> None:
    """Who knows states is told them by answers: the truth of what has not been answered yet is nowhere in its decisions."""
    requests = asked(200, gap_s=1.0)
    slower = replace(requests, execution_s=tuple(np.r_[column[:150], 3.0 * column[150:]] for column in requests.execution_s))
    trails = []
    for columns in (requests, slower):
        pool = STREAMED.of(2)
        trails.append(simulate(columns, kinds=[pool], deciders=2, local=STREAMED.of(2), **knowing(STREAMED, requests)))
    assert trails[0].execution_s is not None
    assert requests.arrival_s is not None
    ends_s = requests.arrival_s + trails[0].queue_s + trails[0].execution_s
    before = requests.arrival_s <= ends_s[150:].min()
    assert before[:151].all() and 0.2 < trails[0].target[before].mean() < 0.8
    np.testing.assert_array_equal(trails[0].target[before], trails[1].target[before])


def handed_by(columns: Requests, target: int, how: dict[str, Any], **others: Any) -> tuple[np.ndarray, Trail]:
    """The delays handed to each decision while everything goes to one target."""
    handed: list[tuple[float, ...]] = []

    def decide(in_block: int, delay_s: Sequence[float]) -> int:
        handed.append(tuple(delay_s))
        return target

    trail = simulate(columns, kinds=others.pop("kinds"), **(how | {"decide_for": lambda block: decide} | others))
    return np.array(handed), trail


def of_one_length(arrival_s: np.ndarray | None, n: int) -> Requests:
    """10 tokens in and 15 out, over a link of 0.1 s each way; nothing scatters."""
    src_len, tgt_len, way_s = np.full(n, 10), np.full(n, 15), np.full(n, 0.1)
    alone_s = STREAMED.compute.in_memory_s(src_len, tgt_len)
    return Requests(src_len, (alone_s, alone_s), (way_s,), (way_s,), arrival_s, np.zeros(n, np.int32), tgt_len=tgt_len)


def knowing_exactly(streamed: int, sees_backlog: bool = False) -> dict[str, Any]:
    """A policy whose plane and transfer time are the truth, and that knows the states of one target."""
    view = partial(PlanView, STREAMED.lifecycle.next_state, len(STREAMED.states))

    views = tuple(view if target == streamed else None for target in range(2))

    def plane_s(block: Block) -> np.ndarray:
        return STREAMED.compute.in_memory_s(block.src_len, block.tgt_len)

    def beyond_s(block: Block) -> list[list[list[float]] | None]:
        return [STREAMED.beyond_s(block.src_len)] * 2

    return {
        "beliefs": Beliefs(
            lambda decider, target: TransferEstimate(0.2),
            views=(partial(BacklogView, 1),) * 2 if sees_backlog else (),
            plan_views=views,
        ),
        "plan_beyond_for": beyond_s,
        "expected_for": lambda block: [plane_s(block).tolist()] * 2,
    }


BEYOND_S = np.array(
    [float(state.alone_s(STREAMED.compute, 10, 15) - STREAMED.compute.in_memory_s(10, 15)) for state in STREAMED.states]
)


@pytest.mark.parametrize("discipline", ["open", "back to back"])
def test_alone_before_a_remote_box_its_state_is_known_by_the_ways_measured(discipline: str) -> None:
    """Pauses end a hair before and after an engagement does, and before and after the memory is reclaimed."""
    idle_s = np.array([4.95, 5.05, 59.95, 60.05, 0.3] * 6)
    took_s, arrival_s, state, expected = [], [0.0], 0, [0]
    for pause_s in idle_s:
        took_s.append(float(STREAMED.states[state].alone_s(STREAMED.compute, 10, 15)))
        arrival_s.append(arrival_s[-1] + took_s[-1] + pause_s)
        state = STREAMED.lifecycle.next_state(state, pause_s)
        expected.append(state)
    how, pool = knowing_exactly(1), STREAMED
    if discipline == "open":
        delays_s, trail = handed_by(of_one_length(np.array(arrival_s), len(arrival_s)), 1, how, kinds=[pool])
    else:
        # Every second request is executed at once by the gateway, for as long as a pause lasts beyond both ways.
        columns = of_one_length(None, 2 * len(arrival_s) - 1)
        columns.execution_s[0][1::2] = idle_s - 0.2
        turns = lambda in_block, delay_s: (handed.append(tuple(delay_s)), 1 - in_block % 2)[1]  # noqa: E731
        handed: list[tuple[float, ...]] = []
        trail = simulate(columns, kinds=[pool], **(how | {"decide_for": lambda block: turns}))
        delays_s = np.array(handed)[::2]
        trail = trail.with_columns(state=trail.state[::2])
    assert trail.state is not None
    assert trail.state.tolist() == expected
    np.testing.assert_allclose(delays_s[:, 1], 0.2 + BEYOND_S[expected], rtol=1e-9, atol=1e-9)


def test_the_wait_for_a_cold_request_ahead_is_known() -> None:
    """Its stall is part of what it is expected to take; the gateway sees its own queue and its own state."""
    columns = of_one_length(np.array([0.0, 0.1, 0.2]), 3)
    delays_s, trail = handed_by(columns, 0, knowing_exactly(0, sees_backlog=True), kinds=[Fifo()], local=STREAMED)
    assert trail.state is not None and trail.state.tolist() == [0, 2, 3]
    assert delays_s[0, 0] == pytest.approx(BEYOND_S[0]) and delays_s[1, 0] == pytest.approx(trail.queue_s[1] + BEYOND_S[2])


@pytest.mark.parametrize("discipline", ["closed", "back to back"])
def test_an_encoder_needs_no_lengths_in_any_discipline(discipline: str) -> None:
    """What its boxes need to know follows the links' own columns."""
    compute = replace(STREAMED.compute, decoder_layers=0, step_s=0.0)
    states = tuple(replace(state, load_s=state.load_s[:2]) for state in STREAMED.states)
    encoder = Streamed(compute, states, STREAMED.lifecycle)
    requests = replace(asked(60, streamed=encoder, open_loop=False), tgt_len=None)
    clients = {"clients": Clients(3, 4, np.full(63, 1.0))} if discipline == "closed" else {}
    trail = simulate(requests, everything_to(1), believing(0.1), [encoder], route=route, **clients)
    assert trail.execution_s is not None and trail.stall_s is not None
    np.testing.assert_allclose(trail.execution_s - trail.stall_s, requests.execution_s[1])
    assert trail.stall_s[0] > 0.0
