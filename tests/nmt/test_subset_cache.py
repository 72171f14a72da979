"""Copies of sub-matrices that come again: within their budget, of the right weights, and never in the way of a result."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import sleep

import pytest

torch = pytest.importorskip("torch", reason="the extra packages of simnmt[models] are not installed")

from simnmt.batching import mini  # noqa: E402
from simnmt.kernels.columns import SubMatrix  # noqa: E402
from simnmt.nmt.errors import NmtError  # noqa: E402
from simnmt.nmt.linear_layers import HalfLinear, has_half_weights  # noqa: E402
from simnmt.nmt.models import build_model  # noqa: E402
from simnmt.nmt.slot_decoder import decode_batched  # noqa: E402
from simnmt.nmt.vocabulary.active_columns import (  # noqa: E402
    clustered,
    listed,
    with_measured_cost,
)
from simnmt.nmt.vocabulary.restricted_vocabulary import (  # noqa: E402
    ProductChoice,
    SubMatrixCache,
)
from tests.nmt.made_subsets import MadeLists, all_active, drawn, made_cost  # noqa: E402
from tests.nmt.tiny import GRU, VOCAB, lively, sources  # noqa: E402

WEIGHT = torch.randn((40, 8), generator=torch.Generator().manual_seed(1))


def columns(*chosen: int) -> torch.Tensor:
    return torch.tensor(chosen, dtype=torch.int32)


def always(_: int) -> bool:
    return True


def test_a_copy_is_made_when_it_pays_and_used_afterwards() -> None:
    """Asked with the number of uses, this one included; the product is that of the same columns."""
    cache, asked = SubMatrixCache(10_000), list[int]()

    def pays(uses: int) -> bool:
        asked.append(uses)
        return uses == 3

    copies = [cache.get(WEIGHT, columns(1, 5, 9), "key", pays) for _ in range(5)]
    assert asked == [1, 2, 3]
    assert copies[:2] == [None, None] and copies[2] is copies[3] is copies[4]
    assert (cache.hits, cache.misses, cache.made, len(cache)) == (2, 3, 1, 1)
    hidden = torch.randn((3, 8), generator=torch.Generator().manual_seed(2))
    assert copies[2] is not None
    assert torch.allclose(copies[2].products(hidden), hidden @ WEIGHT[[1, 5, 9]].T, atol=1e-6)


def test_the_least_recently_used_copies_are_freed_and_bytes_are_counted() -> None:
    one = SubMatrixCache(10_000).get(WEIGHT, columns(*range(10)), 0, always)
    assert one is not None
    cache = SubMatrixCache(2 * one.nbytes)
    for key in (0, 1, 0, 2):
        cache.get(WEIGHT, columns(*range(10)), key, always)
        assert cache.nbytes == sum(copy.nbytes for copy in cache._kept.values()) <= cache.budget_bytes
    assert list(cache._kept) == [0, 2]  # 1 was used least recently
    assert (cache.hits, cache.made) == (1, 3)


def test_a_copy_that_just_fits_is_kept_and_one_that_does_not_is_never_made() -> None:
    """Its allocation has more bytes than its numbers: by these alone it was made at every step and given back at once."""
    needed = SubMatrix.bytes_of(WEIGHT, 10)
    for budget, made, hits in ((needed, 1, 3), (needed - 1, 0, 0)):
        cache = SubMatrixCache(budget)
        copies = [cache.get(WEIGHT, columns(*range(10)), 0, always) for _ in range(4)]
        assert (cache.made, cache.hits, cache.nbytes) == (made, hits, made * needed)
        assert [copy is not None for copy in copies] == [bool(made)] * 4


def test_a_key_without_its_copy_must_be_used_again_before_the_next_copy() -> None:
    """Room for one, two in turn, each copy worth three uses: without that every step would make one."""
    cache = SubMatrixCache(SubMatrix.bytes_of(WEIGHT, 10))
    for step in range(60):
        cache.get(WEIGHT, columns(*range(10)), step % 2, lambda uses: uses >= 3)
    assert cache.made <= 60 / 3


def test_the_counts_of_keys_without_copies_are_bounded() -> None:
    cache = SubMatrixCache(100_000)
    for key in range(10_000):
        cache.get(WEIGHT, columns(1), ("a key", key), lambda uses: uses > 1)
    assert cache.made == 0 and len(cache._uses) <= 4_096
    assert all(isinstance(key, int) for key in cache._uses)


def test_threads_may_share_a_cache() -> None:
    """Copies made and given back at once by several; bytes add up, and each gets the columns that it asked for."""
    cache = SubMatrixCache(3 * SubMatrix.bytes_of(WEIGHT, 2))

    def ask(step: int) -> bool:
        key = step * 7 % 11
        copy = cache.get(WEIGHT, columns(key, key + 1), key, lambda uses: uses > 1)
        return copy is None or torch.equal(copy.columns, columns(key, key + 1))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(2_000)))
    assert cache.hits + cache.misses == 2_000
    assert cache.nbytes == sum(copy.nbytes for copy in cache._kept.values()) <= cache.budget_bytes


@pytest.mark.parametrize("kind", ["clusters", "lists"])
def test_directions_that_share_a_cache_keep_their_own_columns(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters of both have the same numbers, and the same sentences have other lists."""
    monkeypatch.setattr(ProductChoice, "pays", lambda *_: True)
    model, cache = lively("gru"), SubMatrixCache(1_000_000)
    alone = sources(GRU, [3, 9, 5, 7], seed=6)[0]
    for seed in (4, 5):
        if kind == "clusters":
            made = clustered(drawn(VOCAB, 16, 6, 0.3, [1, 3], seed))
        else:
            made = listed(MadeLists([[1, 3, *range(3 + seed, 50, seed)]], VOCAB))
        runs = [
            decode_batched(model, alone, mini(1), max_len=12, vocabulary=replace(made, cache=used_cache))
            for used_cache in (None, cache)
        ]
        assert runs[0].hypotheses != () and cache.made > 0
        assert [one.tokens for one in runs[0].hypotheses] == [one.tokens for one in runs[1].hypotheses]


def test_copies_never_exceed_the_budget() -> None:
    cache = SubMatrixCache(0)
    assert cache.get(WEIGHT, columns(1, 2), 0, always) is None
    with pytest.raises(NmtError, match=r"a cache of -1 bytes \(give 0 or more\)"):
        SubMatrixCache(-1)


def test_other_weights_have_copies_of_their_own() -> None:
    cache = SubMatrixCache(100_000)
    first = cache.get(WEIGHT, columns(1, 2), 0, always)
    assert cache.get(WEIGHT.detach(), columns(1, 2), 0, always) is first
    other = cache.get(2 * WEIGHT, columns(1, 2), 0, always)
    hidden = torch.ones((1, 8))
    assert first is not None and other is not None and len(cache) == 1
    assert torch.allclose(other.products(hidden), 2 * first.products(hidden))


@pytest.mark.parametrize("width", [1, 2])
def test_a_cache_changes_no_translation(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for some of the clusters' sets alone; hits are told step by step."""
    model, clusters = lively("gru"), drawn(VOCAB, 16, 6, 0.5, [1, 3], 4)
    alone = sources(GRU, [3, 9, 5, 7, 4, 12, 2, 6], seed=6)[0]
    without = decode_batched(model, alone, mini(1), beam=width, max_len=20, vocabulary=clustered(clusters))
    monkeypatch.setattr(ProductChoice, "pays", lambda *_: True)
    cache = SubMatrixCache(6_000)
    part = replace(clustered(clusters), cache=cache)
    run = decode_batched(model, alone, mini(1), beam=width, max_len=20, vocabulary=part)
    assert [one.tokens for one in run.hypotheses] == [one.tokens for one in without.hypotheses]
    assert run.subset is not None
    assert cache.hits + cache.misses == len(run.subset.columns)
    assert cache.hits > 0 and cache.made > len(cache)
    assert str(cache).startswith(f"copies of columns served {cache.hits:,} of {len(run.subset.columns):,} products: ")
    assert cache.nbytes <= 6_000


@pytest.mark.parametrize("slow", [False, True])
def test_the_cost_of_packed_weights_is_measured_with_their_own_product(slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the break-even all columns are multiplied where the packed product is fast, and not where it is slow."""
    if not has_half_weights():
        pytest.skip("this torch has no FBGEMM")
    vocab = 5_000
    model = build_model(GRU.model_copy(update={"tgt_vocab": vocab, "hidden": 64}), seed=1).eval()
    model.halve()

    def products(self: HalfLinear, inputs: torch.Tensor) -> torch.Tensor:
        if slow:
            sleep(0.005)
        return inputs.new_zeros((1, 1)).expand(len(inputs), vocab)

    monkeypatch.setattr(HalfLinear, "products", products)
    part = with_measured_cost(clustered(all_active(vocab, 64)), model)
    choice = ProductChoice(part.cost, vocab, 64)
    assert [choice.method(vocab, rows) == "dense" for rows in (1, 40)] == [not slow] * 2


def test_a_copy_pays_against_whatever_is_fastest_without_one() -> None:
    """FVP-09: of 10 columns, 7 a number row by row, 3 from a copy, 20 to make it: after five uses both are even."""
    cost = {"row_wise": 7.0, "gather": 9.0, "kept": 3.0, "copy_out": 20.0, "dense": 70.0}
    choice = ProductChoice(made_cost(**cost), 64, 1)
    assert [choice.pays(10, 1, uses) for uses in (0, 1, 5, 6)] == [False, False, False, True]
    # All 64 columns in as long as 5 a number of these 10: a copy saves 2 a number, and pays after ten uses.
    choice = ProductChoice(made_cost(**cost | {"dense": 50.0 / 64}), 64, 1)
    assert choice.method(10, 1) == "dense"
    assert [choice.pays(10, 1, uses) for uses in (6, 10, 11)] == [False, False, True]
    never = ProductChoice(made_cost(**cost | {"dense": 20.0 / 64}), 64, 1)
    assert not never.pays(10, 1, 1_000_000), "dense takes less than the copy"
    assert not ProductChoice(None, 64, 1).pays(10, 1, 1_000_000), "nothing was measured"
