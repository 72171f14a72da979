"""Costs of batches: tables with their sums in closed form, and what a batching server's work takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.profile.cost import CostTable, DecodingCost
from simnmt.profile.device_profile import checked_profile
from simnmt.profile.profile_summary import facts
from tests.profile.made_profile import line_table, whole_profile


@st.composite
def tables(draw: st.DrawFn) -> CostTable:
    batches = sorted(draw(st.sets(st.integers(1, 64), min_size=1, max_size=5)))
    lengths = sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=5)))
    if draw(st.booleans()):
        return line_table(batches, lengths, *draw(st.tuples(*[st.floats(0.0, 1.0)] * 4)))
    return CostTable.of(
        batches, lengths, np.random.default_rng(draw(st.integers(0, 99))).random((len(batches), len(lengths))) + 0.1
    )


@given(tables(), st.integers(1, 100), st.integers(0, 90), st.integers(0, 90))
def test_the_closed_sum_is_the_sum_of_the_steps(table: CostTable, batch: int, first: int, many: int) -> None:
    each_s = table.seconds(batch, np.arange(first, first + many))
    assert table.sum_s(batch, first, first + many - 1) == pytest.approx(each_s.sum(), rel=1e-9, abs=1e-12)


def test_a_table_holds_its_cells_and_is_bilinear_between_them() -> None:
    table = CostTable.of([1, 3], [0, 10], [[1, 2], [3, 8]])
    assert table.seconds([1, 1, 3, 3], [0, 10, 0, 10]).tolist() == [1.0, 2.0, 3.0, 8.0]
    assert table.seconds(2, 5) == pytest.approx(3.5)
    assert table.seconds([1, 3], 4) == pytest.approx([1.4, 5.0])


def test_beyond_its_grid_a_table_grows_on_but_never_falls_and_below_it_holds() -> None:
    rising = CostTable.of([2, 4], [10, 20], [[1, 2], [3, 4]])
    assert rising.seconds(1, 5) == 1.0
    assert rising.seconds(6, 30) == pytest.approx(7.0)
    assert CostTable.of([2, 4], [10, 20], [[4, 3], [2, 1]]).seconds([4, 50], [20, 999]).tolist() == [1.0, 1.0]


STEP = line_table((1, 64), (0, 63), 0.004, 0.0001, 1e-5, 1e-6)
ENCODER = line_table((1, 32), (1, 100), 0.002, 0.0, 0.0001, 2e-5)
TABLE = CostTable.of([1, 4, 32], [4, 12, 100], [[1, 2, 9], [2, 5, 30], [9, 20, 99.0]])


def cost(**keys: Any) -> DecodingCost:
    overheads = {"gap_s_fixed": 0.0002, "gap_s_per_sentence": 3e-5, "refill_s_fixed": 0.0005, "refill_s_per_sentence": 4e-5}
    return DecodingCost(**({"step": STEP, "encoder": ENCODER} | overheads | keys))


def test_padded_to_the_longest_or_packed_as_sentences_end() -> None:
    """Lengths 3, 9, 50, packed: three tokens of three sentences, six of two, forty-one of one; and a share of the padding."""
    padded_s = 0.002 + 50 * (0.0001 + 3 * 2e-5)
    packed_s = 0.002 + 3 * (0.0001 + 3 * 2e-5) + 6 * (0.0001 + 2 * 2e-5) + 41 * (0.0001 + 2e-5)
    assert cost().encode_s([9, 50, 3]) == pytest.approx(padded_s, rel=1e-12)
    assert cost(packs=True).encode_s([9, 50, 3]) == pytest.approx(packed_s, rel=1e-12)
    shared = cost(packs=True, padding_share=0.25)
    assert shared.encode_s([9, 50, 3]) == pytest.approx(packed_s + 0.25 * (padded_s - packed_s))
    assert shared.encode_s([9, 9]) == pytest.approx(cost().encode_s([9, 9]))


def test_steps_under_longer_sources_take_longer_and_none_takes_time_back() -> None:
    """Sixty tokens more than measured, of the longest of eight: 8 x 60 x 0.5 us a step; where nothing is known, nothing."""
    decoding = cost(src_len=20, s_per_row_src_token=5e-7)
    assert decoding.source_s(8, 80) == pytest.approx(8 * 60 * 5e-7)
    assert decoding.source_s(8, 10) == pytest.approx(-8 * 10 * 5e-7)
    assert cost().source_s(8, 80) == cost(src_len=20).source_s(8, 80) == cost(s_per_row_src_token=5e-7).source_s(8, 80) == 0.0
    steep = cost(src_len=20, s_per_row_src_token=1.0)
    assert steep.steps_at(8)(0, 0) + steep.source_s(8, 1) == pytest.approx(0.5 * steep.steps_at(8)(0, 0))
    assert steep.solo_s(1, 9) > steep.solo_s(1, 1) > 0.0


@pytest.mark.parametrize("packs", [True, False])
@pytest.mark.parametrize("step", [STEP, TABLE])
def test_a_sentence_alone_takes_what_the_server_makes_of_it(packs: bool, step: CostTable) -> None:
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


def profile_with(kind: str | None = None, **overheads: float) -> dict[str, Any]:
    content = whole_profile()
    content["overheads"] |= {name: {"value": value, "kind": "measured"} for name, value in overheads.items()}
    content["engine"]["architecture"] = {} if kind is None else {"kind": kind}
    return content


def test_a_profile_gives_the_cost_of_decoding() -> None:
    overheads_s = {"step_gap_s": 1e-4, "step_gap_s_per_sentence": 2e-5, "refill_s_fixed": 3e-4, "refill_s_per_sentence": 4e-5}
    content = profile_with(**overheads_s, leave_s=5e-4)
    content["step"]["run_over_predicted"] = 1.05
    decoding = checked_profile(content).decoding_cost
    assert (decoding.leave_s, decoding.mean_over_usual, decoding.most_batch, decoding.beam) == (5e-4, 1.05, 32, 1)
    assert decoding.gap_s(3) == pytest.approx(1.6e-4)
    assert decoding.refill_s(3) == pytest.approx(4.2e-4)


def test_unmeasured_overheads_count_as_zero_and_the_summary_shows_it() -> None:
    profile = checked_profile(whole_profile() | {"overheads": {}})
    decoding = profile.decoding_cost
    assert decoding.gap_s(64) == decoding.refill_s(64) == decoding.leave_s == 0.0
    assert "overheads" in dict(facts(profile))["not measured"]
    lines = dict(facts(checked_profile(profile_with(step_gap_s=1e-4))))
    assert lines["overheads step gap"] == "measured; 0.1 ms"
    assert "count as 0 s: step_gap_s_per_sentence, refill_s_fixed" in lines["overheads"]
