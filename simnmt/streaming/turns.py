"""Execute the turns of one engagement (STI-17, STI-18)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from simnmt.profile.streaming_cost import Shard, StiCost
from simnmt.streaming.encoder import ElasticEncoder, padded
from simnmt.streaming.errors import StreamingError
from simnmt.streaming.pipeline import Execution, Pipeline, PreloadBuffer, ShardReader, check_plan
from simnmt.streaming.plan.streaming_plan import StreamingPlan, make_plan, timeline_of
from simnmt.streaming.plan.timeline import Timeline
from simnmt.streaming.store import ShardStore
from simnmt.streaming.texts import Text

Input = tuple[Tensor, Tensor]
"""Token ids and mask, [1, length]."""


def inputs_of(store: ShardStore, texts: Sequence[Text], length: int, turns: int) -> list[Input]:
    """Return one input per turn, padded to `length`; the last text repeats, and without texts tokens are random.

    Raises `StreamingError` for a length beyond the model's positions, and `StoreError` for texts if the store has no tokenizer.
    """
    configuration, most = store.configuration, store.configuration.positions
    if not 1 <= length <= most:
        raise StreamingError(f"{length} padded tokens, the model takes 1 to {most}", remedy="give a --length within")
    if not texts:
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(configuration.vocabulary, (turns, length), generator=generator)
        return [(row[None], torch.ones((1, length), dtype=torch.bool)) for row in ids]
    tokenizer = store.tokenizer()
    encoded = tokenizer.encode(list(texts), length)
    rows = [encoded[min(turn, len(encoded) - 1)] for turn in range(turns)]
    return [padded([row], tokenizer.padding, length) for row in rows]


@dataclass(frozen=True, slots=True)
class EngagementSettings:
    """Settings of an engagement: deadline, buffers, pace and threads."""

    deadline_s: float
    preload_bytes: int
    """Capacity of the buffer between engagements."""
    length: int
    """Padded tokens of the plans."""
    cache_bytes: int | None = None
    """Capacity of the buffer during the engagement; None for `preload_bytes`."""
    cold: bool = False
    """True if the first turn finds an empty buffer."""
    pace_bytes_per_s: float | None = None
    threads: int = 1
    fills_deadline: bool = False

    @property
    def capacity_bytes(self) -> int:
        """Capacity of the buffer during the engagement."""
        return max(self.preload_bytes, self.cache_bytes or 0)


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One execution with its plan and its predicted timeline."""

    plan: StreamingPlan
    held: Mapping[Shard, int]
    """Bits by shard in the buffer before the turn."""
    held_bytes: int
    predicted: Timeline
    """Predicted with the true contents of the buffer."""
    execution: Execution
    kept_bytes: int
    """Bytes in the buffer after the turn."""
    executed_plan: StreamingPlan
    """The plan with the shards that the buffer held before the turn as preloaded, and its predicted times."""


def run_engagement(
    store: ShardStore,
    encoder: ElasticEncoder,
    cost: StiCost,
    engaged: EngagementSettings,
    inputs: Iterable[Input],
    buffer: PreloadBuffer | None = None,
) -> Iterator[Turn]:
    """Execute a turn for each of `inputs`, token ids and mask [batch, length], and yield it.

    The first turn executes the first plan, whatever the buffer holds. A later turn gets a new plan, for the same submodel, if
    the buffer differs from the one that was planned for (STI-18). After the last turn the buffer is evicted to its capacity
    between engagements. `buffer`: the buffer to use.

    Raises `PlanError`, `StreamingError` for costs of another model or a plan that the store cannot serve, and `StoreError`.
    """
    if cost.geometry != store.geometry or cost.decoder is not None:
        what = "the profile is of another model than the store"
        raise StreamingError(what, remedy="profile this store: `simnmt sti profile`")
    preload = PreloadBuffer(engaged.preload_bytes) if buffer is None else buffer
    plan_turn = partial(make_plan, cost, engaged.deadline_s, length=engaged.length, fills_deadline=engaged.fills_deadline)
    plan = plan_turn(engaged.preload_bytes)
    check_plan(plan, store)
    plans: dict[tuple[tuple[Shard, int], ...], StreamingPlan] = {}
    """By contents of the buffer: to plan may take as long as a small model."""
    if not engaged.cold:
        preload.fill(ShardReader(store), plan)
    pace, threads = engaged.pace_bytes_per_s, engaged.threads
    pipeline = Pipeline(store, encoder, plan.slices_per_layer, pace_bytes_per_s=pace, threads=threads)
    for number, (token_ids, mask) in enumerate(inputs):
        held, held_bytes = preload.contents, preload.size_bytes
        if number and held != {shard: plan.bits[shard] for shard in plan.preloaded}:
            contents = tuple(held.items())
            if contents not in plans:
                size = plan.layers, plan.slices_per_layer
                plans[contents] = plan_turn(engaged.capacity_bytes, cached=held, size=size)
            plan = plans[contents]
        preload.capacity_bytes = engaged.capacity_bytes
        execution = pipeline.run(plan, preload, token_ids, mask)
        executed = replace(plan, preloaded=frozenset(shard for shard, bits in plan.bits.items() if held.get(shard) == bits))
        predicted = timeline_of(executed, cost, token_ids.shape[1])
        executed = replace(executed, latency_s=predicted.latency_s, stall_s=predicted.stall_s)
        yield Turn(plan, held, held_bytes, predicted, execution, preload.size_bytes, executed)
    preload.capacity_bytes = engaged.preload_bytes
    preload.evict()
