"""Caches before the decisions of a world: against caches written down here, closed forms, and by hand."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

from simnmt.base.errors import InputError
from simnmt.devices import Fifo
from simnmt.devices.translation_cache import CacheConfiguration
from simnmt.network.outages import DownTimes
from simnmt.results.requests import LOST, Requests, Trail
from simnmt.world.faults import Faults
from simnmt.world.inputs import Clients
from tests.worlds import alternately, believing, everything_to, in_compiled, in_engine, in_reference, needs_compiled, simulate


def asked(arrival_s: Any, sentence: Any, here_s: float = 0.0, there_s: float = 0.0, way_s: float = 0.0) -> Requests:
    """Requests at a gateway and a cloud that are `way_s` apart."""
    columns = [np.full(len(arrival_s), seconds) for seconds in (here_s, there_s, way_s)]
    here, there, way = columns
    src_len = np.arange(len(arrival_s))
    times = np.asarray(arrival_s, np.float64)
    return Requests(src_len, (here, there), (way,), (way,), times, sentence=np.asarray(sentence, np.int32))


def cached(requests: Requests, target: int = 1, run: Any = simulate, **keys: Any) -> Trail:
    """A run of a gateway with a cache of these keys; both engines agree on it."""
    settings = CacheConfiguration(**({"entries": 100} | keys))
    return run(requests, everything_to(target), believing(0.1), [Fifo()], caches=[settings])


def zipf(exponent: float, over: int) -> Any:
    weights = np.arange(1, over + 1.0) ** -exponent
    return weights / weights.sum()


def test_a_hit_takes_no_device_and_a_request_for_a_sentence_under_way_waits_for_its_answer() -> None:
    """The answer to request 0 is received at 1.4 s, and kept for a second."""
    requests = asked([0.0, 0.4, 1.4, 2.3, 2.4], [7, 7, 7, 7, 7], there_s=1.0, way_s=0.2)
    trail = cached(requests, ttl_s=1.0, hit_ms=10.0)
    assert trail.hit.tolist() == [0, 2, 1, 1, 0]
    assert trail.target.tolist() == [1, 0, 0, 0, 1]
    assert trail.queue_s == pytest.approx([0.0, 1.0, 0.0, 0.0, 0.0])
    assert trail.execution_s == pytest.approx([np.nan, 0.01, 0.01, 0.01, np.nan], nan_ok=True)
    assert np.isnan(trail.estimate_s).tolist() == [False, True, True, True, False]
    assert trail.measured_at_s[4] == pytest.approx(1.4), "it has learnt from the translation alone"


def test_without_coalescing_a_sentence_is_translated_as_often_as_it_is_asked_for_before_its_answer() -> None:
    trail = cached(asked([0.0, 0.4, 1.5], [7, 7, 7], there_s=1.0), coalesce=False)
    assert trail.hit.tolist() == [0, 0, 1]
    assert trail.queue_s == pytest.approx([0.0, 0.6, 0.0])


def test_each_decider_has_its_own_cache_and_a_group_may_have_none() -> None:
    requests = asked(np.arange(8.0), [5] * 8)
    decider = np.array([0, 0, 1, 1, 2, 2, 3, 3], np.int32)
    beliefs = [believing(0.1)] * 2
    caches = [CacheConfiguration(entries=1), None]
    trail = simulate(requests, alternately, beliefs, [Fifo()], local=[Fifo(3), Fifo()], decider=decider, caches=caches)
    assert trail.hit.tolist() == [0, 1, 0, 1, 0, 1, 0, 0]


@pytest.mark.parametrize("entries", [1, 10, 150])
def test_where_answers_come_at_once_the_hits_are_those_of_a_cache_over_the_log(entries: int) -> None:
    random = np.random.default_rng(3)
    sentence = random.choice(400, 3_000, p=zipf(0.9, 400))
    trail = cached(asked(np.arange(3_000.0), sentence), target=0, entries=entries)
    kept, hits = OrderedDict[int, None](), list[int]()
    for number in sentence.tolist():
        hits.append(int(number in kept))
        kept.pop(number, None)
        kept[number] = None
        if len(kept) > entries:
            del kept[next(iter(kept))]
    assert trail.hit.tolist() == hits
    assert 0 < sum(hits) < len(hits)


@needs_compiled
@pytest.mark.parametrize(("exponent", "entries"), [(0.8, 300), (1.1, 1_000)])
def test_the_hit_rate_is_ches_approximation(exponent: float, entries: int) -> None:
    """H. Che, Y. Tung and Z. Wang, IEEE JSAC 20 (2002): an entry that is not used for the characteristic time makes room."""
    popularity, count = zipf(exponent, 10_000), 400_000
    random = np.random.default_rng(11)
    sentence = np.searchsorted(np.cumsum(popularity), random.random(count)).clip(0, 9_999)
    trail = cached(asked(np.arange(float(count)), sentence), target=0, run=in_compiled, entries=entries)
    time = brentq(lambda time: np.sum(1.0 - np.exp(-popularity * time)) - entries, 1.0, 1e8)
    expected = popularity @ (1.0 - np.exp(-popularity * time))
    assert np.mean(trail.hit[count // 4 :] > 0) == pytest.approx(expected, rel=0.01)


@needs_compiled
def test_translations_that_grow_old_are_renewed_as_a_renewal_process_says() -> None:
    """After a miss at rate r, a sentence is answered r * ttl times in the mean before the next one."""
    random, count, ttl_s = np.random.default_rng(5), 400_000, 40.0
    popularity = zipf(1.0, 200)
    sentence = random.choice(200, count, p=popularity)
    arrival_s = np.cumsum(random.exponential(1.0, count))
    trail = cached(asked(arrival_s, sentence), target=0, run=in_compiled, entries=200, ttl_s=ttl_s)
    expected = popularity @ (popularity * ttl_s / (1.0 + popularity * ttl_s))
    assert np.mean(trail.hit > 0) == pytest.approx(expected, rel=0.01)


def test_without_sentences_each_request_is_a_new_one() -> None:
    requests = Requests(np.arange(3), (np.ones(3), np.ones(3)), (np.ones(3),), (np.ones(3),), np.arange(3.0))
    assert not cached(requests).hit.any()


def test_a_client_that_waits_for_a_hit_thinks_after_it_and_the_compiled_engine_says_what_it_leaves_out() -> None:
    parts = asked([0.0] * 3, [7] * 3, here_s=1.0)
    requests = Requests(parts.src_len, parts.execution_s, sentence=parts.sentence)
    clients = Clients(1, 1, np.array([0.5, 0.25, 0.25, 0.25]))
    keys: dict[str, Any] = {"caches": [CacheConfiguration(entries=1, hit_ms=100.0)], "clients": clients}
    keys["route"] = lambda request, node, now_s: ((0.0,), (0.0,), 0.0, 0.0)
    trail = in_reference(requests, everything_to(0), believing(0.1), [Fifo()], **keys)
    assert trail.hit.tolist() == [0, 1, 1]
    assert trail.arrival_s == pytest.approx([0.5, 1.75, 2.1])
    with pytest.raises(InputError, match="closed"):
        in_engine(requests, everything_to(0), believing(0.1), [Fifo()], engine="compiled", **keys)


@pytest.mark.parametrize("up_again_s", [0.6, 99.0])
def test_of_requests_that_wait_for_a_translation_that_is_lost_the_first_is_translated_in_its_place(up_again_s: float) -> None:
    """The cloud fails at 0.5 s; the gateway learns of it at 0.7 s, and sends the next request."""
    requests = asked([0.0, 0.1, 0.2, 0.3], [7] * 4, here_s=9.0, there_s=1.0, way_s=0.2)
    box = Fifo(failures=[DownTimes([(0.5, up_again_s)])])
    settings = CacheConfiguration(entries=1)
    trail = in_reference(requests, everything_to(1), believing(0.1), [box], faults=Faults(), caches=[settings])
    if up_again_s > 1.0:
        assert trail.outcome.tolist() == [LOST] * 4 and not trail.hit.any()
        return
    assert (trail.outcome.tolist(), trail.hit.tolist()) == ([LOST, 0, 0, 0], [0, 0, 2, 2])
    assert trail.queue_s == pytest.approx([np.nan, 0.0, 1.9, 1.8], nan_ok=True)
    assert trail.retry_s == pytest.approx([0.0, 0.6, 0.0, 0.0]), "waited in vain"
    assert trail.transfer_s == pytest.approx([np.nan, 0.4, 0.0, 0.0], nan_ok=True)


@pytest.mark.parametrize(("passes_on", "answered_s"), [(False, [1.25, 2.25, 0.875, 1.125]), (True, [1.25, 2.25, 4.0, 5.0])])
def test_of_a_refused_request_each_look_up_counts_once(passes_on: bool, answered_s: list[float]) -> None:
    """Looked up in 50 ms, the last two are refused at 0.75 and 1.0; their clients come back 2 s later."""
    requests = asked([0.0, 0.25, 0.5, 0.75], range(4), here_s=0.125, there_s=1.0, way_s=0.1)
    requests = replace(requests, retry_after_s=(np.full(4, 2.0),) * passes_on)
    caches = [CacheConfiguration(entries=1, miss_ms=50.0)]
    trail = in_reference(requests, everything_to(1), believing(0.1), [Fifo(max_waiting=1)], caches=caches, passes_on=passes_on)
    there = trail.target == 1
    latency_s = trail.retry_s + trail.queue_s + np.where(there, 1.2, 0.125)
    assert trail.arrival_s + latency_s == pytest.approx(answered_s)
