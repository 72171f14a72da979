"""Products with some columns of the vocabulary alone: straight from the weight's rows, gathered first, or kept (FVP-07)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from simnmt.kernels.errors import KernelError
from simnmt.kernels.gathered_arguments import ANY, REAL_TYPES, check_beside, check_columns, check_tensor, place_for

__all__ = ["SubMatrix", "Way", "gathered_products"]

Way = Literal["row_wise", "gather"]
"""`row_wise`: dot products straight from the weight's rows, nothing copied. `gather`: in blocks that a cache holds, copied and
then multiplied."""


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

    `weight`: [V, d], `hidden`: [rows, d], both float32, float16 or bfloat16; `columns`: int32 [n], ascending, within V. `out`
    takes the result where it is given. Compiled kernels on the CPU in float32 (`level`: the widest of them, as the variable
    SIMNMT_KERNELS says it), torch elsewhere. Raises `KernelError` for other tensors and for a column that there is not.
    """
    check_tensor("weight", weight, REAL_TYPES, (ANY, ANY))
    vocab, width = weight.shape
    check_tensor("hidden", hidden, REAL_TYPES, (ANY, width))
    check_columns(columns, vocab)
    check_beside("hidden", hidden, "weight", weight)
    check_beside("columns", columns, "weight", weight)
    if way not in get_args(Way):
        raise KernelError(f"way {way!r}: one of {', '.join(get_args(Way))} is needed")
    out = place_for(out, len(hidden), len(columns), hidden)
    out.copy_(multiplied(weight.detach().index_select(0, columns), hidden.detach()))
    return out


def multiplied(gathered: Tensor, hidden: Tensor) -> Tensor:
    """`hidden` @ gathered.T by torch: in float32 on the CPU, in the weight's own type on CUDA, whose units sum in float32."""
    kind = gathered.dtype if gathered.is_cuda else torch.float32
    return hidden.to(kind) @ gathered.to(kind).T


@dataclass(frozen=True, slots=True, eq=False)
class SubMatrix:
    """A kept copy of some columns' weights, for sets that come again."""

    columns: Tensor
    """int32 [n], within the vocabulary."""
    width: int
    _rows: Tensor
    level: str | None = None

    @classmethod
    def of(cls, weight: Tensor, columns: Tensor, *, level: str | None = None) -> SubMatrix:
        """Copy these columns of `weight` [V, d]. Arguments and errors as of `gathered_products`."""
        check_tensor("weight", weight, REAL_TYPES, (ANY, ANY))
        check_columns(columns, len(weight))
        check_beside("columns", columns, "weight", weight)
        return cls(columns, weight.shape[1], weight.detach().index_select(0, columns), level)

    def products(self, hidden: Tensor, out: Tensor | None = None) -> Tensor:
        """As `gathered_products` of the same columns."""
        check_tensor("hidden", hidden, REAL_TYPES, (ANY, self.width))
        check_beside("hidden", hidden, "the kept columns", self.columns)
        out = place_for(out, len(hidden), len(self.columns), hidden)
        out.copy_(multiplied(self._rows, hidden.detach()))
        return out

    @property
    def nbytes(self) -> int:
        """Bytes allocated for the copy; the columns are whose they were."""
        return self._rows.untyped_storage().nbytes()
