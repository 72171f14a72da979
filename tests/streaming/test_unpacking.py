"""Shards of a layer are unpacked into its buffer by as many threads as are given (STI-06, STI-16)."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from simnmt.profile.streaming_cost import ShardGeometry
from simnmt.streaming.store import shard_format
from simnmt.streaming.store.shard_format import LayerBuffer, Packed, decode, dequantised, encode, unpack_into

GEOMETRY = ShardGeometry(layers=1, heads=5, width=40, ffn=80)
EACH_BITS = (2, 3, 6, 4, 5)
LONG_S = 60.0


@pytest.mark.parametrize(("threads", "shares"), [(1, [5]), (2, [2, 3]), (3, [1, 2, 2]), (9, [1] * 5)])
def test_shards_are_divided_among_the_threads_which_unpack_at_once(
    monkeypatch: pytest.MonkeyPatch, threads: int, shares: list[int]
) -> None:
    """Each waits, with its first shard, for all others to have one: one after another they would wait for ever."""
    draw, none = np.random.default_rng(1), (np.zeros(0, np.int32), np.zeros(0, np.float32))
    shards = []
    for at, bits in enumerate(EACH_BITS):
        codes = draw.integers(0, 1 << bits, GEOMETRY.weights_per_shard).astype(np.uint8)
        centroids = np.sort(draw.normal(size=1 << bits)).astype(np.float32)
        shards.append(decode(np.frombuffer(encode(0, at, bits, codes, centroids, *none), np.uint8)))
    wanted = LayerBuffer(GEOMETRY, len(shards))
    for position, packed in enumerate(shards):
        wanted.put(position, dequantised(packed))

    met, by_thread, unpack = threading.Barrier(len(shares)), defaultdict[int, list[int]](list), shard_format.unpack

    def watched(packed: Packed, *rest: Any, **options: Any) -> None:
        mine = by_thread[threading.get_ident()]
        if not mine:
            met.wait(LONG_S)
        mine.append(packed.bits)
        unpack(packed, *rest, **options)

    monkeypatch.setattr(shard_format, "unpack", watched)
    buffer = LayerBuffer(GEOMETRY, len(shards))
    unpack_into(buffer, shards, threads=threads)
    assert sorted(len(each) for each in by_thread.values()) == shares
    assert sorted(bits for each in by_thread.values() for bits in each) == sorted(EACH_BITS)
    np.testing.assert_array_equal(buffer.array, wanted.array)
