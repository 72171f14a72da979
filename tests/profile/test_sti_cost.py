"""Shard geometry to the digits of STI-01 and STI-05, and the costs of streaming by length and layer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simnmt.profile.streaming_cost import BERT_BASE, BITS, ShardGeometry
from tests.streaming.plan.made_cost import round_cost


def test_the_geometry_of_sti_01() -> None:
    assert (BERT_BASE.weights_per_layer, BERT_BASE.weights_per_shard) == (7_077_888, 589_824)
    assert BERT_BASE.weights_per_shard == 3 * 196_608
    assert BERT_BASE.float32_bytes_per_layer == 28_311_552


def test_the_sizes_of_sti_05() -> None:
    assert [BERT_BASE.index_bytes(bits) for bits in BITS] == [147_456, 221_184, 294_912, 368_640, 442_368, 2_359_296]
    assert [BERT_BASE.dictionary_bytes(bits) for bits in BITS] == [16, 32, 64, 128, 256, 0]
    low = sum(BERT_BASE.index_bytes(bits) for bits in BITS[:-1])
    assert round(144 * low / 1e6, 1) == 212.3
    assert round(144 * BERT_BASE.index_bytes(32) / 1e6, 1) == 339.7


def test_a_decoder_s_layer_has_a_second_attention() -> None:
    plain, crossed = ShardGeometry(6, 8, 512, 2048), ShardGeometry(6, 8, 512, 2048, cross_attention=True)
    assert crossed.weights_per_layer - plain.weights_per_layer == 4 * 512 * 512


@pytest.mark.parametrize("shape", [(12, 12, 770, 3072), (12, 12, 768, 3001), (0, 12, 768, 3072), (12, 0, 768, 3072)])
def test_a_geometry_that_cannot_be_cut_is_refused(shape: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"does not divide|is not positive"):
        ShardGeometry(*shape)


def test_no_other_bitwidth_is_known() -> None:
    with pytest.raises(ValueError, match="7 is none of 2, 3, 4, 5, 6, 32"):
        BERT_BASE.index_bytes(7)


def test_lengths_are_padded_to_the_next_measured_one_and_grow_in_proportion_beyond() -> None:
    cost = replace(round_cost(), comp_s={8: (1.0, 2.0, 3.0), 16: (1.5, 3.0, 4.5)})
    assert [cost.t_comp(length, 2) for length in (1, 8, 9, 16, 24)] == [2.0, 2.0, 3.0, 3.0, 4.5]


def test_layers_of_a_decoder_have_separate_read_times() -> None:
    cost = round_cost(2, decoder_layers=1)
    assert cost.decoder is not None
    cost = replace(cost, decoder=replace(cost.decoder, io_s={bits: 1.0 * bits for bits in BITS}))
    assert [cost.t_io(2, layer) for layer in range(3)] == [0.2, 0.2, 2.0]
    assert (cost.layers, len(cost.all_shards()), cost.step_s(2)) == (3, 9, 0.1)
    assert round_cost().step_s(2) == 0.0
