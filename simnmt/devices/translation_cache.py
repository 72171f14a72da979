"""A cache of translations before the decision: its keys in a scenario, and the sentences that one decider keeps.

The simulated deciders and the live gateway keep the same object. It has no clock: it is given moments.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from math import inf
from typing import Annotated, Any

from pydantic import Field

from simnmt.base.configuration import Configuration

HIT, JOINED = 1, 2
"""`hit` of a request: a cache had the answer; the request waited for a translation of the same sentence that was under way."""


class CacheConfiguration(Configuration):
    """A cache of translations at the first device. A policy decides on the requests that it does not answer, and learns from
    those alone."""

    entries: Annotated[int, Field(ge=1, le=10_000_000)]
    """Most sentences that are kept; the least recently used one makes room."""
    ttl_s: Annotated[float, Field(gt=0.0, le=1e9)] | None = None
    """Time for which a translation is kept, from when the device has it, however often it is used; left out: until it makes
    room."""
    hit_ms: Annotated[float, Field(ge=0.0, le=1e6)] = 0.0
    """Time in which the cache answers."""
    miss_ms: Annotated[float, Field(ge=0.0, le=1e6)] = 0.0
    """Time in which it finds that it has no answer, before the decision."""
    coalesce: bool = True
    """Whether a request for a sentence whose translation is under way waits for that; else it is translated too."""
    redis: Annotated[str, Field(pattern=r"^rediss?://.+")] | None = None
    """URL of a Redis that keeps the translations in place of the live gateway, and that several gateways may share, such as
    `redis://host:6379/0`; its own settings limit its entries. A simulation has `hit_ms` and `miss_ms` for it."""

    def describe(self) -> str:
        """Describe which requests the cache answers."""
        ages = "" if self.ttl_s is None else f", each for {self.ttl_s:g} s"
        joins = "; a request for a sentence that is being translated waits for that answer" if self.coalesce else ""
        kept = f"keeps the translations of up to {self.entries:,} sentences{ages}, and drops the least recently used first"
        return f"{kept}; it answers from them in {self.hit_ms:g} ms, without a decision and on no device{joins}"

    @property
    def hit_s(self) -> float:
        """Seconds in which the cache answers."""
        return self.hit_ms / 1e3

    @property
    def miss_s(self) -> float:
        """Seconds in which the cache finds that it has no answer."""
        return self.miss_ms / 1e3

    @property
    def lifetime_s(self) -> float:
        """Seconds for which a translation is kept; infinite without a limit."""
        return inf if self.ttl_s is None else self.ttl_s

    def sentence_cache(self) -> SentenceCache:
        """Return the empty cache of one decider."""
        return SentenceCache(self.entries, self.lifetime_s, self.coalesce)


class SentenceCache:
    """The translations that one decider keeps, and the sentences that it is having translated.

    A translation that is too old takes its place until it is asked for or makes room.

    Example:
        >>> cache = SentenceCache(entries=1, ttl_s=60.0)
        >>> cache.look_up("Guten Tag", 0.0) is None, "Guten Tag" in cache.under_way
        (True, False)
        >>> cache.begin("Guten Tag", waiting=[])
        >>> cache.insert("Guten Tag", 2.0, "Good day")
        []
        >>> cache.look_up("Guten Tag", 61.0), cache.look_up("Guten Tag", 62.0)
        ('Good day', None)
    """

    def __init__(self, entries: int, ttl_s: float = inf, coalesce: bool = True) -> None:
        self._entries, self._ttl_s, self._coalesces = entries, ttl_s, coalesce
        self._kept: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        """Moment of insertion and answer by sentence, the least recently used first."""
        self.under_way: dict[Hashable, Any] = {}
        """By sentence that is being translated, what others that wait for the answer share; empty without `coalesce`."""

    def look_up(self, sentence: Hashable, now_s: float) -> Any | None:
        """Return the answer of a sentence, which is then the most recently used; None if it is not kept, or too old."""
        if sentence not in self._kept:
            return None
        inserted_s, answer = self._kept[sentence]
        if now_s - inserted_s >= self._ttl_s:
            del self._kept[sentence]
            return None
        self._kept.move_to_end(sentence)
        return answer

    def begin(self, sentence: Hashable, waiting: Any) -> None:
        """Note that a sentence is being translated; `waiting`: what others that wait for the answer share."""
        if self._coalesces:
            self.under_way[sentence] = waiting

    def insert(self, sentence: Hashable, now_s: float, answer: Any = True) -> Any | None:
        """Keep the answer of a sentence from now on; return what those that wait for it share, None without any."""
        self._kept[sentence] = now_s, answer
        self._kept.move_to_end(sentence)
        if len(self._kept) > self._entries:
            self._kept.popitem(last=False)
        return self.failed(sentence)

    def failed(self, sentence: Hashable) -> Any | None:
        """Note that a sentence was not translated; return as `insert` does."""
        return self.under_way.pop(sentence, None)
