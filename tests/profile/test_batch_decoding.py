"""What a batching server's work takes: sums with gaps, padding, joining, and a sentence alone."""

from __future__ import annotations

import pickle
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.profile.batch_cost import BatchCost, DecodingCost, LinearSurface, TableSurface
from simnmt.profile.profile_file import checked_profile
from simnmt.profile.profile_summary import facts
from tests.profile.made_profile import whole_profile

STEP = BatchCost(LinearSurface(0.004, 0.0001, 1e-5, 1e-6), (1, 64), (0, 63))
ENCODER = BatchCost(LinearSurface(0.002, 0.0, 0.0001, 2e-5), (1, 32), (4, 100))
TABLE = TableSurface(np.array([1.0, 4.0, 32.0]), np.array([4.0, 12.0, 100.0]), np.array([[1, 2, 9], [2, 5, 30], [9, 20, 99.0]]))


def cost(**keys: Any) -> DecodingCost:
    overheads = {"gap_s_fixed": 0.0002, "gap_s_per_sentence": 3e-5, "refill_s_fixed": 0.0005, "refill_s_per_sentence": 4e-5}
    return DecodingCost(**({"step": STEP, "encoder": ENCODER} | overheads | keys))


def test_steps_cost_themselves_and_their_gaps() -> None:
    """Three steps of eight sentences at positions 10, 11, 12: 4.8 + 0.1 + 0.08 ms on average, and 0.44 ms between."""
    steps_s = cost().steps_at(8)
    assert steps_s(10, 12) == pytest.approx(3 * (0.0048 + 11 * 1.8e-5 + 0.00044), rel=1e-12)
    assert steps_s(10, 9) == 0.0


def test_a_server_takes_what_steps_take_on_the_average() -> None:
    """The gaps between them were had from whole runs, and hold the average already."""
    usual, average = cost().steps_at(8)(0, 9), cost(mean_over_usual=1.05).steps_at(8)(0, 9)
    assert average - usual == pytest.approx(0.05 * float(STEP.sum_s(8, 0, 9)), rel=1e-9)
    alone_s = cost(mean_over_usual=1.05).solo_s(12, 10) - cost().solo_s(12, 10)
    assert alone_s == pytest.approx(0.05 * float(STEP.sum_s(1, 0, 9)), rel=1e-9)
    profile = whole_profile()
    profile["step"]["run_over_told"] = 1.05
    assert checked_profile(profile).decoding_cost.mean_over_usual == 1.05


@given(st.integers(1, 200), st.integers(0, 150), st.integers(0, 60), st.integers(0, 60))
def test_steps_taken_at_a_stretch_cost_what_they_cost_one_by_one(batch: int, first: int, some: int, more: int) -> None:
    for decoding in (cost(), cost(step=BatchCost(TABLE, (1, 32), (4, 100)))):
        steps_s, middle, last = decoding.steps_at(batch), first + some, first + some + more
        assert steps_s(first, last) == pytest.approx(steps_s(first, middle) + steps_s(middle + 1, last), rel=1e-9)


def test_without_packing_all_are_as_long_as_the_longest() -> None:
    decoding = cost()
    assert decoding.encode_s([3, 50, 9]) == pytest.approx(0.002 + 50 * (0.0001 + 3 * 2e-5), rel=1e-12)
    assert decoding.encode_s([3, 50, 9]) == decoding.encode_s([50, 50, 50])


def test_packed_the_batch_shrinks_as_sentences_end() -> None:
    """Lengths 3, 9, 50: three tokens of three sentences, six of two, forty-one of one."""
    worked = 0.002 + 3 * (0.0001 + 3 * 2e-5) + 6 * (0.0001 + 2 * 2e-5) + 41 * (0.0001 + 2e-5)
    assert cost(packs=True).encode_s([9, 50, 3]) == pytest.approx(worked, rel=1e-12)


def test_of_what_padding_costs_a_packed_encoder_pays_its_share() -> None:
    padded_s, packed_s, own_s = (
        decoding.encode_s([9, 50, 3]) for decoding in (cost(), cost(packs=True), cost(packs=True, padding_share=0.25))
    )
    assert own_s == pytest.approx(packed_s + 0.25 * (padded_s - packed_s))
    assert cost(packs=True, padding_share=0.25).encode_s([9, 9]) == pytest.approx(cost().encode_s([9, 9]))


@given(st.lists(st.integers(1, 120), min_size=1, max_size=40), st.sampled_from([ENCODER.surface, TABLE]))
def test_packing_never_costs_more_than_padding_and_nothing_where_all_are_alike(lengths: list[int], surface: Any) -> None:
    encoder = BatchCost(surface, (1, 32), (4, 100))
    padded, packed = (cost(encoder=encoder, packs=packs) for packs in (False, True))
    assert packed.encode_s(lengths) <= padded.encode_s(lengths) * (1.0 + 1e-12)
    assert packed.encode_s(lengths) >= packed.encode_s([min(lengths)] * len(lengths)) * (1.0 - 1e-12)
    alike = [lengths[0]] * len(lengths)
    assert packed.encode_s(alike) == pytest.approx(float(encoder.seconds(len(alike), lengths[0])), rel=1e-12)


def test_noise_between_neighbouring_cells_makes_no_longer_sentence_cheaper() -> None:
    """Measured: at batch 1 twelve tokens took less than four."""
    noisy = TableSurface(TABLE.batches, TABLE.lengths, np.array([[2, 1, 9], [3, 5, 30], [9, 20, 99.0]]))
    decoding = cost(encoder=BatchCost(noisy, (1, 32), (4, 100)), packs=True)
    assert decoding.encode_s([4, 12]) >= decoding.encode_s([4, 4])


def test_steps_under_longer_sources_take_longer() -> None:
    """Sixty tokens more than measured, of the longest of eight: 8 x 60 x 0.5 us a step; where nothing is known, nothing."""
    decoding = cost(src_len=20, s_per_row_src_token=5e-7)
    assert decoding.source_s(8, 80) == pytest.approx(8 * 60 * 5e-7)
    assert decoding.source_s(8, 20) == 0.0
    assert decoding.source_s(8, 10) == pytest.approx(-8 * 10 * 5e-7)
    assert cost().source_s(8, 80) == cost(src_len=20).source_s(8, 80) == cost(s_per_row_src_token=5e-7).source_s(8, 80) == 0.0


def test_no_step_takes_time_back_under_short_sources() -> None:
    decoding = cost(src_len=20, s_per_row_src_token=1.0)
    assert decoding.steps_at(8)(0, 0) + decoding.source_s(8, 1) == pytest.approx(0.5 * decoding.steps_at(8)(0, 0))
    assert decoding.solo_s(1, 9) > decoding.solo_s(1, 1) > 0.0


def test_a_cost_that_was_asked_can_be_handed_to_another_process() -> None:
    decoding = cost(packs=True, leave_s=0.003)
    asked_s = decoding.encode_s([3, 9])
    for other in (pickle.loads(pickle.dumps(decoding)), deepcopy(decoding)):
        assert (other, other.encode_s([3, 9])) == (decoding, asked_s)


def test_joining_and_encoding_no_sentences_costs_nothing() -> None:
    decoding = cost()
    assert (decoding.refill_s(0), decoding.encode_s([])) == (0.0, 0.0)
    assert decoding.refill_s(10) == pytest.approx(0.0009)


@pytest.mark.parametrize("packs", [True, False])
@pytest.mark.parametrize("step", [STEP, BatchCost(TABLE, (1, 32), (4, 100))])
def test_a_sentence_alone_takes_what_the_server_makes_of_it(packs: bool, step: BatchCost) -> None:
    """XP-01: dropped with its last step; of an output without a token the encoder and the joining are left."""
    decoding = cost(packs=packs, step=step, leave_s=0.0007, src_len=20, s_per_row_src_token=2e-6)
    src_len, tgt_len = np.array([1, 4, 20, 100, 130]), np.array([0, 1, 23, 64, 200])
    steps_s = decoding.steps_at(1)
    served = [
        decoding.encode_s([src])
        + decoding.refill_s(1)
        + steps_s(0, tgt - 1)
        + tgt * decoding.source_s(1, src)
        + 0.0007 * (tgt > 0)
        for src, tgt in zip(src_len.tolist(), tgt_len.tolist(), strict=True)
    ]
    assert decoding.solo_s(src_len, tgt_len) == pytest.approx(served, rel=1e-12)


def test_costs_are_extrapolated_beyond_the_measured_batches_and_the_bound_is_known() -> None:
    decoding = cost()
    assert decoding.most_batch == 32, "the encoder's, which is the smaller"
    assert decoding.steps_at(200)(0, 0) == pytest.approx(0.004 + 0.02 + 0.0002 + 0.006)
    table = cost(step=BatchCost(TABLE, (1, 32), (4, 100)))
    assert table.steps_at(200)(4, 4) > table.steps_at(32)(4, 4)


@cache
def made() -> dict[str, Any]:
    return whole_profile()


def whole() -> dict[str, Any]:
    return deepcopy(made())


def profile_with(kind: str | None = None, **overheads: float) -> dict[str, Any]:
    content = whole()
    content["overheads"] |= {name: {"value": value, "kind": "measured"} for name, value in overheads.items()}
    content["engine"]["architecture"] = {} if kind is None else {"kind": kind}
    return content


def test_a_profile_gives_the_cost_of_decoding() -> None:
    overheads_s = {"step_gap_s": 1e-4, "step_gap_s_per_sentence": 2e-5, "refill_s_fixed": 3e-4, "refill_s_per_sentence": 4e-5}
    decoding = checked_profile(profile_with(**overheads_s, leave_s=5e-4)).decoding_cost
    assert decoding.leave_s == 5e-4
    assert decoding.gap_s(3) == pytest.approx(1.6e-4)
    assert decoding.refill_s(3) == pytest.approx(4.2e-4)
    assert (decoding.most_batch, decoding.beam) == (32, 1)


@pytest.mark.parametrize(
    ("kind", "packs"),
    [("gru", True), ("bilstm", True), ("attentional", True), ("transformer", False), (None, False)],
)
def test_recurrent_encoders_are_given_packed_sequences(kind: str | None, packs: bool) -> None:
    decoding = checked_profile(profile_with(kind)).decoding_cost
    assert decoding.packs == packs
    mixed_s, padded_s = decoding.encode_s([3, 9, 50]), decoding.encode_s([50, 50, 50])
    assert mixed_s < padded_s if packs else mixed_s == padded_s


def test_unmeasured_overheads_count_as_zero_and_the_summary_shows_it() -> None:
    profile = checked_profile(whole() | {"overheads": None})
    decoding = profile.decoding_cost
    assert decoding.gap_s(64) == decoding.refill_s(64) == decoding.leave_s == 0.0
    lines = dict(facts(profile))
    for what in ("gap between steps", "refilling a batch", "leaving a batch"):
        assert lines[what] == "not measured; counts as 0 s"
    alone = dict(facts(checked_profile(profile_with(step_gap_s=1e-4))))
    assert alone["gap between steps"].startswith("measured: 0.1 ms; how it grows with the batch: not measured")
    both = dict(facts(checked_profile(profile_with(step_gap_s=1e-4, step_gap_s_per_sentence=2e-6, leave_s=0.0003))))
    assert both["leaving a batch"] == "measured: 0.3 ms, of each step that ends some sentence"
    assert both["gap between steps"] == "measured: 0.1 + 0.002 x sentences ms"
    assert "gap between steps" not in dict(facts(checked_profile(whole() | {"step": None})))
