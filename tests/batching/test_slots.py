"""What one iteration of an engine with slots does."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.batching.slots import Iteration, SlotBatcher, SlotLimits


def test_a_prompt_is_read_in_chunks_beside_what_decodes() -> None:
    batcher = SlotBatcher(SlotLimits(slots=2, chunk=8))
    batcher.arrive(0, 4)
    assert batcher.next() == Iteration((), ((0, 4),), (0,))
    batcher.arrive(1, 10)
    batcher.arrive(2, 1)
    assert batcher.next() == Iteration((0,), ((1, 7),), ())
    assert batcher.waiting == 1
    batcher.leave(0)
    assert batcher.next() == Iteration((), ((1, 3), (2, 1)), (1, 2))
    assert batcher.next() == Iteration((1, 2), (), ())


def test_a_cached_prefix_is_not_read_again() -> None:
    batcher = SlotBatcher(SlotLimits(slots=1, chunk=100, cached_prefix=20))
    batcher.arrive(0, 30)
    assert batcher.next().reads == ((0, 10),)
    batcher.leave(0)
    batcher.arrive(1, 20)
    assert batcher.next().reads == ((1, 1),)


def test_a_request_beyond_the_context_does_not_fit() -> None:
    limits = SlotLimits(slots=1, chunk=8, context=10)
    assert limits.admits(4, 6)
    assert not limits.admits(5, 6)


def test_a_waiting_request_can_be_withdrawn() -> None:
    batcher = SlotBatcher(SlotLimits(slots=1, chunk=8))
    batcher.arrive(0, 3)
    batcher.arrive(1, 3)
    batcher.next()
    batcher.leave(1)
    batcher.leave(0)
    assert batcher.next() == Iteration((), (), ())


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"slots": 0}, "slots must be at least 1 (got 0)"),
        ({"slots": 9}, "chunk must be at least slots, 9 (got 8)"),
        ({"context": 1}, "context must be at least 2 (got 1)"),
        ({"cached_prefix": -1}, "cached_prefix must be at least 0 (got -1)"),
        ({"context": 9, "cached_prefix": 9}, "cached_prefix must be less than context, 9 (got 9)"),
    ],
)
def test_a_limit_below_its_bound_is_refused_by_name(limits: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        SlotLimits(**{"slots": 1, "chunk": 8} | limits)


@given(
    slots=st.integers(1, 5),
    chunk=st.integers(5, 40),
    requests=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 8)), min_size=1, max_size=20),
)
def test_every_prompt_is_read_once_and_no_limit_is_passed(slots: int, chunk: int, requests: list[tuple[int, int]]) -> None:
    batcher = SlotBatcher(SlotLimits(slots, chunk))
    left, read = dict(enumerate(output for _, output in requests)), dict.fromkeys(range(len(requests)), 0)
    for number, (prompt, _) in enumerate(requests):
        batcher.arrive(number, prompt)
    ended = list[int]()
    while left:
        iteration = batcher.next()
        assert 0 < len(iteration.decodes) + iteration.prompt_tokens <= chunk
        assert len(batcher.active) <= slots
        for request, tokens in iteration.reads:
            read[request] += tokens
        for request in iteration.decodes + iteration.ends_prompt:
            left[request] -= 1
            if not left[request]:
                del left[request]
                batcher.leave(request)
        ended += iteration.ends_prompt
    assert ended == sorted(ended) == list(range(len(requests)))
    assert [read[number] for number in range(len(requests))] == [prompt for prompt, _ in requests]
