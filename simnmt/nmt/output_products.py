"""The output layer's products without its bias, block by block: what a fused output layer takes (FNI-01)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from simnmt.nmt.half_weights import HalfLinear

_PIECE = 1_024
"""Columns multiplied at a time within a block: torch's float32 product of 2 to 640 rows with 85,000 columns was up to a fifth
faster in pieces than whole, on one thread. The search is not: it begins anew with each block, and wants these longer."""


def products_of(layer: nn.Linear | HalfLinear, hidden: Tensor, block: int | None) -> Iterator[tuple[int, Tensor]]:
    """See `StepModel.products`.

    Weights in float16 give one block: packed in blocks of 2,048 of 85,000 columns, they took twice as long at 1 to 8 rows.
    """
    if isinstance(layer, HalfLinear):
        yield 0, layer.products(hidden)
    elif block is None:
        yield 0, linear(hidden, layer.weight)
    else:
        weight, hidden = layer.weight.detach(), hidden.detach()
        vocab, rows = len(weight), len(hidden)
        room = hidden.new_empty(rows * min(vocab, block + vocab % block))
        for first in range(0, max(1, vocab - block + 1), block):
            last = first + block if first + 2 * block <= vocab else vocab
            products = room[: rows * (last - first)].view(rows, last - first)
            for begin in range(first, last, _PIECE):
                end = min(begin + _PIECE, last)
                torch.mm(hidden, weight[begin:end].t(), out=products[:, begin - first : end - first])
            yield first, products
