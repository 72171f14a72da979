"""With queues the oracle is greedy: it sees its own request's true delays, and no further."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.policies import CLOUD, Decide, Oracle
from simnmt.results.requests import Requests, Trail
from tests.worlds import columns, latency_s, run


def handed(requests: Requests, target: Sequence[int], workers: int = 1) -> tuple[list[tuple[float, ...]], Trail]:
    """The true delays handed out at each decision while requests go where they are told."""
    delays: list[tuple[float, ...]] = []

    def decide_for(block: Requests) -> Decide:
        def decide(request: int, delay_s: Sequence[float]) -> int:
            delays.append(tuple(delay_s))
            return target[block.src_len[request]]

        return decide

    return delays, run(requests, decide_for, 0.0, workers=workers, clairvoyant=True)


def test_true_delays_worked_by_hand() -> None:
    """Requests 0 and 1 go to the cloud, 2 and 4 stay, 3 and 5 go."""
    requests = columns(
        (0, 10, 6, 2, 1),  # nobody anywhere: transfer 3; reaches the server at 2, holds it until 8
        (1, 10, 4, 2, 1),  # reaches it at 3, waits for 5: delay 8; holds it until 12
        (2, 10, 4, 5, 2),  # would reach it at 7 and wait until 12: delay 7 + 5
        (3, 10, 4, 1, 2),  # gateway busy until 12; would reach the server at 4 and wait for 8
        (6, 10, 4, 1, 1),  # request 3 holds the server from 12 to 16: 2 + 9; gateway as before
        (30, 10, 4, 1, 1),  # gateway busy until 22, server until 16: both idle by now
    )
    delays, trail = handed(requests, [1, 1, 0, 1, 0, 1])
    assert delays == [(0, 3), (0, 8), (0, 12), (9, 11), (6, 11), (0, 2)]
    assert trail.queue_s.tolist() == [0, 5, 0, 8, 6, 0]


def test_who_reaches_the_server_in_the_same_moment_waits_for_the_earlier_request() -> None:
    requests = columns((0, 9, 6, 2, 1), (1, 9, 5, 1, 1), (1, 9, 5, 1, 1))
    delays, trail = handed(requests, [1, 1, 1])
    assert delays == [(0, 3), (0, 2 + 6), (0, 2 + 6 + 5)]
    assert trail.queue_s.tolist() == [0, 6, 11]


EIGHTHS = st.integers(0, 12).map(lambda eighths: eighths / 8)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    st.lists(st.tuples(EIGHTHS, EIGHTHS, EIGHTHS, EIGHTHS, EIGHTHS, st.integers(0, 1)), min_size=1, max_size=20),
    st.integers(1, 3),
)
def test_what_it_is_told_is_what_the_request_then_meets_unless_a_later_one_overtakes_it(
    rows: list[tuple[float, float, float, float, float, int]], workers: int
) -> None:
    """Requests still on the uplink are counted in, each from the moment it reaches the server."""
    gap_s, *times_s, target = np.array(rows).T
    arrival_s = np.cumsum(gap_s)
    requests = columns(*zip(arrival_s, *times_s, strict=True))
    delays, trail = handed(requests, target.astype(int).tolist(), workers)
    entry_s = arrival_s + requests.uplink_s[0]
    told_s = np.array(delays)[np.arange(len(rows)), trail.target]
    for request, goes in enumerate(target):
        met_s = trail.queue_s[request]
        if goes:
            met_s += requests.uplink_s[0][request] + requests.downlink_s[0][request]
            later = (target[request + 1 :] == CLOUD) & (entry_s[request + 1 :] < entry_s[request])
            if later.any():
                assert told_s[request] <= met_s
                continue
        assert told_s[request] == met_s


def test_it_may_lose_to_a_policy_that_leaves_a_server_free_for_others() -> None:
    """Regret may be negative: the first request is 0.1 s better off at the gateway, and costs the second a second there."""
    requests = columns((0.0, 1.0, 0.9, 0.1, 0.1), (0.0, 1.0, 50.0, 0.1, 0.1))
    policies: dict[str, tuple[Callable[[Requests], Decide], bool]] = {
        "oracle": (lambda block: Oracle(block.execution_s).prepare(block.src_len), True),
        "generous": (lambda block: lambda request, delay_s: 1 - request, False),
    }
    total_s = {}
    for name, (decide_for, clairvoyant) in policies.items():
        trail = run(requests, decide_for, 0.2, clairvoyant=clairvoyant)
        total_s[name] = latency_s(requests, trail).sum()
    assert total_s == {"oracle": pytest.approx(1.0 + 2.0), "generous": pytest.approx(1.1 + 1.0)}
