"""The cache of a live gateway: the object of the simulation, driven by real moments, which keeps texts with their lengths."""

from __future__ import annotations

import asyncio
import time
import unicodedata
from collections.abc import Awaitable, Callable, Hashable
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram

from simnmt.devices.translation_cache import HIT, JOINED, CacheConfiguration
from simnmt.live.engine import Result
from simnmt.live.server import Trip

Key = tuple[Hashable, ...]
RESULTS = ("miss", "hit", "joined")
"""Labels of looked-up sentences, in the order of `RequestRecord.hit`."""
LOOKUP_BUCKETS_S = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1)


class Kept(NamedTuple):
    """A kept translation, with the lengths of `Result`."""

    text: str
    lengths: tuple[int, int, int]


def normalised(text: str) -> str:
    """Return the form of a text in which equal sentences are equal: composed characters, and single blanks between words."""
    return unicodedata.normalize("NFC", " ".join(text.split()))


class LiveCache:
    """The translations that a gateway keeps in its own memory."""

    def __init__(self, settings: CacheConfiguration, metrics: CollectorRegistry) -> None:
        self.cache = settings.sentence_cache()
        looked_up = Counter("simnmt_cache_requests", "Texts looked up in the cache, by result.", ["result"], registry=metrics)
        self._counts = [looked_up.labels(result) for result in RESULTS]
        what = "Time of a look-up in the cache."
        self._lookup = Histogram("simnmt_cache_lookup_seconds", what, buckets=LOOKUP_BUCKETS_S, registry=metrics)

    async def answer(self, trip: Trip, key: Key, translate: Callable[[], Awaitable[Result]]) -> Result:
        """Return what is kept of a text, or comes of a translation of it that is under way; else translate it, and keep that.

        If a translation that others wait for fails or is given up, the first of them translates in its place: each ends as its
        own request would. Raises what `translate` raises.
        """
        begin_s = time.monotonic()
        while True:
            kept, hit, looked_up_s = await self._look_up(key), HIT, time.monotonic()
            if kept is None and (translated := self.cache.under_way.get(key)) is not None:
                kept, hit = await asyncio.shield(translated), JOINED  # who gives up leaves the others waiting
                looked_up_s = time.monotonic()
            elif kept is None:
                break
            if kept is not None:
                trip.hit = hit
                self._counts[hit].inc()
                waited_s = looked_up_s - begin_s if hit == JOINED else 0.0
                seconds = time.monotonic() - begin_s - waited_s
                return Result(kept.text, waited_s, seconds, lengths=kept.lengths, decision=f"target=0;hit={hit}")
        self._counts[0].inc()
        self.cache.begin(key, asyncio.get_running_loop().create_future())
        result, waited_s = None, time.monotonic() - begin_s
        try:
            result = await translate()
        finally:
            kept = None if result is None else Kept(result.text, result.lengths)
            waiting = self.cache.failed(key) if kept is None else self._keep(key, kept)
            if waiting is not None:
                waiting.set_result(kept)
        result.queue_s += waited_s
        return result

    async def close(self) -> None:
        """End what the cache is connected to."""

    async def _look_up(self, key: Key) -> Kept | None:
        begin_s = time.monotonic()
        kept: Kept | None = self.cache.look_up(key, begin_s)
        self._lookup.observe(time.monotonic() - begin_s)
        return kept

    def _keep(self, key: Key, kept: Kept) -> asyncio.Future[Kept | None] | None:
        """Keep a translation; return what those that wait for it share."""
        waiting: asyncio.Future[Kept | None] | None = self.cache.insert(key, time.monotonic(), kept)
        return waiting
