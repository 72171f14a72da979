"""The fused output layer on a GPU, in Triton: each row split over many programs, then joined (FNI-03 to FNI-07).

Every program reads its stretch of a row once, into registers: its maximum, the sum of exponentials below that, and its best
few columns. A second, small kernel joins the stretches of a row as FNI-04 says. Imported only where it is used: it needs
Triton, which comes with torch for CUDA. With TRITON_INTERPRET=1 the same code runs on the CPU, slowly, and so it is tested.
Its speed is unmeasured: no GPU was at hand (`python -m benchmarks.kernels_cuda` measures it).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from simnmt.kernels.errors import KernelError

BLOCKS = (1024, 4096)
"""Columns of one program: the narrow one where the wide one would make too few programs to fill a GPU."""
FILLING_PROGRAMS = 512
"""Several for each multiprocessor of the large GPUs of today."""
NO_COLUMN = tl.constexpr(2**31 - 1)
"""Stands behind every column."""


@triton.jit
def _stretch(
    products, bias, row_stride, vocab, maxima, sums, values, columns,
    HAS_BIAS: tl.constexpr, SUM: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, part = tl.program_id(0), tl.program_id(1)
    place = row * tl.num_programs(1) + part
    column = part * BLOCK + tl.arange(0, BLOCK)
    free = column < vocab
    value = tl.load(products + row.to(tl.int64) * row_stride + column, mask=free, other=float("-inf")).to(tl.float32)
    if HAS_BIAS:
        value += tl.load(bias + column, mask=free, other=0.0)
    maximum = tl.max(value, 0)
    if SUM:
        # Of nothing but -inf the sum is 0, not the NaN that -inf less -inf would make it.
        level = tl.where(maximum == float("-inf"), 0.0, maximum)
        tl.store(sums + place, tl.sum(tl.exp(value - level), 0))
    else:
        tl.store(sums + place, tl.max((value != value).to(tl.float32), 0))
    tl.store(maxima + place, maximum)
    for rank in tl.static_range(COUNT):
        best = tl.max(tl.where(free, value, float("-inf")), 0)
        # Not an argmax: among columns of -inf it could name one twice.
        chosen = tl.min(tl.where(free & (value == best), column, NO_COLUMN), 0)
        tl.store(values + place * COUNT + rank, best)
        tl.store(columns + place * COUNT + rank, chosen)
        free = free & (column != chosen)


@triton.jit
def _join(
    maxima, sums, values, columns, parts, best_values, best_columns, log_sums,
    SUM: tl.constexpr, COUNT: tl.constexpr, PARTS: tl.constexpr, CANDIDATES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    part = tl.arange(0, PARTS)
    there = part < parts
    maximum = tl.load(maxima + row * parts + part, mask=there, other=float("-inf"))
    total = tl.load(sums + row * parts + part, mask=there, other=0.0)
    highest = tl.max(maximum, 0)
    if SUM:
        level = tl.where(highest == float("-inf"), 0.0, highest)
        tl.store(log_sums + row, level + tl.log(tl.sum(total * tl.exp(maximum - level), 0)))
    else:
        tl.store(log_sums + row, tl.where(tl.max(total, 0) > 0.0, float("nan"), highest))
    place = tl.arange(0, CANDIDATES)
    free = place < parts * COUNT
    value = tl.load(values + row * parts * COUNT + place, mask=free, other=float("-inf"))
    column = tl.load(columns + row * parts * COUNT + place, mask=free, other=NO_COLUMN)
    for rank in tl.static_range(COUNT):
        best = tl.max(tl.where(free, value, float("-inf")), 0)
        chosen = tl.min(tl.where(free & (value == best), column, NO_COLUMN), 0)
        tl.store(best_values + row * COUNT + rank, best)
        tl.store(best_columns + row * COUNT + rank, chosen.to(tl.int64))
        free = free & (column != chosen)


@dataclass(frozen=True, slots=True)
class Workspace:
    """Tensors that one shape of input needs, reusable from call to call, also within a captured graph."""

    columns: torch.Tensor
    """The answer: int64 [rows, count]."""
    values: torch.Tensor
    """The answer: float32 [rows, count], product and bias, descending."""
    log_sum: torch.Tensor
    """The answer: float32 [rows]."""
    block: int
    maxima: torch.Tensor
    sums: torch.Tensor
    part_values: torch.Tensor
    part_columns: torch.Tensor

    @classmethod
    def of(cls, rows: int, vocab: int, count: int, device: torch.device | str) -> Workspace:
        """For products of this shape."""
        block = next((size for size in reversed(BLOCKS) if rows * triton.cdiv(vocab, size) >= FILLING_PROGRAMS), BLOCKS[0])
        parts = triton.cdiv(vocab, block)

        def made(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        return cls(
            columns=made(rows, count, dtype=torch.int64),
            values=made(rows, count),
            log_sum=made(rows),
            block=block,
            maxima=made(rows, parts),
            sums=made(rows, parts),
            part_values=made(rows, parts, count),
            part_columns=made(rows, parts, count, dtype=torch.int32),
        )


def best_into(workspace: Workspace, products: torch.Tensor, bias: torch.Tensor | None, *, log_sum: bool = True) -> None:
    """Write each row's best columns, their values and the logarithm of its sum of exponentials into the workspace.

    `products`: [rows, V] float32, float16 or bfloat16, columns of a row side by side; `bias`: float32 [V]. All arithmetic is
    float32. Equal values: the lowest column first. Nothing waits for the GPU, so nothing is checked: see `check_rows`. Without
    `log_sum` its place takes the row's largest value, or NaN where the row holds one.
    """
    rows, vocab = products.shape
    parts, count = workspace.maxima.shape[1], workspace.columns.shape[1]
    if rows == 0:
        return
    _stretch[(rows, parts)](
        products, products if bias is None else bias, products.stride(0), vocab,
        workspace.maxima, workspace.sums, workspace.part_values, workspace.part_columns,
        HAS_BIAS=bias is not None, SUM=log_sum, COUNT=count, BLOCK=workspace.block, num_warps=4,
    )  # fmt: skip
    _join[(rows,)](
        workspace.maxima, workspace.sums, workspace.part_values, workspace.part_columns, parts,
        workspace.values, workspace.columns, workspace.log_sum,
        SUM=log_sum, COUNT=count, PARTS=triton.next_power_of_2(parts), CANDIDATES=triton.next_power_of_2(parts * count),
    )  # fmt: skip


def triton_best(
    products: torch.Tensor, bias: torch.Tensor | None, count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Columns int64 [rows, count], values float32 [rows, count] descending, log of the sum float32 [rows] of products and bias.

    Raises `KernelError` for tensors that it cannot read, and for a row that is all -inf or holds NaN or +inf.
    """
    check_products(products, bias, count)
    workspace = Workspace.of(*products.shape, count, products.device)
    best_into(workspace, products, bias)
    check_rows(workspace.log_sum)
    return workspace.columns, workspace.values, workspace.log_sum


def triton_argmax(products: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """The best column of each row, int64 [rows], without its probability (FNI-06); raises as `triton_best`."""
    check_products(products, bias, 1)
    workspace = Workspace.of(*products.shape, 1, products.device)
    best_into(workspace, products, bias, log_sum=False)
    check_rows(workspace.log_sum)
    return workspace.columns[:, 0]


def check_rows(of_row: torch.Tensor) -> None:
    """Raise `KernelError` naming the first row whose figure is not finite (FNI-07); waits for the GPU."""
    wrong = (~torch.isfinite(of_row)).nonzero()
    if wrong.numel():
        raise KernelError(f"row {int(wrong[0])} of the products is all -inf, or holds NaN or +inf: it has no best column")


def check_products(products: torch.Tensor, bias: torch.Tensor | None, count: int) -> None:
    """Raise `KernelError` for what the kernels cannot read: a wrong type, shape, order in memory, or a mix of devices."""
    if products.dim() != 2 or products.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        shape = tuple(products.shape)
        raise KernelError(f"products are {products.dtype} of shape {shape}: give float32, float16 or bfloat16, [rows, V]")
    if products.stride(1) != 1 and products.shape[1] > 1:
        raise KernelError("the columns of a row of products do not lie side by side: call .contiguous()")
    if not 1 <= count <= products.shape[1]:
        raise KernelError(f"the best {count} of {products.shape[1]} columns: give 1 to {products.shape[1]}")
    if bias is None:
        return
    if bias.dtype != torch.float32 or tuple(bias.shape) != (products.shape[1],) or not bias.is_contiguous():
        shape = tuple(bias.shape)
        raise KernelError(f"the bias is {bias.dtype} of shape {shape}: give contiguous float32 [{products.shape[1]}]")
    if bias.device != products.device:
        raise KernelError(f"products are on {products.device}, the bias on {bias.device}: put both on one device")
