"""Products of some columns at their places in the whole vocabulary, all others ruled out (FVP-07)."""

from __future__ import annotations

import torch
from torch import Tensor

from simnmt.kernels.gathered_arguments import ANY, check_beside, check_columns, check_tensor, place_for
from simnmt.kernels.native_columns import functions_at, refuse

__all__ = ["scatter"]


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
    columns_at = check_tensor("columns", columns, (torch.int32,), (ANY,))
    products_at = check_tensor("products", products, (torch.float32,), (ANY, len(columns)))
    check_beside("columns", columns, "products", products)
    bias_at = None
    if bias is not None:
        bias_at = check_tensor("bias", bias, (torch.float32,), (vocab,))
        check_beside("bias", bias, "products", products)
    rows = products.shape[0]
    out = place_for(out, rows, vocab, products)
    native = functions_at(level) if products.is_cpu else None
    if native is not None:
        found = native.simnmt_scatter(products_at, rows, columns_at, len(columns), vocab, bias_at, out.data_ptr())
        refuse(found, columns, vocab)
        return out
    check_columns(columns, vocab)
    placed = products.detach() if bias is None else products.detach() + bias.detach()[columns]
    return out.fill_(-torch.inf).index_copy_(1, columns.long(), placed)
