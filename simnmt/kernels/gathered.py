"""Products with some columns of the vocabulary alone: straight from the weight's rows, or gathered first (FVP-07)."""

from __future__ import annotations

import torch
from torch import Tensor

from simnmt.costs.projection_cost import WAYS, Way
from simnmt.kernels.errors import KernelError
from simnmt.kernels.gathered_arguments import ANY, REAL_TYPES, check_beside, check_columns, check_tensor, place_for
from simnmt.kernels.native_columns import functions_at, refuse
from simnmt.kernels.sub_matrix import SubMatrix, multiplied

__all__ = ["WAYS", "SubMatrix", "Way", "gathered_products", "usual_way"]

GATHERED_FROM_ROWS = 128
"""Rows from which `gather` is the faster. One thread of an AVX-512 server, seconds of `row_wise` over those of `gather`: of
3,200 to 6,400 columns x 512, and of 3,840 x 1024, 0.55 to 0.62 at 8 rows, 0.84 to 0.86 at 32, 0.96 to 0.98 at 64, 0.98 to
1.01 at 96, 1.03 to 1.04 at 128, 1.09 to 1.13 at 384; of 1,600 x 256 1.02 at 32 and 1.19 at 128."""


def usual_way(rows: int) -> Way:
    """The one for so many rows, whatever the machine: the same at each run, as no measurement's is."""
    return "gather" if rows >= GATHERED_FROM_ROWS else "row_wise"


def gathered_products(
    weight: Tensor,
    hidden: Tensor,
    columns: Tensor,
    *,
    way: Way = "row_wise",
    out: Tensor | None = None,
    level: str | None = None,
) -> Tensor:
    """float32 [rows, n]: products of each row of `hidden` with the `columns` of the vocabulary, without bias (FVP-07).

    `weight`: [V, d], `hidden`: [rows, d], both float32, float16 or bfloat16; `columns`: int32 [n], ascending, within V. `way`:
    `row_wise` takes dot products straight from the weight's rows and copies nothing, `gather` takes a few columns at a time,
    which a cache holds, packed and then multiplied. `out` takes the result where it is given. Compiled kernels on the CPU in
    float32, by one thread (`level`: the widest of them, as the variable SIMNMT_KERNELS says it), torch elsewhere. Raises
    `KernelError` for other tensors and for a column that there is not.
    """
    weight_at = check_tensor("weight", weight, REAL_TYPES, (ANY, ANY))
    vocab, width = weight.shape
    hidden_at = check_tensor("hidden", hidden, REAL_TYPES, (ANY, width))
    columns_at = check_tensor("columns", columns, (torch.int32,), (ANY,))
    check_beside("hidden", hidden, "weight", weight)
    check_beside("columns", columns, "weight", weight)
    if way not in WAYS:
        raise KernelError(f"way {way!r}: one of {', '.join(WAYS)} is needed")
    rows, count = hidden.shape[0], columns.shape[0]
    out = place_for(out, rows, count, hidden)
    native = functions_at(level) if weight.is_cpu and weight.dtype == hidden.dtype == torch.float32 else None
    if native is None:
        check_columns(columns, vocab)
        return out.copy_(multiplied(weight.detach().index_select(0, columns), hidden.detach()))
    if way == "row_wise":
        found = native.simnmt_row_wise(weight_at, vocab, width, columns_at, count, hidden_at, rows, out.data_ptr())
    else:
        scratch = torch.empty(native.simnmt_gathered_scratch(width, rows))
        found = native.simnmt_gathered(
            weight_at, vocab, width, columns_at, count, hidden_at, rows, scratch.data_ptr(), out.data_ptr()
        )
    refuse(found, columns, vocab)
    return out
