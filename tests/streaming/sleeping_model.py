"""A store and an encoder whose reads and layers take exactly as long as they are told to: for the pipeline's tests."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from simnmt.profile.streaming_cost import Shard, ShardGeometry
from simnmt.streaming.errors import StoreError
from simnmt.streaming.plan.streaming_plan import StreamingPlan
from simnmt.streaming.shards import LayerBuffer, Packed, Record, decode, encode, encode_full, record_size

GEOMETRY = ShardGeometry(layers=3, heads=3, width=96, ffn=192)
BYTES_A_BIT = GEOMETRY.weights_per_shard // 8
"""Of every record, but for some 2 %: a pace says how long a bit of a shard takes."""


class SleepingStore:
    """Shard (layer, slice) has its own number as every weight's centroid; nothing of it lies on a disk."""

    def __init__(self, broken: Shard | None = None) -> None:
        self.geometry, self.bits, self.file = GEOMETRY, (2, 3, 4, 5, 6, 32), -1
        self.broken = broken
        self.reads: list[tuple[int, int, int]] = []

    def record(self, layer: int, piece: int, bits: int) -> Record:
        return Record(layer, piece, bits, 0, record_size(self.geometry.weights_per_shard, bits, 0), 0, 0, 0.0)

    def read(self, record: Record) -> Packed:
        self.reads.append((record.layer, record.slice, record.bits))
        self.reading((record.layer, record.slice))
        if (record.layer, record.slice) == self.broken:
            raise StoreError(f"shard {self.broken} is not what was written")
        value, weights = np.float32(10 * record.layer + record.slice), self.geometry.weights_per_shard
        if record.bits == 32:
            return decode(encode_full(record.layer, record.slice, np.full(weights, value, np.float32)))
        none, values = np.zeros(0, np.int32), np.zeros(0, np.float32)
        centroids = np.full(1 << record.bits, value, np.float32)
        return decode(encode(record.layer, record.slice, record.bits, np.zeros(weights, np.uint8), centroids, none, values))

    def reading(self, shard: Shard) -> None:
        """Nothing: for one that holds a read back."""


class SleepingEncoder:
    """A layer takes `layer_s` and notes which shards it was computed with."""

    def __init__(self, layer_s: float = 0.0) -> None:
        self.layer_s = layer_s
        self.computed: list[tuple[int, list[int], list[float]]] = []

    def embed(self, token_ids: Tensor, mask: Tensor) -> Tensor:
        return token_ids.float()

    def layer(self, hidden: Tensor, mask: Tensor, index: int, slices: Sequence[int], buffer: LayerBuffer) -> Tensor:
        self.computing(index)
        values = [float(buffer.array[buffer.places(at)[0].buffer_offset]) for at in range(len(slices))]
        self.computed.append((index, list(slices), values))
        time.sleep(self.layer_s)
        return hidden + 1.0

    def computing(self, layer: int) -> None:
        """Nothing: for one that holds a layer back, or fails."""

    def logits(self, hidden: Tensor, mask: Tensor) -> Tensor:
        return hidden


def plan_of(bits: Sequence[Sequence[int]], preloaded: Sequence[Shard] = (), capacity: int = 0) -> StreamingPlan:
    """The plan of these bits by layer and slice."""
    return StreamingPlan(
        layers=len(bits),
        slices_per_layer=len(bits[0]),
        bits={(layer, piece): each for layer, row in enumerate(bits) for piece, each in enumerate(row)},
        preloaded=frozenset(preloaded),
        deadline_s=2.0,
        preload_bytes=capacity,
        length=4,
        latency_s=2.0,
        stall_s=0.0,
    )


TOKENS, MASK = torch.zeros(1, 4), torch.ones(1, 4)
