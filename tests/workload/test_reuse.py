"""Stack distances against a cache that is looked at request by request, and hits against Che's approximation."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from math import inf
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from simnmt.base.errors import InputError
from simnmt.workload.cache_savings import (
    CacheSavings,
    RequestedTexts,
    cache_savings,
    draw_requested_texts,
    read_requested_texts,
)
from simnmt.workload.repeats import ZipfRepeats
from simnmt.workload.reuse import Reuse, cache_sizes


def hits_one_by_one(texts: Sequence[int], entries: int, time_s: Sequence[float], ttl_s: float = inf) -> list[bool]:
    """Whether a cache has each text: it drops the entry that was used least recently, and does not use any after `ttl_s`."""
    cache, hits = OrderedDict[int, float](), list[bool]()
    for text, now_s in zip(texts, time_s, strict=True):
        hits.append(text in cache and now_s < cache[text] + ttl_s)
        if not hits[-1]:
            cache[text] = now_s
        cache.move_to_end(text)
        if len(cache) > entries:
            cache.popitem(last=False)
    return hits


@given(st.lists(st.integers(0, 12), min_size=1, max_size=80))
def test_a_cache_has_a_text_if_its_size_is_at_least_the_stack_distance(texts: list[int]) -> None:
    reuse = Reuse.of(np.array(texts))
    for entries in range(1, 15):
        assert reuse.hits(entries).tolist() == hits_one_by_one(texts, entries, range(len(texts)))
    assert reuse.distinct == len(set(texts)) and reuse.repeated_share == pytest.approx(1 - len(set(texts)) / len(texts))
    assert reuse.hit_rates()[-1]["share"] == pytest.approx(reuse.repeated_share)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.floats(0.0, 3.0), st.integers(1, 50)), min_size=2, max_size=50),
    st.integers(1, 7),
    st.floats(0.1, 8.0),
)
def test_savings_are_those_of_a_cache_whose_entries_expire(
    requests: list[tuple[int, float, int]], entries: int, ttl_s: float
) -> None:
    texts, gap_s, characters = map(list, zip(*requests, strict=True))
    time_s = np.cumsum(gap_s) + np.arange(len(texts)) * 1e-6
    time_s -= time_s[0]
    source = RequestedTexts("log", "a log", np.array(texts), np.array(characters, np.float64), time_s)
    savings = cache_savings(source, ttl_s=ttl_s)
    row = savings.saving(entries)
    hits = np.array(hits_one_by_one(texts, entries, time_s.tolist(), ttl_s))
    assert row.hit_share == pytest.approx(hits.mean(), abs=1e-9)
    assert row.characters_saved_share == pytest.approx(hits @ characters / sum(characters), abs=1e-9)
    assert savings.rate_rps is not None and row.misses_rps == pytest.approx(savings.rate_rps * (1 - hits.mean()))
    assert row.hit_share_without_ttl == pytest.approx(np.mean(hits_one_by_one(texts, entries, time_s.tolist())))


@pytest.mark.parametrize(("exponent", "entries"), [(0.8, 2_000), (1.0, 300), (1.2, 50)])
def test_hits_under_zipfs_law_are_those_of_ches_approximation(exponent: float, entries: int) -> None:
    law = ZipfRepeats(zipf=exponent, over=20_000).read(Path())
    time = brentq(lambda span: -np.expm1(-law.shares * span).sum() - entries, 1.0, 1e9)
    expected = float(law.shares @ -np.expm1(-law.shares * time))
    savings = CacheSavings(draw_requested_texts(exponent, 20_000), None, None)
    assert savings.saving(entries).hit_share == pytest.approx(expected, rel=0.01)


def test_a_rate_sets_the_time_in_which_entries_live() -> None:
    texts = np.tile(np.arange(100), 50)
    source = RequestedTexts("text", "", texts)
    times = (10.001, 10.0), (9.99, 10.0), (10.0, 25.0)
    shares = [cache_savings(source, rate_rps, ttl_s).saving(100).hit_share for rate_rps, ttl_s in times]
    assert shares == [0.5, 0.0, 0.66], "every second round finds what the one before it stored, none does, or two of three do"
    faster = RequestedTexts("log", "", texts, time_s=np.arange(5_000.0))
    assert cache_savings(faster, 10.001, 10.0).saving(100).hit_share == 0.5
    assert cache_savings(faster, None, 10.0).saving(100).hit_share == 0.0
    with pytest.raises(InputError, match="needs the rate"):
        cache_savings(source, None, 10.0)


def test_a_million_requests_take_seconds_and_not_the_square_of_their_number() -> None:
    texts = np.random.default_rng(1).zipf(1.3, 1_000_000) % 300_000
    begin_s = process_time()
    assert len(Reuse.of(texts).hit_rates()) > 10
    *_, before, last = cache_savings(RequestedTexts("log", "", texts), 20.0, 1.0).rows
    assert before.hit_share == last.hit_share < last.hit_share_without_ttl
    assert process_time() - begin_s < 60.0, "although entries live for a second"


def test_sizes_go_up_to_all_texts() -> None:
    assert cache_sizes(7) == [1, 2, 5, 7] and cache_sizes(1) == [1] and cache_sizes(100) == [1, 2, 5, 10, 20, 50, 100]


def test_texts_and_logs_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "news.de").write_text("ein Haus\n\nein Hund, zwei\nein Haus\n", encoding="utf-8")
    (tmp_path / "log.csv").write_text('# kind: measured\nt_s;text\n0;"ein Haus"\n4;Hund\n8;"ein Haus"\n9;\n')
    (tmp_path / "log.jsonl").write_text('{"timestamp": 0, "hash": "a"}\n{"timestamp": 9000, "hash": "a"}\n')
    text, log, hashes = (read_requested_texts(tmp_path / name) for name in ("news.de", "log.csv", "log.jsonl"))
    assert Reuse.of(text.texts).distance.tolist() == [0, 0, 2] == Reuse.of(log.texts).distance.tolist()
    assert text.characters is not None and text.characters.tolist() == [7.0, 12.0, 7.0] and text.rate_rps is None
    assert log.characters is not None and log.characters.tolist() == [7.0, 4.0, 7.0] and log.rate_rps == 0.25
    assert hashes.characters is None and Reuse.of(hashes.texts).distance.tolist() == [0, 1]
