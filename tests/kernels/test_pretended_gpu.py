"""Kernels and baselines on a pretended GPU."""

from __future__ import annotations

import pytest
import torch

from simnmt.kernels.bench_cases import in_place
from simnmt.kernels.columns import Centroids, ColumnSets, gathered_products, scatter
from tests.nmt.made_subsets import drawn
from tests.pretended_gpu import GPU, pretended_gpu


@pytest.mark.parametrize("count", [1, 3])
def test_torchs_own_sequence_runs_on_the_gpu_of_its_products(count: int) -> None:
    products, bias = torch.randn(4, 20), torch.randn(20)
    expected = in_place(products.clone(), bias, count)()
    with pretended_gpu():
        values, columns = in_place(products.to("cuda"), bias.to("cuda"), count)()
        assert columns.device == GPU
        assert torch.equal(columns.cpu(), expected[1])
        assert torch.equal(values.cpu(), expected[0])


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
