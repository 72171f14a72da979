"""Linear layers for inference: weights in float16, and products of the output layer block by block (FNI-01).

A decoder step of one sentence reads every weight once, so that float16 halves its time. FBGEMM reads weights at the speed of
the memory, which torch's float32 product of a single row does not. Rounding the weights changes logits by about 1e-4. Torch's
int8 is left out: since 2.13 torch warns that its quantized tensors will be removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


def has_half_weights() -> bool:
    """Return whether this torch has FBGEMM, which multiplies float16 weights."""
    return torch.backends.quantized.engine in {"x86", "fbgemm"}


class HalfLinear(nn.Module):
    """A linear layer for inference with its weights in float16."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.bias = None if bias is None else bias.detach().float()
        self._packed = torch.ops.quantized.linear_prepack_fp16(weight.detach().float().contiguous(), self.bias)

    @cached_property
    def weight(self) -> Tensor:
        """The weights as multiplied, float16 [out, in]: a second copy."""
        weight: Tensor = torch.ops.quantized.linear_unpack_fp16(self._packed)[0].half()
        return weight

    @cached_property
    def _bare(self) -> torch.ScriptObject:
        """The weights without bias: a further copy."""
        packed: torch.ScriptObject = torch.ops.quantized.linear_prepack_fp16(self.weight.float(), None)
        return packed

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply the layer: float32 [..., in] to float32 [..., out]."""
        output: Tensor = torch.ops.quantized.linear_dynamic_fp16(inputs, self._packed)
        return output

    def products(self, inputs: Tensor) -> Tensor:
        """Apply the layer without its bias."""
        output: Tensor = torch.ops.quantized.linear_dynamic_fp16(inputs, self._packed if self.bias is None else self._bare)
        return output


def halve_linear_layers(model: nn.Module) -> None:
    """Replace every linear layer by a `HalfLinear`; afterwards the model cannot be trained or saved."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, HalfLinear(child.weight, child.bias))


_PIECE = 1_024
"""Columns of one product within a block: torch's float32 product of 2 to 640 rows with 85,000 columns was up to a fifth faster
in pieces than whole, on one thread. Blocks are longer, since the search has a fixed cost per block."""


def products_of(layer: nn.Linear | HalfLinear, hidden: Tensor, block: int | None) -> Iterator[tuple[int, Tensor]]:
    """Yield the products of an output layer; see `StepModel.products`.

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
