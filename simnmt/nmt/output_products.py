"""The output layer's products without its bias, block by block: what a fused output layer takes (FNI-01)."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn.functional import linear

from simnmt.nmt.half_weights import HalfLinear


def products_of(layer: nn.Linear | HalfLinear, hidden: Tensor, block: int | None) -> Iterator[tuple[int, Tensor]]:
    """See `StepModel.products`; weights in float16 are packed as a whole, and give one block."""
    if isinstance(layer, HalfLinear):
        yield 0, layer.products(hidden)
        return
    weight = layer.weight
    width = block or len(weight)
    for first in range(0, len(weight), width):
        yield first, linear(hidden, weight[first : first + width])
