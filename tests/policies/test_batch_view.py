"""What a decider believes of a target that batches: nothing to add when alone, and close to the truth among others (XP-01)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.base.random_streams import stream
from simnmt.batching import Batching, half_empty, immediate, mini, top_up
from simnmt.policies import BatchView
from simnmt.workload.lengths import MIXES
from tests.batching.one_server import PlainCost, serve

SIZE, RTT_S = 32, 0.04
HALF_EMPTY, IMMEDIATE = (top_up(SIZE, threshold(SIZE)) for threshold in (half_empty, immediate))
MINI = mini(SIZE, longest_wait_s=0.0)


def step_s(active: int) -> float:
    return 0.008 + 0.0004 * active


def encode_s(sentences: int) -> float:
    return 0.004 + 0.0005 * sentences


def of_ten_ms(size: int, threshold: int) -> BatchView:
    """A view of steps that take 10 ms and 1 ms more for each further sentence."""
    return BatchView(lambda active: 0.009 + 0.001 * active, size, threshold)


@given(st.integers(1, 40), st.floats(1.0, 200.0), st.integers(1, 64), st.booleans())
@settings(derandomize=True, deadline=None, max_examples=50)
def test_alone_with_an_idle_server_the_plane_is_all(requests: int, tgt_len: float, size: int, refills: bool) -> None:
    """One after the other, none waiting and none left behind: nothing is added, so that batch 1 and no queue is the plane."""
    view = BatchView(step_s, size, half_empty(size) if refills else 0, joining_s=encode_s)
    for request in range(requests):
        sent_s = 10.0 * request
        assert view.added_s(sent_s, tgt_len) == 0.0
        view.reported(view.sent(sent_s, tgt_len), 0.0, (0, 0), sent_s + 4.0)


@pytest.mark.parametrize(("ahead", "added_s"), [(0, 0.0), (2, 20 * 0.001), (6, 2 * 0.050 + 20 * 0.003)])
def test_what_a_request_adds_behind_others_by_hand(ahead: int, added_s: float) -> None:
    """Of two, it leaves one behind: 20 steps of a batch of two, 1 ms slower each. Of six, two are beyond four and end as fast
    as six share a mean output's 20 steps of 15 ms, 50 ms each; then a batch of four on average."""
    view = of_ten_ms(8, 4)
    for _ in range(ahead):
        view.sent(0.0, 20.0)
    assert view.added_s(0.0, 20.0) == pytest.approx(added_s)


def test_others_that_join_hold_a_running_batch_up() -> None:
    """In 20 steps of a batch of two as many others join as end, one; 5 ms alone. Where nothing is refilled, none does."""

    def joining_s(sentences: int) -> float:
        return 0.004 + 0.001 * sentences

    added_s = []
    for threshold in (4, 0):
        view = BatchView(lambda active: 0.010, 8, threshold, joining_s=joining_s)
        for _ in range(2):
            view.sent(0.0, 20.0)
        added_s.append(view.added_s(0.0, 20.0))
    assert added_s[0] == pytest.approx(0.005)
    assert added_s[1] == pytest.approx(2 * 20 * 0.010 / 2)  # the wait for both to end, and no more


def test_a_long_queue_is_waited_for_at_the_rate_of_a_full_batch() -> None:
    """An answer reports 32 active and 320 waiting: 336 have to end before there is a place, 32 in the time of 25 steps."""
    view = BatchView(step_s, SIZE, half_empty(SIZE))
    view.reported(view.sent(0.0, 25.0), 0.0, (32, 320), 1.0)
    wait_s = view.added_s(1.0, 25.0) - 25.0 * (step_s(32) - step_s(1))
    assert wait_s == pytest.approx(336 / 32 * 25.0 * step_s(32), rel=0.05)


def test_a_crowd_is_forgotten_when_answers_cease() -> None:
    """Else a burst of others would keep a decider away for good."""
    view = of_ten_ms(8, 4)
    view.reported(view.sent(0.0, 20.0), 0.5, (8, 30), 1.0)
    beliefs_s = [view.added_s(at_s, 20.0) for at_s in (1.0, 2.0, 10.0, 100.0, 1e3, 1e5, 1e7)]
    assert beliefs_s == sorted(beliefs_s, reverse=True)
    assert beliefs_s[-1] < 0.01 * beliefs_s[0]


def test_several_servers_share_what_is_sent_to_them() -> None:
    one, two = (BatchView(step_s, 8, 4, servers) for servers in (1, 2))
    for _ in range(4):
        one.sent(0.0, 20.0)
    for _ in range(8):
        two.sent(0.0, 20.0)
    assert one.added_s(0.0, 20.0) == two.added_s(0.0, 20.0) > 0.0


def test_waits_that_turn_out_longer_are_believed_longer() -> None:
    """As those for a whole batch, the last of which lasts longest."""
    views = [of_ten_ms(8, 0) for _ in range(2)]
    for view, longer in zip(views, (1.0, 3.0), strict=True):
        for request in range(100):
            at_s = 0.1 * request
            number = view.sent(at_s, 20.0)
            view.reported(number, longer * 4 * 20.0 * 0.013 / 4, (3, 1), at_s)
    plain_s, longer_s = (view.added_s(10.0, 20.0) for view in views)
    assert 1.5 * plain_s < longer_s < 3.0 * plain_s


def judged(batching: Batching, load: float, share: float, requests: int = 2_000) -> tuple[float, float, float]:
    """Correlation of beliefs and truths in seconds beyond the plane, mean error as a share of the plain plane's, and bias.

    A server, served step by step, at a load of what full batches could do; a share of its requests is the decider's own.
    """
    generator = stream(1, 0, "batch view")
    src_len, tgt_len = MIXES["europarl"].draw(generator, requests)
    most_rps = SIZE / (tgt_len.mean() * step_s(SIZE) + encode_s(SIZE))
    arrival_s = np.cumsum(generator.exponential(1.0 / (load * most_rps), requests)).tolist()
    served = serve(batching, arrival_s, src_len.tolist(), tgt_len.tolist(), PlainCost(step_s, encode_s))
    left = dict(zip(served.finish_s, served.left, strict=True))
    mine = np.flatnonzero(generator.random(requests) < share).tolist()
    answers = sorted((served.finish_s[request] + RTT_S / 2, request) for request in mine)
    view = BatchView(step_s, SIZE, batching.threshold, joining_s=encode_s)
    sent_as, believed_s, heard = {}, [], 0
    for request in mine:
        now_s = arrival_s[request] - RTT_S / 2
        while heard < len(answers) and answers[heard][0] <= now_s:
            received_s, answered = answers[heard]
            waited_s = served.encoded_s[answered] - arrival_s[answered]
            view.reported(sent_as[answered], waited_s, left[answered], received_s)
            heard += 1
        predicted = float(src_len[request]) + 1.0
        believed_s.append(view.added_s(now_s, predicted))
        sent_as[request] = view.sent(now_s, predicted)
    alone_s, believed = encode_s(1) + tgt_len * step_s(1), np.array(believed_s)
    true = np.array([served.finish_s[request] - arrival_s[request] - alone_s[request] for request in mine])
    error = np.abs(believed - true).mean() / np.abs(true).mean()
    return float(np.corrcoef(believed, true)[0, 1]), float(error), float(believed.mean() / true.mean() - 1.0)


@pytest.mark.parametrize(
    ("batching", "load", "share", "correlation", "error"),
    [
        (HALF_EMPTY, 0.5, 1.0, 0.7, 0.4),
        (HALF_EMPTY, 0.7, 0.25, 0.7, 0.35),
        (HALF_EMPTY, 0.9, 0.25, 0.8, 0.35),
        (IMMEDIATE, 0.9, 1.0, 0.8, 0.3),
        (MINI, 0.5, 1.0, 0.35, 0.5),
        (MINI, 0.9, 0.25, 0.9, 0.2),
    ],
)
def test_the_belief_is_far_closer_to_the_truth_than_the_plain_plane(
    batching: Batching, load: float, share: float, correlation: float, error: float
) -> None:
    outcome = judged(batching, load, share)
    assert outcome[0] > correlation
    assert outcome[1] < error
    assert abs(outcome[2]) < 0.2


@given(
    st.integers(1, 6),
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 20), st.floats(0.0, 3.0), st.integers(0, 3)), max_size=30),
)
@settings(derandomize=True, deadline=None, max_examples=50)
def test_whatever_is_reported_the_belief_is_a_time(size: int, servers: int, answers: list[tuple[int, int, float, int]]) -> None:
    """Several servers make numbers of sentences between `size` - 1 and `size` possible."""
    view = BatchView(step_s, size, half_empty(size), servers, encode_s)
    at_s, under_way = 0.0, list[int]()
    for active, waiting, gap_s, more in answers:
        at_s += gap_s
        for _ in range(more):
            assert 0.0 <= view.added_s(at_s, 20.0) < 1e4
            under_way.append(view.sent(at_s, 20.0))
        if under_way:
            view.reported(under_way.pop(0), gap_s, (min(active, size), waiting), at_s)
