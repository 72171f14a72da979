"""The output layer stage by stage in torch: arguments, results, the reference, and the fallback (FNI-01, FNI-03 to FNI-07).

The reference is the oracle of the fused output layer and its baseline. The fallback gives the fused layer's results without
native kernels, rounding of sums aside.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from simnmt.kernels.errors import KernelError
from simnmt.kernels.tensor_checks import ANY_SIZE, REAL_TYPES, check_beside, check_tensor, check_whole


class Best(NamedTuple):
    """The best columns of each row of products, bias added. Where values are equal, the lowest column comes first."""

    columns: Tensor
    """int64 [rows, count], by descending value."""
    values: Tensor
    """float32 [rows, count]: product plus bias."""
    log_total: Tensor
    """float32 [rows]: logarithm of the sum of the row's exponentials relative to its largest value, so at least 0."""

    @property
    def log_sum(self) -> Tensor:
        """float32 [rows]: logarithm of the sum of the exponentials of the whole row; rounded as values of its size are."""
        return self.values[:, 0] + self.log_total

    @property
    def log_probs(self) -> Tensor:
        """float32 [rows, count]: logarithms of the softmax's probabilities, never above 0 (FNI-05).

        The largest value is subtracted first, exactly or nearly: a rounded `log_sum` would be off by 5e-4 at values of 1e4.
        """
        return (self.values - self.values[:, :1]) - self.log_total[:, None]


class Partial(NamedTuple):
    """What a part of each row adds to its softmax and its 1-best (FNI-04); (-inf, 0) is the part that adds nothing."""

    maximum: Tensor
    """float32 [rows]."""
    total: Tensor
    """float32 [rows]: sum of exponentials relative to the maximum."""
    column: Tensor
    """int64 [rows]: where the maximum is, the lowest of equals."""


def combine(a: Partial, b: Partial) -> Partial:
    """Two parts of the same rows as one (FNI-04): any split and any order give the same but for rounding."""
    maximum = torch.maximum(a.maximum, b.maximum)
    total = sum(torch.where(part.total > 0, part.total * (part.maximum - maximum).exp(), 0.0) for part in (a, b))
    assert isinstance(total, Tensor)
    first = (a.maximum > b.maximum) | ((a.maximum == b.maximum) & (a.column < b.column))
    return Partial(maximum, total, torch.where(first, a.column, b.column))


def check_arguments(
    products: Tensor, bias: Tensor | None, count: int, *, types: tuple[torch.dtype, ...] = REAL_TYPES, threads: int = 1
) -> tuple[int, int | None]:
    """Return the addresses of products and bias. Raises `KernelError` for what no kernel could read rightly there."""
    # A row of 85,000 takes some 15 us in all: little is checked at every call.
    if isinstance(products, Tensor) and not (products.is_cpu or products.is_cuda):
        raise KernelError(f"products on {products.device}: the CPU and CUDA alone have kernels")
    at = check_tensor("products", products, types, (ANY_SIZE, ANY_SIZE))
    columns = products.shape[1]
    if type(count) is not int:
        check_whole("count", count, 0)
    if not 1 <= count <= columns:
        if columns == 0:
            raise KernelError(f"products of shape {tuple(products.shape)}: there is no column to choose")
        raise KernelError(f"the best {count} of {columns} columns: 1 to {columns} can be had")
    if threads != 1:
        check_whole("threads", threads)
    if bias is None:
        return at, None
    needed = torch.float64 if products.dtype == torch.float64 else torch.float32
    bias_at = check_tensor("bias", bias, (needed,), (columns,))
    check_beside("bias", bias, "products", products)
    return at, bias_at


def check_out(out: Best, products: Tensor, count: int) -> None:
    """Refuse a place for the result that does not fit. Raises `KernelError`."""
    if not isinstance(out, Best):
        raise KernelError(f"out of type {type(out).__name__}: a Best of three tensors is needed")
    rows = products.shape[0]
    for name, dtype, shape in (
        ("columns", torch.int64, (rows, count)),
        ("values", torch.float32, (rows, count)),
        ("log_total", torch.float32, (rows,)),
    ):
        place = getattr(out, name)
        check_tensor(f"out.{name}", place, (dtype,), shape)
        check_beside(f"out.{name}", place, "products", products)


def refuse_row(products: Tensor, bias: Tensor | None, row: int) -> KernelError:
    """Return the error that explains why this row has no best column."""
    values = products[row] if bias is None else products[row].to(bias.dtype) + bias
    for what, mask in (("NaN", values.isnan()), ("+inf", values == torch.inf)):
        if mask.any():
            column = int(mask.nonzero()[0])
            return KernelError(f"row {row} has {what} at column {column}{_added(products, bias, row, column)}")
    sums = " once the bias is added" if bias is not None and (products[row] > -torch.inf).any() else ""
    return KernelError(f"row {row} has no finite value: every column is -inf{sums}")


def _added(products: Tensor, bias: Tensor | None, row: int, column: int) -> str:
    """What was added up to a value, where the product alone would not be refused."""
    product = float(products[row, column])
    if bias is None or math.isnan(product) or product == math.inf:
        return ""
    return f": product plus bias, {product:g} + {float(bias[column]):g}"


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
    check_arguments(products, bias, count, types=(*REAL_TYPES, torch.float64))
    logits = products if products.dtype in (torch.float32, torch.float64) else products.float()
    log_probs = torch.empty_like(logits) if scratch is None else scratch
    began = time.perf_counter()
    if bias is not None:
        logits.add_(bias)
    biased = time.perf_counter()
    torch.log_softmax(logits, -1, out=log_probs)
    normalised = time.perf_counter()
    if count == 1:
        best, columns = (per_row[:, None] for per_row in log_probs.max(-1))
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
    """Return row maxima, their columns and the relative sums; rows may be all -inf. Raises `KernelError` for NaN and +inf."""
    logits = _logits(products, bias)
    maximum, column = (ranked[:, 0] for ranked in lowest_columns(logits, *logits.topk(1)))
    broken = (maximum.isnan() | (maximum == torch.inf)).nonzero()
    if broken.numel():
        raise refuse_row(products, bias, int(broken[0]))
    some = maximum != -torch.inf
    relative = (logits - torch.where(some, maximum, 0.0)[:, None]).exp()
    return Partial(maximum, torch.where(some, relative.sum(-1).clamp(min=1.0), 0.0), column)


def _logits(products: Tensor, bias: Tensor | None) -> Tensor:
    logits = products.float()
    return logits if bias is None else logits + bias
