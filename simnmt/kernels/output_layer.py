"""The fused output layer: bias, softmax and search in one pass over the products (FNI-03 to FNI-07)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import partial, reduce

import torch
from torch import Tensor

from simnmt.base.compile import KERNEL_LIBRARY, c_declarations
from simnmt.kernels.native_library import native, share
from simnmt.kernels.output_reference import Best, Partial, check_arguments, combine, reference_best, refuse_row
from simnmt.kernels.registry import Case, Kernel, Run

LEAST_OF_A_THREAD = 1 << 17
"""Elements below which work is not divided among threads: handing work to a thread costs some 20 us."""
ROWS_OF_A_THREAD = 4
"""With fewer rows than this for each thread the columns are divided instead: few rows divide unevenly."""
MOST_LISTED = 64
"""Most best columns that the kernels search for; beyond that torch is faster, because each new column moves those below it."""
KINDS = {torch.float32: 0, torch.bfloat16: 1}
"""Numbers of the types of products in `simnmt_best`; float16, which no CPU engine multiplies in, is converted before."""


def fused_best(products: Tensor, bias: Tensor | None, count: int, *, threads: int = 1) -> Best:
    """Return the `count` best columns of each row of `products` plus `bias` and the row's sum of exponentials, in one pass.

    On CUDA the Triton kernel computes them, on the CPU the compiled kernel; torch does if none was compiled or more than 64 are
    asked for. Sums are float32 or better.

    Args:
        products: [rows, V], contiguous, float32, float16 or bfloat16.
        bias: float32 [V] on the same device, or None.
        count: columns per row.
        threads: on the CPU, divide the rows, or the columns of few rows.

    Raises:
        KernelError: for other tensors, and for a row without a finite value or with NaN or +inf (FNI-07).
    """
    check_arguments(products, bias, count, threads=threads)
    if products.is_cuda and count <= MOST_LISTED:
        from simnmt.kernels.triton_output import triton_best

        return triton_best(products, bias, count)
    kernels = None if count > MOST_LISTED else native()
    if kernels is None:
        return reference_best(products, bias, count)
    parts = parts_of(products, threads, count)
    if parts > 1 and products.shape[0] < ROWS_OF_A_THREAD * parts:
        whole, columns, values = _by_columns(kernels, products, bias, count, parts)
        # Stable, and the parts are in the order of their columns: among equal values the lowest column stays first.
        values, order = torch.cat(list(values), dim=1).sort(dim=1, descending=True, stable=True)
        columns = torch.cat(list(columns), dim=1).gather(1, order)
        return Best(columns[:, :count].contiguous(), values[:, :count].contiguous(), whole.total.log())
    best = Best.empty(products.shape[0], count)
    _search(kernels, products, bias, count, *best, None, None, row_parts=parts)
    return best


def fused_argmax(products: Tensor, bias: Tensor | None, *, threads: int = 1) -> Tensor:
    """Return the best column of each row, int64 [rows], without its probability: no exponential is taken (FNI-06).

    Arguments, ties and errors are those of `fused_best`.
    """
    check_arguments(products, bias, 1, threads=threads)
    if products.is_cuda:
        from simnmt.kernels.triton_output import triton_argmax

        return triton_argmax(products, bias)
    kernels = native()
    if kernels is None:
        return reference_best(products, bias, 1).columns[:, 0]
    parts = parts_of(products, threads, 1)
    if parts > 1 and products.shape[0] < ROWS_OF_A_THREAD * parts:
        return _by_columns(kernels, products, bias, 1, parts, with_sum=False)[0].column
    columns = torch.empty(products.shape[0], dtype=torch.int64)
    _search(kernels, products, bias, 1, columns, None, None, None, None, row_parts=parts)
    return columns


def parts_of(products: Tensor, threads: int, count: int) -> int:
    """Return the number of parts of the work: one for each thread that gets enough elements and at least `count` columns."""
    return 1 if threads == 1 else max(1, min(threads, products.numel() // LEAST_OF_A_THREAD, products.shape[1] // count))


_SharedSearch = c_declarations(KERNEL_LIBRARY.folder / "output_layer.c").SharedSearch


def _search(
    kernels: ctypes.CDLL,
    products: Tensor,
    bias: Tensor | None,
    count: int,
    *results: Tensor | None,
    row_parts: int = 1,
    column_parts: int = 1,
) -> None:
    """Search `products` on as many threads as there are parts. Raises `KernelError` for the first row without a result.

    `results`: columns, values and log_total of `Best`, maximum and total of `Partial`, one after the other for each part of
    columns; None for those not needed.
    """
    rows, width = products.shape
    products = products.float() if products.dtype == torch.float16 else products
    given = KINDS[products.dtype], products.data_ptr(), products.stride(0), None if bias is None else bias.data_ptr()
    results_at = [None if tensor is None else tensor.data_ptr() for tensor in results]
    threads = row_parts * column_parts
    if threads == 1:  # for one row the call costs as much as a third of the work
        broken = kernels.simnmt_best(*given, rows, width, 0, count, *results_at)
    else:
        kind, at, stride, bias_at = given
        search = _SharedSearch(at, bias_at, *results_at, kind, stride, rows, width, count, row_parts, column_parts, 0, rows)
        share(kernels.simnmt_best_shared, search, threads)
        broken = search.broken if search.broken < rows else -1
    if broken >= 0:
        raise refuse_row(products, bias, broken)


def _by_columns(
    kernels: ctypes.CDLL, products: Tensor, bias: Tensor | None, count: int, parts: int, *, with_sum: bool = True
) -> tuple[Partial, Tensor, Tensor]:
    """Return the rows' combined maxima and sums (FNI-04), and the best columns and values of each part of the columns,
    [parts, rows, count]."""
    rows = products.shape[0]
    columns, values = torch.empty((parts, rows, count), dtype=torch.int64), torch.empty((parts, rows, count))
    maximum, total = torch.empty((parts, rows)), torch.zeros((parts, rows))
    _search(kernels, products, bias, count, columns, values, None, maximum, total if with_sum else None, column_parts=parts)
    whole = reduce(combine, (Partial(maximum[part], total[part], columns[part, :, 0]) for part in range(parts)))
    empty = (whole.maximum == -torch.inf).nonzero()
    if empty.numel():
        raise refuse_row(products, bias, int(empty[0]))
    return whole, columns, values


VOCAB = 85_000
"""Vocabulary of the paper (FNI-13)."""
IN_PLACE, ARGMAX_IN_PLACE, COPY = "torch in place", "torch add and argmax", "copy of as many bytes"
BATCHES = (1, 8, 32, 128)
SIZES = (*((batch, 1) for batch in BATCHES), *((batch * 5, 5) for batch in BATCHES[:3]))
"""(rows, best columns per row): beams of 1 and 5."""


def best_cases(threads: int, vocab: int = VOCAB) -> Iterator[Case]:
    """Yield all batches at beams 1 and 5."""
    for rows, count in SIZES:
        products, bias = _random_products(rows, vocab)
        overwritten, source = products.clone(), torch.zeros((products.numel() + vocab) // 2)
        runs: dict[str, Run] = {
            "fused_best": partial(fused_best, products, bias, count, threads=threads),
            IN_PLACE: in_place(overwritten, bias, count),
            COPY: partial(torch.ones_like(source).copy_, source),
        }
        yield Case(f"{rows} rows, best {count}, V {vocab:,}", runs, {IN_PLACE: partial(overwritten.copy_, products)})


def argmax_cases(threads: int, vocab: int = VOCAB) -> Iterator[Case]:
    """Yield all batches at beam 1."""
    for rows in BATCHES:
        products, bias = _random_products(rows, vocab)
        overwritten, columns = products.clone(), torch.empty(rows, dtype=torch.int64)
        runs: dict[str, Run] = {
            "fused_argmax": partial(fused_argmax, products, bias, threads=threads),
            IN_PLACE: in_place(overwritten, bias, 1),
            ARGMAX_IN_PLACE: lambda: torch.argmax(overwritten.add_(bias), 1, out=columns),  # noqa: B023 - called before the next
        }
        # Restoring leaves the products in the cache, as the product before the search does.
        restore = partial(overwritten.copy_, products)
        yield Case(f"{rows} rows, V {vocab:,}", runs, dict.fromkeys((IN_PLACE, ARGMAX_IN_PLACE), restore))


def _random_products(rows: int, vocab: int) -> tuple[Tensor, Tensor]:
    """Draw products and bias, spread as the logits of a trained model."""
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, vocab, generator=generator).mul_(3.0), torch.randn(vocab, generator=generator)


def in_place(products: Tensor, bias: Tensor, count: int) -> Run:
    """Return a run of bias, log-softmax and search by torch into allocated outputs: torch's fastest three calls."""
    rows = products.shape[0]
    shape = (rows,) if count == 1 else (rows, count)
    values, columns = (torch.empty(shape, dtype=dtype, device=products.device) for dtype in (products.dtype, torch.int64))
    bias = bias.to(products.dtype)

    def run() -> object:
        products.add_(bias)
        torch.log_softmax(products, 1, out=products)
        if count == 1:
            return torch.max(products, 1, out=(values, columns))
        return torch.topk(products, count, 1, out=(values, columns))

    return run


KERNELS = [
    Kernel(
        name="fused_best",
        meaning="bias, softmax and the best n columns of each row in one pass",
        source="FNI-03, FNI-05",
        bound="1e-5 of a log-probability; the same columns, the lowest of equals",
        cases=best_cases,
    ),
    Kernel(
        name="fused_argmax",
        meaning="bias and the best column of each row, without its probability",
        source="FNI-06",
        bound="none: the same column, the lowest of equals",
        cases=argmax_cases,
    ),
]
