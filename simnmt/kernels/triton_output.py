"""The fused output layer on a GPU, in Triton: each row split over many programs, then joined (FNI-03 to FNI-07).

Every program reads its stretch of a row once into registers and computes the maximum, the sum of exponentials relative to it,
and the best few columns. A second, small kernel joins the stretches of a row (FNI-04). The module is imported only where it is
used: it needs Triton, which is part of torch for CUDA. With TRITON_INTERPRET=1 the same code runs slowly on the CPU; the tests
use this. Its speed is unmeasured, because no GPU was available (`simnmt calibrate --device cuda` measures it).
"""

# Triton kernels have no Python types, and Triton has none if it is not installed.
# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

from dataclasses import dataclass

import torch

from simnmt.base.packages import MissingPackage
from simnmt.kernels.output_reference import Best, refuse_row

try:
    import triton
    import triton.language as tl
except ImportError:
    remedy = "pip install triton; torch for CUDA brings it on Linux"
    raise MissingPackage("this needs the package triton", remedy=remedy) from None

BLOCKS = (1024, 4096)
"""Columns of one program: the small block if the large one would give too few programs to fill a GPU."""
WARPS = {1024: 4, 4096: 8}
"""Warps of one program, by block: a thread then keeps 8 or 16 columns in 40 or 64 registers; on an H100 nothing spills."""
FILLING_PROGRAMS = 512
"""Programs that fill a GPU: several for each multiprocessor of today's large GPUs."""
NO_COLUMN = tl.constexpr(2**31 - 1)


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
        # If all values are -inf the sum is 0, not NaN as -inf minus -inf would make it.
        level = tl.where(maximum == float("-inf"), 0.0, maximum)
        tl.store(sums + place, tl.sum(tl.exp(value - level), 0))
    else:
        tl.store(sums + place, tl.max((value != value).to(tl.float32), 0))
    tl.store(maxima + place, maximum)
    for rank in tl.static_range(COUNT):
        best = tl.max(tl.where(free, value, float("-inf")), 0)
        # Not an argmax: among columns of -inf it could return one twice.
        chosen = tl.min(tl.where(free & (value == best), column, NO_COLUMN), 0)
        tl.store(values + place * COUNT + rank, best)
        tl.store(columns + place * COUNT + rank, chosen)
        free = free & (column != chosen)


@triton.jit
def _join(
    maxima, sums, values, columns, parts, best_values, best_columns, log_totals,
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
        tl.store(log_totals + row, tl.log(tl.sum(total * tl.exp(maximum - level), 0)))
    else:
        tl.store(log_totals + row, tl.where(tl.max(total, 0) > 0.0, float("nan"), highest))
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
    """Tensors for one shape of input, reusable from call to call, also within a captured graph."""

    best: Best
    block: int
    maxima: torch.Tensor
    sums: torch.Tensor
    part_values: torch.Tensor
    part_columns: torch.Tensor

    @classmethod
    def of(cls, rows: int, vocab: int, count: int, device: torch.device | str) -> Workspace:
        """Allocate a workspace for products of this shape."""
        block = next((size for size in reversed(BLOCKS) if rows * triton.cdiv(vocab, size) >= FILLING_PROGRAMS), BLOCKS[0])
        parts = triton.cdiv(vocab, block)

        maxima, sums = (torch.empty((rows, parts), device=device) for _ in range(2))
        part_columns = torch.empty((rows, parts, count), dtype=torch.int32, device=device)
        part_values = torch.empty((rows, parts, count), device=device)
        return cls(Best.empty(rows, count, device), block, maxima, sums, part_values, part_columns)


def best_into(workspace: Workspace, products: torch.Tensor, bias: torch.Tensor | None, *, with_sum: bool = True) -> None:
    """Write the best columns of each row, their values, and the logarithm of the row's sum of exponentials relative to the best
    value into the workspace.

    `products`: [rows, V] float32, float16 or bfloat16, columns of a row side by side; `bias`: float32 [V]. All arithmetic is
    float32. Among equal values the lowest column comes first. The call does not wait for the GPU and checks nothing. Without
    `with_sum`, `log_total` receives the row's largest value, or NaN if the row contains NaN.
    """
    rows, vocab = products.shape
    best, (_, parts, count) = workspace.best, workspace.part_values.shape
    if rows == 0:
        return
    with torch.cuda.device_of(products):  # Triton launches on the current GPU, wherever the tensors are
        _stretch[(rows, parts)](
            products, products if bias is None else bias, products.stride(0), vocab,
            workspace.maxima, workspace.sums, workspace.part_values, workspace.part_columns,
            HAS_BIAS=bias is not None, SUM=with_sum, COUNT=count, BLOCK=workspace.block, num_warps=WARPS[workspace.block],
        )  # fmt: skip
        _join[(rows,)](
            workspace.maxima, workspace.sums, workspace.part_values, workspace.part_columns, parts,
            best.values, best.columns, best.log_total,
            SUM=with_sum, COUNT=count, PARTS=triton.next_power_of_2(parts), CANDIDATES=triton.next_power_of_2(parts * count),
        )  # fmt: skip


def triton_best(products: torch.Tensor, bias: torch.Tensor | None, count: int, *, with_sum: bool = True) -> Best:
    """Return the result of `fused_best`, which has checked the arguments; wait for the GPU.

    Raises `KernelError` for a row that `fused_best` refuses.
    """
    rows, vocab = products.shape
    workspace = Workspace.of(rows, vocab, count, products.device)
    best_into(workspace, products, bias, with_sum=with_sum)
    broken = (~torch.isfinite(workspace.best.log_total)).nonzero()
    if broken.numel():
        raise refuse_row(products, bias, int(broken[0]))
    return workspace.best


def triton_argmax(products: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return the result of `fused_argmax` (FNI-06); waits and raises as `triton_best` does."""
    return triton_best(products, bias, 1, with_sum=False).columns[:, 0]
