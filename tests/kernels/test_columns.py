"""Some columns of the vocabulary: centroids, column sets and their union, products, scatter (FVP-01, FVP-05 to FVP-07)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from simnmt.kernels.columns import GATHERED_FROM_ROWS, Centroids, ColumnSets, gathered_products, scatter
from simnmt.kernels.native_library import KernelError
from tests.campaigns.harness import SCALE
from tests.kernels.implementations import each_implementation
from tests.nmt.made_subsets import drawn
from tests.pretended_gpu import GPU, pretended_gpu

pytestmark = each_implementation


def test_worked_example_of_fvp_05() -> None:
    """With the printed bars, the norm of a signed score, the answer would be 1, which is wrong."""
    centroids = Centroids.of(torch.tensor([[2.0, 0.0], [0.0, 0.5]]))
    hidden = torch.tensor([[2.0, 0.0]])
    scores = centroids.points.square().sum(1) - 2 * hidden @ centroids.points.T
    assert scores.tolist() == [[-4.0, 0.25]]
    relative = -2 * ((hidden - centroids.mean) @ centroids.points.T + centroids.half_norms)
    assert float(relative[0, 1] - relative[0, 0]) == 4.25, "the mean moves both scores alike"
    assert centroids.nearest(hidden).tolist() == [0]
    assert (scores + hidden.square().sum()).tolist() == [[0.0, 4.25]], "true squared distances"
    assert int(scores.abs().argmin()) == 1


def test_a_common_offset_of_100_deviations_changes_no_centroid() -> None:
    """Without the mean, one answer of 25 was wrong. Of two that rounding to float32 cannot tell apart, either is right."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(500, 512, generator=generator) + 100
    hidden = torch.randn(1_000, 512, generator=generator) + 100
    distances = torch.cdist(hidden.double(), points.double()).square()
    chosen = distances.gather(1, Centroids.of(points).nearest(hidden)[:, None])[:, 0]
    assert (chosen <= (1.0 + 4e-6) * distances.min(1).values).all()


@given(st.integers(0, 20), st.integers(1, 60), st.integers(1, 70), st.integers(0, 999))
def test_the_nearest_centroid_equals_brute_force(rows: int, clusters: int, width: int, seed: int) -> None:
    """By squared distances in float64; where rounding to float32 could choose another, that one must be as near but for it."""
    generator = torch.Generator().manual_seed(seed)
    points, hidden = torch.randn(clusters, width, generator=generator), torch.randn(rows, width, generator=generator)
    nearest = Centroids.of(points).nearest(hidden)
    assert nearest.dtype == torch.int64
    distances = (hidden.double()[:, None] - points.double()).square().sum(2)
    chosen = distances.gather(1, nearest[:, None])[:, 0]
    magnitudes = hidden.double().square().sum(1) + points.double().square().sum(1).max()
    assert (chosen <= distances.min(1).values + 8 * width * 2.0**-24 * magnitudes).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_hidden_state_that_is_not_finite_is_refused_by_its_row(dtype: torch.dtype) -> None:
    hidden = torch.zeros(5, 4, dtype=dtype)
    hidden[3, 2] = torch.nan
    with pytest.raises(KernelError, match="hidden row 3 is not finite"):
        Centroids.of(torch.eye(4)).nearest(hidden)


def int32(*columns: int) -> Tensor:
    return torch.tensor(columns, dtype=torch.int32)


def sets_of(*sets: list[int], vocab: int) -> ColumnSets:
    starts = torch.tensor([0, *(len(columns) for columns in sets)]).cumsum(0)
    return ColumnSets(starts, int32(*(column for columns in sets for column in columns)), vocab)


METHOD_ROWS = (1, GATHERED_FROM_ROWS)
EXAMPLE = ([2, 4, 6], [2, 8, 9], [1, 3])


def test_worked_example_of_fvp_06() -> None:
    sets = sets_of(*EXAMPLE, vocab=10)
    union = sets.union(torch.tensor([2, 0, 1, 0]))
    assert union.dtype == torch.int32
    assert union.tolist() == [1, 2, 3, 4, 6, 8, 9]


@settings(max_examples=round(20 * SCALE))
@given(st.data())
def test_the_union_equals_pythons_and_never_shrinks_when_a_row_is_added(data: st.DataObject) -> None:
    vocab = data.draw(st.integers(1, 200))
    column = st.integers(0, vocab - 1)
    drawn = data.draw(st.lists(st.sets(column, min_size=1).map(sorted), min_size=1, max_size=6))
    sets = sets_of(*drawn, vocab=vocab)
    rows = data.draw(st.lists(st.integers(0, len(drawn) - 1), max_size=12))
    before = 0
    for end in range(len(rows) + 1):
        union = sets.union(torch.tensor(rows[:end], dtype=torch.int64)).tolist()
        assert union == sorted(set().union(*(drawn[row] for row in rows[:end])))
        assert len(union) >= before
        before = len(union)


def test_sets_made_in_inference_mode_work_outside_of_it() -> None:
    """Tensors made in torch's inference mode cannot be written to elsewhere: the flags of the sets could not."""
    with torch.inference_mode():
        sets = sets_of(*EXAMPLE, vocab=10)
    assert sets.union(torch.tensor([0, 2])).tolist() == [1, 2, 3, 4, 6]


def test_threads_that_share_sets_get_correct_unions() -> None:
    """The native call lets other threads run, and the flags of the sets are shared."""
    vocab, size = 200_000, 20_000
    columns = torch.rand(8, vocab).topk(size).indices.sort(1).values
    sets = ColumnSets(torch.arange(9) * size, columns.flatten().int(), vocab)

    def is_union(seed: int) -> bool:
        rows = torch.randint(8, (3,), generator=torch.Generator().manual_seed(seed))
        return torch.equal(sets.union(rows), columns[rows].unique().int())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(is_union, range(60)))


@pytest.mark.parametrize(
    ("starts", "columns"),
    [
        ([0, 2, 2, 3], int32(1, 2, 3)),
        ([0, 2], int32(-1, 4)),
        ([0, 2], int32(4, 10)),
        ([0, 1, 3], int32(1, 4, 4)),
        ([0, 2], int32(1, 2, 3)),
        ([0, 2], torch.tensor([1, 2])),
    ],
)
def test_invalid_sets_are_refused(starts: list[int], columns: Tensor) -> None:
    with pytest.raises(KernelError):
        ColumnSets(torch.tensor(starts), columns, 10)


WEIGHT = torch.tensor([[1, 0, 2, -1, 0.5], [0, 1, -1, 1, 0.5]]).T.contiguous()
BIAS = torch.tensor([0, 0.1, 0, 0, 0.2])
HIDDEN = torch.tensor([[1.0, 2.0]])
DENSE = [0.135395, 0.406749, 0.049809, 0.135395, 0.272652]


def digits(values: Tensor) -> list[float]:
    return [round(value, 6) for value in values[0].tolist()]


@pytest.mark.parametrize("rows", METHOD_ROWS)
def test_worked_examples_of_fvp_01_and_fvp_07(rows: int) -> None:
    hidden = HIDDEN.repeat(rows, 1)
    everything, active = int32(0, 1, 2, 3, 4), int32(1, 3, 4)
    logits = scatter(gathered_products(WEIGHT, hidden, everything), everything, 5, BIAS)
    assert digits(logits) == [1, 2.1, 0, 1, 1.7]
    assert digits(logits.softmax(-1)) == DENSE
    some = scatter(gathered_products(WEIGHT, hidden, active), active, 5, BIAS)
    assert digits(some) == [-np.inf, 2.1, -np.inf, 1, 1.7]
    probabilities = some.softmax(-1)
    assert digits(probabilities) == [0, 0.499203, 0, 0.166170, 0.334626]
    dense = logits.softmax(-1)
    assert (probabilities[:, active] >= dense[:, active]).all()
    ratios = (probabilities / dense)[0, active]
    assert torch.allclose(ratios, ratios[:1].expand(3), rtol=1e-6), "ratios among active tokens are unchanged"


ROWS = st.integers(0, 26) | st.integers(GATHERED_FROM_ROWS, GATHERED_FROM_ROWS + 26)


@given(ROWS, st.integers(1, 90), st.integers(1, 140), st.floats(0.0, 1.0), st.integers(0, 999))
def test_every_product_method_differs_from_float64_only_by_rounding(
    rows: int, vocab: int, width: int, share: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight, hidden = torch.randn(vocab, width, generator=generator), torch.randn(rows, width, generator=generator)
    columns = (torch.rand(vocab, generator=generator) <= share).nonzero()[:, 0].int()
    exact = hidden.double() @ weight[columns].double().T
    bound = hidden.double().abs() @ weight[columns].double().abs().T * width * 2.0**-24
    beyond = torch.full((rows * len(columns) + 64,), 7.0)
    out = beyond[: rows * len(columns)].view(rows, len(columns))
    assert gathered_products(weight, hidden, columns, out=out) is out
    assert ((out - exact).abs() <= bound).all()
    assert (beyond[rows * len(columns) :] == 7.0).all(), "nothing else is touched"


@given(st.integers(0, 5), st.integers(1, 90), st.booleans(), st.integers(0, 999))
def test_scatter_writes_active_columns_to_their_places_and_masks_the_others(
    rows: int, vocab: int, with_bias: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    columns = (torch.rand(vocab, generator=generator) < 0.4).nonzero()[:, 0].int()
    products, bias = torch.randn(rows, len(columns), generator=generator), torch.randn(vocab, generator=generator)
    expected = torch.full((rows, vocab), -torch.inf)
    expected[:, columns.long()] = products + bias[columns] if with_bias else products
    out = torch.empty(rows, vocab)
    assert scatter(products, columns, vocab, bias if with_bias else None, out) is out
    assert torch.equal(out, expected)


@pytest.mark.parametrize("columns", [(-1, 2), (0, 5), (5, 0)])
def test_a_column_outside_the_vocabulary_is_refused_by_both_products_and_scatter(columns: tuple[int, int]) -> None:
    beyond = int32(*columns)
    for rows in METHOD_ROWS:
        with pytest.raises(ValueError, match="not all among the 5"):
            gathered_products(WEIGHT, HIDDEN.repeat(rows, 1), beyond)
    with pytest.raises(ValueError, match="not all among the 5"):
        scatter(torch.zeros(1, 2), beyond, 5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_weights_are_multiplied_in_float32(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(7)
    weight, hidden = torch.randn(60, 33, generator=generator).to(dtype), torch.randn(3, 33, generator=generator)
    columns = int32(0, 7, 8, 59)
    exact = hidden.double() @ weight[columns].double().T
    products = gathered_products(weight, hidden, columns)
    assert products.dtype == torch.float32
    assert torch.allclose(products.double(), exact, atol=1e-5)
    full, halved = weight.float(), hidden.to(dtype)
    exact = halved.double() @ full[columns].double().T
    assert torch.allclose(gathered_products(full, halved, columns).double(), exact, atol=1e-5)


def test_products_of_some_columns_are_those_of_the_processor() -> None:
    clusters, hidden, weight = drawn(40, 8, 5, 0.3, [0], seed=1), torch.randn(6, 8), torch.randn(40, 8)
    columns = clusters.sets.union(clusters.centroids.nearest(hidden))
    expected = gathered_products(weight, hidden, columns)
    with pretended_gpu():
        points, there, matrix = (tensor.to("cuda") for tensor in (clusters.centroids.points, hidden, weight))
        sets = ColumnSets(clusters.sets.starts, clusters.sets.columns.to("cuda"), 40)
        chosen = Centroids.of(points).nearest(there)
        union = sets.union(chosen)
        assert torch.equal(union.cpu(), columns)
        products = gathered_products(matrix, there, union)
        assert torch.allclose(products.cpu(), expected, atol=1e-5)
        logits = scatter(products, union, 40, torch.zeros(40, device="cuda"))
        assert logits.device == GPU
        assert torch.allclose(logits.cpu()[:, columns.long()], expected, atol=1e-5)
