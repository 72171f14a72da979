"""Reads of shards: the paced IO channel, the preload buffer, and the read jobs of one execution (STI-07, STI-15 to STI-17)."""

from __future__ import annotations

import ctypes
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simnmt.profile.streaming_cost import Shard, TokenBucket
from simnmt.streaming import page_cache
from simnmt.streaming.errors import StreamingError
from simnmt.streaming.plan.streaming_plan import longest_prefix
from simnmt.streaming.store.shard_format import Packed, aligned_bytes, decode, record_size

if TYPE_CHECKING:
    from simnmt.streaming.plan.streaming_plan import StreamingPlan
    from simnmt.streaming.store.shard_store import ShardStore

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

    def read(self, shard: Shard, bits: int) -> Packed:
        """Return one shard, read and verified; the check takes place within the paced time.

        Raises `StoreError` for a damaged record.
        """
        record = self.store.record(*shard, bits)
        out, end_s = aligned_bytes(record.size), -math.inf
        if self._bucket is not None:
            end_s = self._bucket.end_s(self.clock() if self._free_s == -math.inf else self._free_s, record.size)
        self.store.read_into(record, out)
        self.store.verify(record, out)
        packed = decode(out)
        if self._bucket is not None:
            self._free_s = max(self.clock(), end_s)
            sleep_until(end_s, self.clock)
        return packed

    def drop_cache(self) -> bool:
        """Drop the store's file from memory; return whether no page of it is left."""
        return page_cache.drop(self.store.file) == 0


class PreloadBuffer:
    """A buffer of compressed shards up to `capacity_bytes`. Raises `StreamingError` for a negative capacity."""

    def __init__(self, capacity_bytes: int) -> None:
        if capacity_bytes < 0:
            raise StreamingError(f"a preload buffer of {capacity_bytes:,} bytes", remedy="give 0 or more")
        self.capacity_bytes = capacity_bytes
        self._held: dict[Shard, Packed] = {}

    @property
    def contents(self) -> dict[Shard, int]:
        """Bits by shard, in layer order: `cached` of the next plan."""
        return {shard: packed.bits for shard, packed in sorted(self._held.items())}

    @property
    def size_bytes(self) -> int:
        """Bytes of all held records, with headers and outliers."""
        return sum(map(packed_bytes, self._held.values()))

    def get(self, shard: Shard, bits: int) -> Packed | None:
        """Return the shard if it is held at this bitwidth, else None."""
        packed = self._held.get(shard)
        return packed if packed is not None and packed.bits == bits else None

    def fill(self, reader: ShardReader, plan: StreamingPlan) -> int:
        """Fill the buffer with the preloaded shards of a plan; return the bytes read.

        Other shards are dropped. The longest prefix in layer order that fits is kept: plans use mean record sizes, and records
        with more outliers are larger. The execution reads the shards that do not fit.
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
        """Replace the contents by the shards of an execution, then evict."""
        self._held = dict(shards)
        self.evict()

    def evict(self) -> tuple[Shard, ...]:
        """Drop shards from the top layer down, the last slice first, until the rest fits; return them in this order."""
        sizes = [(shard, packed_bytes(packed)) for shard, packed in sorted(self._held.items())]
        kept = longest_prefix(sizes, self.capacity_bytes)
        gone = tuple(shard for shard, _ in reversed(sizes) if shard not in kept)
        for shard in gone:
            del self._held[shard]
        return gone


def packed_bytes(packed: Packed) -> int:
    """Return the bytes of the record of a shard."""
    return record_size(packed.weights, packed.bits, len(packed.outlier_at))


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """The shards of a layer in memory; times in seconds since the execution began."""

    packed: dict[Shard, Packed]
    """Shards in slice order."""
    begin_s: float
    end_s: float
    bytes_read: int


class Loads:
    """The read jobs of one execution, and the bytes of compressed shards in memory."""

    def __init__(
        self,
        plan: StreamingPlan,
        buffer: PreloadBuffer,
        reader: ShardReader,
        pool: ThreadPoolExecutor,
        clock: Callable[[], float],
    ) -> None:
        """Start all reads on `pool`, which has one thread; `clock` returns seconds since the execution began."""
        self._plan, self._buffer, self._reader, self._clock = plan, buffer, reader, clock
        self._stopped, self._counting = threading.Event(), threading.Lock()
        self._bytes = self.peak_bytes = buffer.size_bytes
        reader.begin()
        self._jobs: dict[int, Future[Loaded]] = {}
        for layer in plan.layer_indices:
            held = {shard: buffer.get(shard, plan.bits[shard]) for shard in plan.shards_of(layer)}
            there = {shard: packed for shard, packed in held.items() if packed is not None}
            # A layer in memory needs no job: the hand-over would take longer than a small layer.
            self._jobs[layer] = _done(Loaded(there, 0.0, 0.0, 0)) if len(there) == len(held) else pool.submit(self._load, layer)

    def of(self, layer: int) -> Loaded:
        """Wait for a layer and return it. Raises the error of its reads."""
        return self._jobs[layer].result()

    def wait(self) -> None:
        """Wait for all layers."""
        for job in self._jobs.values():
            job.result()

    def forget(self, layer: int, shards: Iterable[Shard]) -> None:
        """Release a computed layer, of which `shards` do not stay in the buffer.

        Shards that the buffer already holds count as in memory until its eviction after the execution.
        """
        packed = self._jobs.pop(layer).result().packed
        size = sum(packed_bytes(packed[shard]) for shard in shards if self._buffer.get(shard, packed[shard].bits) is None)
        with self._counting:  # one atomic step: a read between the two would count on top of released shards
            del packed
            self._bytes -= size

    def stop(self) -> None:
        """Cancel all reads that have not begun."""
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
                self._count(size)  # a read in progress takes its full room
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
