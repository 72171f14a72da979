"""A kept copy of some columns' weights, for sets that come again (FVP-07)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from simnmt.kernels.arrays import allocated_bytes, allocated_size, huge_pages
from simnmt.kernels.gathered_arguments import ANY, REAL_TYPES, check_beside, check_columns, check_tensor, place_for
from simnmt.kernels.native_columns import functions_at, refuse


@dataclass(frozen=True, slots=True, eq=False)
class SubMatrix:
    """Some columns of a weight, copied and laid out for the quickest product: packed on the CPU in float32, else as they were.

    In packed order memory is read as one stream: of 15,000 x 1024 a row takes two thirds of what it does from columns that lie
    scattered, forty rows four fifths.
    """

    columns: Tensor
    """int32 [n], ascending, within the vocabulary."""
    width: int
    nbytes: int
    """Bytes allocated for the copy; the columns are whose they were."""
    _kept: Tensor
    _native: ctypes.CDLL | None = field(repr=False)

    @classmethod
    def of(cls, weight: Tensor, columns: Tensor, *, level: str | None = None) -> SubMatrix:
        """Copy these columns of `weight` [V, d]. Arguments and errors as of `gathered_products`."""
        weight_at = check_tensor("weight", weight, REAL_TYPES, (ANY, ANY))
        columns_at = check_tensor("columns", columns, (torch.int32,), (ANY,))
        check_beside("columns", columns, "weight", weight)
        vocab, width = weight.shape
        native = functions_at(level) if weight.is_cpu and weight.dtype == torch.float32 else None
        if native is None:
            check_columns(columns, vocab)
            rows = weight.detach().index_select(0, columns)
            return cls(columns, width, rows.untyped_storage().nbytes(), rows, None)
        packed = huge_pages(native.simnmt_packed_size(len(columns), width), np.float32)
        refuse(
            native.simnmt_pack_columns(weight_at, vocab, width, columns_at, len(columns), packed.ctypes.data), columns, vocab
        )
        return cls(columns, width, allocated_bytes(packed), torch.from_numpy(packed), native)

    @staticmethod
    def bytes_of(weight: Tensor, columns: int, *, level: str | None = None) -> int:
        """Bytes that a copy of so many columns of `weight` [V, d] would have allocated."""
        width = weight.shape[1]
        native = functions_at(level) if weight.is_cpu and weight.dtype == torch.float32 else None
        if native is None:
            return columns * width * weight.element_size()
        return allocated_size(4 * native.simnmt_packed_size(columns, width))

    def products(self, hidden: Tensor, out: Tensor | None = None) -> Tensor:
        """As `gathered_products` of the same columns."""
        hidden_at = check_tensor("hidden", hidden, REAL_TYPES, (ANY, self.width))
        check_beside("hidden", hidden, "the kept columns", self._kept)
        rows, count = hidden.shape[0], len(self.columns)
        out = place_for(out, rows, count, hidden)
        if self._native is None:
            return out.copy_(multiplied(self._kept, hidden.detach()))
        if hidden.dtype != torch.float32:
            hidden = hidden.detach().float()
            hidden_at = hidden.data_ptr()
        scratch = torch.empty(rows * (self.width + 1))
        self._native.simnmt_product_float32(
            hidden_at, rows, self._kept.data_ptr(), count, self.width, False, scratch.data_ptr(), out.data_ptr()
        )
        return out


def multiplied(gathered: Tensor, hidden: Tensor) -> Tensor:
    """`hidden` @ gathered.T by torch: in float32 on the CPU, in the weight's own type on CUDA, whose units sum in float32."""
    kind = gathered.dtype if gathered.is_cuda else torch.float32
    return hidden.to(kind) @ gathered.to(kind).T
