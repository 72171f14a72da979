"""Products with some columns of the vocabulary: row by row, gathered first, or from a kept copy; and their scatter (FVP-07)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from simnmt.kernels.arrays import allocated_bytes, allocated_size, huge_pages
from simnmt.kernels.errors import KernelError
from simnmt.kernels.native_library import NativeLibrary, native_at
from simnmt.kernels.tensor_checks import (
    ANY_SIZE,
    REAL_TYPES,
    check_beside,
    check_columns,
    check_tensor,
    output_tensor,
    raise_for_column,
)
from simnmt.profile.projection_cost import PRODUCT_METHODS, ProductMethod


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
    _native: NativeLibrary | None = field(repr=False)

    @classmethod
    def of(cls, weight: Tensor, columns: Tensor, *, level: str | None = None) -> SubMatrix:
        """Copy these columns of `weight` [V, d]. Arguments and errors as of `gathered_products`."""
        weight_at = check_tensor("weight", weight, REAL_TYPES, (ANY_SIZE, ANY_SIZE))
        columns_at = check_tensor("columns", columns, (torch.int32,), (ANY_SIZE,))
        check_beside("columns", columns, "weight", weight)
        vocab, width = weight.shape
        native = native_at(level) if weight.is_cpu and weight.dtype == torch.float32 else None
        if native is None:
            check_columns(columns, vocab)
            rows = weight.detach().index_select(0, columns)
            return cls(columns, width, rows.untyped_storage().nbytes(), rows, None)
        packed = huge_pages(native.cdll.simnmt_packed_size(len(columns), width), np.float32)
        raise_for_column(
            native.cdll.simnmt_pack_columns(weight_at, vocab, width, columns_at, len(columns), packed.ctypes.data),
            columns,
            vocab,
        )
        return cls(columns, width, allocated_bytes(packed), torch.from_numpy(packed), native)

    @staticmethod
    def bytes_of(weight: Tensor, columns: int, *, level: str | None = None) -> int:
        """Bytes that a copy of so many columns of `weight` [V, d] would have allocated."""
        width = weight.shape[1]
        native = native_at(level) if weight.is_cpu and weight.dtype == torch.float32 else None
        if native is None:
            return columns * width * weight.element_size()
        return allocated_size(4 * native.cdll.simnmt_packed_size(columns, width))

    def products(self, hidden: Tensor, out: Tensor | None = None) -> Tensor:
        """As `gathered_products` of the same columns."""
        hidden_at = check_tensor("hidden", hidden, REAL_TYPES, (ANY_SIZE, self.width))
        check_beside("hidden", hidden, "the kept columns", self._kept)
        rows, count = hidden.shape[0], len(self.columns)
        out = output_tensor(out, rows, count, hidden)
        if self._native is None:
            return out.copy_(multiplied(self._kept, hidden.detach()))
        if hidden.dtype != torch.float32:
            hidden = hidden.detach().float()
            hidden_at = hidden.data_ptr()
        scratch = torch.empty(rows * (self.width + 1))
        self._native.cdll.simnmt_product_float32(
            hidden_at, rows, self._kept.data_ptr(), count, self.width, False, scratch.data_ptr(), out.data_ptr()
        )
        return out


def multiplied(gathered: Tensor, hidden: Tensor) -> Tensor:
    """`hidden` @ gathered.T by torch: in float32 on the CPU, in the weight's own type on CUDA, whose units sum in float32."""
    kind = gathered.dtype if gathered.is_cuda else torch.float32
    return hidden.to(kind) @ gathered.to(kind).T


GATHERED_FROM_ROWS = 128
"""Rows from which `gather` is the faster. One thread of an AVX-512 server, seconds of `row_wise` over those of `gather`: of
3,200 to 6,400 columns x 512, and of 3,840 x 1024, 0.55 to 0.62 at 8 rows, 0.84 to 0.86 at 32, 0.96 to 0.98 at 64, 0.98 to
1.01 at 96, 1.03 to 1.04 at 128, 1.09 to 1.13 at 384; of 1,600 x 256 1.02 at 32 and 1.19 at 128."""


def default_method(rows: int) -> ProductMethod:
    """The one for so many rows, whatever the machine: the same at each run, as no measurement's is."""
    return "gather" if rows >= GATHERED_FROM_ROWS else "row_wise"


def gathered_products(
    weight: Tensor,
    hidden: Tensor,
    columns: Tensor,
    *,
    method: ProductMethod = "row_wise",
    out: Tensor | None = None,
    level: str | None = None,
) -> Tensor:
    """float32 [rows, n]: products of each row of `hidden` with the `columns` of the vocabulary, without bias (FVP-07).

    `weight`: [V, d], `hidden`: [rows, d], both float32, float16 or bfloat16; `columns`: int32 [n], ascending, within V.
    `method`: `row_wise` takes dot products straight from the weight's rows and copies nothing, `gather` takes a few columns at
    a time, which a cache holds, packed and then multiplied. `out` takes the result where it is given. Compiled kernels on the CPU in
    float32, by one thread (`level`: the widest of them, as the variable SIMNMT_KERNELS says it), torch elsewhere. Raises
    `KernelError` for other tensors and for a column that there is not.
    """
    weight_at = check_tensor("weight", weight, REAL_TYPES, (ANY_SIZE, ANY_SIZE))
    vocab, width = weight.shape
    hidden_at = check_tensor("hidden", hidden, REAL_TYPES, (ANY_SIZE, width))
    columns_at = check_tensor("columns", columns, (torch.int32,), (ANY_SIZE,))
    check_beside("hidden", hidden, "weight", weight)
    check_beside("columns", columns, "weight", weight)
    if method not in PRODUCT_METHODS:
        raise KernelError(f"method {method!r}: one of {', '.join(PRODUCT_METHODS)} is needed")
    rows, count = hidden.shape[0], columns.shape[0]
    out = output_tensor(out, rows, count, hidden)
    native = native_at(level) if weight.is_cpu and weight.dtype == hidden.dtype == torch.float32 else None
    if native is None:
        check_columns(columns, vocab)
        return out.copy_(multiplied(weight.detach().index_select(0, columns), hidden.detach()))
    if method == "row_wise":
        unsound = native.cdll.simnmt_row_wise(weight_at, vocab, width, columns_at, count, hidden_at, rows, out.data_ptr())
    else:
        scratch = torch.empty(native.cdll.simnmt_gathered_scratch(width, rows))
        unsound = native.cdll.simnmt_gathered(
            weight_at, vocab, width, columns_at, count, hidden_at, rows, scratch.data_ptr(), out.data_ptr()
        )
    raise_for_column(unsound, columns, vocab)
    return out


def scatter(
    products: Tensor,
    columns: Tensor,
    vocab: int,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    *,
    level: str | None = None,
) -> Tensor:
    """float32 [rows, V]: `products` [rows, n] plus the `bias` [V] of their `columns` there, -inf everywhere else (FVP-07).

    `columns`: int32 [n], ascending, within V. `out` takes the result where it is given; `level` as of `gathered_products`.
    Raises `KernelError` for other tensors and for a column that there is not.
    """
    columns_at = check_tensor("columns", columns, (torch.int32,), (ANY_SIZE,))
    products_at = check_tensor("products", products, (torch.float32,), (ANY_SIZE, len(columns)))
    check_beside("columns", columns, "products", products)
    bias_at = None
    if bias is not None:
        bias_at = check_tensor("bias", bias, (torch.float32,), (vocab,))
        check_beside("bias", bias, "products", products)
    rows = products.shape[0]
    out = output_tensor(out, rows, vocab, products)
    native = native_at(level) if products.is_cpu else None
    if native is not None:
        unsound = native.cdll.simnmt_scatter(products_at, rows, columns_at, len(columns), vocab, bias_at, out.data_ptr())
        raise_for_column(unsound, columns, vocab)
        return out
    check_columns(columns, vocab)
    placed = products.detach() if bias is None else products.detach() + bias.detach()[columns]
    return out.fill_(-torch.inf).index_copy_(1, columns.long(), placed)
