"""What a plan keeps in memory: what is preloaded, apart from what an execution works with (STI-23)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simnmt.costs.sti_cost import StiCost
from simnmt.sti.buffer import bytes_held

if TYPE_CHECKING:
    from simnmt.sti.plan import Plan


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes."""

    preload_bytes: int
    """Between executions as well."""
    working_bytes: int
    """One unpacked layer in float32, whatever the depth; where nothing overlaps, all, computed where they were loaded."""
    streamed_bytes: int
    """Compressed shards that an execution reads and holds besides until it evicts; 0 where nothing overlaps."""


def memory_of(cost: StiCost, plan: Plan, *, whole: bool = False, in_turn: bool = False) -> Memory:
    """`whole`: the model is kept as a whole, not only what is executed; `in_turn`: everything is loaded before it is run."""
    loaded = {shard: plan.bits[shard] for shard in plan.loaded}
    held = plan.preload_bytes if whole else bytes_held(cost, plan.bits) - bytes_held(cost, loaded)
    layers_bytes = [4 * plan.slices_per_layer * weights_of(cost, layer) for layer in plan.layer_indices]
    return Memory(held, sum(layers_bytes) if in_turn else max(layers_bytes), 0 if in_turn else bytes_held(cost, loaded))


def weights_of(cost: StiCost, layer: int) -> int:
    """Of one shard of that layer."""
    half = cost.geometry if cost.decoder is None or layer < cost.geometry.layers else cost.decoder.geometry
    return half.weights_per_shard


def model_bytes(cost: StiCost, bits: int) -> int:
    """All shards of the model at so many bits."""
    return bytes_held(cost, dict.fromkeys(cost.all_shards(), bits))
