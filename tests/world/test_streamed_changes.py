"""A streamed box whose deadline or buffer changes during the run (STI-18)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simnmt.results.requests import Requests, Trail
from simnmt.streaming.plan.engagement import COLD, FIRST_TURN
from simnmt.world.simulation import simulate
from simnmt.world.streaming_server import PlanChange, StreamingServerSpec
from tests.world.streamed_boxes import COMPUTE, STATES, STREAMED
from tests.worlds import believing, everything_to

FASTER = replace(STREAMED, compute=replace(COMPUTE, layer_s=(0.040, 0.060)), deadline_s=0.5)
"""As after a tighter deadline: layers of fewer slices."""


def run(arrival_s: list[float], streamed: StreamingServerSpec) -> Trail:
    """One box; sentences of 8 source and 10 target tokens."""
    count = len(arrival_s)
    src_len, tgt_len = np.full(count, 8), np.full(count, 10)
    execution_s, node = streamed.compute.in_memory_s(src_len, tgt_len), np.zeros(count, np.int32)
    requests = Requests(src_len, (execution_s,), (), (), np.array(arrival_s), node, tgt_len=tgt_len)
    return simulate(requests, everything_to(0), believing(0.1), [], local=streamed)


def changing(at_s: float, fill_s: float = 0.0, fill_bytes: int = 0) -> StreamingServerSpec:
    return replace(STREAMED, changes=(PlanChange(at_s, FASTER, fill_s, fill_bytes),))


def test_a_request_is_executed_by_the_plan_that_holds_when_it_reaches_its_box() -> None:
    """At 10 s it still computes 0.1 s a layer, at 20 s 0.04."""
    trail = run([0.0, 10.0, 20.0, 30.0], changing(15.0))
    alone_s = [float(STATES[state].alone_s(COMPUTE, 8, 10)) for state in (COLD, FIRST_TURN)]
    faster_s = float(STATES[FIRST_TURN].alone_s(FASTER.compute, 8, 10))
    assert trail.execution_s is not None and trail.state is not None
    assert trail.state.tolist() == [COLD, FIRST_TURN, FIRST_TURN, FIRST_TURN]
    np.testing.assert_allclose(trail.execution_s, [*alone_s, faster_s, faster_s])


def test_a_change_ends_the_engagement() -> None:
    """The third request comes 1 s after the second: without a change it would be a third turn."""
    arrival_s = [0.0, 2.0, 4.0, 6.0]
    assert run(arrival_s, STREAMED).state.tolist() == [COLD, 2, 3, 3]
    assert run(arrival_s, changing(3.5)).state.tolist() == [COLD, 2, FIRST_TURN, 2]


def test_the_deadline_is_that_of_the_plan_that_holds() -> None:
    """The first turn takes 0.83 s by the first plan and 0.71 s by the second, within 1.2 s but not within 0.5."""
    trail = run([0.0, 10.0, 20.0], changing(15.0))
    assert trail.deadline_missed is not None and trail.deadline_missed.tolist()[1:] == [False, True]


@pytest.mark.parametrize(("fill_s", "later_s"), [(0.0, 0.0), (0.4, 0.4), (3.0, 3.0)])
def test_the_buffer_is_filled_from_the_disk_before_the_next_request_reads(fill_s: float, later_s: float) -> None:
    trail = run([0.0, 10.0, 15.0], changing(15.0, fill_s, 500))
    alone_s = float(STATES[FIRST_TURN].alone_s(FASTER.compute, 8, 10))
    boxes_until = trail.streamed[0]
    assert trail.execution_s is not None and boxes_until is not None
    late_s = float(STATES[FIRST_TURN].from_read_s(FASTER.compute, 8, 10)) + later_s
    assert trail.execution_s[2] == pytest.approx(max(alone_s, late_s))
    by_state = [STATES[state] for state in (COLD, FIRST_TURN, FIRST_TURN)]
    totals = boxes_until(30.0)
    assert totals.read_s == pytest.approx(sum(state.read_s for state in by_state) + fill_s)
    assert totals.read_bytes == sum(state.streamed_bytes for state in by_state) + 500 + STREAMED.cold_read_bytes


def test_a_cold_box_stays_cold_through_a_change_and_reads_nothing_for_it() -> None:
    """Before the first request, and after the system has reclaimed the memory."""
    first = run([10.0], changing(5.0, 0.4, 500))
    reclaimed = run([0.0, 200.0], changing(150.0, 0.4, 500))
    for trail in (first, reclaimed):
        boxes_until = trail.streamed[0]
        assert boxes_until is not None and trail.state is not None and trail.state[-1] == COLD
        assert boxes_until(500.0).read_s == pytest.approx(len(trail.state) * STATES[COLD].read_s)


def test_the_ledger_goes_on_through_changes() -> None:
    """Kept for 5 s after the end, then the preload of 200 bytes up to the change and on, until it is reclaimed."""
    trail = run([0.0], changing(20.0))
    boxes_until = trail.streamed[0]
    assert boxes_until is not None and trail.execution_s is not None
    end_s = float(trail.execution_s[0])
    before = STATES[COLD].kept_bytes * 5.0 + 200 * (20.0 - end_s - 5.0)
    assert boxes_until(30.0).buffer_byte_s == pytest.approx(before + 200 * 10.0)
    assert boxes_until(500.0).buffer_byte_s == pytest.approx(before + 200 * 60.0), "reclaimed 60 s after the change"


def test_changes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="in order of time"):
        replace(STREAMED, changes=(PlanChange(5.0, FASTER), PlanChange(5.0, FASTER)))
    with pytest.raises(ValueError, match="number of states of the first plans"):
        replace(STREAMED, changes=(PlanChange(5.0, replace(FASTER, changes=(PlanChange(6.0, FASTER),))),))
