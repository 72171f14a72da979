"""The preload buffer: what is kept in memory between executions, from the bottom layer upwards (STI-15, STI-17)."""

from __future__ import annotations

from collections.abc import Mapping

from simnmt.costs.sti_cost import Shard, StiCost


def longest_prefix(cost: StiCost, bits: Mapping[Shard, int], capacity_bytes: int) -> frozenset[Shard]:
    """The first shards in layer order that fit together; none is skipped (D)."""
    held: list[Shard] = []
    room = capacity_bytes
    for shard in sorted(bits):
        room -= cost.bytes_of(bits[shard], shard[0])
        if room < 0:
            break
        held.append(shard)
    return frozenset(held)


def evicted(cost: StiCost, contents: Mapping[Shard, int], capacity_bytes: int) -> dict[Shard, int]:
    """What remains once shards have gone, the top layer's first and its last slice first, until the rest fits."""
    kept = longest_prefix(cost, contents, capacity_bytes)
    return {shard: contents[shard] for shard in sorted(kept)}


def bytes_held(cost: StiCost, contents: Mapping[Shard, int]) -> int:
    """Of compressed shards, by their bits."""
    return sum(cost.bytes_of(bits, layer) for (layer, _), bits in contents.items())
