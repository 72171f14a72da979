"""A shard's parts, and a layer computed from them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.profile.streaming_cost import BERT_BASE, ShardGeometry
from simnmt.streaming.encoder.encoder_configuration import LayerWeights
from simnmt.streaming.errors import StoreError
from simnmt.streaming.store.shard_format import SEGMENTS, LayerBuffer, check_layout, segment_rows, shard_of
from tests.streaming.random_weights import random_layer

SMALL = ShardGeometry(layers=2, heads=4, width=16, ffn=32)


def test_a_shard_of_sti_01_has_196_608_weights_in_attention_and_in_each_feed_forward_matrix() -> None:
    rows = dict(zip(SEGMENTS, segment_rows(BERT_BASE), strict=True))
    assert 768 * sum(rows[name] for name in "qkvo") == 768 * rows["ffn_in"] == 768 * rows["ffn_out"] == 196_608
    assert 768 * sum(rows.values()) == BERT_BASE.weights_per_shard == 589_824


def whole_layer(weights: LayerWeights, hidden: np.ndarray, heads: int) -> np.ndarray:
    """Attention and the feed-forward network as the text books write them, head after head, with no layout at all."""
    q, k, v, o, ffn_in, ffn_out = (getattr(weights, name).numpy() for name in SEGMENTS)
    out, size = np.zeros_like(hidden), q.shape[0] // heads
    for head in range(heads):
        rows = slice(head * size, (head + 1) * size)
        scores = (hidden @ q[rows].T) @ (hidden @ k[rows].T).T
        share = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        out += share @ (hidden @ v[rows].T) @ o[:, rows].T
    return out + np.maximum(hidden @ ffn_in.T, 0) @ ffn_out.T


def from_buffer(buffer: LayerBuffer, hidden: np.ndarray) -> np.ndarray:
    """The same from the segments of a buffer of any number of shards."""
    query, key, value, out, first, second = (buffer.segment(name) for name in SEGMENTS)
    tokens, by_head = len(hidden), (len(hidden), buffer.slices, -1)
    q, k, v = ((hidden @ part.T).reshape(by_head).transpose(1, 0, 2) for part in (query, key, value))
    scores = q @ k.transpose(0, 2, 1)
    share = np.exp(scores) / np.exp(scores).sum(2, keepdims=True)
    context = (share @ v).transpose(1, 0, 2).reshape(tokens, -1)
    return context @ out + np.maximum(hidden @ first.T, 0) @ second


def test_the_shards_of_a_layer_summed_are_the_layer() -> None:
    weights, hidden = random_layer(16, 32, scale=0.3), np.random.default_rng(1).standard_normal((5, 16)).astype(np.float32)
    expected = whole_layer(weights, hidden, 4)
    summed, together = np.zeros_like(hidden), LayerBuffer(SMALL, 4)
    for position, index in enumerate((2, 0, 3, 1)):  # their order is nobody's business
        alone = LayerBuffer(SMALL, 1)
        alone.put(0, shard_of(SMALL, weights, index))
        together.put(position, shard_of(SMALL, weights, index))
        summed += from_buffer(alone, hidden)
    np.testing.assert_allclose(summed, expected, atol=1e-5)
    np.testing.assert_allclose(from_buffer(together, hidden), expected, atol=1e-5)


@given(heads=st.integers(1, 6), head=st.integers(1, 4), neurons=st.integers(1, 5), slices=st.integers(1, 6))
def test_the_places_of_all_shards_fill_a_buffer_once(heads: int, head: int, neurons: int, slices: int) -> None:
    geometry = ShardGeometry(layers=1, heads=heads, width=heads * head, ffn=heads * neurons)
    buffer = LayerBuffer(geometry, min(slices, heads))
    buffer.array[:] = -1
    for position in range(buffer.slices):
        places = buffer.places(position)
        assert [place.shard_offset for place in places] == np.cumsum([0, *(place.length for place in places)])[:-1].tolist()
        buffer.put(position, np.full(geometry.weights_per_shard, position, np.float32))
    counts = np.unique(buffer.array, return_counts=True)
    assert counts[0].tolist() == list(range(buffer.slices))
    assert set(counts[1]) == {geometry.weights_per_shard}
    for name, rows in zip(SEGMENTS, segment_rows(geometry), strict=True):
        assert buffer.segment(name)[:, 0].tolist() == np.repeat(range(buffer.slices), rows).tolist()


def test_a_buffer_begins_where_the_widest_vectors_do() -> None:
    assert {LayerBuffer(SMALL, slices).array.ctypes.data % 64 for slices in (1, 2, 3, 4)} == {0}


def test_sizes_whose_codes_would_end_amid_a_byte_are_refused() -> None:
    with pytest.raises(StoreError, match=r"2 rows of a head of width 6 are no multiple of 8 weights.*take a width"):
        check_layout(ShardGeometry(layers=1, heads=3, width=6, ffn=12))
    with pytest.raises(StoreError, match="1 neurons of a slice of width 4"):
        check_layout(ShardGeometry(layers=1, heads=2, width=4, ffn=2))
    check_layout(BERT_BASE)
