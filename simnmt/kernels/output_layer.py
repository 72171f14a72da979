"""The fused output layer: bias, softmax and search in one pass over the products (FNI-03 to FNI-07)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from simnmt.kernels.errors import KernelError
from simnmt.kernels.native_library import NativeLibrary, at_once, native_at
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
"""Elements below which work is not divided among threads: handing it over costs some 20 us."""
ROWS_OF_A_THREAD = 4
"""With fewer rows than this for each thread the columns are divided instead: few rows divide unevenly."""
MOST_LISTED = 64
"""Of the best that the kernels find: of more torch's selection is the faster, since each that is found moves those below it."""
KINDS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
"""What simnmt_best calls the types of products."""


def fused_best(
    products: Tensor,
    bias: Tensor | None,
    count: int,
    *,
    threads: int = 1,
    out: Best | None = None,
    level: str | None = None,
) -> Best:
    """The `count` best columns of each row of `products` plus `bias`, and the row's sum of exponentials, in one pass.

    `products`: [rows, V], contiguous, float32, float16 or bfloat16; `bias`: float32 [V] on the same device, or None. Sums are
    float32 or better. `out` takes the result where it is given. On CUDA the Triton kernel does it, on the CPU the compiled one;
    torch where none was compiled or more than 64 are asked for. On the CPU `threads` divides the rows, or the columns of few
    rows, and `level` is the widest of the compiled kernels to be used, as the variable SIMNMT_KERNELS says it. Raises
    `KernelError` for other tensors, for a row without a finite value, and for one with NaN or +inf (FNI-07). A `level` that
    there is not raises `KernelLevelError`, which is no `KernelError` but an `InputError`.
    """
    addresses = check_arguments(products, bias, count, threads=threads)
    rows = products.shape[0]
    if out is not None:
        check_out(out, products, count)
    if products.is_cuda and count <= MOST_LISTED:
        from simnmt.kernels.triton_output import triton_best

        return _copied(triton_best(products, bias, count), out)
    native = None if count > MOST_LISTED else native_at(level)
    if out is None:
        on = products.device
        columns = torch.empty((rows, count), dtype=torch.int64, device=on)
        out = Best(columns, torch.empty((rows, count), device=on), torch.empty(rows, device=on))
    if native is None:
        fallback_best(products, bias, out)
        return out
    parts = parts_of(products, threads, count)
    if parts > 1 and rows < ROWS_OF_A_THREAD * parts:
        return _copied(_best_by_columns(native, products, bias, count, parts), out)
    _by_rows(native, products, bias, addresses, count, out.columns, out.values, out.log_total, parts)
    return out


def fused_argmax(products: Tensor, bias: Tensor | None, *, threads: int = 1, level: str | None = None) -> Tensor:
    """int64 [rows]: the best column of each row, without its probability: no exponential is taken (FNI-06).

    Arguments, ties and errors as of `fused_best`, `KernelLevelError` among them.
    """
    addresses = check_arguments(products, bias, 1, threads=threads)
    if products.is_cuda:
        from simnmt.kernels.triton_output import triton_argmax

        return triton_argmax(products, bias)
    native = native_at(level)
    if native is None:
        return _argmax_of(fallback_partial(products, bias), products, bias)
    parts = parts_of(products, threads, 1)
    rows = products.shape[0]
    if parts > 1 and rows < ROWS_OF_A_THREAD * parts:
        parted = _by_columns(native, products, bias, 1, parts, with_sum=False)
        return _argmax_of(functools.reduce(combine, (part for part, _, _ in parted)), products, bias)
    columns = torch.empty(rows, dtype=torch.int64)
    _by_rows(native, products, bias, addresses, 1, columns, None, None, parts)
    return columns


def partial(products: Tensor, bias: Tensor | None, *, level: str | None = None) -> Partial:
    """What these columns of the rows add to their softmax and 1-best, when they are but a part of the vocabulary (FNI-04).

    A row may be without a finite value here. CPU alone; other arguments and errors as of `fused_best`,
    `KernelLevelError` among them.
    """
    check_arguments(products, bias, 1)
    if products.is_cuda:
        raise KernelError(f"products on {products.device}: parts of rows are combined on the CPU alone")
    native = native_at(level)
    if native is None:
        return fallback_partial(products, bias)
    return _by_columns(native, products, bias, 1, 1, with_sum=True)[0][0]


def parts_of(products: Tensor, threads: int, count: int) -> int:
    """How many parts the work is divided into: one for each thread where each is worth it and holds `count` columns."""
    return 1 if threads == 1 else max(1, min(threads, products.numel() // LEAST_OF_A_THREAD, products.shape[1] // count))


def _by_rows(
    native: NativeLibrary,
    products: Tensor,
    bias: Tensor | None,
    addresses: tuple[int, int | None],
    count: int,
    columns: Tensor,
    values: Tensor | None,
    log_total: Tensor | None,
    parts: int,
) -> None:
    """Whole rows, divided into groups of rows; what is found is written into the tensors handed in."""
    kernel: Callable[..., int] = native.cdll.simnmt_best
    kind = KINDS[products.dtype]
    rows, vocab = products.shape
    (at, bias_at), columns_at = addresses, columns.data_ptr()
    values_at = None if values is None else values.data_ptr()
    log_total_at = None if log_total is None else log_total.data_ptr()
    if parts == 1:  # of one row the call costs as much as a third of the work: nothing more than it must
        broken = kernel(kind, at, vocab, bias_at, rows, vocab, 0, count, columns_at, values_at, log_total_at, None, None)
        if broken >= 0:
            raise refuse_row(products, bias, broken)
        return
    width = vocab * products.element_size()

    def work(begin: int, end: int) -> int:
        return kernel(
            kind, at + begin * width, vocab, bias_at, end - begin, vocab, 0, count,
            columns_at + 8 * begin * count, None if values_at is None else values_at + 4 * begin * count,
            None if log_total_at is None else log_total_at + 4 * begin, None, None,
        )  # fmt: skip

    for begin, broken in _divided(work, rows, parts):
        if broken >= 0:
            raise refuse_row(products, bias, begin + broken)


def _best_by_columns(native: NativeLibrary, products: Tensor, bias: Tensor | None, count: int, parts: int) -> Best:
    """The best of each part of the columns, of which the best are taken; the parts' sums combined (FNI-04)."""
    parted = _by_columns(native, products, bias, count, parts, with_sum=True)
    whole = functools.reduce(combine, (part for part, _, _ in parted))
    _argmax_of(whole, products, bias)
    values = torch.cat([values for _, values, _ in parted], dim=1)
    # Stable, and the parts stand in the order of their columns: of equals the lowest column stays first.
    values, order = values.sort(dim=1, descending=True, stable=True)
    columns = torch.cat([columns for _, _, columns in parted], dim=1).gather(1, order)
    return Best(columns[:, :count].contiguous(), values[:, :count].contiguous(), whole.total.log())


def _by_columns(
    native: NativeLibrary, products: Tensor, bias: Tensor | None, count: int, parts: int, *, with_sum: bool
) -> list[tuple[Partial, Tensor, Tensor]]:
    """Return for each part of the columns the rows' partial maxima and sums, and the best values and columns [rows, count]."""
    kernel: Callable[..., int] = native.cdll.simnmt_best
    kind = KINDS[products.dtype]
    rows, vocab = products.shape
    by_begin: dict[int, tuple[Partial, Tensor, Tensor]] = {}

    def work(begin: int, end: int) -> int:
        columns, values = torch.empty((rows, count), dtype=torch.int64), torch.empty((rows, count))
        part = Partial(torch.empty(rows), torch.zeros(rows), columns[:, 0])
        by_begin[begin] = (part, values, columns)
        return kernel(
            kind, products.data_ptr() + begin * products.element_size(), vocab,
            None if bias is None else bias.data_ptr() + 4 * begin, rows, end - begin, begin, count,
            columns.data_ptr(), values.data_ptr(), None, part.maximum.data_ptr(),
            part.total.data_ptr() if with_sum else None,
        )  # fmt: skip

    broken = [row for _, row in _divided(work, vocab, parts) if row >= 0]
    if broken:
        raise refuse_row(products, bias, min(broken))
    return [by_begin[begin] for begin in sorted(by_begin)]


def _divided(work: Callable[[int, int], int], size: int, parts: int) -> list[tuple[int, int]]:
    """Call `work(begin, end)` for `parts` stretches of `size` at once, one of them here: (begin, answer) in order."""
    stretches = list(itertools.pairwise(size * part // parts for part in range(parts + 1)))
    return list(
        zip([begin for begin, _ in stretches], at_once([functools.partial(work, *ends) for ends in stretches]), strict=True)
    )


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
