"""The output layer in torch, where no native kernels are: the same results as the fused one, rounding of sums aside."""

from __future__ import annotations

import torch
from torch import Tensor

from simnmt.kernels.output_arguments import refuse_row
from simnmt.kernels.output_forms import Best, Partial
from simnmt.kernels.reference_output import lowest_columns

ROWS_AT_ONCE = 16
"""So that what is widened and added stays small."""


def fallback_best(products: Tensor, bias: Tensor | None, out: Best) -> None:
    """Fill `out` with the best columns of each row and its sum. Raises `KernelError` for a row that has none."""
    count = out.columns.shape[1]
    for begin in range(0, products.shape[0], ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        logits = _logits(products[rows], bias)
        maximum = logits.amax(-1)
        broken = (~maximum.isfinite()).nonzero()
        if broken.numel():
            raise refuse_row(products, bias, begin + int(broken[0]))
        out.values[rows], out.columns[rows] = lowest_columns(logits, *logits.topk(count))
        # A sum that holds the largest term, 1, is no less than 1, however it was rounded.
        out.log_total[rows] = (logits - maximum[:, None]).exp().sum(-1).clamp(min=1.0).log()


def fallback_partial(products: Tensor, bias: Tensor | None) -> Partial:
    """The maximum, where it is, and the sum relative to it; a row may be all -inf. Raises `KernelError` for NaN and +inf."""
    logits = _logits(products, bias)
    maximum, column = (found[:, 0] for found in lowest_columns(logits, *logits.topk(1)))
    broken = (maximum.isnan() | (maximum == torch.inf)).nonzero()
    if broken.numel():
        raise refuse_row(products, bias, int(broken[0]))
    some = maximum != -torch.inf
    relative = (logits - torch.where(some, maximum, 0.0)[:, None]).exp()
    return Partial(maximum, torch.where(some, relative.sum(-1).clamp(min=1.0), 0.0), column)


def _logits(products: Tensor, bias: Tensor | None) -> Tensor:
    logits = products.float()
    return logits if bias is None else logits + bias
