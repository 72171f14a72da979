"""The output layer stage by stage, as it is commonly written: the oracle of the fused one, and its baseline (FNI-01)."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from simnmt.kernels.output_arguments import FUSED_TYPES, check_arguments, refuse_row
from simnmt.kernels.output_forms import Best


@dataclass(slots=True)
class ReferenceStages:
    """Seconds that the stages have taken, added up over the calls that were handed this clock."""

    bias_s: float = 0.0
    softmax_s: float = 0.0
    search_s: float = 0.0


def reference_best(
    products: Tensor, bias: Tensor | None, count: int, clock: ReferenceStages | None = None, *, scratch: Tensor | None = None
) -> Best:
    """The `count` best columns of each row by adding the bias, taking the softmax, and searching: three walks, one by one.

    float32 and float64 `products` are overwritten by products plus bias, float64 giving a float64 oracle (with a float64 bias);
    halves are widened to float32 first, untimed. `scratch`, of the products' shape and accumulating type, takes the log-softmax
    where it is given. Arguments, ties and errors are those of `fused_best`.
    """
    check_arguments(products, bias, count, types=(*FUSED_TYPES, torch.float64))
    logits = products if products.dtype in (torch.float32, torch.float64) else products.float()
    log_probs = torch.empty_like(logits) if scratch is None else scratch
    began = time.perf_counter()
    if bias is not None:
        logits.add_(bias)
    biased = time.perf_counter()
    torch.log_softmax(logits, -1, out=log_probs)
    normalised = time.perf_counter()
    if count == 1:
        best, columns = (found[:, None] for found in log_probs.max(-1))
    else:
        best, columns = log_probs.topk(count)
    searched = time.perf_counter()
    if clock is not None:
        clock.bias_s += biased - began
        clock.softmax_s += normalised - biased
        clock.search_s += searched - normalised
    broken = best[:, 0].isnan().nonzero()
    if broken.numel():
        raise refuse_row(logits, None, int(broken[0]))
    values, columns = lowest_columns(logits, *logits.topk(count))
    return Best(columns, values, -best[:, 0])


def lowest_columns(logits: Tensor, values: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """What `topk` found, with the lowest columns where values are equal: which of them it takes is not defined."""
    reaching = (logits >= values[:, -1:]).sum(-1)
    tied = (reaching != values.shape[1]) | (values[:, 1:] == values[:, :-1]).any(-1)
    for row in tied.nonzero()[:, 0].tolist():
        columns[row] = logits[row].sort(descending=True, stable=True).indices[: values.shape[1]]
    return values, columns
