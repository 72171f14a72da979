"""The preload buffer: what is kept in memory between executions, from the bottom layer upwards (STI-15, STI-17)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from simnmt.costs.sti_cost import Shard, StiCost


def longest_prefix(sizes: Iterable[tuple[Shard, int]], capacity_bytes: int) -> frozenset[Shard]:
    """Of shards and their bytes in layer order, the first that fit together; none is skipped (D)."""
    held = set[Shard]()
    for shard, size in sizes:
        capacity_bytes -= size
        if capacity_bytes < 0:
            break
        held.add(shard)
    return frozenset(held)


def held_prefix(cost: StiCost, bits: Mapping[Shard, int], capacity_bytes: int) -> frozenset[Shard]:
    """What a buffer of that capacity holds of shards with those bits, by their mean records."""
    return longest_prefix(((shard, cost.bytes_of(bits[shard], shard[0])) for shard in sorted(bits)), capacity_bytes)


def evicted(cost: StiCost, contents: Mapping[Shard, int], capacity_bytes: int) -> dict[Shard, int]:
    """What remains once shards have gone, the top layer's first and its last slice first, until the rest fits."""
    return {shard: contents[shard] for shard in sorted(held_prefix(cost, contents, capacity_bytes))}


def bytes_held(cost: StiCost, contents: Mapping[Shard, int]) -> int:
    """Of compressed shards, by their bits."""
    return sum(cost.bytes_of(bits, layer) for (layer, _), bits in contents.items())
