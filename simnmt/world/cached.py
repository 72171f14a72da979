"""Caches of translations before the decisions of the reference. What they answer occupies no device and teaches no policy."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import TYPE_CHECKING

from simnmt.devices.device import ANSWERED, ARRIVES
from simnmt.devices.translation_cache import HIT, JOINED, CacheConfiguration, SentenceCache
from simnmt.results.columns import Array
from simnmt.world.deciders import Decider
from simnmt.world.inputs import World

if TYPE_CHECKING:
    from simnmt.world.reference import Simulation, Try


def cached_columns(world: World) -> frozenset[str]:
    """Return the columns of a run with caches.

    `execution_s` of a request that a cache answered is the time in which it did; `retry_s` holds waits for translations that
    were lost or refused.
    """
    if not world.has_caches:
        return frozenset()
    fails = world.refuses or world.faults is not None
    return frozenset({"hit", "execution_s", "retry_s"} if fails else {"hit", "execution_s"})


class CachedRequests:
    """The caches of a run's deciders, each of which has one of its own."""

    def __init__(self, world: Simulation, settings: Sequence[CacheConfiguration | None], sentence: Array) -> None:
        """`settings`: by group of deciders; `sentence`: of each request."""
        self._world, self._settings, self._sentence = world, settings, sentence.tolist()
        self._caches: dict[Decider, SentenceCache] = {}

    def cache_of(self, decider: Decider) -> SentenceCache | None:
        """Return the cache of a decider; None if it has none."""
        settings = self._settings[decider.group]
        if decider not in self._caches and settings is not None:
            self._caches[decider] = settings.sentence_cache()
        return self._caches.get(decider)

    def request(self, request: int, decider: Decider, cache: SentenceCache) -> Try:
        """Answer a request from the cache or with a translation that is under way; else let it be translated, and keep that.

        If a translation that others wait for is lost or refused, the first of them is translated in its place.
        """
        world, clock, sentence, arrival_s = self._world, self._world.clock, self._sentence[request], self._world.clock.now
        hit = HIT if cache.look_up(sentence, clock.now) is not None else 0
        while not hit and (translated := cache.under_way.get(sentence)) is not None:
            hit = JOINED if (yield translated) else 0
            if not hit and sentence not in cache.under_way:
                world.note_lost_time(request)
        if hit:
            hit_s = self.record(request, decider, hit, clock.now - arrival_s)
            yield clock.moment(clock.now + hit_s, ANSWERED, request)
            return False
        cache.begin(sentence, clock.event())
        lost_s, miss_s = world.lost_s(request), self.miss_s(decider)
        if miss_s:
            world.first_s.setdefault(request, clock.now)
            yield clock.moment(clock.now + miss_s, ARRIVES, request)
        world.decided_s[request] = clock.now
        is_refused = yield from world.translate(request, decider)
        is_answered = not is_refused and bool(world.trail["target"][request] >= 0)
        if is_answered:
            yield clock.moment(clock.now, ANSWERED, request)  # after the executions that end now, as an answer from afar
        waiting = cache.insert(sentence, clock.now) if is_answered else cache.failed(sentence)
        if waiting is not None:
            waiting.succeed(is_answered)
        if world.lost_s(request) == lost_s:  # else the look-up is part of the time lost until a refusal
            world.trail["queue_s"][request] += miss_s
        return is_refused

    def miss_s(self, decider: Decider) -> float:
        """Return the seconds in which the cache of a decider finds that it has no answer; 0 without one."""
        settings = self._settings[decider.group]
        return 0.0 if settings is None else settings.miss_s

    def answer(self, request: int, decider: Decider, now_s: float) -> float | None:
        """Return the seconds in which the cache of a decider answers a request now; None if it has no answer."""
        cache = self.cache_of(decider)
        if cache is None or cache.look_up(self._sentence[request], now_s) is None:
            return None
        return self.record(request, decider, HIT)

    def insert(self, request: int, decider: Decider, now_s: float) -> None:
        """Keep the translation of a request, which had to wait for its look-up, from now on, if its decider has a cache."""
        if (cache := self.cache_of(decider)) is not None:
            cache.insert(self._sentence[request], now_s)
            self._world.trail["queue_s"][request] += self.miss_s(decider)

    def record(self, request: int, decider: Decider, hit: int, waited_s: float = 0.0) -> float:
        """Record a request that is answered without a decision; return the seconds in which the cache answers."""
        settings, trail = self._settings[decider.group], self._world.trail
        assert settings is not None
        trail["hit"][request], trail["queue_s"][request], trail["execution_s"][request] = hit, waited_s, settings.hit_s
        trail["target"][request] = 0  # an earlier try may have had another
        for name in trail.keys() & {"estimate_s", "measured_at_s", "decision_regret_s"}:
            trail[name][request] = nan
        if "first_token_s" in trail:
            trail["first_token_s"][request] = waited_s + settings.hit_s
        if "transfer_s" in trail:
            trail["transfer_s"][request] = 0.0
        return settings.hit_s
