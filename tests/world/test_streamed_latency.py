"""What a request takes at a streamed device, against timelines that go layer by layer and step by step (STI-12, XP-04)."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.streaming.plan.engagement import PlannedCompute, StreamedState
from simnmt.streaming.plan.timeline import Work, timeline

SECONDS = st.integers(0, 40).map(lambda eighths: eighths / 8)
SOME_SECONDS = st.integers(1, 40).map(lambda eighths: eighths / 8)


def slowed_end_s(load_s: list[float], works_s: list[tuple[float | None, float]], slowed: float) -> float:
    """By hand: pieces of work, each with the moment that it waits for, at 1 / slowed while the disk reads."""
    now_s, read_s = 0.0, sum(load_s)
    for ready_s, work_s in works_s:
        now_s = max(now_s, ready_s or 0.0)
        while_reading_s = max(min(read_s - now_s, work_s * slowed), 0.0)
        now_s += while_reading_s + (work_s - while_reading_s / slowed)
    return now_s


@settings(max_examples=100)
@given(
    st.lists(SECONDS, min_size=1, max_size=4),
    st.lists(SECONDS, max_size=4),
    SOME_SECONDS,
    SECONDS,
    SECONDS,
    st.integers(0, 4),
    st.sampled_from([1.0, 1.25, 1.5, 4.0]),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_computing_is_slowed_while_the_disk_reads_and_not_afterwards(
    encoder: list[float],
    decoder: list[float],
    layer_s: float,
    embed_s: float,
    head_s: float,
    tgt_len: int,
    slowed: float,
    ahead: float,
) -> None:
    compute = PlannedCompute(len(encoder), (8,), (layer_s,), len(decoder), 0.5, 0.25, (embed_s,), head_s, slowed)
    state = StreamedState("any", (*encoder, *decoder), ahead_s=ahead * encoder[0])
    loaded_s = list(accumulate(state.load_s))
    works_s: list[tuple[float | None, float]] = [(state.ahead_s, embed_s)]
    works_s += [(loaded_s[layer], layer_s) for layer in range(len(encoder))]
    for step in range(max(tgt_len, 1) if decoder else 1):
        works_s += [(moment, 0.5 if step else 0.75) for moment in loaded_s[len(encoder) :]]
        works_s.append((None, head_s))
    by_hand_s = slowed_end_s([*state.load_s], works_s, slowed)
    assert state.alone_s(compute, 5, tgt_len) == pytest.approx(by_hand_s, abs=1e-12)
    told = state.pipeline(compute, 5, tgt_len)
    assert told.latency_s == pytest.approx(by_hand_s, abs=1e-12)
    assert told.stall_s == pytest.approx(
        sum(begin - end for begin, end in zip(told.compute_begin, [told.before_s, *told.compute_end[:-1]], strict=True)),
        abs=1e-7,
    )


def test_worked_example_of_sti_12_and_13() -> None:
    """2 x 1, T_comp 1 s: loads of 0.6 and 0.6 s end after 2.6 s; with layer 1 preloaded and 0.2 s for layer 0, after 2.2 s."""
    compute = PlannedCompute(2, (128,), (1.0,))
    assert StreamedState("cold", (0.6, 0.6)).alone_s(compute, 128) == pytest.approx(2.6)
    assert StreamedState("held on top", (0.2, 0.0)).alone_s(compute, 128) == pytest.approx(2.2)
    assert compute.in_memory_s(128) == 2.0


def test_an_encoder_alone_is_its_pipeline() -> None:
    """DistilBERT's six layers of 339 ms and 95 ms: 2129 ms (STI-21), as the planner's own timeline says."""
    state, compute = StreamedState("streamed", (0.339,) * 6), PlannedCompute(6, (128,), (0.095,))
    assert state.alone_s(compute, 128) == pytest.approx(2.129)
    assert timeline(state.load_s, Work([0.095] * 6)).latency_s == pytest.approx(2.129)


@pytest.mark.parametrize("ahead_s", [-0.1, 0.2])
def test_what_is_read_ahead_is_part_of_the_first_load(ahead_s: float) -> None:
    with pytest.raises(ValueError, match="no part of the first load"):
        StreamedState("cold", (0.1, 0.3), ahead_s=ahead_s)


def test_loads_of_other_layers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"2 loads of 3 \+ 0 layers"):
        StreamedState("short", (0.1, 0.1)).from_read_s(PlannedCompute(3, (8,), (0.1,)), 5)
