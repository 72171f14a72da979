"""Products with some columns alone, and their places in the whole vocabulary (FVP-01, FVP-07)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from simnmt.kernels.columns import Centroids, ColumnSets, gathered_products, scatter
from simnmt.kernels.errors import KernelError
from simnmt.kernels.output_layer import fused_best
from simnmt.profile.projection_cost import PRODUCT_METHODS, ProductMethod
from tests.kernels.implementations import each_implementation
from tests.nmt.made_subsets import drawn
from tests.pretended_gpu import GPU, pretended_gpu

pytestmark = each_implementation

WEIGHT = torch.tensor([[1, 0, 2, -1, 0.5], [0, 1, -1, 1, 0.5]]).T.contiguous()
BIAS = torch.tensor([0, 0.1, 0, 0, 0.2])
HIDDEN = torch.tensor([[1.0, 2.0]])
DENSE = [0.135395, 0.406749, 0.049809, 0.135395, 0.272652]


def int32(*columns: int) -> Tensor:
    return torch.tensor(columns, dtype=torch.int32)


def digits(values: Tensor) -> list[float]:
    return [round(value, 6) for value in values[0].tolist()]


@pytest.mark.parametrize("method", PRODUCT_METHODS)
def test_worked_examples_of_fvp_01_and_fvp_07(method: ProductMethod) -> None:
    everything, active = int32(0, 1, 2, 3, 4), int32(1, 3, 4)
    logits = scatter(gathered_products(WEIGHT, HIDDEN, everything, method=method), everything, 5, BIAS)
    assert digits(logits) == [1, 2.1, 0, 1, 1.7]
    assert digits(logits.softmax(-1)) == DENSE
    some = scatter(gathered_products(WEIGHT, HIDDEN, active, method=method), active, 5, BIAS)
    assert digits(some) == [-np.inf, 2.1, -np.inf, 1, 1.7]
    probabilities = some.softmax(-1)
    assert digits(probabilities) == [0, 0.499203, 0, 0.166170, 0.334626]
    dense = logits.softmax(-1)
    assert (probabilities[:, active] >= dense[:, active]).all()
    ratios = (probabilities / dense)[0, active]
    assert torch.allclose(ratios, ratios[:1].expand(3), rtol=1e-6), "ratios among active tokens are unchanged"


@given(st.integers(0, 26), st.integers(1, 90), st.integers(1, 140), st.floats(0.0, 1.0), st.integers(0, 999))
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
    for method in PRODUCT_METHODS:
        assert gathered_products(weight, hidden, columns, method=method, out=out) is out
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


def test_columns_sent_to_the_fused_layer_give_the_result_of_scatter_and_softmax() -> None:
    """XP-02: without scatter, and with the columns mapped back."""
    generator = torch.Generator().manual_seed(5)
    weight, bias, hidden = (torch.randn(*shape, generator=generator) for shape in ((500, 24), (500,), (7, 24)))
    columns = (torch.rand(500, generator=generator) < 0.2).nonzero()[:, 0].int()
    products = gathered_products(weight, hidden, columns)
    direct = fused_best(products, bias[columns], 3)
    log_probs, tokens = scatter(products, columns, 500, bias).log_softmax(-1).topk(3)
    assert torch.equal(columns.long()[direct.columns], tokens)
    assert torch.allclose(direct.log_probs, log_probs, atol=1e-5)


def test_all_columns_give_the_tokens_of_the_dense_product() -> None:
    generator = torch.Generator().manual_seed(6)
    weight, hidden = torch.randn(300, 40, generator=generator), torch.randn(9, 40, generator=generator)
    every = torch.arange(300, dtype=torch.int32)
    dense = fused_best(hidden @ weight.T, None, 4)
    for method in PRODUCT_METHODS:
        best = fused_best(gathered_products(weight, hidden, every, method=method), None, 4)
        assert torch.equal(best.columns, dense.columns)


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


def test_parameters_of_a_decoder_are_accepted() -> None:
    """They ask for gradients, which products into a given place do not have."""
    layer = torch.nn.Linear(2, 5)
    columns, out = int32(1, 4), torch.empty(1, 2)
    gathered_products(layer.weight, HIDDEN, columns, out=out)
    assert torch.allclose(out, torch.nn.functional.linear(HIDDEN, layer.weight)[:, [1, 4]])
    assert not out.requires_grad


@pytest.mark.parametrize("columns", [int32(1, 10), int32(-1, 3), int32(1, 3, 3), int32(5, 3, 9), torch.tensor([1])])
def test_invalid_columns_are_refused(columns: Tensor) -> None:
    weight, hidden = torch.ones(10, 4), torch.ones(2, 4)
    for method in PRODUCT_METHODS:
        with pytest.raises(KernelError):
            gathered_products(weight, hidden, columns, method=method)
    with pytest.raises(KernelError):
        scatter(torch.ones(2, len(columns)), columns, 10)


def test_products_of_some_columns_are_those_of_the_processor() -> None:
    clusters, hidden, weight = drawn(40, 8, 5, 0.3, [0], seed=1), torch.randn(6, 8), torch.randn(40, 8)
    columns = clusters.sets.union(clusters.centroids.nearest(hidden))
    expected = gathered_products(weight, hidden, columns)
    with pretended_gpu() as gpu:
        points, there, matrix = (tensor.to("cuda") for tensor in (clusters.centroids.points, hidden, weight))
        sets = ColumnSets(clusters.sets.starts, clusters.sets.columns.to("cuda"), 40)
        chosen = Centroids.of(points).nearest(there)
        gpu.waits.clear()
        union = sets.union(chosen)
        assert gpu.waits.total() <= 3, gpu.waits
        assert torch.equal(union.cpu(), columns)
        products = gathered_products(matrix, there, union)
        assert torch.allclose(products.cpu(), expected, atol=1e-5)
        logits = scatter(products, union, 40, torch.zeros(40, device="cuda"))
        assert logits.device == GPU
        assert torch.allclose(logits.cpu()[:, columns.long()], expected, atol=1e-5)
