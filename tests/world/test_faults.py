"""Faults in the world: no request is lost uncounted or answered twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.batching import Batching
from simnmt.devices import Batched, Fifo, Kind
from simnmt.devices.device import Balancer, ByNode, InTurn, LeastWork
from simnmt.network.outages import ALWAYS_UP, DownTimes
from simnmt.policies.health import PAUSES_S
from simnmt.policies.views import BacklogView
from simnmt.results.requests import DONE, FALLBACK, LOST, Requests, Trail
from simnmt.world.faults import UNACKNOWLEDGED_S, Faults
from simnmt.world.inputs import Clients
from tests.world.batched_worlds import SECONDS
from tests.world.theory import Floats
from tests.worlds import believing, everything_to, in_reference

RTT_S = 0.2
NO_FAULTS = Faults()


def requests_at(arrival_s: Iterable[float], service_s: Any, here_s: Any = 1.0, tgt_len: int = 2) -> Requests:
    arrivals = np.array(list(arrival_s), np.float64)
    ones, nothing = np.ones(len(arrivals)), np.zeros(len(arrivals))
    half = np.full(len(arrivals), RTT_S / 2)
    lengths = np.full(len(arrivals), tgt_len)
    return Requests(
        np.ones(len(arrivals), np.int64),
        (here_s * ones, service_s * ones),
        (half,),
        (half,),
        arrivals,
        nothing.astype(np.int32),
        tgt_len=lengths,
    )


def failing(spans: Iterable[tuple[float, float]], boxes: int = 1) -> Fifo:
    """All boxes but the first are always up."""
    down = [DownTimes(spans), *[ALWAYS_UP] * (boxes - 1)]
    return Fifo(boxes, 1, InTurn() if boxes > 1 else ByNode(), down)


def run(requests: Requests, kind: Kind, faults: Faults = NO_FAULTS, target: int = 1, **keys: Any) -> Trail:
    return in_reference(requests, everything_to(target), believing(0.1), [kind], faults=faults, **keys)


def route(request: int, node: int, now_s: float) -> tuple[tuple[float], tuple[float], float, float]:
    return (RTT_S / 2,), (RTT_S / 2,), 0.0, 0.0


def ends_s(requests: Requests, trail: Trail) -> Floats:
    """When each request was answered, NaN if it was lost."""
    executed_s = np.choose(np.maximum(trail.target, 0), requests.execution_s)
    if trail.execution_s is not None:
        executed_s = np.where(np.isnan(trail.execution_s), executed_s, trail.execution_s)
    return requests.arrival_s + trail.queue_s + executed_s + trail.transfer_s


@pytest.mark.parametrize("kind", [Fifo(3, 1, InTurn()), Batched(Batching(2), SECONDS)], ids=["fifo", "batches"])
def test_boxes_that_never_fail_are_those_without_failures(kind: Any) -> None:
    random = np.random.default_rng(5)
    requests = requests_at(np.cumsum(random.exponential(0.8, 400)), random.exponential(1.0, 400))
    plain = in_reference(requests, everything_to(1), believing(0.1), [kind])
    trail = run(requests, replace(kind, failures=[ALWAYS_UP] * kind.boxes))
    assert trail.queue_s.any()
    np.testing.assert_array_equal(plain.queue_s, trail.queue_s)
    np.testing.assert_allclose(ends_s(requests, trail), ends_s(requests, plain.with_columns(transfer_s=np.full(400, RTT_S))))
    assert (trail.outcome == DONE).all()
    assert trail.faults is not None and trail.faults.failed_executions == 0


BATCHED = Batched(Batching(2), SECONDS)
"""Two steps of a second each."""
AT_ONCE_S = RTT_S / 2 + 1.0 + RTT_S / 2
"""Until the answer of a request that takes a second and does not wait."""
FOUR_S, DOWN = [0.0, 0.5, 2.0, 4.0], [(1.5, 4.0)]
BY_HAND: dict[str, tuple[Any, ...]] = {
    # Requests enter the box at 0.1, 0.6, 2.1 and 4.1, and take 1 s each; it is down from 1.5 to 4.
    "lost": (FOUR_S, Fifo(), DOWN, [], None, [DONE, LOST, LOST, DONE], [1.2, np.nan, np.nan, 5.2]),
    "batch lost": ([0.0, 1.9, 4.0], BATCHED, [(3, 6)], [], None, [DONE, LOST, LOST], [2.2, np.nan, np.nan]),
    "answer at the moment of the timeout": ([0.0], Fifo(), [], [], AT_ONCE_S, [DONE], [AT_ONCE_S]),
    "loss heard of before the timeout": ([0.0], Fifo(), [(0.5, 9.0)], [], 100.0, [FALLBACK], [0.5 + RTT_S / 2 + 0.5]),
    "late answer": ([0.0, 4.0], Fifo(), [], [], 1.0, [FALLBACK, FALLBACK], [1.5, 5.5]),
    "late batch": ([0.0], BATCHED, [], [], 1.0, [FALLBACK], [1.5]),
    # A sender hears that the connection has broken 0.2 s after it sent; the decider then executes its request.
    "messages under way": ([1.0], Fifo(), [], [(1.05, 2.0), (2.15, 9.0)], None, [DONE], [1.0 + AT_ONCE_S]),
    "request sent in an outage": ([1.0], Fifo(), [], [(0.5, 1.5)], None, [LOST], [np.nan]),
    "executed here": ([1.0], Fifo(), [], [(0.5, 1.5)], 100.0, [FALLBACK], [1.0 + UNACKNOWLEDGED_S + 0.5]),
    "answer sent in an outage": ([1.0], Fifo(), [], [(1.5, 9.0)], 100.0, [FALLBACK], [2.1 + UNACKNOWLEDGED_S + 0.5]),
}  # fmt: skip
"""Arrivals, the box, its failures, outages of the link, timeout; outcomes, and when requests are answered."""


@pytest.mark.parametrize("case", BY_HAND)
def test_requests_meet_their_fate(case: str) -> None:
    """A request takes half a second at its decider. Of a late answer nothing is in the log but the work that it cost."""
    arrival_s, kind, failures, outages, timeout_s, outcomes, ends = BY_HAND[case]
    requests = requests_at(arrival_s, 1.0, here_s=0.5)
    kind = replace(kind, failures=[DownTimes(failures)])
    trail = run(requests, kind, Faults([[DownTimes(outages)]], timeout_s))
    assert trail.outcome.tolist() == outcomes
    assert ends_s(requests, trail).tolist() == pytest.approx(ends, nan_ok=True)
    assert trail.target.tolist() == [{DONE: 1, FALLBACK: 0, LOST: -1}[outcome] for outcome in outcomes]
    work_s = {"late answer": 2.0, "late batch": 3.0, "executed here": 0.0, "answer sent in an outage": 1.0}
    assert case not in work_s or trail.faults.extra_work[1].sum() == work_s[case]
    if kind.name == "batch":
        assert np.isnan(trail.execution_s[trail.outcome != DONE]).all()


@pytest.mark.parametrize(
    ("balancer", "service_s", "counts"), [(InTurn(), 1.0, [0, 20, 10, 10]), (LeastWork(), 3.0, [0, 14, 13, 13])]
)
def test_the_boxes_that_are_up_share_the_requests_of_one_that_is_down(
    balancer: Balancer, service_s: float, counts: list[int]
) -> None:
    kind = replace(failing([(0.0, 100.0)], boxes=4), balancer=balancer)
    trail = run(requests_at(np.arange(40.0), service_s), kind)
    assert np.bincount(trail.server, minlength=4).tolist() == counts
    assert (trail.outcome == DONE).all() and not trail.queue_s.any()


def test_clients_go_on_after_a_loss() -> None:
    clients = {"route": route, "clients": Clients(1, 1, np.full(7, 1.0))}
    trail = run(replace(requests_at(np.zeros(6), 1.0), arrival_s=None), failing([(0.5, 3.0)]), **clients)
    # Asked at 1.0, it finds the box down at 1.1; the client hears of it at 1.2 and asks again a second later.
    assert trail.arrival_s[:4] == pytest.approx([1.0, 2.2, 3.4, 5.6])
    assert trail.outcome.tolist() == [LOST, LOST, DONE, DONE, DONE, DONE]


span_lists = st.lists(st.floats(0.05, 3.0), max_size=8).map(
    lambda gaps: list(zip(np.cumsum(gaps).tolist()[::2], np.cumsum(gaps).tolist()[1::2], strict=False))
)
times = st.one_of(st.none(), st.floats(0.05, 3.0))


@settings(max_examples=120, deadline=None)
@given(
    arrivals=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=25),
    downs=st.lists(span_lists, min_size=1, max_size=3),
    outages=span_lists,
    timeout_s=times,
    leave_out=st.booleans(),
    batches=st.booleans(),
    sees_backlog=st.booleans(),
    closed=st.booleans(),
    local_batches=st.booleans(),
    seed=st.integers(0, 1_000),
)
def test_every_request_is_answered_once_or_counted_as_lost(
    arrivals: list[float],
    downs: list[list[tuple[float, float]]],
    outages: list[tuple[float, float]],
    timeout_s: float | None,
    leave_out: bool,
    batches: bool,
    sees_backlog: bool,
    closed: bool,
    local_batches: bool,
    seed: int,
) -> None:
    """Under every combination of faults; and no answer comes before the request could have crossed the link."""
    random, count = np.random.default_rng(seed), len(arrivals)
    requests = requests_at(np.cumsum(arrivals), random.exponential(0.5, count), random.exponential(0.5, count))
    down = [DownTimes(iter(spans)) for spans in downs]
    kind = BATCHED if batches else Fifo()
    kind = replace(kind, boxes=len(down), balancer=InTurn(), failures=down)
    settings: dict[str, Any] = {"faults": Faults([[DownTimes(outages)]], timeout_s, timeout_s is not None and leave_out)}
    if local_batches:
        settings["local"] = BATCHED
    if closed:
        requests = replace(requests, arrival_s=None)
        settings |= {"route": route, "clients": Clients(3, 3, np.full(count + 3, 0.2))}
    beliefs = believing(0.1, views=(None, lambda: BacklogView(len(down)))) if sees_backlog else believing(0.1)
    expected = (lambda block: [np.full(len(block), 0.5)] * 2) if sees_backlog else None
    decide = lambda block: lambda request, delay_s: int(request % 5 > 0)  # noqa: E731
    trail = in_reference(requests, decide, beliefs, [kind], expected_for=expected, **settings)
    lost = trail.outcome == LOST
    assert set(trail.outcome) <= {DONE, LOST if timeout_s is None else FALLBACK}
    for without_answer in (np.isnan(trail.queue_s), np.isnan(trail.transfer_s), trail.target == -1):
        assert (without_answer == lost).all()
    assert trail.arrival_s.all() or not closed
    assert (trail.transfer_s[trail.target == 1] > RTT_S - 1e-9).all()
    assert (trail.queue_s[~lost] > -1e-9).all()


DEAD = [(60.0, 120.0)]
TRIES_S = sum(PAUSES_S)
"""Six tries follow a failure, each a pause after the end of the one before: only the last is after the minute."""
BY_HEALTH: dict[str, tuple[Any, ...]] = {
    # Requests come every 0.125 s from 0.03 on. The first to enter at 60 or later is sent at 59.905.
    # Of a lost one the decider hears after a round trip: the next two are sent at 60.03 and 60.155.
    "box": (DEAD, [], False, 480, (0, 0.0)),
    "box, left out": (DEAD, [], True, 2, (60.105, TRIES_S + 6 * RTT_S)),
    # The answer to the request of 59.905 is lost as well; that of 60.03 is given up first, at 60.23.
    "link": ([], DEAD, False, 481, (0, 0.0)),
    "link, left out": ([], DEAD, True, 3, (60.23, TRIES_S + 6 * UNACKNOWLEDGED_S)),
}
"""When the box is down, outages of the link, whether it is left out; fallbacks, and from when for how long
it is left out."""


@pytest.mark.parametrize("case", BY_HEALTH)
def test_a_target_that_dies_for_a_minute_costs_the_requests_of_a_round_trip_if_it_is_left_out(case: str) -> None:
    down, outages, leave_out, fallbacks, (from_s, seconds) = BY_HEALTH[case]
    arrival_s = 0.03 + 0.125 * np.arange(1600)
    kind = Fifo(failures=[DownTimes(down)])
    trail = run(requests_at(arrival_s, 0.04, here_s=0.01), kind, Faults([[DownTimes(outages)]], 0.45, leave_out))
    fell_back = trail.outcome == FALLBACK
    assert fell_back.sum() == fallbacks
    kept = (arrival_s >= from_s) & (arrival_s < from_s + seconds)
    np.testing.assert_array_equal(trail.target == 0, fell_back | kept)
    assert not (fell_back & kept).any() and (trail.outcome[~fell_back] == DONE).all()
    assert trail.faults.left_out == (((0, 0), pytest.approx((1, seconds))) if leave_out else ())


def test_each_decider_has_its_own_health_and_estimates_by_the_try_and_an_oracle_needs_none() -> None:
    """Node 1 asks nothing until the box is up again; its decider never left it out, and that of node 0 did."""
    arrivals = [1.0, 1.5, 2.0, 9.0, 9.5, 10.0]
    requests = replace(requests_at(arrivals, 0.1), node=np.array([0, 0, 0, 1, 0, 1], np.int32))
    kind, faults = failing([(0.5, 8.0)]), Faults(timeout_s=1.0, leave_out=True)
    trail = run(requests, kind, faults, deciders=2)
    # Heard at 1.2; tried at 2.2, at 4.4, and at 8.6 with an answer at 8.8.
    assert trail.outcome.tolist() == [FALLBACK, DONE, DONE, DONE, DONE, DONE]
    assert trail.target.tolist() == [0, 0, 0, 1, 1, 1]
    assert trail.estimate_s.tolist() == pytest.approx([0.1, 0.1, 0.1, 0.1, RTT_S, RTT_S])
    assert trail.faults.left_out[1] == pytest.approx((0.5, (8.8 - 1.2) / 2))
    knowing = in_reference(
        requests, everything_to(1), replace(believing(0.1), true_transfer=True), [kind], faults=faults, deciders=2
    )
    assert knowing.outcome.tolist() == [FALLBACK] * 3 + [DONE] * 3
    assert knowing.faults is not None and knowing.faults.left_out == ((0.0, 0.0), (0.0, 0.0))


def test_a_try_reaches_any_box_that_is_up_but_only_the_nodes_own_if_boxes_are_attached() -> None:
    down = [DownTimes([(0.5, 50.0)]), ALWAYS_UP]
    for balancer, seconds in ((ByNode(), 61.2), (InTurn(), 0.0)):
        kind = Fifo(2, 1, balancer, down)
        trail = run(requests_at(np.arange(1.0, 100.0), 0.1), kind, Faults(timeout_s=1.0, leave_out=True))
        assert trail.faults.left_out[1][1] == pytest.approx(seconds)


def test_a_policy_that_compares_delays_chooses_the_next_best_of_the_targets_that_answer() -> None:
    """Believed to take 1 s here, 0.3 s on the second target and 0.1 s on the third, which is down until 8 s."""
    arrivals = np.arange(1.0, 12.0)
    half, requests = np.full(len(arrivals), RTT_S / 2), requests_at(arrivals, 0.1)
    requests = replace(
        requests, execution_s=(*requests.execution_s, requests.execution_s[1]), uplink_s=(half, half), downlink_s=(half, half)
    )
    decide = lambda block: lambda request, delay_s: int(np.argmin(np.array([1.0, 0.3, 0.1]) + delay_s))  # noqa: E731
    kinds = [Fifo(), failing([(0.5, 8.0)])]
    faults = Faults(timeout_s=1.0, leave_out=True)
    trail = in_reference(requests, decide, believing(RTT_S), kinds, faults=faults)
    # Lost at 1.2; tried at 2.2, at 4.4, and at 8.6 with an answer at 8.8.
    assert trail.target.tolist() == [0, *[1] * 7, 2, 2, 2]
    assert trail.outcome.tolist() == [FALLBACK, *[DONE] * 10]
