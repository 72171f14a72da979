"""Shared lines: processor sharing in theory and against a slow model of it, and the world with messages on such lines."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.network.link import Hop, Link
from simnmt.network.message_paths import ConstantCapacity, MessagePaths, SeriesCapacity
from simnmt.network.series import BandwidthSeries, constant_rtt
from simnmt.results.requests import Requests, Trail
from simnmt.world import compiled_world
from simnmt.world.fifo_server import FifoPool
from simnmt.world.shared_line import SharedLine
from simnmt.world.simulation import Clients, simulate
from tests.world import engines
from tests.world.theory import WARM_UP, Column, Draw, assert_mean, constant, exponential, lognormal
from tests.worlds import believing, everything_to, latency_s

NO_RTT_S = 1e-9
TOKENS = 4_000
"""Tokens of a mean message, so that whole tokens hardly round its size."""
BITS = 16.0
"""Of a token of two bytes."""


def paths_of(
    requests: Requests, uplink_bps: float, *, shared: bool, rtt_s: float = NO_RTT_S, downlink_bps: float = 1e15
) -> MessagePaths:
    """One hop to the cloud, which all requests meet when they arrive."""
    assert requests.tgt_len is not None
    hop = Hop((Link(constant_rtt(rtt_s), uplink_bps, downlink_bps, shared),), (0.0,))
    return MessagePaths((hop,), (2, 2), requests.src_len, requests.tgt_len, requests.arrival_s, (None, None))


def sent(load: float, size: Draw, requests: int, replication: int = 0) -> Requests:
    """Messages of mean 1 s alone on an uplink of `BITS * TOKENS` bit/s; executions and answers take no time."""
    random = np.random.default_rng([23, replication])
    arrival_s = np.cumsum(random.standard_exponential(requests)) / load
    tokens = np.maximum(np.rint(size(random, requests) * TOKENS), 1.0).astype(np.int64)
    nothing = np.zeros(requests)
    return Requests(tokens, (nothing, nothing), (tokens / TOKENS,), (nothing,), arrival_s, tgt_len=np.zeros(requests, np.int64))


def run(requests: Requests, paths: MessagePaths | None, target: int = 1, workers: int = 10_000) -> Trail:
    pool = FifoPool(workers=workers)
    return engines.simulate(requests, everything_to(target), believing(0.0), [pool], paths=paths, workers=workers)


LOAD = 0.6


@cache
def sojourns(size: Draw, requests: int = 10_000, replications: int = 10) -> list[tuple[Column, Column]]:
    """(size, seconds on the line) of the messages after a warm-up, by replication."""
    pairs = []
    for replication in range(replications):
        columns = sent(LOAD, size, requests, replication)
        paths = paths_of(columns, BITS * TOKENS, shared=True)
        pool = FifoPool(workers=10_000)
        transfer_s = compiled_world.simulate(columns, everything_to(1), believing(0.0), [pool], paths=paths).transfer_s
        warm = slice(round(WARM_UP * requests), None)
        pairs.append((columns.src_len[warm] / TOKENS, np.asarray(transfer_s)[warm]))
    return pairs


@pytest.mark.parametrize("size", [constant, exponential, lognormal(1.5)], ids=["constant", "exponential", "lognormal"])
def test_the_mean_time_on_a_shared_line_is_that_of_m_g_1_ps_whatever_the_sizes(size: Draw) -> None:
    """E[T] = E[S] / (1 - load): insensitive to all but the mean size."""
    means = [float(seconds.mean() / sizes.mean()) for sizes, seconds in sojourns(size)]
    assert_mean(means, 1.0 / (1.0 - LOAD), within=0.12)


def test_a_message_takes_its_size_over_the_share_that_is_free_whatever_its_size() -> None:
    """E[T | x] = x / (1 - load): the slowdown of small and of large messages is the same."""
    small, large = [], []
    for sizes, seconds in sojourns(exponential):
        slowdown, is_small = seconds / sizes, sizes < 0.5
        small.append(float(slowdown[is_small & (sizes > 0.05)].mean()))
        large.append(float(slowdown[~is_small].mean()))
    assert_mean(small, 1.0 / (1.0 - LOAD), within=0.12)
    assert_mean(large, 1.0 / (1.0 - LOAD), within=0.12)


def slow_line(entries: list[tuple[float, float]], bps: float) -> list[float]:
    """When each message of (moment, bits) is done: between two changes each gets an equal part of the bandwidth."""
    left, done, now_s = dict[int, float](), [0.0] * len(entries), 0.0
    for number, (at_s, bits) in enumerate([*entries, (np.inf, 0.0)]):
        while left:
            first = min(left, key=left.__getitem__)
            end_s = now_s + left[first] * len(left) / bps
            until_s = min(end_s, at_s)
            left = {message: rest - (until_s - now_s) * bps / len(left) for message, rest in left.items()}
            now_s = until_s
            if end_s > at_s:
                break
            done[first] = end_s
            del left[first]
        now_s, left[number] = at_s, bits
    return done


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 2.0), st.floats(1.0, 1e6)), min_size=1, max_size=30),
    st.floats(1e4, 1e6),
)
def test_a_shared_line_is_done_when_a_slow_model_says_so(gaps: list[tuple[float, float]], bps: float) -> None:
    moments_s = np.cumsum([gap_s for gap_s, _ in gaps]).tolist()
    entries = list(zip(moments_s, [bits for _, bits in gaps], strict=True))
    line, done = SharedLine[int](ConstantCapacity(bps)), [0.0] * len(entries)

    def act() -> None:
        at_s = line.next_s
        for message in line.act():
            done[message] = at_s

    for number, (at_s, bits) in enumerate(entries):
        while line.next_s <= at_s:
            act()
        line.enter(number, number, bits, at_s)
    while len(line):
        act()
    assert done == pytest.approx(slow_line(entries, bps), rel=1e-9)


def test_a_message_is_done_when_it_was_foreseen_to_be_if_none_comes_after_it() -> None:
    line = SharedLine[str](ConstantCapacity(100.0))
    line.enter("first", 0, 300.0, 0.0)
    line.enter("second", 1, 50.0, 1.0)
    foreseen_s = line.foreseen_s(200.0, 1.5)
    line.enter("third", 2, 200.0, 1.5)
    ends = {message: at_s for at_s in iter(lambda: line.next_s, np.inf) for message in line.act()}
    assert ends["third"] == pytest.approx(1.5 + foreseen_s)
    assert ends == pytest.approx({"second": 2.25, "first": 5.25, "third": 5.5}, abs=0.26)


def test_a_changing_bandwidth_carries_its_integral() -> None:
    capacity = SeriesCapacity(
        BandwidthSeries("u", "measured", "", np.array([0.0, 1.0, 2.0]), np.array([10.0, 30.0, 20.0])), 0.5
    )
    assert capacity.bits_between(0.0, 2.5) == pytest.approx(5 + 30 + 20)
    assert capacity.bits_between(1.0, 31.0) == pytest.approx(10 * 60)
    for begin_s, end_s in pairwise([0.0, 0.2, 1.7, 9.9, 40.0]):
        assert capacity.end_of(begin_s, capacity.bits_between(begin_s, end_s)) == pytest.approx(end_s)


def test_messages_that_never_meet_take_the_times_of_a_link_of_their_own() -> None:
    requests = sent(0.5, exponential, 300)
    assert requests.arrival_s is not None
    apart = Requests(
        requests.src_len,
        requests.execution_s,
        requests.uplink_s,
        requests.downlink_s,
        requests.arrival_s * 1e3,
        tgt_len=requests.tgt_len,
    )
    trail = run(apart, paths_of(apart, BITS * TOKENS, shared=True, rtt_s=0.2))
    np.testing.assert_allclose(trail.transfer_s, apart.uplink_s[0] + 0.2, rtol=1e-9)


@pytest.mark.parametrize("target", [0, 1])
def test_messages_on_links_of_their_own_give_what_the_world_without_messages_gives(target: int) -> None:
    """Queues included; sums in another order, so to a billionth."""
    requests = sent(0.8, exponential, 2_000)
    execution_s = (requests.src_len / TOKENS, requests.src_len[::-1] / TOKENS)
    requests = Requests(
        requests.src_len, execution_s, requests.uplink_s, requests.downlink_s, requests.arrival_s, tgt_len=requests.tgt_len
    )
    paths = paths_of(requests, BITS * TOKENS, shared=False)
    plain, messages = (run(requests, given, target, workers=2) for given in (None, paths))
    assert plain.queue_s.any()
    np.testing.assert_allclose(messages.queue_s, plain.queue_s, rtol=1e-6, atol=1e-6)
    transfer_s = np.asarray(messages.transfer_s)
    total_s = messages.queue_s + execution_s[target] + transfer_s
    np.testing.assert_allclose(total_s, latency_s(requests, plain), rtol=1e-6, atol=1e-6)


def test_an_answer_shares_the_downlink_and_not_the_uplink() -> None:
    """Two requests of one moment: each way either has half of the line to itself."""
    nothing = np.zeros(2)
    requests = Requests(
        np.array([100, 100]), (nothing, nothing), (nothing,), (nothing,), np.zeros(2), tgt_len=np.array([50, 50])
    )
    trail = run(requests, paths_of(requests, 16e3, shared=True, downlink_bps=16e2))
    assert np.asarray(trail.transfer_s) == pytest.approx([2 * 0.1 + 2 * 0.5] * 2)


def test_clients_wait_for_answers_over_a_shared_line() -> None:
    """Two clients without thinking keep the line busy: each request takes twice its time alone."""
    nothing, tokens = np.zeros(10), np.full(10, 1_000)
    requests = Requests(tokens, (nothing, nothing), (nothing,), (nothing,), tgt_len=np.zeros(10, np.int64))
    link = Link(constant_rtt(NO_RTT_S), 16e3, 1e15, shared=True)
    paths = MessagePaths((Hop((link,), (0.0,)),), (2, 2), tokens, np.zeros(10, np.int64), None, (None, None))
    trail = simulate(
        requests,
        everything_to(1),
        believing(0.0),
        [FifoPool(workers=2)],
        route=lambda request, node, now_s: ((1.0,), (0.0,), 0.0, 0.0),
        clients=Clients(2, 2, np.zeros(12)),
        paths=paths,
    )
    assert np.asarray(trail.transfer_s) == pytest.approx([2.0] * 10)


def test_an_oracle_sees_the_messages_that_are_on_the_line() -> None:
    """The cloud is nearer alone, at 1 s; with half of another message to be sent first it takes 1.5 s, and the gateway 1.4."""
    nothing = np.zeros(2)
    execution_s = np.full(2, 1.4), nothing
    requests = Requests(
        np.full(2, 1_000), execution_s, (np.ones(2),), (nothing,), np.array([0.0, 0.5]), tgt_len=np.zeros(2, np.int64)
    )
    paths, oracle = paths_of(requests, 16e3, shared=True), believing(0.0, clairvoyant=True)
    decide = lambda request, delay_s: int(1.4 + delay_s[0] > delay_s[1])  # noqa: E731
    trail = simulate(requests, lambda block: decide, oracle, [FifoPool()], paths=paths, judged_share=1.0)
    assert trail.target.tolist() == [1, 0]
    assert np.asarray(trail.lost_s).tolist() == [0.0, 0.0]
    assert np.asarray(run(requests, paths).transfer_s) == pytest.approx([1.5, 1.5])
