"""Arguments of the fused output layer that are refused, each with the reason."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from simnmt.kernels import output_layer
from simnmt.kernels.output_layer import Best, fused_argmax, fused_best, partial

ROWS, BIAS = torch.zeros(2, 10), torch.zeros(10)
PLACES = Best(torch.empty(2, 1, dtype=torch.int64), torch.empty(2, 1), torch.empty(2))


@pytest.mark.parametrize(
    ("products", "bias", "count", "why"),
    [
        (ROWS.double(), BIAS, 1, "products is float64"),
        (ROWS.int(), BIAS, 1, "products is int32"),
        (ROWS[0], BIAS, 1, r"products is float32 \[10\]: contiguous"),
        (torch.zeros(10, 2).T, BIAS, 1, r"contiguous .* \[any, any\] is needed"),
        (torch.zeros(2, 20)[:, ::2], BIAS, 1, r"contiguous .* \[any, any\] is needed"),
        (ROWS, BIAS[:9], 1, r"bias is float32 \[9\]: contiguous float32 \[10\] is needed"),
        (ROWS, BIAS.half(), 1, "bias is float16"),
        (ROWS, torch.zeros(20)[::2], 1, r"bias is .* contiguous float32"),
        (ROWS, BIAS[None], 1, r"bias is float32 \[1, 10\]"),
        (ROWS, BIAS.to("meta"), 1, "bias: a tensor without memory of its own"),
        (ROWS.to("meta"), BIAS.to("meta"), 1, "products on meta: the CPU and CUDA alone"),
        (ROWS.to("meta"), None, 1, "products on meta"),
        (ROWS, BIAS, 0, "the best 0 of 10 columns"),
        (ROWS, BIAS, 11, "the best 11 of 10 columns"),
        (torch.zeros(2, 0), torch.zeros(0), 1, r"products of shape \(2, 0\): there is no column to choose"),
        ([[1.0, 2.0]], None, 1, "products of type list: a dense torch tensor is needed"),
        (ROWS.numpy(), None, 1, "products of type ndarray: a dense torch tensor is needed"),
        (ROWS, BIAS.tolist(), 1, "bias of type list: a dense torch tensor is needed"),
        (ROWS, BIAS, 1.5, "count=1.5: a whole number is needed"),
        (ROWS, BIAS, True, "count=True: a whole number is needed"),
        (ROWS, BIAS, None, "count=None: a whole number is needed"),
        (torch._neg_view(ROWS), BIAS, 1, r"products: .* other sign; hand in products.resolve_neg\(\)"),
        (ROWS, torch._neg_view(BIAS), 1, r"bias: .* other sign; hand in bias.resolve_neg\(\)"),
        (torch._efficientzerotensor((2, 10)), BIAS, 1, "products: a tensor without (plain memory|memory of its own)"),
        (ROWS, torch._efficientzerotensor((10,)), 1, "bias: a tensor without (plain memory|memory of its own)"),
        (ROWS.to_mkldnn(), BIAS, 1, "products: a tensor without plain memory"),
    ],
)
def test_invalid_arguments_are_refused(products: Tensor, bias: Tensor, count: int, why: str) -> None:
    with pytest.raises(output_layer.KernelError, match=why):
        fused_best(products, bias, count)


def test_the_imaginary_part_of_a_conjugate_is_refused_until_its_sign_is_in_memory() -> None:
    """torch makes such views unasked: the kernel would read the memory, and find the best of the negated row."""
    products = torch.tensor([[1.0 + 2.0j]]).conj().imag
    for search in (fused_argmax, partial):
        with pytest.raises(output_layer.KernelError, match="resolve_neg"):
            search(products, None)
    assert fused_best(products.resolve_neg(), None, 1).values.tolist() == [[-2.0]]


def test_numpy_integers_are_accepted() -> None:
    assert fused_best(ROWS, BIAS, np.int64(2), threads=np.int64(1)).columns.tolist() == [[0, 1], [0, 1]]  # type: ignore[arg-type]
    with pytest.raises(output_layer.KernelError, match=r"threads=1\.5: a whole number is needed"):
        fused_best(ROWS, BIAS, 1, threads=1.5)  # type: ignore[arg-type]


def test_a_bias_that_masks_every_column_is_named() -> None:
    with pytest.raises(output_layer.KernelError, match=r"every column is -inf once the bias is added$"):
        fused_best(ROWS, torch.full((10,), -math.inf), 1)


@pytest.mark.parametrize(
    ("out", "why"),
    [
        (Best(torch.empty(2, 1, dtype=torch.int32), torch.empty(2, 1), torch.empty(2)), "out.columns is int32"),
        (Best(torch.empty(2, 1, dtype=torch.int64), torch.empty(2, 2), torch.empty(2)), "out.values"),
        (Best(torch.empty(2, 1, dtype=torch.int64), torch.empty(2, 1), torch.empty(4)[::2]), "out.log_total"),
        (
            Best(*(torch.empty(2, 1, dtype=kind, device="meta") for kind in (torch.int64, torch.float32)), torch.empty(2)),
            "out.columns: a tensor without memory of its own",
        ),
        (PLACES._replace(values=torch._neg_view(torch.empty(2, 1))), "out.values: .* hand in out.values.resolve_neg"),
        (PLACES._replace(log_total=torch._efficientzerotensor((2,))), "out.log_total: a tensor without memory of its own"),
        (PLACES._replace(log_total=[0.0, 0.0]), "out.log_total of type list: a dense torch tensor is needed"),
        (tuple(PLACES), "out of type tuple: a Best of three tensors is needed"),
    ],
)
def test_an_out_that_does_not_fit_is_refused(out: Best, why: str) -> None:
    with pytest.raises(output_layer.KernelError, match=why):
        fused_best(ROWS, BIAS, 1, out=out)


def test_zero_threads_are_refused() -> None:
    with pytest.raises(output_layer.KernelError, match="0 threads"):
        fused_best(ROWS, BIAS, 1, threads=0)
