"""Policies that decide again when the decider's own device has executed a request: two queues one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from simnmt.base.arrays import Floats
from simnmt.batching import Batching
from simnmt.devices import Batched, Fifo, Streamed
from simnmt.network.outages import DownTimes
from simnmt.policies import LeastTotal
from simnmt.policies.views import BacklogView
from simnmt.results.columns import Executions, deferred_s
from simnmt.results.requests import DONE, FALLBACK, Block, Requests, Trail
from simnmt.streaming.plan.engagement import Lifecycle
from simnmt.world.compiled_world import simulate_compiled
from simnmt.world.faults import Faults
from simnmt.world.inputs import Clients
from simnmt.world.structures import UncompiledError
from tests.world.batched_worlds import SECONDS
from tests.world.streamed_boxes import COMPUTE, STATES
from tests.world.test_faults import RTT_S, route
from tests.world.theory import REPLICATIONS, WARM_UP, assert_mean, m_m_c_wait
from tests.worlds import (
    CLOUD,
    GATEWAY,
    believing,
    columns,
    everything_to,
    in_reference,
    inputs,
    latency_s,
    needs_compiled,
    simulate,
    simulate_replication,
)

HERE = everything_to(GATEWAY)
Second = Callable[[Block], LeastTotal]


def keeping_s(seconds: Floats) -> Second:
    """What keeping each request costs; sending it on costs its execution and the delay."""
    return lambda block: LeastTotal([np.resize(seconds, len(block)), block.execution_s[CLOUD]])


def keeping(*seconds: float) -> Second:
    return keeping_s(np.array(seconds))


def test_a_deferred_request_waits_and_is_executed_twice() -> None:
    """Two arrive at 0 and take 1 s here. The first is sent at 1, is there at 1.25, takes 3 s, and is back at 4.5; the second
    is sent at 2 and waits from 2.25 to 4.25."""
    requests = columns((0.0, 1.0, 3.0, 0.25, 0.25), (0.0, 1.0, 3.0, 0.25, 0.25), (9.0, 1.0, 3.0, 0.25, 0.25))
    trail = simulate(requests, HERE, believing(0.5), [Fifo()], second_for=keeping(inf, inf, -inf))
    assert trail.target.tolist() == [CLOUD, CLOUD, GATEWAY]
    assert trail.deferred_queue_s.tolist() == [0.0, 1.0, 0.0]
    assert trail.deferred_exe_s.tolist() == pytest.approx([1.0, 1.0, np.nan], nan_ok=True)
    assert trail.queue_s.tolist() == pytest.approx([0.0, 2.0, 0.0])
    assert latency_s(requests, trail).tolist() == pytest.approx([4.5, 7.5, 1.0])
    executions = Executions({"target": trail.target, "t_exe_s": np.full(3, 3.0), "t_queue_s": trail.queue_s, **trail.columns})
    assert executions["target"].tolist() == [CLOUD, CLOUD, GATEWAY, GATEWAY, GATEWAY]
    assert executions["t_queue_s"].tolist() == pytest.approx([0.0, 2.0, 0.0, 0.0, 1.0])
    assert not np.asarray(deferred_s({"target": trail.target})).any()


@pytest.mark.parametrize("price_s", [3.4, 3.6])
def test_the_second_decision_weighs_the_delay_of_its_moment(price_s: float) -> None:
    """Believed to take 0.1 s at the first decision and 0.5 s once an answer was measured, beside 3 s of execution."""
    requests = columns(*((10.0 * number, 1.0, 3.0, 0.25, 0.25) for number in range(3)))
    trail = simulate(requests, HERE, believing(0.1), [Fifo()], second_for=keeping(price_s))
    assert trail.target.tolist() == [CLOUD, *[CLOUD if price_s > 3.5 else GATEWAY] * 2]


def test_a_policy_that_sees_its_requests_under_way_keeps_those_that_would_wait() -> None:
    requests = columns(*((0.01 * number, 0.01, 1.0, 0.05, 0.05) for number in range(6)))
    beliefs = believing(0.1, views=(lambda: BacklogView(1), lambda: BacklogView(1)))
    arguments: dict[str, Any] = {"second_for": keeping(2.5), "expected_for": lambda block: block.execution_s}
    trail = simulate(requests, HERE, beliefs, [Fifo()], **arguments)
    assert trail.target.tolist() == [1, 1, 0, 0, 0, 0], "the third would wait for almost 2 s"
    assert simulate(requests, HERE, believing(0.1), [Fifo()], second_for=keeping(2.5)).target.all()


def test_nothing_deferred_is_as_without_a_second_decision() -> None:
    random = np.random.default_rng(1)
    times_s = random.exponential(1.0, (4, 400))
    requests = Requests(np.ones(400, int), tuple(times_s[:2]), (times_s[2],), (times_s[3],), np.arange(400.0))
    keys: dict[str, Any] = {"local": Fifo(workers=2)}
    with_second = simulate(requests, HERE, believing(0.1), [Fifo()], second_for=keeping(-inf), **keys)
    without = simulate(requests, HERE, believing(0.1), [Fifo()], **keys)
    for name, column in without.columns.items():
        np.testing.assert_array_equal(with_second.columns[name], column, err_msg=name)
    assert np.isnan(with_second.deferred_exe_s).all()


def in_tandem(rate_rps: float, mean_s: tuple[float, float], share: float, count: int) -> Iterator[tuple[Floats, Trail]]:
    """Exponential services at a gateway and then, of a share of the requests drawn at random, in the cloud."""
    for replication in range(REPLICATIONS):
        random = np.random.default_rng([49, replication])
        services_s = tuple(mean * random.standard_exponential(count) for mean in mean_s)
        nothing_s, arrival_s = np.zeros(count), np.cumsum(random.standard_exponential(count)) / rate_rps
        requests = Requests(np.ones(count, int), services_s, (nothing_s,), (nothing_s,), arrival_s)
        keep_s = np.where(random.random(count) < share, inf, -inf)
        trail = simulate_replication(replication, requests, HERE, believing(0.0), [Fifo()], second_for=keeping_s(keep_s))
        yield latency_s(requests, trail)[int(WARM_UP * count) :], trail


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_two_queues_in_tandem_are_as_burke_says(share: float) -> None:
    """The departures of M/M/1 are Poisson, so that the second queue is M/M/1 with the deferred share of the rate."""
    rate_rps, mean_s, latencies_s, waits_s = 1.0, (0.5, 0.7), [], []
    for latency, trail in in_tandem(rate_rps, mean_s, share, 30_000):
        latencies_s.append(float(latency.mean()))
        away = np.flatnonzero(trail.target == CLOUD)
        waits_s.append(float(trail.queue_s[away[len(away) // 10 :]].mean()))
        assert abs((trail.target == CLOUD).mean() - share) < 0.02
    loads = rate_rps * mean_s[0], share * rate_rps * mean_s[1]
    here_s, there_s = (mean * (1 + m_m_c_wait(1, load)) for mean, load in zip(mean_s, loads, strict=True))
    assert_mean(waits_s, mean_s[1] * m_m_c_wait(1, loads[1]), within=0.2)
    assert_mean(latencies_s, here_s + share * there_s, within=0.1)


def test_a_request_that_the_cloud_refuses_is_answered_with_the_translation_that_is_there() -> None:
    """The third is executed here until 0.75, finds a full box at 0.85, and is answered at 0.95, when the refusal is back."""
    requests = columns(*((0.0, 0.25, 9.0, 0.1, 0.1) for _ in range(4)))
    for passes_on in (False, True):
        trail = simulate(
            requests, HERE, believing(0.2), [Fifo(max_waiting=1)], second_for=keeping(inf), passes_on=passes_on, local=Fifo()
        )
        assert trail.outcome.tolist() == [DONE, DONE, FALLBACK, FALLBACK]
        assert trail.target.tolist() == [CLOUD, CLOUD, GATEWAY, GATEWAY]
        assert trail.retry_s.tolist() == pytest.approx([0.0, 0.0, 0.2, 0.2])
        assert trail.queue_s[2:].tolist() == pytest.approx([0.5, 0.75])
        assert np.isnan(trail.deferred_exe_s).tolist() == [False, False, True, True]
        ends_s = latency_s(requests, trail) + trail.retry_s
        assert ends_s[2:].tolist() == pytest.approx([0.75 + 0.2, 1.0 + 0.2])


def test_a_translation_of_a_batch_is_the_answer_after_a_refusal() -> None:
    requests = replace(columns(*((0.0, 1.0, 9.0, 0.1, 0.1) for _ in range(3))), tgt_len=np.full(3, 4))
    local = Batched(Batching(4), SECONDS)
    keys: dict[str, Any] = {"local": local, "second_for": keeping(inf)}
    trail = simulate(requests, HERE, believing(0.2), [Fifo(max_waiting=1)], **keys)
    alone = simulate(requests, HERE, believing(0.2), [Fifo()], local=local)
    assert trail.outcome.tolist() == [DONE, DONE, FALLBACK]
    assert np.isnan(trail.execution_s).tolist() == [True, True, False]
    assert trail.execution_s[2] == alone.execution_s[2]
    assert np.isnan(trail.first_token_s).tolist() == [True, True, False]
    assert trail.first_token_s[2] == alone.first_token_s[2]
    assert trail.deferred_exe_s[:2].tolist() == alone.execution_s[:2].tolist()


def test_a_request_that_was_sent_on_over_a_link_that_fails_is_answered_here_without_a_timeout_too() -> None:
    requests = columns(*((float(number), 0.25, 0.5, RTT_S / 2, RTT_S / 2) for number in range(4)))
    keys: dict[str, Any] = {"faults": Faults([[DownTimes([(1.0, 2.5)])]]), "second_for": keeping(inf)}
    trail = in_reference(requests, HERE, believing(0.1), [Fifo()], **keys)
    assert trail.outcome.tolist() == [DONE, FALLBACK, FALLBACK, DONE]
    assert trail.target.tolist() == [1, 0, 0, 1]
    assert trail.transfer_s[1] == pytest.approx(0.2), "it hears of the loss after the least retransmission timeout"
    avoided = in_reference(
        requests, HERE, believing(0.1), [Fifo()], **keys | {"faults": replace(keys["faults"], leave_out=True)}
    )
    assert (avoided.outcome[2], avoided.target[2]) == (DONE, GATEWAY), "a target that failed is not chosen"


def test_back_to_back_a_deferred_request_takes_both_executions_and_the_transfer() -> None:
    requests = replace(columns(*((0.0, 1.0, 3.0, 0.25, 0.25) for _ in range(3))), arrival_s=None)
    trail = simulate(requests, HERE, believing(0.5), [Fifo()], second_for=keeping(inf, -inf))
    assert trail.arrival_s.tolist() == pytest.approx([0.0, 4.5, 5.5])
    assert trail.target.tolist() == [1, 0, 1]


def test_a_client_of_a_closed_loop_asks_again_after_the_second_answer() -> None:
    requests = Requests(np.ones(2, int), (np.full(2, 1.0), np.full(2, 3.0)), tgt_len=np.ones(2, int))
    keys: dict[str, Any] = {"route": route, "clients": Clients(1, 1, np.full(3, 0.5)), "second_for": keeping(inf)}
    trail = in_reference(requests, HERE, believing(0.1), [Fifo()], **keys)
    assert trail.arrival_s.tolist() == pytest.approx([0.5, 0.5 + 4.0 + RTT_S + 0.5])


@needs_compiled
def test_after_a_streamed_model_the_reference_decides_again() -> None:
    requests = replace(columns((0.0, 1.0, 3.0, 0.25, 0.25)), tgt_len=np.ones(1, int))
    streamed = Streamed(COMPUTE, STATES, Lifecycle(3, 0.5, 10.0), 1.2, 10.0, 1_000, 50)
    arguments: dict[str, Any] = {"local": streamed, "second_for": keeping(inf)}
    with pytest.raises(UncompiledError, match="second decisions"):
        simulate_compiled(*inputs(requests, HERE, believing(0.1), [Fifo()], **arguments))
    assert in_reference(requests, HERE, believing(0.1), [Fifo()], **arguments).target.tolist() == [CLOUD]
