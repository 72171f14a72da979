"""What holds of any batcher: no sentence is lost or waits longer than configured, no batch is too large."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.batching import Batcher, Batching, Encode, Join, half_empty, maxi, mini, top_up
from tests.batching.one_server import PlainCost, Served, batchings, serve

STEADY = settings(derandomize=True, deadline=None, max_examples=40)


@dataclass(frozen=True)
class Traffic:
    """Sentences and when they come."""

    arrival_s: list[float]
    src_len: list[int]
    tgt_len: list[int]
    encode_s: float
    """Of one encoder call, beside a step of one second."""

    def served(self, batching: Batching) -> Served:
        cost = PlainCost(encoding_s=lambda sentences: self.encode_s * (1 + sentences / 8))
        return serve(batching, self.arrival_s, self.src_len, self.tgt_len, cost)


@st.composite
def traffic(draw: Any, most: int = 40) -> Traffic:
    sentences = draw(st.integers(0, most))
    gaps = st.sampled_from([0.0, 0.0, 0.25, 1.0, 3.0, 20.0])
    gap_s = draw(st.lists(gaps, min_size=sentences, max_size=sentences))
    src_len = draw(st.lists(st.integers(1, 30), min_size=sentences, max_size=sentences))
    tgt_len = draw(st.lists(st.integers(0, 12), min_size=sentences, max_size=sentences))
    return Traffic(np.cumsum(gap_s).tolist(), src_len, tgt_len, draw(st.sampled_from([0.0, 0.5, 2.5])))


@STEADY
@given(batchings(), traffic())
def test_every_sentence_is_served_once_within_the_limits(batching: Batching, traffic: Traffic) -> None:
    """Encoded, then joined, then done; no batch is too large, and padding exceeds its cap for a sentence alone only."""
    served, sentences = traffic.served(batching), list(range(len(traffic.src_len)))
    for groups in (served.encodings, served.joins, [tuple(served.finish_s)]):
        assert sorted(sentence for group in groups for sentence in group) == sentences
    for sentence in sentences:
        assert (
            traffic.arrival_s[sentence] <= served.encoded_s[sentence] <= served.joined_s[sentence] <= served.finish_s[sentence]
        )
    steps, cap = [active for _, active, _ in served.steps], batching.padded_tokens or inf
    assert all(1 <= len(active) <= batching.size for active in steps)
    assert all(1 <= len(group) <= (batching.encoded_together or batching.size) for group in served.encodings)
    for group in [*served.encodings, *steps]:
        assert len(group) == 1 or len(group) * max(traffic.src_len[sentence] for sentence in group) <= cap
    for before, active in zip([(), *steps], steps, strict=False):
        stayed = [sentence for sentence in active if sentence in before]
        assert len(stayed) == len(active) or len(stayed) <= batching.threshold, "refilled above the threshold"


@STEADY
@given(batchings(collected=False), traffic())
def test_without_collecting_sentences_are_taken_in_the_order_of_arrival(batching: Batching, traffic: Traffic) -> None:
    served = traffic.served(batching)
    assert [sentence for group in served.encodings for sentence in group] == sorted(served.finish_s)
    assert [sentence for group in served.joins for sentence in group] == sorted(served.finish_s)


@STEADY
@given(batchings(collected=True), st.lists(st.integers(1, 6), max_size=60))
def test_a_collection_is_sorted_by_source_length_and_the_sort_is_stable(batching: Batching, src_len: list[int]) -> None:
    served = serve(batching, [0.0] * len(src_len), src_len, [1] * len(src_len))
    taken = [sentence for group in served.encodings for sentence in group]
    collected = batching.collected or 0
    expected: list[int] = []
    for first in range(0, len(src_len), collected):
        collection = range(first, min(first + collected, len(src_len)))
        expected += sorted(collection, key=lambda sentence: src_len[sentence])
    assert taken == expected


@STEADY
@given(batchings(collected=True), traffic())
def test_no_sentence_is_encoded_before_the_last_of_its_collection_arrived(batching: Batching, traffic: Traffic) -> None:
    """With an endless wait a collection is what arrived first, so many at a time (FNI-09)."""
    batching = replace(batching, longest_wait_s=inf)
    served = traffic.served(batching)
    for sentence, begin_s in served.encoded_s.items():
        last = min(sentence // batching.collected * batching.collected + batching.collected, len(traffic.src_len)) - 1
        assert begin_s >= traffic.arrival_s[last]


@STEADY
@given(batchings(limits=False), traffic())
def test_a_free_server_begins_when_the_first_is_due_or_enough_have_come(batching: Batching, traffic: Traffic) -> None:
    """Exactly then: with no wait at the first arrival, with an endless one when the batch, or the collection, is full."""
    served = traffic.served(batching)
    if served.encodings:
        enough = min(batching.collected or batching.size, len(traffic.arrival_s)) - 1
        due_s = min(traffic.arrival_s[0] + batching.longest_wait_s, traffic.arrival_s[enough])
        assert served.encoded_s[served.encodings[0][0]] == due_s


@STEADY
@given(batchings(limits=False), traffic())
def test_with_no_wait_the_server_is_never_idle_while_a_sentence_waits(batching: Batching, traffic: Traffic) -> None:
    """Work is conserved: it is busy from an arrival in an empty system until all that came is done."""
    served = traffic.served(replace(batching, longest_wait_s=0.0))
    busy = [(begin_s, begin_s + 1.0) for begin_s, _, _ in served.steps]
    for group in served.encodings:
        begin_s = served.encoded_s[group[0]]
        busy.append((begin_s, begin_s + traffic.encode_s * (1 + len(group) / 8)))
    busy_until_s = 0.0
    for begin_s, end_s in sorted(busy):
        waited = [
            sentence
            for sentence, arrival_s in enumerate(traffic.arrival_s)
            if arrival_s < begin_s <= served.encoded_s[sentence]
        ]
        assert begin_s <= busy_until_s + 1e-9 or not waited
        busy_until_s = max(busy_until_s, end_s)


@STEADY
@given(batchings(limits=False, collected=False), traffic())
def test_topped_up_more_than_the_threshold_are_active_while_sentences_wait(batching: Batching, traffic: Traffic) -> None:
    """FNI-10."""
    served = traffic.served(replace(batching, longest_wait_s=0.0))
    for _, active, waiting in served.steps:
        assert waiting == 0 or len(active) > batching.threshold


@STEADY
@given(traffic())
def test_batches_of_one_are_a_queue_where_nothing_is_collected(traffic: Traffic) -> None:
    for batching in (mini(1, 0.0), maxi(1, 1), top_up(1, half_empty(1)), mini(1)):
        served, free_s = traffic.served(batching), 0.0
        for sentence, arrival_s in enumerate(traffic.arrival_s):
            free_s = max(free_s, arrival_s) + traffic.encode_s * (1 + 1 / 8) + traffic.tgt_len[sentence]
            assert served.finish_s[sentence] == pytest.approx(free_s, abs=1e-9)


@STEADY
@given(batchings(limits=False, collected=False), traffic(), st.integers(1, 9))
def test_splitting_the_encoders_calls_changes_no_batch(batching: Batching, traffic: Traffic, together: int) -> None:
    """When encoding takes no time; more than a batch encoded at once is no splitting, see the next test."""
    traffic = replace(traffic, encode_s=0.0)
    limits = (None, min(together, batching.size))
    whole, split = (traffic.served(replace(batching, encoded_together=limit)) for limit in limits)
    assert [sorted(active) for _, active, _ in split.steps] == [sorted(active) for _, active, _ in whole.steps]
    assert split.finish_s == whole.finish_s


@pytest.mark.parametrize(
    ("batching", "arrival_s", "encode_s", "joins"),
    [
        # A sentence that arrives during the first of several encodings is encoded in the next.
        (Batching(4, 2, encoded_together=2), [0.0, 0.0, 0.0, 0.5], 1.0, [(0, 1, 2, 3)]),
        (Batching(4, 2, encoded_together=4), [0.0, 0.0, 0.0, 0.5], 1.0, [(0, 1, 2), (3,)]),
        # One that is encoded ahead of its batch does not wait for company.
        (Batching(2, longest_wait_s=inf, encoded_together=2), [0.0, 0.0, 0.0, 50.0], 0.0, [(0, 1), (2, 3)]),
        (Batching(2, longest_wait_s=inf, encoded_together=3), [0.0, 0.0, 0.0, 50.0], 0.0, [(0, 1), (2,), (3,)]),
        # A batch that is waited for until it is full is not begun in part; it is full as well when no more tokens fit.
        (Batching(4, longest_wait_s=inf, encoded_together=2), [0.0, 0.0, 0.0, 0.0, 9.0], 0.0, [(0, 1, 2, 3), (4,)]),
        (Batching(4, longest_wait_s=inf, padded_tokens=15), [0, 0, 0, 0, 1, 2, 50], 0.0, [(0, 1, 2), (3, 4, 5), (6,)]),
    ],
)
def test_batches_by_hand(batching: Batching, arrival_s: list[float], encode_s: float, joins: list[tuple[int, ...]]) -> None:
    count = len(arrival_s)
    assert Traffic(arrival_s, [5] * count, [3] * count, encode_s).served(batching).joins == joins


def test_closing_takes_what_waits_at_once() -> None:
    for batching in (mini(8), maxi(8), top_up(8, 4, 64, inf)):
        batcher = Batcher(batching)
        batcher.arrive(0, 5, 1.0)
        batcher.arrive(1, 3, 2.0)
        assert (batcher.next(0, 2.0), batcher.due_s, batcher.waiting) == (None, inf, 2)
        batcher.close()
        order = (0, 1) if batching.collected is None else (1, 0)
        assert [batcher.next(0, 2.0), batcher.next(0, 2.0), batcher.next(2, 2.0)] == [Encode(order), Join(order), None]
        assert (batcher.waiting, batcher.due_s) == (0, inf)
    batcher = Batcher(Batching(4, longest_wait_s=inf, padded_tokens=10))
    for request in range(3):
        batcher.arrive(request, 5, 0.0)
    batcher.close()
    assert [batcher.next(0, 1.0), batcher.next(0, 1.0), batcher.next(2, 1.0, 5)] == [Encode((0, 1)), Join((0, 1)), None]
    assert [batcher.next(0, 3.0), batcher.next(0, 3.0)] == [Encode((2,)), Join((2,))], "in as many batches as it takes"


def test_a_sentence_that_arrives_after_the_closing_waits_for_company_again() -> None:
    """And joins those that waited at the closing, if there is room."""
    for batching in (mini(4), maxi(4, 4), top_up(4, 2)):
        batching = replace(batching, longest_wait_s=inf)
        batcher = Batcher(batching)
        batcher.arrive(0, 5, 1.0)
        batcher.close()
        batcher.arrive(1, 5, 2.0)
        assert [batcher.next(0, 2.0), batcher.next(0, 2.0)] == [Encode((0, 1)), Join((0, 1))]
        batcher.arrive(2, 5, 3.0)
        assert batcher.next(0, 9.0) is None
        batcher.close()
        assert batcher.next(0, 9.0) == Encode((2,))


def test_a_batcher_that_has_no_move_has_none_when_it_is_asked_again() -> None:
    """Sentence 0 is too long to join. The live decoder asks before every step, the simulation after changes alone."""
    batcher = Batching(size=4, threshold=3, padded_tokens=20).batcher()
    batcher.arrive(0, 8, 0.0)
    batcher.arrive(1, 12, 0.0)
    moves = [batcher.next(active=2, now_s=0.0, longest=5) for _ in range(4)]
    assert moves == [Encode((0,)), None, None, None]
    assert batcher.next(active=1, now_s=1.0, longest=5) == Join((0,))
