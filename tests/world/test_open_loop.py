"""Open loop, one gateway and one cloud: invariants one by one, and ties worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simnmt.policies import CLOUD, GATEWAY
from simnmt.results.requests import Requests
from tests import worlds
from tests.worlds import columns, everything_to, fixed, two_devices


def random_world(seed: int = 1, requests: int = 3_000, rate_rps: float = 12.0) -> Requests:
    """A busy world whose uplinks let requests overtake each other."""
    random = np.random.default_rng(seed)
    src_len = random.integers(1, 60, requests)
    gateway_s, cloud_s = (src_len * token_s * random.lognormal(0, 0.2, requests) for token_s in (0.008, 0.004))
    uplink_s, downlink_s = 0.02 * random.lognormal(0, 1.0, (2, requests))
    arrival_s = np.cumsum(random.exponential(1 / rate_rps, requests))
    return two_devices(src_len, gateway_s, cloud_s, uplink_s, downlink_s, arrival_s)


class TestTies:
    def test_requests_that_arrive_together_are_served_by_their_number(self) -> None:
        trail = worlds.run(columns(*[(1.0, 2.0, 9.0, 0.0, 0.0)] * 3), fixed(0, 0, 0), 0.0)
        assert trail.queue_s.tolist() == [0.0, 2.0, 4.0]

    def test_requests_that_reach_the_server_together_are_served_by_their_number(self) -> None:
        """Request 0 takes the slower way, is sent earlier and arrives in the same moment as 1 and 2."""
        requests = columns((0.0, 9.0, 4.0, 3.0, 0.0), (1.0, 9.0, 2.0, 2.0, 0.0), (2.0, 9.0, 1.0, 1.0, 0.0))
        assert worlds.run(requests, fixed(1, 1, 1), 0.0).queue_s.tolist() == [0.0, 4.0, 6.0]
        assert worlds.run(requests, fixed(1, 1, 1), 0.0, workers=2).queue_s.tolist() == [0.0, 0.0, 2.0]

    def test_an_answer_is_heard_by_a_request_that_arrives_in_the_same_moment(self) -> None:
        requests = columns((0.0, 9.0, 1.0, 0.5, 0.5), (2.0, 9.0, 1.0, 0.0, 0.0))
        trail = worlds.run(requests, fixed(1, 0), 7.0)
        assert trail.estimate_s.tolist() == [7.0, 1.0]
        assert trail.measured_at_s.tolist() == [0.0, 2.0]

    def test_of_answers_in_one_moment_that_to_the_later_request_counts(self) -> None:
        requests = columns((0.0, 9.0, 1.0, 1.0, 2.0), (1.0, 9.0, 1.0, 1.5, 0.5), (5.0, 9.0, 1.0, 0.0, 0.0))
        trail = worlds.run(requests, fixed(1, 1, 0), 7.0, workers=2)
        assert trail.estimate_s.tolist() == [7.0, 7.0, 2.0]

    def test_a_request_that_takes_no_time_at_all_is_answered_before_the_next_of_its_moment(self) -> None:
        requests = columns((1.0, 9.0, 0.0, 0.0, 0.0), (1.0, 9.0, 0.0, 0.0, 0.0))
        trail = worlds.run(requests, fixed(1, 1), 7.0)
        assert trail.estimate_s.tolist() == [7.0, 0.0]
        assert trail.measured_at_s.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("target", [GATEWAY, CLOUD])
def test_one_request_alone_takes_its_own_time(target: int) -> None:
    requests = columns((3.0, 2.0, 1.0, 0.25, 0.5))
    trail = worlds.run(requests, everything_to(target), 0.1)
    assert trail.arrival_s.tolist() == [3.0]
    assert trail.queue_s.tolist() == [0.0]
    assert trail.target.tolist() == [target]
    assert trail.estimate_s.tolist() == [0.1]


def test_who_finds_a_free_worker_waits_for_exactly_nothing() -> None:
    """To the bit: a wait got by subtraction left 1e-17 s here and there, and with it a share of requests that wait."""
    requests = random_world(rate_rps=12_000.0)
    trail = worlds.run(requests, everything_to(CLOUD), 0.1, workers=len(requests))
    assert not trail.queue_s.any()


def test_who_finds_the_gateway_idle_waits_for_exactly_nothing() -> None:
    requests = replace(random_world(), arrival_s=0.1 + 5.0 * np.arange(3_000))
    trail = worlds.run(requests, everything_to(GATEWAY), 0.1)
    assert not trail.queue_s.any()
