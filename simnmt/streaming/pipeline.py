"""Pipeline that executes plans: one thread reads shards while another unpacks and computes the layers before (STI-16).

Also the paced IO channel (STI-07), the preload buffer (STI-15), and the turns of an engagement (STI-17, STI-18).
"""

from __future__ import annotations

import ctypes
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from simnmt.kernels.unpack import PackedWeights
from simnmt.nmt.devices import torch_threads
from simnmt.profile.streaming_block import Shard, StiCost, TokenBucket
from simnmt.streaming import page_cache
from simnmt.streaming.encoder import ElasticEncoder, padded
from simnmt.streaming.errors import StreamingError
from simnmt.streaming.plan.streaming_plan import StreamingPlan, longest_prefix, make_plan, timeline_of
from simnmt.streaming.plan.timeline import Timeline
from simnmt.streaming.shards import LayerBuffer, size_of, unpack_into
from simnmt.streaming.store import ShardStore
from simnmt.streaming.texts import Text

_SET_TIMER_SLACK = 29
_LEAST_SLACK_NS = 1

_timer_state = threading.local()


def sleep_until(end_s: float, clock: Callable[[], float] = time.perf_counter) -> None:
    """Sleep until the clock shows `end_s`.

    Linux groups the timers of a thread within 50 us by default: measured, the thread wakes 73 us late, and 23 us late with a
    smaller timer slack. A paced read of a small shard takes about as long as that delay.
    """
    if not getattr(_timer_state, "yes", False):
        _timer_state.yes = True
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, _LEAST_SLACK_NS, 0, 0, 0)
    while (left_s := end_s - clock()) > 0.0:
        time.sleep(left_s)


class ShardReader:
    """The IO channel of a pipeline, optionally slowed to the pace of another disk.

    A paced read ends when a disk of that rate would have ended it. The next read begins at that moment even if the thread woke
    later, so delays do not add up. A read that takes longer than its pace ends when it ends. Raises `StreamingError` for a pace
    that is not positive.
    """

    def __init__(
        self, store: ShardStore, pace_bytes_per_s: float | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        if pace_bytes_per_s is not None and not 0.0 < pace_bytes_per_s < math.inf:
            raise StreamingError(f"a pace of {pace_bytes_per_s:g} bytes a second", remedy="give a positive number of MB/s")
        self.store, self.pace_bytes_per_s = store, pace_bytes_per_s
        self.clock = clock
        self.begin()

    def begin(self) -> None:
        """Forget earlier reads: the channel was idle."""
        self._bucket = None if self.pace_bytes_per_s is None else TokenBucket(self.pace_bytes_per_s)
        self._free_s = -math.inf

    def read(self, shard: Shard, bits: int) -> PackedWeights:
        """Return one shard, read and verified; the check takes place within the paced time.

        Raises `StoreError` for a damaged record.
        """
        record = self.store.record(*shard, bits)
        if self._bucket is None:
            return self.store.read(record)
        end_s = self._bucket.end_s(self.clock() if self._free_s == -math.inf else self._free_s, record.size)
        packed = self.store.read(record)
        self._free_s = max(self.clock(), end_s)
        sleep_until(end_s, self.clock)
        return packed

    def drop_cache(self) -> bool:
        """Drop the store's file from memory; return whether no page of it is left."""
        return page_cache.drop(self.store.file) == 0


class PreloadBuffer:
    """A buffer of compressed shards up to `capacity_bytes`."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self._held: dict[Shard, PackedWeights] = {}

    @property
    def contents(self) -> dict[Shard, int]:
        """Bits by shard, in layer order: `cached` of the next plan."""
        return {shard: packed.bits for shard, packed in sorted(self._held.items())}

    @property
    def size_bytes(self) -> int:
        return sum(size_of(packed) for packed in self._held.values())

    def get(self, shard: Shard, bits: int) -> PackedWeights | None:
        """Return the shard if it is held at this bitwidth, else None."""
        packed = self._held.get(shard)
        return packed if packed is not None and packed.bits == bits else None

    def fill(self, reader: ShardReader, plan: StreamingPlan) -> int:
        """Fill the buffer anew with the preloaded shards of a plan; return the bytes read.

        The longest prefix in layer order that fits is kept: plans use mean record sizes, and records
        with more outliers are larger. The execution reads the shards that do not fit.
        """
        self._held = {}
        for shard in sorted(plan.preloaded):
            size = reader.store.record(*shard, plan.bits[shard]).size
            if self.size_bytes + size > self.capacity_bytes:
                break
            self._held[shard] = reader.read(shard, plan.bits[shard])
        return self.size_bytes

    def keep(self, shards: Mapping[Shard, PackedWeights]) -> None:
        """Hold the shards of an execution instead, without those from the top layer down that do not fit (STI-17)."""
        kept = longest_prefix([(shard, size_of(packed)) for shard, packed in sorted(shards.items())], self.capacity_bytes)
        self._held = {shard: packed for shard, packed in shards.items() if shard in kept}


class LayerRun(NamedTuple):
    """Measured times of one executed layer, in seconds since the execution began."""

    layer: int
    io_begin_s: float
    """Begin of its reads, as `io_end_s` 0 if all shards were in memory."""
    io_end_s: float
    bytes_read: int
    begin_s: float
    wait_s: float
    """The stall: how long the processor waited for the shards."""
    unpack_s: float
    forward_s: float
    """Duration of computing, which T_comp predicts together with unpacking."""


@dataclass(frozen=True, slots=True, eq=False)
class Execution:
    """Measured times and logits of one execution of a plan."""

    logits: Tensor
    layers: list[LayerRun]
    embed_s: float
    """Seconds of computing before the first layer."""
    head_s: float
    """Seconds of computing after the last layer."""
    latency_s: float
    cold: bool
    """True if no page of the store's file was in memory before."""

    def total(self, name: str) -> Any:
        return sum(getattr(layer, name) for layer in self.layers)

    @property
    def timeline(self) -> Timeline:
        """The measured timeline, comparable to the predicted one."""
        _, load_begin, load_end, _, begin, stall, unpack, forward = np.array(self.layers).T
        return Timeline(load_begin, load_end, begin, begin + (unpack + forward), stall, self.head_s, self.embed_s)

    def as_json(self) -> dict[str, Any]:
        layers = [layer._asdict() for layer in self.layers]
        sums = {"stall_s": self.total("wait_s"), "bytes_read": self.total("bytes_read"), "layers": layers}
        return {name: getattr(self, name) for name in ("latency_s", "embed_s", "head_s", "cold")} | sums


Loaded = tuple[dict[Shard, PackedWeights], float, float, int]
"""Shards of a layer in slice order, begin and end of their reads in seconds since the execution began, and bytes read."""


class Pipeline:
    """An executor of plans of one width, with a reader and a working buffer for one layer.

    A layer is one read job and one computing job, in layer order; reads of later layers overlap the computing of earlier ones.
    """

    def __init__(
        self,
        store: ShardStore,
        encoder: ElasticEncoder,
        slices: int,
        *,
        pace_bytes_per_s: float | None = None,
        cold: bool = True,
        threads: int = 1,
    ) -> None:
        """`slices`: of each layer; `pace_bytes_per_s`: of the reads, None for the pace of the disk; `cold`: drop the file from
        memory before each execution; `threads`: for unpacking and for torch.
        """
        self.store, self.encoder, self.cold, self.threads = store, encoder, cold, threads
        self.reader = ShardReader(store, pace_bytes_per_s)
        self.working = LayerBuffer(store.geometry, slices)
        self.working.array.fill(0.0)  # allocates its pages before the clock runs

    def run(self, plan: StreamingPlan, buffer: PreloadBuffer, token_ids: Tensor, mask: Tensor) -> Execution:
        """Execute a plan on tokens [batch, length] and their mask; read the shards that the buffer lacks.

        Afterwards the buffer keeps as many executed shards as fit, from the bottom layer up. Raises `StreamingError` for a plan
        of another model, and `StoreError` for a damaged record.
        """
        check_plan(plan, self.store)
        sizes = {shard: self.store.record(*shard, bits).size for shard, bits in plan.bits.items()}
        staying = longest_prefix(list(sizes.items()), buffer.capacity_bytes)
        encoder, layers, kept = self.encoder, list[LayerRun](), dict[Shard, PackedWeights]()
        with torch.inference_mode(), torch_threads(self.threads), ThreadPoolExecutor(1, "simnmt-shards") as reading:
            reading.submit(int).result()  # starts the thread before the clock runs
            cold = self.cold and self.reader.drop_cache()
            begin_s, stopped = time.perf_counter(), threading.Event()

            def now_s() -> float:
                return time.perf_counter() - begin_s

            self.reader.begin()
            jobs = [self._begin_load(plan, layer, buffer, reading, stopped, now_s) for layer in plan.layer_indices]
            try:
                hidden = encoder.embed(token_ids, mask)
                embed_s = free_s = now_s()
                for index, job in zip(plan.layer_indices, jobs, strict=True):
                    packed, io_begin_s, io_end_s, bytes_read = job.result()
                    start_s = now_s()
                    unpack_into(self.working, list(packed.values()), threads=self.threads)
                    unpacked_s = now_s()
                    hidden = encoder.layer(hidden, mask, index, [piece for _, piece in packed], self.working)
                    end_s = now_s()
                    durations_s = start_s - free_s, unpacked_s - start_s, end_s - unpacked_s
                    layers.append(LayerRun(index, io_begin_s, io_end_s, bytes_read, start_s, *durations_s))
                    free_s = end_s
                    kept |= {shard: weights for shard, weights in packed.items() if shard in staying}
                logits = encoder.logits(hidden, mask)
                latency_s = now_s()
                buffer.keep(kept)
                return Execution(logits, layers, embed_s, latency_s - free_s, latency_s, cold)
            finally:
                stopped.set()
                for job in jobs:
                    job.cancel()
                wait(jobs)

    def _begin_load(
        self,
        plan: StreamingPlan,
        layer: int,
        buffer: PreloadBuffer,
        reading: ThreadPoolExecutor,
        stopped: threading.Event,
        now_s: Callable[[], float],
    ) -> Future[Loaded]:
        bits = {shard: plan.bits[shard] for shard in plan.shards_of(layer)}
        there = {shard: packed for shard, width in bits.items() if (packed := buffer.get(shard, width)) is not None}

        def load() -> Loaded:
            began_s, read, packed = now_s(), 0, dict[Shard, PackedWeights]()
            for shard, width in bits.items():
                if stopped.is_set():
                    raise CancelledError
                if shard in there:
                    packed[shard] = there[shard]
                else:
                    packed[shard] = self.reader.read(shard, width)
                    read += self.store.record(*shard, width).size
            return packed, began_s, now_s(), read

        if len(there) < len(bits):
            return reading.submit(load)
        # A layer in memory needs no job: the hand-over would take longer than a small layer.
        job: Future[Loaded] = Future()
        job.set_result((there, 0.0, 0.0, 0))
        return job


def check_plan(plan: StreamingPlan, store: ShardStore) -> None:
    """Raise `StreamingError` for a plan with shards that the store lacks."""
    geometry = store.geometry
    if plan.steps != 1.0 or any(layer >= geometry.layers or piece >= geometry.heads for layer, piece in plan.bits):
        what = f"a plan for another model than the store's {geometry.layers} layers of {geometry.heads} slices"
        raise StreamingError(what, remedy="plan for this store: `simnmt sti plan`")
    for bits in set(plan.bits.values()):
        store.record(0, 0, bits)


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
    encoded = store.tokenizer().encode(texts, length)
    rows = [encoded[min(turn, len(encoded) - 1)] for turn in range(turns)]
    return [padded([row], configuration.padding_token, length) for row in rows]


@dataclass(frozen=True, slots=True)
class EngagementSettings:
    """Settings of an engagement: deadline, buffers, pace and threads."""

    deadline_s: float
    preload_bytes: int
    """Capacity of the buffer between engagements."""
    length: int
    cache_bytes: int | None = None
    """Capacity of the buffer during the engagement; None for `preload_bytes`."""
    cold: bool = False
    pace_bytes_per_s: float | None = None
    threads: int = 1
    fills_deadline: bool = False

    @property
    def capacity_bytes(self) -> int:
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


def run_engagement(
    store: ShardStore, encoder: ElasticEncoder, cost: StiCost, engaged: EngagementSettings, inputs: Iterable[Input]
) -> Iterator[Turn]:
    """Execute a turn for each of `inputs`, token ids and mask [batch, length], and yield it.

    The first turn executes the first plan, whatever the buffer holds. A later turn gets a new plan, for the same submodel, if
    the buffer differs from the one that was planned for (STI-18).

    Raises `PlanError`, `StreamingError` for costs of another model or a plan that the store cannot serve, and `StoreError`.
    """
    if cost.geometry != store.geometry or cost.decoder is not None:
        what = "the profile is of another model than the store"
        raise StreamingError(what, remedy="profile this store: `simnmt sti profile`")
    preload = PreloadBuffer(engaged.preload_bytes)
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
        in_memory = frozenset(shard for shard, bits in plan.bits.items() if held.get(shard) == bits)
        predicted = timeline_of(replace(plan, preloaded=in_memory), cost, token_ids.shape[1])
        yield Turn(plan, held, held_bytes, predicted, execution, preload.size_bytes)
