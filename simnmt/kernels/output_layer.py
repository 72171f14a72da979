"""The fused output layer: bias, softmax and search in one pass over the products (FNI-03 to FNI-07)."""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

from simnmt.kernels.errors import KernelError
from simnmt.kernels.native_library import NativeLibrary, native_at, share
from simnmt.kernels.output_reference import (
    Best,
    Partial,
    check_arguments,
    check_out,
    combine,
    fallback_best,
    fallback_partial,
    refuse_row,
)

__all__ = ["Best", "Partial", "combine", "fused_argmax", "fused_best", "partial"]

LEAST_OF_A_THREAD = 1 << 17
"""Elements below which work is not divided among threads: handing work to a thread costs some 20 us."""
ROWS_OF_A_THREAD = 4
"""With fewer rows than this for each thread the columns are divided instead: few rows divide unevenly."""
MOST_LISTED = 64
"""Most best columns that the kernels search for; beyond that torch is faster, because each new column moves those below it."""
KINDS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
"""Numbers of the types of products in `simnmt_best`."""


def fused_best(
    products: Tensor,
    bias: Tensor | None,
    count: int,
    *,
    threads: int = 1,
    out: Best | None = None,
    level: str | None = None,
) -> Best:
    """Return the `count` best columns of each row of `products` plus `bias` and the row's sum of exponentials, in one pass.

    On CUDA the Triton kernel computes them, on the CPU the compiled kernel; torch does if none was compiled or more than 64 are
    asked for. Sums are float32 or better.

    Args:
        products: [rows, V], contiguous, float32, float16 or bfloat16.
        bias: float32 [V] on the same device, or None.
        count: columns per row.
        threads: on the CPU, divide the rows, or the columns of few rows.
        out: receives the result.
        level: widest compiled kernels to use, as in the variable SIMNMT_KERNELS.

    Raises:
        KernelError: for other tensors, and for a row without a finite value or with NaN or +inf (FNI-07).
        KernelLevelError: for an unknown level; it is an `InputError`, not a `KernelError`.
    """
    check_arguments(products, bias, count, threads=threads)
    if out is not None:
        check_out(out, products, count)
    if products.is_cuda and count <= MOST_LISTED:
        from simnmt.kernels.triton_output import triton_best

        return _copied(triton_best(products, bias, count), out)
    native = None if count > MOST_LISTED else native_at(level)
    out = out or Best.empty(products.shape[0], count, products.device)
    if native is None:
        fallback_best(products, bias, out)
        return out
    parts = parts_of(products, threads, count)
    if parts == 1:  # for one row the call costs as much as a third of the work
        broken = _search(native, products, bias, count, 0, *out, None, None)
        if broken >= 0:
            raise refuse_row(products, bias, broken)
    elif products.shape[0] < ROWS_OF_A_THREAD * parts:
        return _copied(_best_by_columns(native, products, bias, count, parts), out)
    else:
        _by_rows(native, products, bias, count, parts, *out)
    return out


def fused_argmax(products: Tensor, bias: Tensor | None, *, threads: int = 1, level: str | None = None) -> Tensor:
    """Return the best column of each row, int64 [rows], without its probability: no exponential is taken (FNI-06).

    Arguments, ties and errors are those of `fused_best`.
    """
    check_arguments(products, bias, 1, threads=threads)
    if products.is_cuda:
        from simnmt.kernels.triton_output import triton_argmax

        return triton_argmax(products, bias)
    native = native_at(level)
    if native is None:
        return _argmax_of(fallback_partial(products, bias), products, bias)
    parts, columns = parts_of(products, threads, 1), torch.empty(products.shape[0], dtype=torch.int64)
    if parts == 1:
        broken = _search(native, products, bias, 1, 0, columns, None, None, None, None)
        if broken >= 0:
            raise refuse_row(products, bias, broken)
        return columns
    if products.shape[0] < ROWS_OF_A_THREAD * parts:
        return _argmax_of(_by_columns(native, products, bias, 1, parts, with_sum=False)[0], products, bias)
    _by_rows(native, products, bias, 1, parts, columns, None, None)
    return columns


def partial(products: Tensor, bias: Tensor | None, *, level: str | None = None) -> Partial:
    """Return the contribution of these columns to the softmax and 1-best of the rows, as a part of the vocabulary (FNI-04).

    A row may have no finite value here. Only on the CPU; other arguments and errors are those of `fused_best`.
    """
    check_arguments(products, bias, 1)
    if products.is_cuda:
        raise KernelError(f"products on {products.device}: parts of rows are combined on the CPU alone")
    native = native_at(level)
    if native is None:
        return fallback_partial(products, bias)
    return _by_columns(native, products, bias, 1, 1, with_sum=True)[0]


def parts_of(products: Tensor, threads: int, count: int) -> int:
    """Return the number of parts of the work: one for each thread that gets enough elements and at least `count` columns."""
    return 1 if threads == 1 else max(1, min(threads, products.numel() // LEAST_OF_A_THREAD, products.shape[1] // count))


def _search(
    native: NativeLibrary, products: Tensor, bias: Tensor | None, count: int, first: int, *results: Tensor | None
) -> int:
    """Search `products`, whose columns start at `first` of the vocabulary; return the first row that is refused, or -1.

    `results`: columns, values and log_total of `Best`, maximum and total of `Partial`; None for those not needed.
    """
    rows, width = products.shape
    kind, at, bias_at = KINDS[products.dtype], products.data_ptr(), None if bias is None else bias.data_ptr()
    results_at = [None if tensor is None else tensor.data_ptr() for tensor in results]
    broken: int = native.cdll.simnmt_best(kind, at, products.stride(0), bias_at, rows, width, first, count, *results_at)
    return broken


class _SharedSearch(ctypes.Structure):
    """`SharedSearch` of output_layer.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("products", "bias", "columns", "values", "log_total", "maximum", "total")),
        *((name, ctypes.c_int64) for name in ("kind", "stride", "rows", "width", "count", "row_parts", "column_parts")),
        *((name, ctypes.c_int64) for name in ("next", "broken")),
    )


def _search_together(
    native: NativeLibrary,
    products: Tensor,
    bias: Tensor | None,
    count: int,
    threads: int,
    *results: Tensor | None,
    row_parts: int = 1,
    column_parts: int = 1,
) -> None:
    """Search `products` on several threads; `results` are those of `_search`, one after the other for each part of columns."""
    rows, width = products.shape
    addresses = [None if tensor is None else tensor.data_ptr() for tensor in (products, bias, *results)]
    sizes = KINDS[products.dtype], products.stride(0), rows, width, count, row_parts, column_parts
    search = _SharedSearch(*addresses, *sizes, 0, rows)
    share(native.cdll.simnmt_best_shared, search, threads)
    if search.broken < rows:
        raise refuse_row(products, bias, search.broken)


def _by_rows(
    native: NativeLibrary, products: Tensor, bias: Tensor | None, count: int, parts: int, *results: Tensor | None
) -> None:
    """Write columns, values and log_total of all rows, divided into groups of rows, into `results`."""
    _search_together(native, products, bias, count, parts, *results, None, None, row_parts=parts)


def _best_by_columns(native: NativeLibrary, products: Tensor, bias: Tensor | None, count: int, parts: int) -> Best:
    """Select the best among the best of each part of the columns, and combine the sums of the parts (FNI-04)."""
    whole, columns, values = _by_columns(native, products, bias, count, parts, with_sum=True)
    _argmax_of(whole, products, bias)
    # Stable, and the parts are in the order of their columns: among equal values the lowest column stays first.
    values, order = torch.cat(list(values), dim=1).sort(dim=1, descending=True, stable=True)
    columns = torch.cat(list(columns), dim=1).gather(1, order)
    return Best(columns[:, :count].contiguous(), values[:, :count].contiguous(), whole.total.log())


def _by_columns(
    native: NativeLibrary, products: Tensor, bias: Tensor | None, count: int, parts: int, *, with_sum: bool
) -> tuple[Partial, Tensor, Tensor]:
    """Return the rows' maxima and sums, and the best columns and values of each part of the columns, [parts, rows, count]."""
    rows = products.shape[0]
    columns, values = torch.empty((parts, rows, count), dtype=torch.int64), torch.empty((parts, rows, count))
    maximum, total = torch.empty((parts, rows)), torch.zeros((parts, rows))
    results = columns, values, None, maximum, total if with_sum else None
    _search_together(native, products, bias, count, parts, *results, column_parts=parts)
    partials = (Partial(maximum[part], total[part], columns[part, :, 0]) for part in range(parts))
    return functools.reduce(combine, partials), columns, values


def _argmax_of(whole: Partial, products: Tensor, bias: Tensor | None) -> Tensor:
    empty = (whole.maximum == -torch.inf).nonzero()
    if empty.numel():
        raise refuse_row(products, bias, int(empty[0]))
    return whole.column


def _copied(best: Best, out: Best | None) -> Best:
    if out is None:
        return best
    for place, tensor in zip(out, best, strict=True):
        place.copy_(tensor)
    return out
