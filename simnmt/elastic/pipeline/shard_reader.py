"""Reads shards one after another, as fast as the disk gives them or held to the pace of a slower flash (STI-07, STI-16)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from simnmt.costs.sti_cost import Shard
from simnmt.costs.token_bucket import TokenBucket
from simnmt.elastic import page_cache
from simnmt.elastic.errors import ElasticError
from simnmt.elastic.pipeline.waking import sleep_until
from simnmt.elastic.shard_layout import aligned_bytes
from simnmt.elastic.store.packed import Packed, decode

if TYPE_CHECKING:
    from simnmt.elastic.store.shard_store import ShardStore


class ShardReader:
    """The one IO channel of a pipeline.

    Paced, a read ends when a disk of that rate would have ended it; the next one begins there, however late we woke up, so that
    what the clock adds to one read is not lost for the rest. A read that takes longer than its pace ends when it ends.
    Raises `ElasticError` for a pace that is no positive number.
    """

    def __init__(
        self, store: ShardStore, pace_bytes_per_s: float | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        if pace_bytes_per_s is not None and not 0.0 < pace_bytes_per_s < math.inf:
            raise ElasticError(f"a pace of {pace_bytes_per_s:g} bytes a second", remedy="give a positive number of MB/s")
        self.store, self.pace_bytes_per_s = store, pace_bytes_per_s
        self.clock = clock
        self.begin()

    def begin(self) -> None:
        """Forget the reads before: the channel has been idle."""
        self._bucket = None if self.pace_bytes_per_s is None else TokenBucket(self.pace_bytes_per_s)
        self._free_s = -math.inf

    def read(self, shard: Shard, bits: int) -> Packed:
        """One shard's record, verified: the checksum is reckoned within the time that its pace leaves.

        Raises `StoreError` for what is not what was written.
        """
        record = self.store.record(*shard, bits)
        out = aligned_bytes(record.size)
        if self._bucket is None:
            self.store.read_into(record, out)
            self.store.verify(record, out)
            return decode(out)
        begin_s = self.clock() if self._free_s == -math.inf else self._free_s
        end_s = self._bucket.end_s(begin_s, record.size)
        self.store.read_into(record, out)
        self.store.verify(record, out)
        found = decode(out)
        self._free_s = max(self.clock(), end_s)
        sleep_until(end_s, self.clock)
        return found

    def drop_cache(self) -> bool:
        """Drop the store's file from this system's memory; whether nothing of it is left there."""
        return page_cache.drop(self.store.file) == 0
