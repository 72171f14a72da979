"""What products with some of the columns take, and what they refuse (FVP-06, FVP-07)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from simnmt.kernels.errors import KernelError

REAL_TYPES = (torch.float32, torch.float16, torch.bfloat16)
ANY = None
"""A size that may be anything."""


def check_tensor(name: str, tensor: Tensor, types: Sequence[torch.dtype], shape: tuple[int | None, ...]) -> int:
    """The address of a dense contiguous tensor of one of these types and of this shape. Raises `KernelError` for others."""
    # Asked three or four times a step, which of a small vocabulary takes some 10 us in all.
    try:
        given = tensor.shape
        if tensor.dtype in types and len(given) == len(shape) and tensor.is_contiguous() and not tensor.is_neg():
            for asked, size in zip(shape, given, strict=True):
                if asked is not ANY and asked != size:
                    break
            else:
                at = tensor.data_ptr()
                if at or not tensor.numel():
                    return at
                raise KernelError(f"{name}: a tensor without memory of its own")
    except (AttributeError, RuntimeError):  # RuntimeError: sparse or nested
        raise KernelError(f"{name} of type {type(tensor).__name__}: a dense torch tensor is needed") from None
    asked_for = ", ".join("any" if asked is ANY else str(asked) for asked in shape)
    kinds = " or ".join(str(each).removeprefix("torch.") for each in types)
    found = str(tensor.dtype).removeprefix("torch.")
    raise KernelError(f"{name} is {found} {list(given)}: contiguous {kinds} [{asked_for}] is needed")


def check_columns(columns: Tensor, vocab: int) -> None:
    """Refuse columns on the CPU that are not ascending and within the vocabulary; on CUDA torch's own indexing looks at them.

    Raises `KernelError`.
    """
    if not columns.is_cpu or not columns.numel():
        return
    unsound = (columns < 0) | (columns >= vocab)
    unsound[1:] |= columns[1:] <= columns[:-1]
    if bool(unsound.any()):
        raise unsound_column(columns, int(unsound.nonzero()[0]), vocab)


def unsound_column(columns: Tensor, at: int, vocab: int) -> KernelError:
    """Why the column at this place cannot be taken."""
    column = int(columns[at])
    if not 0 <= column < vocab:
        return outside(column, vocab)
    return KernelError(f"columns are not ascending, each once: {column} follows {int(columns[at - 1])}")


def outside(column: int, vocab: int) -> KernelError:
    """The error of a column that there is not."""
    return KernelError(f"column {column} is not among the {vocab} of the vocabulary")


def check_beside(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Refuse two tensors on two devices. Raises `KernelError`."""
    if not (tensor.is_cpu and other.is_cpu) and tensor.device != other.device:
        raise KernelError(f"{name} on {tensor.device} and {other_name} on {other.device}: both must be on one device")


def place_for(out: Tensor | None, rows: int, columns: int, beside: Tensor) -> Tensor:
    """float32 [rows, columns] to write to: `out` where it fits, a new one for None. Raises `KernelError`."""
    if out is None:
        return torch.empty((rows, columns), dtype=torch.float32, device=beside.device)
    check_tensor("out", out, (torch.float32,), (rows, columns))
    check_beside("out", out, "what it is made from", beside)
    return out
