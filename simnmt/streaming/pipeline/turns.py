"""Execute the turns of one engagement, and the baselines that STI is compared with (STI-17, STI-19).

Each turn is planned on the true contents of the buffer, which is evicted afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from simnmt.profile.streaming_cost import Shard, StiCost
from simnmt.streaming.encoder.tokenizer import padded
from simnmt.streaming.errors import StreamingError
from simnmt.streaming.pipeline.pipeline import Execution, Pipeline, check_plan, load_then_run
from simnmt.streaming.pipeline.shard_reader import PreloadBuffer, ShardReader
from simnmt.streaming.plan.baselines import LOAD_FIRST, Contestant, contestants
from simnmt.streaming.plan.streaming_plan import StreamingPlan, make_plan, timeline_of
from simnmt.streaming.plan.timeline import Timeline

if TYPE_CHECKING:
    from simnmt.streaming.encoder.elastic_encoder import ElasticEncoder
    from simnmt.streaming.encoder.task import Text
    from simnmt.streaming.store.shard_format import LayerBuffer
    from simnmt.streaming.store.shard_store import ShardStore

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
    """True if the first turn finds an empty buffer, because the system reclaimed the memory."""
    pace_bytes_per_s: float | None = None
    threads: int = 1
    fills_deadline: bool = False
    """True if the pipeline may wait for reads within the deadline, beyond the paper."""
    similar: float = 0.0
    """Share of the most shards that a deeper submodel may lack."""

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

    @property
    def executed_plan(self) -> StreamingPlan:
        """The plan with the shards that the buffer held before the turn as preloaded, and its predicted times."""
        preloaded = held_as_planned(self.plan, self.held)
        return replace(self.plan, preloaded=preloaded, latency_s=self.predicted.latency_s, stall_s=self.predicted.stall_s)


class TurnRunner:
    """Executes turns one after another: each is planned with the true contents of the buffer, which is evicted after it.

    Raises `PlanError`, and `StreamingError` for costs of another model or a plan that the store cannot serve.
    """

    def __init__(
        self, store: ShardStore, cost: StiCost, engaged: EngagementSettings, buffer: PreloadBuffer | None = None
    ) -> None:
        if cost.geometry != store.geometry or cost.decoder is not None:
            what = "the profile is of another model than the store"
            raise StreamingError(what, remedy="profile this store: `simnmt sti profile`")
        self.buffer = PreloadBuffer(engaged.preload_bytes) if buffer is None else buffer
        self._store, self._cost, self._engaged = store, cost, engaged
        self._plan_turn = partial(
            make_plan, cost, engaged.deadline_s, length=engaged.length, fills_deadline=engaged.fills_deadline
        )
        self.first_plan = self._plan = self._plan_turn(engaged.preload_bytes, similar=engaged.similar)
        """The plan of the first turn, and of a cold start."""
        check_plan(self.first_plan, store)
        self._working: LayerBuffer | None = None
        self._plans: dict[tuple[tuple[Shard, int], ...], StreamingPlan] = {}
        """Plans of later turns by the contents of the buffer, since a plan may take as long as a small model."""

    def fill(self) -> None:
        """Evict the buffer to its size between engagements, and read what it lacks of the first plan's preloaded shards."""
        self.buffer.capacity_bytes = self._engaged.preload_bytes
        self.buffer.evict()
        self.buffer.fill(ShardReader(self._store), self.first_plan)

    def clear(self) -> None:
        """Empty the buffer: the system has reclaimed its memory."""
        self.buffer.keep({})

    def run(self, encoder: ElasticEncoder, token_ids: Tensor, mask: Tensor, *, continues: bool, dropped: bool = False) -> Turn:
        """Execute a turn on token ids and mask [batch, length]; `continues`: a later turn of the engagement;
        `dropped`: no page of the store is in memory, so none is dropped.

        A later turn gets a new plan, for the same submodel, if the buffer differs from the one that was planned for (STI-18).
        The first turn executes the first plan, whatever the buffer holds. Raises `StoreError`, after which the buffer is as
        before.
        """
        engaged, preload = self._engaged, self.buffer
        held, held_bytes = preload.contents, preload.size_bytes
        if not continues:
            self._plan = self.first_plan
        elif held != {shard: self._plan.bits[shard] for shard in self._plan.preloaded}:
            self._plan = self._planned(held)
        plan = self._plan
        pipeline = Pipeline(
            self._store,
            encoder,
            plan,
            preload,
            pace_bytes_per_s=engaged.pace_bytes_per_s,
            cold=not dropped,
            filled=False,
            threads=engaged.threads,
            working=self._working,
        )
        self._working = pipeline.working  # all plans have the same width
        preload.capacity_bytes = engaged.capacity_bytes
        execution = pipeline.run(token_ids, mask)
        timeline = predicted(plan, self._cost, held, token_ids.shape[1])
        return Turn(plan, held, held_bytes, timeline, execution, preload.size_bytes)

    def _planned(self, held: Mapping[Shard, int]) -> StreamingPlan:
        contents = tuple(held.items())
        if contents not in self._plans:
            size = self.first_plan.layers, self.first_plan.slices_per_layer
            self._plans[contents] = self._plan_turn(self._engaged.capacity_bytes, cached=held, size=size)
        return self._plans[contents]


def run_engagement(
    store: ShardStore,
    encoder: ElasticEncoder,
    cost: StiCost,
    engaged: EngagementSettings,
    inputs: Iterable[tuple[Tensor, Tensor]],
    buffer: PreloadBuffer | None = None,
) -> Iterator[Turn]:
    """Execute a turn for each of `inputs`, token ids and mask [batch, length], and yield it.

    After the last turn the buffer is evicted to its capacity between engagements. `buffer`: the buffer to use. Raises
    `StoreError`, and the errors of `TurnRunner`.
    """
    runner = TurnRunner(store, cost, engaged, buffer)
    if not engaged.cold:
        runner.fill()
    for number, (token_ids, mask) in enumerate(inputs):
        yield runner.run(encoder, token_ids, mask, continues=number > 0)
    runner.buffer.capacity_bytes = engaged.preload_bytes
    runner.buffer.evict()


def predicted(plan: StreamingPlan, cost: StiCost, held: Mapping[Shard, int], length: int) -> Timeline:
    """Return the timeline of a plan for the true contents of the buffer."""
    return timeline_of(replace(plan, preloaded=held_as_planned(plan, held)), cost, length)


def held_as_planned(plan: StreamingPlan, held: Mapping[Shard, int]) -> frozenset[Shard]:
    """Return the planned shards that a buffer holds with their planned bits; `held`: bits by shard in the buffer."""
    return frozenset(shard for shard, bits in plan.bits.items() if held.get(shard) == bits)


@dataclass(frozen=True, slots=True, eq=False)
class BaselineRun:
    """One contestant, planned and executed."""

    contestant: Contestant
    execution: Execution | None
    """None if the contestant has no plan that ends in time."""


def run_baselines(
    store: ShardStore, encoder: ElasticEncoder, cost: StiCost, engaged: EngagementSettings, token_ids: Tensor, mask: Tensor
) -> Iterator[BaselineRun]:
    """Execute each contestant once with the same deadline and pace, and yield it. Raises as `Pipeline`."""
    pace, threads = engaged.pace_bytes_per_s, engaged.threads
    for contestant in contestants(cost, engaged.deadline_s, length=engaged.length):
        plan, execution = contestant.plan, None
        if plan is not None and contestant.name == LOAD_FIRST:
            execution = load_then_run(store, encoder, plan, token_ids, mask, pace_bytes_per_s=pace, threads=threads)
        elif plan is not None:
            # True sizes: some records are larger than the mean.
            size = sum(store.record(*shard, plan.bits[shard]).size for shard in plan.preloaded)
            pipeline = Pipeline(store, encoder, plan, PreloadBuffer(size), pace_bytes_per_s=pace, threads=threads)
            execution = pipeline.run(token_ids, mask)
        yield BaselineRun(contestant, execution)
