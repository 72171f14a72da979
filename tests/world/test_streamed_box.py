"""A streamed box against one in SimPy whose disk and processor work layer by layer; its buffer, and changes (STI-18)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.devices import Fifo, Streamed
from simnmt.devices.stream import PlanChange
from simnmt.results.requests import Requests, Trail
from simnmt.streaming.plan.engagement import COLD, FIRST_TURN, Lifecycle, PlannedCompute, StreamedState
from tests.campaigns.harness import deep
from tests.world.streamed_boxes import COMPUTE, STATES, STREAMED, SlowBox, asked
from tests.worlds import believing, everything_to, in_reference, simulate

COLUMNS = ("state", "queue_s", "execution_s", "stall_s", "first_token_s")

SPEEDS = [deep(1.0, 1.0, 0.0), deep(4.0, 1.0, 1.0), (1.0, 1.3, 1.0), (4.0, 1.3, 0.0)]
"""Factors of reads and of computing beside reads, and the share of a layer's read that a cold start makes first."""


def kept(requests: Requests, streamed: Streamed = STREAMED, deciders: int = 1) -> Trail:
    """Everything stays at the gateways."""
    return simulate(requests, everything_to(0), believing(0.1), [STREAMED], local=streamed.of(deciders))


def slowly(requests: Requests, streamed: Streamed, deciders: int) -> list[dict[str, Any]]:
    """The same with SimPy's own resources."""
    environment = simpy.Environment()
    boxes = [SlowBox(environment, streamed) for _ in range(deciders)]
    outcomes: list[dict[str, Any]] = [{} for _ in range(len(requests))]
    factor = requests.execution_s[0] / streamed.compute.in_memory_s(requests.src_len, requests.tgt_len)

    def come() -> Any:
        for request, arrival_s in enumerate(requests.arrival_s):
            yield environment.timeout(max(arrival_s - environment.now, 0.0))
            lengths = int(requests.src_len[request]), int(requests.tgt_len[request])
            boxes[requests.node[request] % deciders].enter(*lengths, float(factor[request]), outcomes[request])

    environment.process(come())
    environment.run()
    return outcomes


@pytest.mark.parametrize("gap_s", [0.4, 1.5, 10.0])
@pytest.mark.parametrize(("deciders", "keeps_preload"), [(1, True), (1, False), (3, True)])
@pytest.mark.parametrize(("slower", "slowed", "ahead"), SPEEDS)
def test_a_box_does_what_its_disk_and_its_processor_do(
    gap_s: float, deciders: int, keeps_preload: bool, slower: float, slowed: float, ahead: float
) -> None:
    """States, waits, stalls, first tokens and deadlines: crowded, in turns, and alone; with a disk that computing hides, and
    with one about as slow as it, so that reading one request ahead and no further matters; and where a request's reads slow
    its computing; where a cold start's embeddings are read first."""
    loads_s = [tuple(slower * each_s for each_s in state.load_s) for state in STATES]
    states = tuple(
        replace(state, load_s=load_s, ahead_s=ahead * load_s[0]) for state, load_s in zip(STATES, loads_s, strict=True)
    )
    compute = replace(STREAMED.compute, slowed=slowed)
    streamed = replace(STREAMED, compute=compute, states=states, lifecycle=Lifecycle(3, 5.0, 60.0, keeps_preload))
    requests = asked(gap_s=gap_s, nodes=3)
    trail, slow = kept(requests, streamed, deciders), slowly(requests, streamed, deciders)
    for name in COLUMNS:
        slow_column = [row[name] for row in slow]
        np.testing.assert_allclose(getattr(trail, name), slow_column, rtol=1e-9, atol=1e-9, err_msg=name)
    assert trail.deadline_missed.tolist() == [row["deadline_missed"] for row in slow]
    if gap_s == 1.5 and slower == 1.0:
        assert set(trail.state) >= {COLD, FIRST_TURN, 2, 3} - (set() if keeps_preload else {FIRST_TURN})
        assert 0.05 < trail.deadline_missed.mean() < 0.95


SECONDS = st.integers(0, 40).map(lambda eighths: eighths / 8)


@settings(max_examples=60)
@given(
    st.lists(SECONDS, min_size=1, max_size=4),
    st.lists(SECONDS, max_size=4),
    st.tuples(st.floats(0.125, 5.0), SECONDS, SECONDS),
    st.integers(0, 4),
    st.sampled_from([1.0, 1.25, 4.0]),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_a_request_alone_takes_what_its_timeline_says(
    encoder: list[float], decoder: list[float], times: tuple[float, float, float], tgt_len: int, slowed: float, ahead: float
) -> None:
    layer_s, embed_s, head_s = times
    compute = PlannedCompute(len(encoder), (8,), (layer_s,), len(decoder), 0.5, 0.25, (embed_s,), head_s, slowed)
    state = StreamedState("any", (*encoder, *decoder), ahead_s=ahead * encoder[0])
    src_lens, tgt_lens = np.array([5]), np.array([tgt_len])
    here_s = compute.in_memory_s(src_lens, tgt_lens)
    requests = Requests(src_lens, (here_s,), arrival_s=np.zeros(1), node=np.zeros(1, np.int32), tgt_len=tgt_lens)
    (slow,) = slowly(requests, Streamed(compute, (state, state), Lifecycle(1, 5.0)), 1)
    drawn = state.pipeline(compute, 5, tgt_len)
    assert [float(state.alone_s(compute, 5, tgt_len)), drawn.latency_s] == pytest.approx([slow["execution_s"]] * 2)
    waits = zip(drawn.compute_begin, [drawn.before_s, *drawn.compute_end[:-1]], strict=True)
    assert drawn.stall_s == pytest.approx(sum(begin - end for begin, end in waits), abs=1e-7)


def test_an_encoder_alone_needs_no_target_lengths() -> None:
    compute = replace(STREAMED.compute, decoder_layers=0, step_s=0.0, once_s=0.0)
    states = tuple(replace(state, load_s=state.load_s[:2]) for state in STATES)
    streamed = Streamed(compute, states, STREAMED.lifecycle, 0.5)
    requests = replace(asked(streamed=streamed), tgt_len=None)
    trail = simulate(requests, everything_to(0), believing(0.1), [Fifo()], local=streamed)
    slow = slowly(replace(requests, tgt_len=np.ones(len(requests), np.int64)), streamed, 1)
    for name in COLUMNS:
        np.testing.assert_allclose(getattr(trail, name), [row[name] for row in slow], rtol=1e-9, atol=1e-9)


def test_a_deadline_that_is_just_met_is_met() -> None:
    """A first turn of its own takes what the plan predicted, to the bit or not: rounding is no miss."""
    exact_s = float(STATES[1].alone_s(STREAMED.compute, 12, 10))
    streamed = replace(STREAMED, deadline_s=exact_s, lifecycle=Lifecycle(3, 5.0, np.inf))
    src_len, tgt_len = np.full(20, 12), np.full(20, 10)
    alone_s = streamed.compute.in_memory_s(src_len, tgt_len)
    arrival_s = np.arange(20) * 10.1
    requests = Requests(src_len, (alone_s,), (), (), arrival_s, np.zeros(20, np.int32), tgt_len=tgt_len)
    missed = simulate(requests, everything_to(0), believing(0.1), [], local=streamed).deadline_missed
    assert missed.tolist() == [True] + [False] * 19


def test_what_a_state_adds_is_what_a_request_of_its_own_stalls() -> None:
    """Whatever its output, and for computing that is slower or faster than the profile's; hidden reads add exactly nothing."""
    requests = asked(120, gap_s=200.0, nodes=1)
    slow = requests.execution_s[0] / STREAMED.compute.in_memory_s(requests.src_len, requests.tgt_len)
    trail = kept(requests)
    beyond_s = np.array(STREAMED.beyond_s(requests.src_len, slow))
    assert set(trail.state) >= {0, 1}
    alone = trail.queue_s == 0.0
    of_state = beyond_s[trail.state, np.arange(len(requests))]
    np.testing.assert_allclose(of_state[alone], trail.stall_s[alone], rtol=1e-9, atol=1e-12)
    hidden = replace(STREAMED, states=tuple(replace(state, load_s=(0.0,) * 3 + (1e-3,)) for state in STATES))
    assert not np.array(hidden.beyond_s(requests.src_len)).any()


@pytest.mark.parametrize("keeps_preload", [True, False])
@pytest.mark.parametrize("gap_s", [0.4, 4.0])
def test_the_ledger_is_what_the_buffer_held_over_time(keeps_preload: bool, gap_s: float) -> None:
    """Against a look at the buffer at moments spread over the run (STI-23)."""
    streamed = replace(STREAMED, lifecycle=Lifecycle(3, 5.0, 60.0, keeps_preload))
    requests = asked(gap_s=gap_s, nodes=1)
    trail = kept(requests, streamed)
    boxes_until = trail.streamed[0]
    begin_s = np.asarray(requests.arrival_s) + trail.queue_s
    end_s = begin_s + trail.execution_s
    over_s = float(end_s[-1]) + 70.0
    at_s = np.linspace(begin_s[0], over_s, 400_000)
    last = np.searchsorted(begin_s, at_s, "right") - 1
    state, idle_s = trail.state[last], at_s - end_s[last]
    kept_bytes = np.array([turn_state.kept_bytes for turn_state in STATES])[state]
    held_bytes = np.array([turn_state.held_bytes for turn_state in STATES])[state]
    after = np.where(idle_s > 60.0, 0, np.where(idle_s > 5.0, 200 if keeps_preload else 0, kept_bytes))
    held = np.where(idle_s < 0.0, held_bytes, after)
    totals = boxes_until(over_s)
    assert totals.buffer_byte_s == pytest.approx(held.mean() * (over_s - begin_s[0]), rel=2e-3)
    assert totals.peak_buffer_bytes == held.max()
    assert totals.working_bytes == 1_000


@pytest.mark.parametrize("gap_s", [0.4, 2_000.0])
def test_the_most_of_packed_shards_is_what_requests_hold_that_overlap(gap_s: float) -> None:
    """A request holds what was there and what it reads from the begin of its reads until its end; of one that begins to be read
    before the one ahead has ended, what it reads is there besides (STI-23)."""
    requests = asked(gap_s=gap_s, nodes=1)
    trail = kept(requests)
    boxes_until = trail.streamed[0]
    entry_s = np.asarray(requests.arrival_s)
    begin_s = entry_s + trail.queue_s
    end_s = begin_s + trail.execution_s
    reads_from_s = np.zeros(len(requests))
    for request in range(1, len(requests)):
        reads_s = STATES[trail.state[request - 1]].read_s
        reads_from_s[request] = max(reads_from_s[request - 1] + reads_s, begin_s[request - 1], entry_s[request])
    read, alone = (
        np.array(column)[trail.state]
        for column in zip(*((state.streamed_bytes, state.held_bytes + state.streamed_bytes) for state in STATES), strict=True)
    )
    ahead = reads_from_s[1:] < end_s[:-1]
    most = max(alone.max(), (alone[:-1] + read[1:])[ahead].max(initial=0))
    assert boxes_until(float(end_s[-1])).peak_shard_bytes == most
    assert (most > 1_050) == (gap_s < 1.0)


FASTER = replace(STREAMED, compute=replace(COMPUTE, layer_s=(0.040, 0.060)), deadline_s=0.5)
"""As after a tighter deadline: layers of fewer slices."""


def run_one_box(arrival_s: list[float], streamed: Streamed) -> Trail:
    """One box; sentences of 8 source and 10 target tokens."""
    src_len, tgt_len = (np.full(len(arrival_s), length) for length in (8, 10))
    execution_s = streamed.compute.in_memory_s(src_len, tgt_len)
    requests = Requests(src_len, (execution_s,), arrival_s=np.array(arrival_s), tgt_len=tgt_len)
    return in_reference(requests, everything_to(0), believing(0.1), [], local=streamed)


def changing(at_s: float, fill_s: float = 0.0, fill_bytes: int = 0) -> Streamed:
    return replace(STREAMED, changes=(PlanChange(at_s, FASTER, fill_s, fill_bytes),))


def test_a_request_is_executed_by_the_plan_that_holds_when_it_reaches_its_box() -> None:
    """At 10 s it still computes 0.1 s a layer, at 20 s 0.04."""
    trail = run_one_box([0.0, 10.0, 20.0, 30.0], changing(15.0))
    alone_s = [float(STATES[state].alone_s(COMPUTE, 8, 10)) for state in (COLD, FIRST_TURN)]
    faster_s = float(STATES[FIRST_TURN].alone_s(FASTER.compute, 8, 10))
    assert trail.state.tolist() == [COLD, FIRST_TURN, FIRST_TURN, FIRST_TURN]
    np.testing.assert_allclose(trail.execution_s, [*alone_s, faster_s, faster_s])
    # The first turn takes 0.83 s by the first plan and 0.71 s by the second, within 1.2 s but not within 0.5.
    assert trail.deadline_missed.tolist()[1:] == [False, True, True]


def test_a_change_ends_the_engagement() -> None:
    """The third request comes 1 s after the second: without a change it would be a third turn."""
    arrival_s = [0.0, 2.0, 4.0, 6.0]
    assert run_one_box(arrival_s, STREAMED).state.tolist() == [COLD, 2, 3, 3]
    assert run_one_box(arrival_s, changing(3.5)).state.tolist() == [COLD, 2, FIRST_TURN, 2]


@pytest.mark.parametrize(("fill_s", "later_s"), [(0.0, 0.0), (0.4, 0.4), (3.0, 3.0)])
def test_the_buffer_is_filled_from_the_disk_before_the_next_request_reads(fill_s: float, later_s: float) -> None:
    trail = run_one_box([0.0, 10.0, 15.0], changing(15.0, fill_s, 500))
    alone_s = float(STATES[FIRST_TURN].alone_s(FASTER.compute, 8, 10))
    boxes_until = trail.streamed[0]
    late_s = float(STATES[FIRST_TURN].from_read_s(FASTER.compute, 8, 10)) + later_s
    assert trail.execution_s[2] == pytest.approx(max(alone_s, late_s))
    by_state = [STATES[state] for state in (COLD, FIRST_TURN, FIRST_TURN)]
    totals = boxes_until(30.0)
    assert totals.read_s == pytest.approx(sum(state.read_s for state in by_state) + fill_s)
    assert totals.read_bytes == sum(state.streamed_bytes for state in by_state) + 500 + STREAMED.cold_read_bytes


def test_a_cold_box_stays_cold_through_a_change_and_reads_nothing_for_it() -> None:
    """Before the first request, and after the system has reclaimed the memory."""
    first = run_one_box([10.0], changing(5.0, 0.4, 500))
    reclaimed = run_one_box([0.0, 200.0], changing(150.0, 0.4, 500))
    for trail in (first, reclaimed):
        boxes_until = trail.streamed[0]
        assert boxes_until is not None and trail.state[-1] == COLD
        assert boxes_until(500.0).read_s == pytest.approx(len(trail.state) * STATES[COLD].read_s)


def test_the_ledger_goes_on_through_changes() -> None:
    """Kept for 5 s after the end, then the preload of 200 bytes up to the change and on, until it is reclaimed."""
    trail = run_one_box([0.0], changing(20.0))
    boxes_until = trail.streamed[0]
    end_s = float(trail.execution_s[0])
    before = STATES[COLD].kept_bytes * 5.0 + 200 * (20.0 - end_s - 5.0)
    assert boxes_until(30.0).buffer_byte_s == pytest.approx(before + 200 * 10.0)
    assert boxes_until(500.0).buffer_byte_s == pytest.approx(before + 200 * 60.0), "reclaimed 60 s after the change"
