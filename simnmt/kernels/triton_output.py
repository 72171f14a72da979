"""The fused output layer on a GPU, in Triton: each row split over many programs, then joined (FNI-03 to FNI-07).

Every program reads its stretch of a row once, into registers: its maximum, the sum of exponentials below that, and its best
few columns. A second, small kernel joins the stretches of a row as FNI-04 says. Imported only where it is used: it needs
Triton, which comes with torch for CUDA. With TRITON_INTERPRET=1 the same code runs on the CPU, slowly, and so it is tested.
Its speed is unmeasured: no GPU was at hand (`python -m benchmarks.kernels_cuda` measures it).
"""

# Kernels have no types of Python's, and Triton has none where it is not installed.
# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

from dataclasses import dataclass

import torch

from simnmt.kernels.errors import need_triton
from simnmt.kernels.output_reference import Best, refuse_row

try:
    import triton
    import triton.language as tl
except ImportError:
    need_triton()
    raise

BLOCKS = (1024, 4096)
"""Columns of one program: the narrow one where the wide one would make too few programs to fill a GPU."""
WARPS = {1024: 4, 4096: 8}
"""Of one program: a thread then keeps 8 or 16 columns in 40 or 64 registers; compiled for an H100, nothing spills."""
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
    """Tensors that one shape of input needs, reusable from call to call, also within a captured graph."""

    best: Best
    """The answer."""
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
            best=Best(made(rows, count, dtype=torch.int64), made(rows, count), made(rows)),
            block=block,
            maxima=made(rows, parts),
            sums=made(rows, parts),
            part_values=made(rows, parts, count),
            part_columns=made(rows, parts, count, dtype=torch.int32),
        )


def best_into(workspace: Workspace, products: torch.Tensor, bias: torch.Tensor | None, *, with_sum: bool = True) -> None:
    """Write each row's best columns, their values and the logarithm of its sum of exponentials, relative to the best, into the
    workspace.

    `products`: [rows, V] float32, float16 or bfloat16, columns of a row side by side; `bias`: float32 [V]. All arithmetic is
    float32. Equal values: the lowest column first. Nothing waits for the GPU, so nothing is checked. Without
    `with_sum` the logarithm's place takes the row's largest value, or NaN where the row holds one.
    """
    rows, vocab = products.shape
    best, (_, parts, count) = workspace.best, workspace.part_values.shape
    if rows == 0:
        return
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


def triton_best(products: torch.Tensor, bias: torch.Tensor | None, count: int) -> Best:
    """What `fused_best` gives, of arguments that it has checked; waits for the GPU, to raise `KernelError` for a wrong row."""
    rows, vocab = products.shape
    workspace = Workspace.of(rows, vocab, count, products.device)
    best_into(workspace, products, bias)
    _check_rows(products, bias, workspace.best.log_total)
    return workspace.best


def triton_argmax(products: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """What `fused_argmax` gives (FNI-06); waits and raises as `triton_best`."""
    rows, vocab = products.shape
    workspace = Workspace.of(rows, vocab, 1, products.device)
    best_into(workspace, products, bias, with_sum=False)
    _check_rows(products, bias, workspace.best.log_total)
    return workspace.best.columns[:, 0]


def _check_rows(products: torch.Tensor, bias: torch.Tensor | None, of_row: torch.Tensor) -> None:
    wrong = (~torch.isfinite(of_row)).nonzero()
    if wrong.numel():
        raise refuse_row(products, bias, int(wrong[0]))
