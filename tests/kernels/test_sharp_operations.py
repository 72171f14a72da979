"""The count of a decoder's multiply-adds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simnmt.kernels.sharp.model_shapes import DecoderShape, kept_bytes, layer_operations, operations
from simnmt.profile.decoder_settings import DecoderSettings
from tests.kernels.sharp_models import PAPER, weights

SHARP = DecoderSettings(beam=6, gemm="int16", embeddings="precomputed", attention="precomputed", merge=True, candidates=500)


@pytest.mark.parametrize(("kind", "ratio"), [("gru", 6), ("lstm", 8), ("fc_tanh", 1)])
def test_sharp_13_a_recurrent_layer_costs_6_or_8_connected_ones(kind, ratio) -> None:
    assert layer_operations(kind, 1024, 1024) == ratio * layer_operations("fc_relu", 1024, 1024)


def test_sharp_15_the_counts_order_the_decoders_as_the_paper_measured_them() -> None:
    step = {name: operations(shape, SHARP, 25, distinct_share=0.7).step for name, shape in PAPER.items()}
    assert step["S1"] < step["S3"] < step["S4"] < step["S2"] < step["S5"] == step["S6"] < step["S7"] / 3
    assert step["S2"] / step["S4"] < 1.15
    above = {name: sum(operations(shape, SHARP, 25).stack) for name, shape in PAPER.items()}
    assert above["S5"] == above["S6"] == pytest.approx(9.83e6, rel=1e-3)
    assert 2 * step["S4"] < step["S7"] / 2  # an ensemble of two, E1


def test_sharp_07_products_with_the_source_are_made_once_a_sentence() -> None:
    """Of 25 source words, 28 target words and a beam of 6: 168 to 25, 6.72 times fewer."""
    shape = PAPER["S1"]
    plain = operations(shape, DecoderSettings(beam=6), 25)
    kept = operations(shape, DecoderSettings(beam=6, attention="precomputed"), 25)
    assert 28 * 6 * plain.context / (kept.once - plain.once) == pytest.approx(6.72)
    assert kept.context == 0
    assert kept.attention - plain.attention == 25 * (3 * 1024 - 1024)  # the weighted sum is wider


def test_sharp_06_kept_embeddings_take_a_tenth_of_the_memory_for_most_words_of_a_text() -> None:
    """The paper keeps three products of 1024 a word; a fourth, of attention, is kept beside them here."""
    three = replace(PAPER["S1"], a=0)
    assert [kept_bytes(three, words) / 1e6 for words in (80_000, 8_000)] == pytest.approx([983.0, 98.3], abs=0.05)
    assert kept_bytes(PAPER["S1"], 8_000) == pytest.approx(4 / 3 * 98.3e6, rel=1e-3)


def test_merging_saves_the_share_of_states_that_are_not_distinct() -> None:
    merged = operations(PAPER["S1"], DecoderSettings(beam=6, merge=True), 25, distinct_share=0.7)
    assert merged.recurrent == pytest.approx(0.7 * 4 * 1024 * 1024)


def test_the_shape_is_read_from_weights() -> None:
    shape = DecoderShape.of(weights(kind="attlstm", stack=[("fc_relu", 24), ("gru", 31)]), candidates=10)
    assert shape == DecoderShape("attlstm", 37, 21, 29, 19, (("fc_relu", 24), ("gru", 31)), 10)
    assert replace(shape, words=67) == DecoderShape.of(weights(kind="attlstm", stack=[("fc_relu", 24), ("gru", 31)]))
