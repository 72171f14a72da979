"""Compressed shards kept in memory between executions: filled as planned, evicted from the top layer down (STI-15, 17)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from simnmt.costs.sti_cost import Shard
from simnmt.elastic.errors import ElasticError
from simnmt.elastic.store.packed import Packed, record_size
from simnmt.sti.buffer import longest_prefix

if TYPE_CHECKING:
    from simnmt.elastic.pipeline.shard_reader import ShardReader
    from simnmt.sti.plan import Plan


class PreloadBuffer:
    """Holds records as they lie on the disk, up to `capacity_bytes`. Raises `ElasticError` for a negative capacity."""

    def __init__(self, capacity_bytes: int) -> None:
        if capacity_bytes < 0:
            raise ElasticError(f"a preload buffer of {capacity_bytes:,} bytes", remedy="give 0 or more")
        self.capacity_bytes = capacity_bytes
        self._held: dict[Shard, Packed] = {}

    @property
    def contents(self) -> dict[Shard, int]:
        """Shard to bits, in layer order: what the next plan takes as cached."""
        return {shard: packed.bits for shard, packed in sorted(self._held.items())}

    @property
    def size_bytes(self) -> int:
        """Of all records held, headers and outliers included."""
        return sum(map(packed_bytes, self._held.values()))

    def get(self, shard: Shard, bits: int) -> Packed | None:
        """The shard, where it is held at so many bits."""
        packed = self._held.get(shard)
        return packed if packed is not None and packed.bits == bits else None

    def fill(self, reader: ShardReader, plan: Plan) -> int:
        """Make the contents what the plan has preloaded; bytes read for it.

        What is not planned goes; of what is planned, the longest prefix in layer order stays that fits: a plan reckons with a
        mean record, and one with more outliers is larger. What does not fit is read during the execution.
        """
        wanted = {shard: plan.bits[shard] for shard in sorted(plan.preloaded)}
        self._held = {shard: self._held[shard] for shard, bits in wanted.items() if self.get(shard, bits) is not None}
        read = 0
        for shard, bits in wanted.items():
            if shard in self._held:
                continue
            size = reader.store.record(*shard, bits).size
            if self.size_bytes + size > self.capacity_bytes:
                break
            self._held[shard] = reader.read(shard, bits)
            read += size
        return read

    def keep(self, shards: Mapping[Shard, Packed]) -> None:
        """Hold these and no others, then evict: what an execution leaves."""
        self._held = dict(shards)
        self.evict()

    def evict(self) -> tuple[Shard, ...]:
        """From the top layer down, and within it from the last slice, until the rest fits; those that went, in this order."""
        sizes = [(shard, packed_bytes(packed)) for shard, packed in sorted(self._held.items())]
        kept = longest_prefix(sizes, self.capacity_bytes)
        gone = tuple(shard for shard, _ in reversed(sizes) if shard not in kept)
        for shard in gone:
            del self._held[shard]
        return gone


def packed_bytes(packed: Packed) -> int:
    """Of the record that it is a view of."""
    return record_size(packed.weights, packed.bits, len(packed.outlier_at))
