"""Faults in the world: no request is lost uncounted or answered twice; and theory of failures."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.batching import Batching
from simnmt.devices import Batched, Fifo, Kind
from simnmt.devices.device import ByNode, InTurn, LeastWork
from simnmt.devices.failures import Failures
from simnmt.network.down_times import ALWAYS_UP, DownTimes, drawn_spans
from simnmt.policies.views import BacklogView
from simnmt.results.requests import DONE, FALLBACK, LOST, Requests, Trail
from simnmt.world.faults import UNACKNOWLEDGED_S, Faults
from simnmt.world.inputs import Clients
from tests.world.batched_worlds import SECONDS
from tests.world.theory import Floats, assert_mean
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


def failing(spans: Iterable[tuple[float, float]], fate: Any, boxes: int = 1, workers: int = 1) -> Fifo:
    """All boxes but the first are always up."""
    down = [DownTimes(spans), *[ALWAYS_UP] * (boxes - 1)]
    return Fifo(boxes, workers, InTurn() if boxes > 1 else ByNode(), Failures(down, fate))


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
    trail = run(requests, replace(kind, failures=Failures([ALWAYS_UP] * kind.boxes)))
    assert trail.queue_s.any()
    np.testing.assert_array_equal(plain.queue_s, trail.queue_s)
    np.testing.assert_allclose(ends_s(requests, trail), ends_s(requests, plain.with_columns(transfer_s=np.full(400, RTT_S))))
    assert (trail.outcome == DONE).all()
    assert trail.faults is not None and trail.faults.failed_executions == 0


FATES = {
    # The box is down from 1.5 to 4; requests enter at 0.1, 0.6, 2.1 and 4.1, and take 1 s each.
    "lost": ([DONE, LOST, LOST, DONE], [1.2, np.nan, np.nan, 5.2]),
    "requeued": ([DONE] * 4, [1.2, 5.1, 6.1, 7.1]),
    "resumed": ([DONE] * 4, [1.2, 4.7, 5.7, 6.7]),
}


@pytest.mark.parametrize("fate", FATES)
def test_requests_in_a_failed_box_meet_their_fate(fate: str) -> None:
    requests = requests_at([0.0, 0.5, 2.0, 4.0], 1.0)
    trail = run(requests, failing([(1.5, 4.0)], fate))
    outcomes, ends = FATES[fate]
    assert trail.outcome.tolist() == outcomes
    assert ends_s(requests, trail).tolist() == pytest.approx(ends, nan_ok=True)
    assert trail.target.tolist() == [-1 if outcome == LOST else 1 for outcome in outcomes]


def test_a_balancer_passes_over_a_box_that_is_down() -> None:
    requests = requests_at([0.0, 1.0, 2.0, 3.0], 0.5)
    trail = run(requests, failing([(0.5, 10.0)], "lost", boxes=2))
    assert trail.server.tolist() == [0, 1, 1, 1]
    assert (trail.outcome[1:] == DONE).all()


def test_the_boxes_that_are_up_share_the_requests_of_one_that_is_down() -> None:
    requests = requests_at(np.arange(40.0), 3.0)
    kind = failing([(0.0, 100.0)], "lost", boxes=4)
    trail = run(requests, replace(kind, balancer=LeastWork()))
    assert np.bincount(trail.server, minlength=4).tolist() == [0, 14, 13, 13]
    assert not trail.queue_s.any()


def test_work_left_at_a_box_counts_what_a_failure_undid() -> None:
    """Down from 1 to 50 s; a request of 10 s starts over then, so that one at 51 s waits for 9 s there."""
    requests = requests_at([0.0, 0.0, 50.9], [10.0, 60.0, 1.0])
    kind = replace(failing([(1.0, 50.0)], "requeued", boxes=2), balancer=LeastWork())
    trail = run(requests, kind)
    assert trail.server.tolist() == [0, 1, 0]
    assert trail.queue_s[2] == pytest.approx(9.0)


def test_a_sentence_longer_than_every_up_time_is_dropped() -> None:
    spans = ((2.0 * number + 1.0, 2.0 * number + 2.0) for number in itertools.count())
    trail = run(requests_at([0.0], 5.0, tgt_len=5), replace(BATCHED, failures=Failures([DownTimes(spans)], "requeued")))
    assert trail.outcome.tolist() == [LOST]


def test_after_the_timeout_the_decider_executes_the_request_and_discards_the_late_answer() -> None:
    requests = requests_at([0.0, 1.0], [3.0, 0.1], here_s=0.25)
    trail = run(requests, failing((), "lost", workers=2), Faults(timeout_s=1.0))
    assert trail.outcome.tolist() == [FALLBACK, DONE]
    assert trail.target.tolist() == [0, 1]
    assert ends_s(requests, trail) == pytest.approx([1.25, 1.3])
    assert trail.faults.extra_work[1].tolist() == [3.0]


def test_the_log_of_a_request_that_fell_back_holds_nothing_of_the_late_answer() -> None:
    requests = requests_at([0.0], 2.0)
    trail = run(requests, BATCHED, Faults(timeout_s=0.5))
    assert (trail.outcome.tolist(), ends_s(requests, trail).tolist()) == ([FALLBACK], [1.5])
    assert np.isnan([*trail.execution_s, *trail.first_token_s]).all() and trail.faults.extra_work[1].tolist() == [3.0]


def test_an_answer_at_the_moment_of_the_timeout_counts() -> None:
    requests = requests_at([0.0], 1.0 - RTT_S)
    trail = run(requests, failing((), "lost"), Faults(timeout_s=1.0))
    assert trail.outcome.tolist() == [DONE]


def test_a_decider_that_hears_of_a_loss_falls_back_before_the_timeout() -> None:
    requests = requests_at([0.0], 1.0, here_s=0.5)
    trail = run(requests, failing([(0.5, 9.0)], "lost"), Faults(timeout_s=100.0))
    assert trail.outcome.tolist() == [FALLBACK]
    assert ends_s(requests, trail) == pytest.approx([0.5 + RTT_S / 2 + 0.5])


@pytest.mark.parametrize("down", [(0.5, 1.5), (1.5, 9.0)], ids=["request", "answer"])
def test_a_message_that_is_sent_during_an_outage_is_lost(down: tuple[float, float]) -> None:
    """The decider executes its request when the connection breaks, 0.2 s after the message was sent."""
    requests = requests_at([1.0], 1.0, here_s=0.5)
    outages = [[DownTimes([down])]]
    assert run(requests, failing((), "lost"), Faults(outages)).outcome.tolist() == [LOST]
    fell_back = run(requests, failing((), "lost"), Faults(outages, timeout_s=100.0))
    assert fell_back.faults is not None
    assert fell_back.faults.extra_work[1].sum() == (0.0 if down[0] < 1.0 else 1.0)
    assert fell_back.outcome.tolist() == [FALLBACK]
    sent_s = 1.0 if down[0] < 1.0 else 1.0 + RTT_S / 2 + 1.0
    assert ends_s(requests, fell_back) == pytest.approx([sent_s + UNACKNOWLEDGED_S + 0.5])


def test_a_message_under_way_when_an_outage_begins_arrives() -> None:
    requests = requests_at([1.0], 1.0)
    trail = run(requests, failing((), "lost"), Faults([[DownTimes([(1.05, 2.0), (2.15, 9.0)])]]))
    assert ends_s(requests, trail) == pytest.approx([2.0 + RTT_S])


def test_clients_go_on_after_a_loss() -> None:
    clients = {"route": route, "clients": Clients(1, 1, np.full(7, 1.0))}
    trail = run(replace(requests_at(np.zeros(6), 1.0), arrival_s=None), failing([(0.5, 3.0)], "lost"), **clients)
    # Asked at 1.0, it finds the box down at 1.1; the client hears of it at 1.2 and asks again a second later.
    assert trail.arrival_s[:4] == pytest.approx([1.0, 2.2, 3.4, 5.6])
    assert trail.outcome.tolist() == [LOST, LOST, DONE, DONE, DONE, DONE]


BATCHED = Batched(Batching(2), SECONDS)


@pytest.mark.parametrize(("fate", "ends"), [("lost", [2.2, np.nan, np.nan]), ("requeued", [2.2, 8.1, 8.1])])
def test_a_box_that_batches_loses_or_requeues_its_batch(fate: Any, ends: list[float]) -> None:
    """Two steps each; the box is down from 3 to 6."""
    requests = requests_at([0.0, 1.9, 4.0], 2.0)
    down = [DownTimes([(3.0, 6.0)])]
    trail = run(requests, replace(BATCHED, failures=Failures(down, fate)))
    assert ends_s(requests, trail).tolist() == pytest.approx(ends, nan_ok=True)
    assert [account is None for account in trail.batches] == [True, False]


span_lists = st.lists(st.floats(0.05, 3.0), max_size=8).map(
    lambda gaps: list(zip(np.cumsum(gaps).tolist()[::2], np.cumsum(gaps).tolist()[1::2], strict=False))
)
times = st.one_of(st.none(), st.floats(0.05, 3.0))


@settings(max_examples=120, deadline=None)
@given(
    arrivals=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=25),
    downs=st.lists(span_lists, min_size=1, max_size=3),
    outages=span_lists,
    fate=st.sampled_from(["lost", "requeued", "resumed"]),
    timeout_s=times,
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
    fate: str,
    timeout_s: float | None,
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
    kind = replace(kind, boxes=len(down), balancer=InTurn(), failures=Failures(down, fate))
    settings: dict[str, Any] = {"faults": Faults([[DownTimes(outages)]], timeout_s)}
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


MTTF_S, MTTR_S = 8.0, 4.0


def test_waits_before_a_server_that_breaks_down_are_those_of_theory() -> None:
    """White and Christie (1958): the mean number in M/M/1 with breakdowns at any time, preemptive resume; Little's law."""
    rate, fails, repairs = 0.3, 1 / MTTF_S, 1 / MTTR_S
    number = rate * ((fails + repairs) ** 2 + fails) / ((fails + repairs) * (repairs - rate * (fails + repairs)))
    means = []
    for replication in range(10):
        random = np.random.default_rng([3, replication])
        requests = requests_at(np.cumsum(random.exponential(1 / rate, 4_000)), random.exponential(1.0, 4_000))
        trail = run(requests, failing(drawn_spans(3, replication, "box", MTTF_S, MTTR_S), "resumed"))
        sojourn_s = ends_s(requests, trail) - requests.arrival_s - RTT_S
        means.append(float(sojourn_s[400:].mean()))
    assert_mean(means, number / rate, within=0.3)
