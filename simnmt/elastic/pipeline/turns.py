"""The turns of one engagement, executed: each planned on what the buffer truly holds, evicted afterwards (STI-17)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor

from simnmt.costs.sti_cost import Shard, StiCost
from simnmt.elastic.errors import ElasticError
from simnmt.elastic.pipeline.execution import Execution
from simnmt.elastic.pipeline.pipeline import Pipeline
from simnmt.elastic.pipeline.preload_buffer import PreloadBuffer
from simnmt.sti.plan import Plan, planned, timeline_of
from simnmt.sti.timeline import Timeline

if TYPE_CHECKING:
    from simnmt.elastic.elastic_encoder import ElasticEncoder
    from simnmt.elastic.store.shard_store import ShardStore


@dataclass(frozen=True, slots=True)
class Engaged:
    """How a model is streamed for as long as its app is used."""

    deadline_s: float
    preload_bytes: int
    """Of the buffer between engagements."""
    length: int
    """Padded tokens that are planned for."""
    cache_bytes: int | None = None
    """Of the buffer within the engagement; None: no more than before it."""
    cold: bool = False
    """The first turn finds the buffer empty, as after the system has reclaimed the memory."""
    pace_bytes_per_s: float | None = None
    threads: int = 1
    fills_deadline: bool = False
    """Beyond the paper: the pipeline may wait for reads as long as the deadline allows."""

    @property
    def capacity_bytes(self) -> int:
        """Of the buffer while the engagement lasts."""
        return max(self.preload_bytes, self.cache_bytes or 0)


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One execution and what was expected of it."""

    plan: Plan
    held: Mapping[Shard, int]
    """In the buffer beforehand, in bits."""
    held_bytes: int
    predicted: Timeline
    """With what the buffer truly held."""
    execution: Execution
    kept_bytes: int
    """In the buffer afterwards."""


def engage(
    store: ShardStore,
    encoder: ElasticEncoder,
    cost: StiCost,
    engaged: Engaged,
    inputs: Sequence[tuple[Tensor, Tensor]],
    buffer: PreloadBuffer | None = None,
) -> Iterator[Turn]:
    """Execute a turn for each of `inputs`, token ids and mask [batch, length].

    A turn is planned anew, its submodel excepted, where the one before left another buffer than it was planned with (STI-18).
    After the last the buffer is evicted to its size between engagements. `buffer`: the one to be used, so that it can be had
    afterwards. Raises `PlanError`, `StoreError`, and `ElasticError` for costs that are another model's.
    """
    if cost.geometry != store.geometry or cost.decoder is not None:
        raise ElasticError("the profile is of another model than the store", remedy="profile this store: `simnmt sti profile`")
    own = PreloadBuffer(engaged.preload_bytes) if buffer is None else buffer
    plan = planned(
        cost, engaged.deadline_s, engaged.preload_bytes, length=engaged.length, fills_deadline=engaged.fills_deadline
    )
    for number, (token_ids, mask) in enumerate(inputs):
        if number and own.contents != {shard: plan.bits[shard] for shard in plan.preloaded}:
            plan = planned(
                cost,
                engaged.deadline_s,
                engaged.capacity_bytes,
                length=engaged.length,
                cached=own.contents,
                fills_deadline=engaged.fills_deadline,
                size=(plan.layers, plan.slices_per_layer),
            )
        pipeline = Pipeline(
            store,
            encoder,
            plan,
            own,
            pace_bytes_per_s=engaged.pace_bytes_per_s,
            filled=not number and not engaged.cold,
            threads=engaged.threads,
        )
        held, held_bytes = own.contents, own.size_bytes
        own.capacity_bytes = engaged.capacity_bytes
        execution = pipeline.run(token_ids, mask)
        yield Turn(plan, held, held_bytes, predicted(plan, cost, held, token_ids.shape[1]), execution, own.size_bytes)
    own.capacity_bytes = engaged.preload_bytes
    own.evict()


def predicted(plan: Plan, cost: StiCost, held: Mapping[Shard, int], length: int) -> Timeline:
    """The plan's execution where the buffer holds what it holds, planned so or not."""
    there = frozenset(shard for shard, bits in plan.bits.items() if held.get(shard) == bits)
    return timeline_of(replace(plan, preloaded=there), cost, length)
