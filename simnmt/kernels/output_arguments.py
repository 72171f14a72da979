"""What the output layers take, and what they refuse (FNI-07)."""

from __future__ import annotations

import math
import operator

import torch
from torch import Tensor

from simnmt.kernels.errors import KernelError
from simnmt.kernels.output_forms import Best

FUSED_TYPES = (torch.float32, torch.float16, torch.bfloat16)


def check_arguments(
    products: Tensor, bias: Tensor | None, count: int, *, types: tuple[torch.dtype, ...] = FUSED_TYPES, threads: int = 1
) -> tuple[int, int | None]:
    """The addresses of products and bias, or `KernelError` for what no kernel could read rightly there."""
    # A row of 85,000 takes some 15 us in all: what is asked of every call is little, and why it is refused is found out after.
    try:
        if products.dtype not in types:
            raise _no_tensor("products", products) or KernelError(
                f"products of {products.dtype}: one of {', '.join(map(str, types))} is needed"
            )
        if not (products.is_cpu or products.is_cuda):
            raise KernelError(f"products on {products.device}: the CPU and CUDA alone have kernels")
        shape = products.shape
        if len(shape) != 2:
            raise KernelError(f"products of shape {tuple(shape)}: [rows, vocabulary] is needed")
        if not products.is_contiguous():
            raise KernelError(f"products with strides {products.stride()} are not contiguous")
        columns, at = shape[1], products.data_ptr()
    except (AttributeError, RuntimeError):  # RuntimeError: sparse, nested, or seen through a transformation
        raise _no_tensor("products", products) or _no_memory("products", products) from None
    if products.is_neg():
        raise _negated("products")
    if not at and products.numel():
        raise _no_memory("products", products)
    if type(count) is not int:
        _check_whole("count", count)
    if not 1 <= count <= columns:
        if columns == 0:
            raise KernelError(f"products of shape {tuple(shape)}: there is no column to choose")
        raise KernelError(f"the best {count} of {columns} columns: 1 to {columns} can be had")
    if threads != 1:
        _check_whole("threads", threads)
        if threads < 1:
            raise KernelError(f"{threads} threads: 1 is the least")
    return at, None if bias is None else _bias_address(bias, products, columns)


def _bias_address(bias: Tensor, products: Tensor, columns: int) -> int:
    try:
        needed = torch.float64 if products.dtype == torch.float64 else torch.float32
        if bias.dtype != needed or bias.shape != (columns,):
            raise _no_tensor("a bias", bias) or KernelError(
                f"a bias of {bias.dtype}, shape {tuple(bias.shape)}: {needed} ({columns},) is needed"
            )
        if not _beside(bias, products):
            raise KernelError(f"products on {products.device} and the bias on {bias.device}: both must be on one device")
        if not bias.is_contiguous():
            raise KernelError(f"a bias with strides {bias.stride()} is not contiguous")
        at = bias.data_ptr()
    except (AttributeError, RuntimeError):
        raise _no_tensor("a bias", bias) or _no_memory("bias", bias) from None
    if bias.is_neg():
        raise _negated("bias")
    if not at:
        raise _no_memory("bias", bias)
    return at


def check_out(out: Best, products: Tensor, count: int) -> None:
    """Refuse a place for the result that does not fit. Raises `KernelError`."""
    if not isinstance(out, Best):
        raise KernelError(f"out of type {type(out).__name__}: a Best of three tensors is needed")
    rows = products.shape[0]
    _check_place("columns", out.columns, torch.int64, (rows, count), products)
    _check_place("values", out.values, torch.float32, (rows, count), products)
    _check_place("log_total", out.log_total, torch.float32, (rows,), products)


def _check_place(name: str, place: Tensor, dtype: torch.dtype, shape: tuple[int, ...], products: Tensor) -> None:
    try:
        if place.dtype is dtype and place.shape == shape and place.is_contiguous() and _beside(place, products):
            if place.is_neg():
                raise _negated(f"out.{name}")
            return
    except (AttributeError, RuntimeError):
        raise _no_tensor(f"out.{name}", place) or _no_memory(f"out.{name}", place) from None
    given = f"{place.dtype} {tuple(place.shape)} on {place.device}"
    raise KernelError(f"out.{name} is {given}: contiguous {dtype} {shape} on {products.device} is needed")


def _beside(tensor: Tensor, products: Tensor) -> bool:
    """Whether both lie on one device; asked in the order that is the quickest on the CPU."""
    return (tensor.is_cpu and products.is_cpu) or tensor.device == products.device


def _no_tensor(name: str, given: object) -> KernelError | None:
    if isinstance(given, Tensor):
        return None
    return KernelError(f"{name} of type {type(given).__name__}: a torch tensor is needed")


def _negated(name: str) -> KernelError:
    return KernelError(f"{name}: a view whose memory has the other sign; hand in {name}.resolve_neg()")


def _no_memory(name: str, tensor: Tensor) -> KernelError:
    return KernelError(f"{name}: a tensor without plain memory ({tensor.layout}); a dense one of its own memory is needed")


def _check_whole(name: str, given: object) -> None:
    """A whole number of another type than int, numpy's for instance, is one too; True is not."""
    try:
        operator.index(given)  # type: ignore[arg-type]
        whole = not isinstance(given, bool)
    except TypeError:
        whole = False
    if not whole:
        raise KernelError(f"{name}={given!r}: a whole number is needed")


def refuse_row(products: Tensor, bias: Tensor | None, row: int) -> KernelError:
    """Why this row has no best column."""
    values = products[row] if bias is None else products[row].to(bias.dtype) + bias
    for what, found in (("NaN", values.isnan()), ("+inf", values == torch.inf)):
        if found.any():
            column = int(found.nonzero()[0])
            return KernelError(f"row {row} has {what} at column {column}{_added(products, bias, row, column)}")
    sums = " once the bias is added" if bias is not None and (products[row] > -torch.inf).any() else ""
    return KernelError(f"row {row} has no finite value: every column is -inf{sums}")


def _added(products: Tensor, bias: Tensor | None, row: int, column: int) -> str:
    """What was added up to a value, where the product alone would not be refused."""
    product = float(products[row, column])
    if bias is None or math.isnan(product) or product == math.inf:
        return ""
    return f": product plus bias, {product:g} + {float(bias[column]):g}"
