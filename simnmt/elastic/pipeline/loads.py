"""The reads of one execution: a job a layer, in order on one thread, ahead of the computing as far as they get (STI-16)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simnmt.costs.sti_cost import Shard
from simnmt.elastic.pipeline.preload_buffer import PreloadBuffer, packed_bytes
from simnmt.elastic.pipeline.shard_reader import ShardReader
from simnmt.elastic.store.packed import Packed

if TYPE_CHECKING:
    from simnmt.sti.plan import Plan


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A layer's shards, in memory; seconds since the execution began."""

    packed: dict[Shard, Packed]
    """In slice order."""
    begin_s: float
    end_s: float
    bytes_read: int


class Loads:
    """Begins to read at once, and notes how many bytes of compressed shards are in memory."""

    def __init__(
        self, plan: Plan, buffer: PreloadBuffer, reader: ShardReader, pool: ThreadPoolExecutor, clock: Callable[[], float]
    ) -> None:
        """`pool`: of one thread. `clock`: seconds since the execution began."""
        self._plan, self._buffer, self._reader, self._clock = plan, buffer, reader, clock
        self._stopped, self._counting = threading.Event(), threading.Lock()
        self._bytes = self.peak_bytes = buffer.size_bytes
        reader.begin()
        self._jobs: dict[int, Future[Loaded]] = {}
        for layer in plan.layer_indices:
            held = {shard: buffer.get(shard, plan.bits[shard]) for shard in plan.shards_of(layer)}
            there = {shard: packed for shard, packed in held.items() if packed is not None}
            # What is there needs no job: handing it over would take longer than a small layer.
            self._jobs[layer] = _done(Loaded(there, 0.0, 0.0, 0)) if len(there) == len(held) else pool.submit(self._load, layer)

    def of(self, layer: int) -> Loaded:
        """Wait for a layer. Raises what reading it raised."""
        return self._jobs[layer].result()

    def wait(self) -> None:
        """Wait for all layers."""
        for job in self._jobs.values():
            job.result()

    def forget(self, layer: int, shards: Iterable[Shard]) -> None:
        """Let go of a layer that was computed; these of its shards do not stay in the buffer.

        Those that it holds already count until it is evicted, after the execution.
        """
        packed = self._jobs.pop(layer).result().packed
        size = sum(packed_bytes(packed[shard]) for shard in shards if self._buffer.get(shard, packed[shard].bits) is None)
        with self._counting:  # in one step: else what is read between the two counted on top of what is gone
            del packed
            self._bytes -= size

    def stop(self) -> None:
        """Read no more than what is being read."""
        self._stopped.set()
        for job in self._jobs.values():
            job.cancel()
        wait(self._jobs.values())

    def _load(self, layer: int) -> Loaded:
        begin_s, read, packed = self._clock(), 0, dict[Shard, Packed]()
        for shard in self._plan.shards_of(layer):
            if self._stopped.is_set():
                raise CancelledError
            bits = self._plan.bits[shard]
            held = self._buffer.get(shard, bits)
            if held is None:
                size = self._reader.store.record(*shard, bits).size
                self._count(size)  # it takes its room while it is read
                held = self._reader.read(shard, bits)
                read += size
            packed[shard] = held
        return Loaded(packed, begin_s, self._clock(), read)

    def _count(self, size: int) -> None:
        with self._counting:
            self._bytes += size
            self.peak_bytes = max(self.peak_bytes, self._bytes)


def _done(loaded: Loaded) -> Future[Loaded]:
    job: Future[Loaded] = Future()
    job.set_result(loaded)
    return job
