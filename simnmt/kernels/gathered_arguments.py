"""What products with some of the columns take, and what they refuse (FVP-06, FVP-07)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from simnmt.kernels.errors import KernelError

REAL_TYPES = (torch.float32, torch.float16, torch.bfloat16)
ANY = None
"""A size that may be anything."""


def check_tensor(name: str, tensor: Tensor, types: Sequence[torch.dtype], shape: tuple[int | None, ...]) -> None:
    """Refuse what is no dense contiguous tensor of one of these types and of this shape. Raises `KernelError`."""
    try:
        given = tensor.shape
        fits = tensor.dtype in types and len(given) == len(shape) and tensor.is_contiguous() and not tensor.is_neg()
    except (AttributeError, RuntimeError):  # RuntimeError: sparse or nested
        raise KernelError(f"{name} of type {type(tensor).__name__}: a dense torch tensor is needed") from None
    if fits and all(asked is ANY or asked == size for asked, size in zip(shape, given, strict=True)):
        if tensor.data_ptr() or not tensor.numel():
            return
        raise KernelError(f"{name}: a tensor without memory of its own")
    asked_for = ", ".join("any" if asked is ANY else str(asked) for asked in shape)
    kinds = " or ".join(str(each).removeprefix("torch.") for each in types)
    found = str(tensor.dtype).removeprefix("torch.")
    raise KernelError(f"{name} is {found} {list(given)}: contiguous {kinds} [{asked_for}] is needed")


def check_columns(columns: Tensor, vocab: int) -> None:
    """Refuse columns that are not int32, ascending and within the vocabulary. Raises `KernelError`; looks at each of them."""
    check_tensor("columns", columns, (torch.int32,), (ANY,))
    if not columns.numel():
        return
    first, last = int(columns[0]), int(columns[-1])
    if first < 0 or last >= vocab:
        raise outside(first if first < 0 else last, vocab)
    if not bool((columns[1:] > columns[:-1]).all()):
        raise KernelError("columns are not ascending, each once")


def outside(column: int, vocab: int) -> KernelError:
    """The error of a column that there is not."""
    return KernelError(f"column {column} is not among the {vocab} of the vocabulary")


def check_beside(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Refuse two tensors on two devices. Raises `KernelError`."""
    if tensor.device != other.device:
        raise KernelError(f"{name} on {tensor.device} and {other_name} on {other.device}: both must be on one device")


def place_for(out: Tensor | None, rows: int, columns: int, beside: Tensor) -> Tensor:
    """float32 [rows, columns] to write to: `out` where it fits, a new one for None. Raises `KernelError`."""
    if out is None:
        return torch.empty((rows, columns), dtype=torch.float32, device=beside.device)
    check_tensor("out", out, (torch.float32,), (rows, columns))
    check_beside("out", out, "hidden or products", beside)
    return out
