"""The output layer's products without its bias, block by block: what a fused output layer takes (FNI-01)."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn.functional import linear

from simnmt.nmt.half_weights import HalfLinear


def products_of(layer: nn.Linear | HalfLinear, hidden: Tensor, block: int | None) -> Iterator[tuple[int, Tensor]]:
    """See `StepModel.products`.

    Weights in float16 give one block: packed in blocks of 2,048 of 85,000 columns, they took twice as long at 1 to 8 rows.
    """
    if isinstance(layer, HalfLinear):
        yield 0, layer.products(hidden)
        return
    weight = layer.weight
    vocab = len(weight)
    blocks = max(1, vocab // (block or vocab))
    for number in range(blocks):
        first, last = number * (block or vocab), (number + 1) * (block or vocab)
        yield first, linear(hidden, weight[first : last if number + 1 < blocks else vocab])
