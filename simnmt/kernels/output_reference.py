"""Checks of tensors, and the output layer in torch: results, and what runs without compiled kernels (FNI-01 to FNI-07)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from simnmt.kernels.native_library import KernelError

REAL_TYPES = (torch.float32, torch.float16, torch.bfloat16)
ANY_SIZE = None
"""In a shape: any size fits."""


def check_tensor(name: str, tensor: Tensor, types: Sequence[torch.dtype], shape: tuple[int | None, ...]) -> int:
    """Return the address of a dense contiguous tensor of one of these types and this shape. Raises `KernelError` for others."""
    # Called three or four times per step; with a small vocabulary a whole step takes some 10 us.
    try:
        given = tensor.shape
        if tensor.dtype in types and len(given) == len(shape) and tensor.is_contiguous():
            for wanted, size in zip(shape, given, strict=True):
                if wanted is not ANY_SIZE and wanted != size:
                    break
            else:
                return tensor.data_ptr()
    except (AttributeError, RuntimeError):  # RuntimeError: a sparse or nested tensor, or one under a transformation
        raise KernelError(f"{name}: a dense torch tensor is needed") from None
    sizes = ", ".join("any" if size is ANY_SIZE else str(size) for size in shape)
    raise KernelError(f"{name} is {tensor.dtype} {list(given)}: contiguous {' or '.join(map(str, types))} [{sizes}] is needed")


def check_beside(name: str, tensor: Tensor, other: Tensor) -> None:
    """Raise `KernelError` if two tensors are on different devices."""
    if not (tensor.is_cpu and other.is_cpu) and tensor.device != other.device:
        raise KernelError(f"{name} on {tensor.device}, but the other tensors on {other.device}")


class Best(NamedTuple):
    """The best columns of each row of products plus bias. Among equal values, the lowest column comes first."""

    columns: Tensor
    """int64 [rows, count], by descending value."""
    values: Tensor
    """float32 [rows, count]: product plus bias."""
    log_total: Tensor
    """float32 [rows]: logarithm of the sum of the row's exponentials relative to its largest value, so at least 0."""

    @classmethod
    def empty(cls, rows: int, count: int, device: torch.device | str = "cpu") -> Best:
        columns = torch.empty((rows, count), dtype=torch.int64, device=device)
        return cls(columns, torch.empty((rows, count), device=device), torch.empty(rows, device=device))

    @property
    def log_sum(self) -> Tensor:
        """Logarithm of the sum of the exponentials of the whole row, float32 [rows], rounded as values of its size are."""
        return self.values[:, 0] + self.log_total

    @property
    def log_probs(self) -> Tensor:
        """Logarithms of the softmax probabilities, float32 [rows, count], never above 0 (FNI-05).

        The largest value is subtracted first, exactly or nearly: a rounded `log_sum` would be off by 5e-4 at values of 1e4.
        """
        return (self.values - self.values[:, :1]) - self.log_total[:, None]


class Partial(NamedTuple):
    """Contribution of some columns to the softmax and the 1-best of each row (FNI-04); (-inf, 0) contributes nothing."""

    maximum: Tensor
    total: Tensor
    """float32 [rows]: sum of exponentials relative to the maximum."""
    column: Tensor
    """int64 [rows]: the column of the maximum, the lowest among equals."""


def combine(a: Partial, b: Partial) -> Partial:
    """Combine two parts of the same rows (FNI-04); any split and any order give the same result except for rounding."""
    maximum = torch.maximum(a.maximum, b.maximum)
    total = sum(torch.where(part.total > 0, part.total * (part.maximum - maximum).exp(), 0.0) for part in (a, b))
    assert isinstance(total, Tensor)
    first = (a.maximum > b.maximum) | ((a.maximum == b.maximum) & (a.column < b.column))
    return Partial(maximum, total, torch.where(first, a.column, b.column))


def check_arguments(products: Tensor, bias: Tensor | None, count: int, *, threads: int = 1) -> None:
    """Raise `KernelError` for arguments that no kernel could read correctly."""
    # A row of 85,000 takes some 15 us in all: each call checks little.
    check_tensor("products", products, REAL_TYPES, (ANY_SIZE, ANY_SIZE))
    columns = products.shape[1]
    if not 1 <= count <= columns or threads < 1:
        raise KernelError(f"the best {count} of {columns} columns by {threads} threads: 1 to {columns} can be had")
    if bias is not None:
        check_tensor("bias", bias, (torch.float32,), (columns,))
        check_beside("bias", bias, products)


def refuse_row(products: Tensor, bias: Tensor | None, row: int) -> KernelError:
    """Return the error that explains why this row has no best column."""
    values = products[row] if bias is None else products[row].to(bias.dtype) + bias
    for value_name, mask in (("NaN", values.isnan()), ("+inf", values == torch.inf)):
        if mask.any():
            return KernelError(f"row {row} has {value_name} at column {int(mask.nonzero()[0])}")
    return KernelError(f"row {row} has no finite value: every column is -inf")


def lowest_columns(logits: Tensor, values: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Return the result of `topk` with the lowest columns among equal values: which of them `topk` takes is not defined."""
    reaching = (logits >= values[:, -1:]).sum(-1)
    tied = (reaching != values.shape[1]) | (values[:, 1:] == values[:, :-1]).any(-1)
    for row in tied.nonzero()[:, 0].tolist():
        columns[row] = logits[row].sort(descending=True, stable=True).indices[: values.shape[1]]
    return values, columns


ROWS_AT_ONCE = 16
"""Rows that are converted and added to the bias together, to keep the copy small."""


def reference_best(products: Tensor, bias: Tensor | None, count: int) -> Best:
    """Return the `count` best columns of each row: add the bias, take the softmax's sum, search (FNI-01).

    Arguments, ties and errors are those of `fused_best`, which checks them.
    """
    best = Best.empty(products.shape[0], count, products.device)
    for begin in range(0, products.shape[0], ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        logits = products[rows].float() if bias is None else products[rows].float() + bias
        maximum = logits.amax(-1)
        broken = (~maximum.isfinite()).nonzero()
        if broken.numel():
            raise refuse_row(products, bias, begin + int(broken[0]))
        best.values[rows], best.columns[rows] = lowest_columns(logits, *logits.topk(count))
        # The sum contains the largest term, 1, so it is at least 1 however it was rounded.
        best.log_total[rows] = (logits - maximum[:, None]).exp().sum(-1).clamp(min=1.0).log()
    return best
