"""What the output layers take, and what they refuse (FNI-07)."""

from __future__ import annotations

import torch
from torch import Tensor

from simnmt.kernels.errors import KernelError
from simnmt.kernels.output_forms import Best

FUSED_TYPES = (torch.float32, torch.float16, torch.bfloat16)


def check_arguments(
    products: Tensor, bias: Tensor | None, count: int, *, types: tuple[torch.dtype, ...] = FUSED_TYPES, threads: int = 1
) -> None:
    """Refuse tensors that no kernel could read rightly. Raises `KernelError`."""
    if products.dtype not in types:
        raise KernelError(f"products of {products.dtype}: one of {', '.join(map(str, types))} is needed")
    if not (products.is_cpu or products.is_cuda):
        raise KernelError(f"products on {products.device}: the CPU and CUDA alone have kernels")
    if products.dim() != 2:
        raise KernelError(f"products of shape {tuple(products.shape)}: [rows, vocabulary] is needed")
    if not products.is_contiguous():
        raise KernelError(f"products with strides {products.stride()} are not contiguous")
    columns = products.shape[1]
    if not 1 <= count <= columns:
        raise KernelError(f"the best {count} of {columns} columns: 1 to {columns} can be had")
    if threads < 1:
        raise KernelError(f"{threads} threads: 1 is the least")
    if bias is None:
        return
    needed = torch.float64 if products.dtype == torch.float64 else torch.float32
    if bias.dtype != needed or bias.dim() != 1 or bias.shape[0] != columns:
        raise KernelError(f"a bias of {bias.dtype}, shape {tuple(bias.shape)}: {needed} ({columns},) is needed")
    if not bias.is_contiguous():
        raise KernelError(f"a bias with strides {bias.stride()} is not contiguous")
    if not _beside(bias, products):
        raise KernelError(f"products on {products.device} and the bias on {bias.device}: both must be on one device")


def check_out(out: Best, products: Tensor, count: int) -> None:
    """Refuse a place for the result that does not fit. Raises `KernelError`."""
    rows = products.shape[0]
    _check_place("columns", out.columns, torch.int64, (rows, count), products)
    _check_place("values", out.values, torch.float32, (rows, count), products)
    _check_place("log_sum", out.log_sum, torch.float32, (rows,), products)


def _check_place(name: str, place: Tensor, dtype: torch.dtype, shape: tuple[int, ...], products: Tensor) -> None:
    if place.dtype is dtype and place.shape == shape and place.is_contiguous() and _beside(place, products):
        return
    given = f"{place.dtype} {tuple(place.shape)} on {place.device}"
    raise KernelError(f"out.{name} is {given}: contiguous {dtype} {shape} on {products.device} is needed")


def _beside(tensor: Tensor, products: Tensor) -> bool:
    """Whether both lie on one device; asked in the order that is the quickest on the CPU."""
    return (tensor.is_cpu and products.is_cpu) or tensor.device == products.device


def refuse_row(products: Tensor, bias: Tensor | None, row: int) -> KernelError:
    """Why this row has no best column."""
    values = products[row] if bias is None else products[row].to(bias.dtype) + bias
    for what, found in (("NaN", values.isnan()), ("+inf", values == torch.inf)):
        if found.any():
            return KernelError(f"row {row} has {what} at column {int(found.nonzero()[0])}")
    return KernelError(f"row {row} has no finite value: every column is -inf")
