"""Copies of sub-matrices that come again: within their budget, of the right weights, and never in the way of a result."""

from __future__ import annotations

from time import sleep

import pytest

torch = pytest.importorskip("torch", reason="the extra packages of simnmt[models] are not installed")

from simnmt.batching import mini  # noqa: E402
from simnmt.costs.projection_cost import ProjectionCost  # noqa: E402
from simnmt.nmt.batched import decode_batched  # noqa: E402
from simnmt.nmt.errors import NmtError  # noqa: E402
from simnmt.nmt.half_weights import HalfLinear, has_half_weights  # noqa: E402
from simnmt.nmt.models import build_model  # noqa: E402
from simnmt.nmt.vocabulary.clustered import clustered  # noqa: E402
from simnmt.nmt.vocabulary.load import with_measured_cost  # noqa: E402
from simnmt.nmt.vocabulary.product_choice import ProductChoice  # noqa: E402
from simnmt.nmt.vocabulary.sub_matrix_cache import SubMatrixCache  # noqa: E402
from tests.nmt.made_subsets import all_active, drawn  # noqa: E402
from tests.nmt.tiny import GRU, VOCAB, lively, sources  # noqa: E402

WEIGHT = torch.randn((40, 8), generator=torch.Generator().manual_seed(1))


def columns(*chosen: int) -> torch.Tensor:
    return torch.tensor(chosen, dtype=torch.int32)


def always(_: int) -> bool:
    return True


def test_a_copy_is_made_once_it_pays_and_used_from_then_on() -> None:
    """Asked with the number of uses, this one included; the product is that of the same columns."""
    cache, asked = SubMatrixCache(10_000), list[int]()

    def pays(uses: int) -> bool:
        asked.append(uses)
        return uses == 3

    found = [cache.get(WEIGHT, columns(1, 5, 9), "key", pays) for _ in range(5)]
    assert asked == [1, 2, 3]
    assert found[:2] == [None, None] and found[2] is found[3] is found[4]
    assert (cache.hits, cache.misses, cache.made, len(cache)) == (2, 3, 1, 1)
    hidden = torch.randn((3, 8), generator=torch.Generator().manual_seed(2))
    assert found[2] is not None
    assert torch.allclose(found[2].products(hidden), hidden @ WEIGHT[[1, 5, 9]].T, atol=1e-6)


def test_the_oldest_copies_give_way_and_their_bytes_are_told() -> None:
    one = SubMatrixCache(10_000).get(WEIGHT, columns(*range(10)), 0, always)
    assert one is not None
    cache = SubMatrixCache(2 * one.nbytes)
    for key in (0, 1, 0, 2):
        cache.get(WEIGHT, columns(*range(10)), key, always)
        assert cache.nbytes == sum(copy.nbytes for copy in cache._kept.values()) <= cache.budget_bytes
    assert list(cache._kept) == [0, 2]  # 1 was used least recently
    cache.clear()
    assert (len(cache), cache.nbytes, cache.hits) == (0, 0, 1)


def test_nothing_is_kept_beyond_the_budget() -> None:
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
    part = clustered(clusters, cache=cache)
    found = decode_batched(model, alone, mini(1), beam=width, max_len=20, vocabulary=part)
    assert [one.tokens for one in found.hypotheses] == [one.tokens for one in without.hypotheses]
    assert without.subset is not None and found.subset is not None
    assert without.subset.cache_hits == 0
    assert found.subset.cache_hits == cache.hits > 0 and cache.made > len(cache)
    assert cache.nbytes <= 6_000


@pytest.mark.parametrize("slow", [False, True])
def test_packed_weights_are_timed_as_they_are_multiplied(slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the break-even all columns are multiplied where the packed product is fast, and not where it is slow."""
    if not has_half_weights():
        pytest.skip("this torch has no FBGEMM")
    vocab = 5_000
    model = build_model(GRU.model_copy(update={"tgt_vocab": vocab, "hidden": 64}), seed=1).eval()
    model.halve()

    def products(self: HalfLinear, inputs: torch.Tensor) -> torch.Tensor:
        if slow:
            sleep(0.02)
        return inputs.new_zeros((1, 1)).expand(len(inputs), vocab)

    monkeypatch.setattr(HalfLinear, "products", products)
    part = with_measured_cost(clustered(all_active(vocab, 64)), model)
    choice = ProductChoice(part.cost, vocab, 64)
    assert [choice.way(vocab, rows) == "dense" for rows in (1, 40)] == [not slow] * 2


def test_a_measured_cost_model_decides_what_is_kept() -> None:
    """FVP-09: no copy of what is asked for but once, one of what is asked for often."""
    from simnmt.kernels.projection_timing import measure_projection

    cost: ProjectionCost = measure_projection(64, vocab=2_048, clusters=16, rows=(1,), rounds=1)
    choice = ProductChoice(cost, 2_048, 64)
    assert not choice.pays(400, 1, 0)
    assert choice.way(200, 1) in ("row_wise", "gather", "dense")
