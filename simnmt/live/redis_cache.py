"""A cache of translations in Redis, which several gateways may share. A Redis that does not answer fails no request."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from hashlib import sha256

from prometheus_client import CollectorRegistry, Counter

from simnmt.base.packages import named_if_missing
from simnmt.devices.translation_cache import CacheConfiguration
from simnmt.live.cached_translations import Kept, Key, LiveCache

TIMEOUT_S = 0.1
"""Time after which a look-up counts as a miss."""
PAUSE_S = 1.0
"""Time for which a Redis that did not answer is not asked again."""


class RedisCache(LiveCache):
    """The translations that Redis keeps. Requests that wait for a translation under way are those of the gateway itself."""

    def __init__(self, settings: CacheConfiguration, metrics: CollectorRegistry, on_error: Callable[[str], None]) -> None:
        """Raise `MissingPackage` without redis-py."""
        super().__init__(settings, metrics)
        with named_if_missing("redis"):
            from redis.asyncio import Redis
            from redis.exceptions import RedisError
        assert settings.redis is not None
        self._client = Redis.from_url(settings.redis, retry=None, socket_timeout=TIMEOUT_S)
        self._ttl_ms = None if settings.ttl_s is None else max(round(1e3 * settings.ttl_s), 1)
        self._faults = (RedisError, OSError, asyncio.TimeoutError)
        self._on_error, self._asked_again_s = on_error, 0.0
        self._errors = Counter("simnmt_cache_errors", "Look-ups and translations that Redis did not take.", registry=metrics)
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """End the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.aclose()

    async def _look_up(self, key: Key) -> Kept | None:
        begin_s = time.monotonic()
        if begin_s < self._asked_again_s:
            return None
        try:
            content = await asyncio.wait_for(self._client.get(_name(key)), TIMEOUT_S)
        except self._faults as error:
            self._note_fault(error)
            return None
        finally:
            self._lookup.observe(time.monotonic() - begin_s)
        return None if content is None else _kept(content)

    def _keep(self, key: Key, kept: Kept) -> asyncio.Future[Kept | None] | None:
        if time.monotonic() >= self._asked_again_s:  # the answer does not wait for this
            task = asyncio.get_running_loop().create_task(self._set(key, kept))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        waiting: asyncio.Future[Kept | None] | None = self.cache.failed(key)
        return waiting

    async def _set(self, key: Key, kept: Kept) -> None:
        try:
            await asyncio.wait_for(self._client.set(_name(key), json.dumps(kept), px=self._ttl_ms), TIMEOUT_S)
        except self._faults as error:
            self._note_fault(error)

    def _note_fault(self, error: Exception) -> None:
        self._errors.inc()
        if (now_s := time.monotonic()) >= self._asked_again_s:
            self._asked_again_s = now_s + PAUSE_S
            self._on_error(f"the cache in Redis does not answer ({str(error) or type(error).__name__}); translating without it")


def _name(key: Key) -> str:
    return f"simnmt:{sha256(json.dumps(key).encode()).hexdigest()}"


def _kept(content: bytes) -> Kept | None:
    """Return the translation that was kept; None for what this version has not written."""
    try:
        text, (src_len, tgt_len, batch) = json.loads(content)
        return Kept(str(text), (int(src_len), int(tgt_len), int(batch)))
    except (ValueError, TypeError):
        return None
