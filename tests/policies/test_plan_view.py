"""What a decider believes of a target that streams its model, and what that is worth (XP-04)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from simnmt.devices import Fifo
from simnmt.devices.device import InTurn
from simnmt.policies import LeastTotal, PlanView
from simnmt.results.requests import Requests, Trail
from simnmt.streaming.plan.engagement import Lifecycle
from tests.world.streamed_boxes import STREAMED, asked
from tests.worlds import believing, simulate

LIFECYCLE = Lifecycle(3, 5.0, 60.0)
BY_STATE = [[0.5], [0.1], [0.05], [0.01]]


def view() -> PlanView:
    return PlanView(LIFECYCLE.next_state, 4)


def test_alone_before_a_box_the_next_state_is_known() -> None:
    believed = view()
    assert believed.believed(0.0) == 0 and believed.added_s(0.0, BY_STATE, 0) == 0.5
    believed.sent(7, 0.0)
    assert believed.believed(100.0) == 2  # still under way
    believed.reported(7, 0, 1.0)
    assert [believed.believed(at_s) for at_s in (1.5, 6.0, 6.1, 61.0, 61.1)] == [2, 2, 1, 1, 0]
    assert believed.added_s(6.1, BY_STATE, 0) == 0.1


def test_requests_under_way_are_turns_of_one_engagement() -> None:
    believed = view()
    for request, expected in enumerate((0, 2, 3, 3)):
        assert believed.believed(0.1 * request) == expected
        believed.sent(request, 0.1 * request)
    believed.reported(0, 0, 1.0)
    assert believed.believed(1.0) == 3


def test_requests_of_others_that_keep_a_box_warm_are_noticed() -> None:
    """What was believed cold and reported warm is expected to be so the next time, and less so once it is cold again."""
    believed = view()
    for request in range(20):
        at_s = 100.0 * request
        believed.sent(request, at_s)
        believed.reported(request, 3, at_s + 1.0)
    warm_s = believed.added_s(2_000.0, BY_STATE, 0)
    kept = 63 / 64
    cold, warm = kept**20, (1 - kept**20) / (1 - kept)
    assert warm_s == pytest.approx((0.5 * cold + 0.01 * warm) / (cold + warm))
    for request in range(20, 40):
        at_s = 100.0 * request
        believed.sent(request, at_s)
        believed.reported(request, 0, at_s + 1.0)
    assert 0.2 < believed.added_s(4_000.0, BY_STATE, 0) < 0.5


def test_an_answer_that_was_overtaken_moves_nothing() -> None:
    believed = view()
    believed.sent(0, 0.0)
    believed.sent(1, 0.1)
    believed.reported(1, 2, 3.0)
    believed.reported(0, 0, 1.0)
    assert believed.believed(8.0) == 3 and believed.believed(8.1) == 1


def world(policy: str, remote: bool, boxes: int, requests: int = 3_000) -> tuple[np.ndarray, Trail]:
    """Latencies and trail of a gateway and a cloud, one of which streams its model; under C-NMT that knows the true lengths."""
    base = asked(requests, gap_s=3.0, seed=4, nodes=1)
    exact_s = STREAMED.compute.in_memory_s(base.src_len, base.tgt_len)
    execution_s = (1.1 * exact_s + 0.1, exact_s) if remote else (exact_s, 0.5 * exact_s)
    link_s = np.full(requests, 0.05 if remote else 0.18)
    columns = Requests(base.src_len, execution_s, (link_s,), (link_s,), base.arrival_s, base.node, tgt_len=base.tgt_len)
    streamed = 1 if remote else 0
    view = partial(PlanView, STREAMED.lifecycle.next_state, len(STREAMED.states))
    plan_views = tuple(view if target == streamed else None for target in range(2)) if policy == "known" else ()
    trail = simulate(
        columns,
        lambda block: LeastTotal(block.execution_s),
        believing(float(2 * link_s[0]), clairvoyant=policy == "oracle", plan_views=plan_views),
        [STREAMED.of(boxes, InTurn()) if remote else Fifo()],
        local=None if remote else STREAMED,
        plan_beyond_for=(lambda block: [STREAMED.beyond_s(block.src_len)] * 2) if plan_views else None,
        judged_share=1.0,
    )
    taken_s = np.where(trail.target == streamed, np.nan_to_num(trail.execution_s), np.choose(trail.target, execution_s))
    return trail.queue_s + taken_s + np.where(trail.target == 1, 2 * link_s, 0.0), trail


@pytest.mark.parametrize(
    ("remote", "boxes", "most"),
    [(False, 1, 1.03), (True, 1, 1.03), (True, 3, 1.15)],
    ids=["own device", "cloud", "three boxes"],
)
def test_a_plane_that_knows_no_states_loses_on_cold_requests(remote: bool, boxes: int, most: float) -> None:
    """XP-04: all else is known exactly, so the loss is the state's alone; with it known, nearly none is left.

    Of three boxes in turn each is colder than the last answer says, which is learnt in part.
    """
    latency_s, trails = {}, {}
    for policy in ("ignored", "known", "oracle"):
        latency_s[policy], trails[policy] = world(policy, remote, boxes)
    cold = trails["ignored"].state == 0
    assert 0.05 < cold.mean() < 0.6
    mean_s = {policy: column[cold].mean() for policy, column in latency_s.items()}
    assert mean_s["ignored"] > 1.05 * mean_s["known"]
    assert mean_s["known"] < most * mean_s["oracle"]
    misrouted = {policy: (trail.decision_regret_s > 1e-3).mean() for policy, trail in trails.items()}
    assert misrouted["oracle"] == 0.0
    assert misrouted["known"] < misrouted["ignored"] / 2
