"""Boxes with slots: an example by hand, queueing theory, limits, and the two engines beside each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simnmt.batching.slots import SlotLimits
from simnmt.devices.slots import Slots
from simnmt.network.outages import DownTimes
from simnmt.policies import Fixed
from simnmt.profile.slots_block import SlotsCost
from simnmt.results.requests import DONE, FALLBACK, LOST, REFUSED, Requests, Trail
from simnmt.world.faults import Faults
from tests.worlds import believing, in_engine, needs_compiled

ENGINES = ("reference", pytest.param("compiled", marks=needs_compiled))


def flat(slots: int, step_s: float = 1.0, **cost: float) -> Slots:
    """Slots whose iterations take a time, whatever decodes in them, and whose prompts are read at no cost."""
    per_token = {"s_per_prompt_token": 0.0, "s_per_context_token": 0.0} | cost
    return Slots(SlotLimits(slots, 10_000), SlotsCost((step_s,) * (slots + 1), **per_token))


def served(kind: Slots, lengths: Any, arrival_s: Any, engine: str | None = None, **settings: Any) -> Trail:
    """Requests at a decider's own box with slots; `lengths`: source and target of each."""
    src_len, tgt_len = np.asarray(lengths, np.int64).reshape(-1, 2).T
    alone_s = kind.solo_s(src_len, tgt_len)
    requests = Requests(src_len, (alone_s,), arrival_s=np.asarray(arrival_s, np.float64), tgt_len=tgt_len)
    given = {"beliefs": believing(0.0), "kinds": [], "local": kind} | settings
    return in_engine(requests, lambda block: Fixed(0), engine=engine, **given)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_example_by_hand(engine: str) -> None:
    """Two slots, and four tokens an iteration. The first one, until 3 s, reads the first prompt and a token of the second.

    The next one decodes, and reads three more, until 5.5 s: the first request is done, and the third takes its slot. The last
    two prompts end together at 8.5 s, and two tokens of the third follow. Each answer takes a quarter of a second more.
    """
    kind = Slots(SlotLimits(2, 4), SlotsCost((1.0, 1.0, 2.0), 0.5, 0.0, 0.25))
    trail = served(kind, [(3, 2), (6, 1), (2, 3)], [0.0, 0.0, 0.5], engine)
    assert trail.queue_s.tolist() == [0.0, 0.0, 5.0]
    assert trail.execution_s.tolist() == [5.75, 8.75, 5.25]
    assert trail.first_token_s.tolist() == [3.25, 8.75, 8.25]
    (account,) = trail.batches
    assert account is not None
    assert (account.steps.tolist(), account.step_s.tolist()) == ([2, 3, 0], [6.0, 4.5, 0.0])
    assert (account.sentences, account.src_tokens, account.tokens) == (3, 11, 3)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_request_alone_takes_its_solo_seconds_and_context_costs_each_step(engine: str) -> None:
    cost = SlotsCost((0.5, 1.0, 1.25), 0.125, 0.0625, 0.25)
    kind = Slots(SlotLimits(2, 4, cached_prefix=3), cost)
    lengths, arrival_s = [(10, 5), (2, 1), (3, 4)], [0.0, 100.0, 200.0]
    trail = served(kind, lengths, arrival_s, engine)
    solo_s = kind.solo_s(*np.array(lengths).T)
    assert solo_s[0] == 0.25 + 2 * 0.5 + 7 * 0.125 + 4 * 1.0 + (11 + 12 + 13 + 14) * 0.0625
    assert trail.execution_s.tolist() == solo_s.tolist()


def test_one_slot_is_the_queue_m_g_1() -> None:
    """Pollaczek and Khinchine: the mean wait is rate x E[S^2] / 2 (1 - load). The first token is the end of the prompt."""
    random = np.random.default_rng(5)
    tgt_len, rate_rps = random.integers(1, 20, 60_000), 0.07
    arrival_s = np.cumsum(random.exponential(1.0 / rate_rps, tgt_len.size))
    trail = served(flat(1), np.stack([np.ones_like(tgt_len), tgt_len], axis=1), arrival_s)
    service_s = tgt_len.astype(float)
    assert np.allclose(trail.execution_s, service_s)
    expected_s = rate_rps * np.mean(service_s**2) / 2.0 / (1.0 - rate_rps * service_s.mean())
    assert trail.queue_s.mean() == pytest.approx(expected_s, rel=0.06)


def test_equal_lengths_at_one_slot_are_the_queue_m_d_1() -> None:
    random = np.random.default_rng(6)
    arrival_s = np.cumsum(random.exponential(10.0 / 0.7, 60_000))
    trail = served(flat(1), np.full((60_000, 2), (1, 10)), arrival_s)
    assert trail.queue_s.mean() == pytest.approx(0.7 * 10.0 / 2.0 / 0.3, rel=0.06)


def test_slots_that_share_nothing_are_the_queue_m_d_s() -> None:
    """With flat steps, slots are servers but for the wait for the running iteration, which is a hundredth of a request here.

    They are compared with the recursion of first in, first out, at some servers (Kiefer and Wolfowitz).
    """
    random, slots, steps = np.random.default_rng(7), 4, 200
    arrival_s = np.cumsum(random.exponential(steps / slots / 0.8, 8_000))
    trail = served(flat(slots), np.full((arrival_s.size, 2), (1, steps)), arrival_s)
    free_s, waits_s = np.zeros(slots), []
    for at_s in arrival_s:
        server = free_s.argmin()
        begin_s = max(at_s, free_s[server])
        waits_s.append(begin_s - at_s)
        free_s[server] = begin_s + steps
    assert trail.queue_s.mean() == pytest.approx(np.mean(waits_s), rel=0.08, abs=2.0)


def test_more_slots_than_requests_are_the_queue_m_g_infinity() -> None:
    """Nobody waits longer than an iteration, and the mean number present is rate x mean time (Little)."""
    random = np.random.default_rng(8)
    tgt_len = random.integers(50, 150, 4_000)
    arrival_s = np.cumsum(random.exponential(20.0, tgt_len.size))
    trail = served(flat(40), np.stack([np.ones_like(tgt_len), tgt_len], axis=1), arrival_s)
    assert trail.queue_s.max() <= 1.0
    assert np.allclose(trail.execution_s, tgt_len, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "is_faster"), [({"s_per_context_token": 0.0}, True), ({"step_s": (0.1,) * 5}, True), ({"slots": 2}, False)]
)
def test_what_a_cost_adds(change: dict[str, Any], is_faster: bool) -> None:
    """As on a real server: constant steps and no cost of context are faster, fewer slots slower."""
    random = np.random.default_rng(9)
    lengths, arrival_s = random.integers(5, 60, (800, 2)), np.cumsum(random.exponential(4.0, 800))

    def mean_s(slots: int = 4, **cost: Any) -> float:
        costs = {"step_s": (0.1, 0.1, 0.14, 0.17, 0.2), "s_per_prompt_token": 0.01, "s_per_context_token": 0.0003} | cost
        trail = served(Slots(SlotLimits(slots, 64), SlotsCost(**costs)), lengths, arrival_s)
        return float((trail.queue_s + trail.execution_s).mean())

    assert (mean_s(**change) < mean_s()) == is_faster


@pytest.mark.parametrize("engine", ENGINES)
def test_requests_beyond_the_context_or_the_room_are_refused(engine: str) -> None:
    """The second exceeds the context, and the fourth finds one waiting; the gateway executes both, or passes them on."""
    kind = Slots(SlotLimits(1, 8, context=12), flat(1).cost, max_waiting=1)
    src_len, tgt_len = np.array([(4, 5), (8, 5), (4, 5), (4, 5)]).T
    nothing = (np.zeros(4),)
    requests = Requests(
        src_len, (np.full(4, 3.0), np.ones(4)), nothing, nothing, np.array([0.0, 0.1, 0.2, 0.3]), tgt_len=tgt_len
    )
    settings = {"beliefs": believing(0.0), "kinds": [kind]}
    fallen = in_engine(requests, lambda block: Fixed(1), engine=engine, **settings)
    assert fallen.outcome.tolist() == [DONE, FALLBACK, DONE, FALLBACK]
    assert fallen.target.tolist() == [1, 0, 1, 0]
    passed = in_engine(requests, lambda block: Fixed(1), engine=engine, passes_on=True, **settings)
    assert passed.outcome.tolist() == [DONE, REFUSED, DONE, REFUSED]
    own = served(kind, np.stack([src_len, tgt_len], axis=1), requests.arrival_s, engine)
    assert own.outcome.tolist() == [DONE, REFUSED, DONE, REFUSED]


def test_a_box_that_fails_loses_what_is_in_it() -> None:
    """One request is in the slot and one waits when the box fails; the third comes after the repair."""
    kind = Slots(SlotLimits(1, 8), flat(1).cost, failures=[DownTimes(iter([(2.5, 10.0)]))])
    src_len, tgt_len, nothing = np.array([1, 1, 1]), np.array([9, 9, 2]), (np.zeros(3),)
    requests = Requests(src_len, (np.full(3, 3.0), np.ones(3)), nothing, nothing, np.array([0.0, 1.0, 10.0]), tgt_len=tgt_len)
    trail = in_engine(
        requests, lambda block: Fixed(1), engine="reference", beliefs=believing(0.0), kinds=[kind], faults=Faults()
    )
    assert trail.outcome.tolist() == [LOST, LOST, DONE]
    assert trail.queue_s[2] + trail.execution_s[2] == 2.0
