"""Pipeline that executes a plan, and the measured times of one execution (STI-16).

One thread reads shards in layer order while another unpacks and computes the layers before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from simnmt.nmt.devices import torch_threads
from simnmt.profile.streaming_cost import Shard
from simnmt.streaming.errors import StreamingError
from simnmt.streaming.pipeline.shard_reader import Loads, PreloadBuffer, ShardReader
from simnmt.streaming.plan.streaming_plan import longest_prefix
from simnmt.streaming.plan.timeline import Timeline
from simnmt.streaming.store.shard_format import LayerBuffer, Packed, unpack_into

if TYPE_CHECKING:
    from simnmt.streaming.encoder.elastic_encoder import ElasticEncoder
    from simnmt.streaming.plan.streaming_plan import StreamingPlan
    from simnmt.streaming.store.shard_store import ShardStore


@dataclass(frozen=True, slots=True)
class LayerExecution:
    """Measured times of one layer, in seconds since the execution began."""

    layer: int
    io_begin_s: float
    io_end_s: float
    """End of the last read; begin and end are 0 if all shards were in memory before."""
    begin_s: float
    """Begin of unpacking."""
    wait_s: float
    """Seconds that the processor waited for the shards: the stall."""
    unpack_s: float
    forward_s: float
    bytes_read: int

    @property
    def io_s(self) -> float:
        """Seconds of the reads, at the pace of the disk or of the reader."""
        return self.io_end_s - self.io_begin_s

    @property
    def compute_s(self) -> float:
        """Seconds of unpacking and forward pass, which T_comp predicts."""
        return self.unpack_s + self.forward_s

    @property
    def end_s(self) -> float:
        """End of the forward pass."""
        return self.begin_s + self.compute_s


@dataclass(frozen=True, slots=True, eq=False)
class Execution:
    """Measured times and logits of one execution of a plan."""

    logits: Tensor
    """[batch, classes]"""
    layers: tuple[LayerExecution, ...]
    embed_s: float
    """Seconds of computing before the first layer."""
    head_s: float
    """Seconds of computing after the last layer."""
    latency_s: float
    peak_bytes: int
    """Greatest sum of compressed shards in memory, with preloaded ones, without the working buffer."""
    cold: bool
    """True if no page of the store's file was in memory before."""

    @property
    def stall_s(self) -> float:
        """Seconds that the processor waited, over all layers."""
        return sum(layer.wait_s for layer in self.layers)

    @property
    def bytes_read(self) -> int:
        """Bytes read from the store."""
        return sum(layer.bytes_read for layer in self.layers)

    @property
    def compute_s(self) -> float:
        """Seconds of unpacking and forward passes, over all layers."""
        return sum(layer.compute_s for layer in self.layers)

    @property
    def timeline(self) -> Timeline:
        """The measured timeline, comparable to the predicted one."""
        rows = [(layer.io_begin_s, layer.io_end_s, layer.begin_s, layer.end_s, layer.wait_s) for layer in self.layers]
        load_begin, load_end, begin, end, stall = np.array(rows, np.float64).T
        return Timeline(load_begin, load_end, begin, end, stall, self.head_s, self.embed_s)

    def as_json(self) -> dict[str, Any]:
        """Return all measured values except the logits."""
        names = ("latency_s", "stall_s", "embed_s", "head_s", "bytes_read", "peak_bytes", "cold")
        return {name: getattr(self, name) for name in names} | {"layers": [asdict(layer) for layer in self.layers]}


class Pipeline:
    """A plan that can be executed many times, with a reader, a preload buffer and a working buffer for one layer.

    A layer is one read job and one computing job, in layer order; reads of later layers overlap the computing of earlier ones.
    After each execution the buffer keeps as many executed shards as fit, from the bottom layer up. Raises `StreamingError` if
    plan, store and encoder belong to different models.
    """

    def __init__(
        self,
        store: ShardStore,
        encoder: ElasticEncoder,
        plan: StreamingPlan,
        buffer: PreloadBuffer,
        *,
        pace_bytes_per_s: float | None = None,
        cold: bool = True,
        filled: bool = True,
        threads: int = 1,
        clock: Callable[[], float] = time.perf_counter,
        working: LayerBuffer | None = None,
    ) -> None:
        """Prepare a plan for execution.

        Args:
            pace_bytes_per_s: pace of the reads; None for the pace of the disk.
            cold: drop the file from memory before each execution.
            filled: fill the buffer now with the preloaded shards of the plan. Otherwise the execution reads all shards that
                the buffer lacks, as in a cold start or a later turn.
            threads: threads for unpacking and for torch.
            clock: clock in seconds.
            working: buffer for one layer of the plan's width, to use again; None for a new one.
        """
        check_plan(plan, store)
        self.store, self.encoder, self.plan, self.buffer = store, encoder, plan, buffer
        self.reader = ShardReader(store, pace_bytes_per_s, clock)
        self.cold, self.threads, self._clock = cold, threads, clock
        if working is None:
            working = LayerBuffer(store.geometry, plan.slices_per_layer)
            working.array.fill(0.0)  # allocates its pages before the clock runs
        self.working = working
        if filled:
            buffer.fill(ShardReader(store), plan)  # before the execution, so without a pace
        self._sizes = [(shard, store.record(*shard, bits).size) for shard, bits in plan.bits.items()]

    def run(self, token_ids: Tensor, mask: Tensor, *, in_turn: bool = False) -> Execution:
        """Execute the plan on tokens [batch, length] and their mask.

        `in_turn`: read all shards before all computing, as Load&Exec (STI-19). Raises `StoreError` for a damaged record.
        """
        with torch.inference_mode(), torch_threads(self.threads), ThreadPoolExecutor(1, "simnmt-shards") as reading:
            reading.submit(int).result()  # starts the thread before the clock runs
            cold = self.cold and self.reader.drop_cache()
            begin_s = self._clock()
            loads = Loads(self.plan, self.buffer, self.reader, reading, lambda: self._clock() - begin_s)
            try:
                return self._executed(loads, begin_s, token_ids, mask, in_turn=in_turn, cold=cold)
            finally:
                loads.stop()

    def _executed(
        self, loads: Loads, begin_s: float, token_ids: Tensor, mask: Tensor, *, in_turn: bool, cold: bool
    ) -> Execution:
        hidden = self.encoder.embed(token_ids, mask)
        embed_s = free_s = self._clock() - begin_s
        if in_turn:
            loads.wait()
        layers, kept, staying = [], dict[Shard, Packed](), longest_prefix(self._sizes, self.buffer.capacity_bytes)
        for index in self.plan.layer_indices:
            loaded = loads.of(index)
            start_s = self._clock() - begin_s
            unpack_into(self.working, list(loaded.packed.values()), threads=self.threads)
            unpacked_s = self._clock() - begin_s
            hidden = self.encoder.layer(hidden, mask, index, [piece for _, piece in loaded.packed], self.working)
            end_s = self._clock() - begin_s
            layers.append(
                LayerExecution(
                    layer=index,
                    io_begin_s=loaded.begin_s,
                    io_end_s=loaded.end_s,
                    begin_s=start_s,
                    wait_s=start_s - free_s,
                    unpack_s=unpacked_s - start_s,
                    forward_s=end_s - unpacked_s,
                    bytes_read=loaded.bytes_read,
                )
            )
            free_s = end_s
            kept |= {shard: packed for shard, packed in loaded.packed.items() if shard in staying}
            gone = loaded.packed.keys() - staying
            del loaded  # otherwise its shards stay in memory until the next layer is loaded
            loads.forget(index, gone)
        logits = self.encoder.logits(hidden, mask)
        latency_s = self._clock() - begin_s
        self.buffer.keep(kept)
        return Execution(logits, tuple(layers), embed_s, latency_s - free_s, latency_s, loads.peak_bytes, cold)


def load_then_run(
    store: ShardStore,
    encoder: ElasticEncoder,
    plan: StreamingPlan,
    token_ids: Tensor,
    mask: Tensor,
    *,
    pace_bytes_per_s: float | None = None,
    cold: bool = True,
    threads: int = 1,
) -> Execution:
    """Execute Load&Exec (STI-19): read all shards of the plan into an empty buffer, then compute. Raises as `Pipeline`."""
    bare = replace(plan, preloaded=frozenset())
    pipeline = Pipeline(store, encoder, bare, PreloadBuffer(0), pace_bytes_per_s=pace_bytes_per_s, cold=cold, threads=threads)
    return pipeline.run(token_ids, mask, in_turn=True)


def check_plan(plan: StreamingPlan, store: ShardStore) -> None:
    """Raise `StreamingError` for a plan with shards or bits that the store lacks."""
    geometry, again = store.geometry, "plan for this store: `simnmt sti plan`"
    if plan.steps != 1.0 or any(layer >= geometry.layers or piece >= geometry.heads for layer, piece in plan.bits):
        sizes = f"{geometry.layers} layers of {geometry.heads} slices"
        raise StreamingError(f"a plan for another model than the store's {sizes}", remedy=again)
    absent = sorted(set(plan.bits.values()) - set(store.bits))
    if absent:
        there = ", ".join(map(str, store.bits))
        what = f"the plan has shards of {absent[0]} bits, the store has {there}"
        raise StreamingError(what, remedy="shard with --bits again")
