"""Checks of the tensors that are handed to a kernel: type, shape, device, and memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from simnmt.kernels.arrays import KernelError

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
    wanted_shape = ", ".join("any" if size is ANY_SIZE else str(size) for size in shape)
    kinds = " or ".join(str(dtype).removeprefix("torch.") for dtype in types)
    given_type = str(tensor.dtype).removeprefix("torch.")
    raise KernelError(f"{name} is {given_type} {list(given)}: contiguous {kinds} [{wanted_shape}] is needed")


def check_beside(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Raise `KernelError` if two tensors are on different devices."""
    if not (tensor.is_cpu and other.is_cpu) and tensor.device != other.device:
        raise KernelError(f"{name} on {tensor.device} and {other_name} on {other.device}: both must be on one device")


def check_columns(columns: Tensor, vocab: int) -> None:
    """Raise `KernelError` for columns on the CPU that are not ascending or not within the vocabulary.

    On CUDA the indexing by torch checks them.
    """
    if columns.is_cpu and columns.numel():
        unsound = (columns < 0) | (columns >= vocab)
        unsound[1:] |= columns[1:] <= columns[:-1]
        raise_for_column(int(unsound.nonzero()[0]) if bool(unsound.any()) else -1, columns, vocab)


def raise_for_column(unsound: int, columns: Tensor, vocab: int) -> None:
    """Raise `KernelError` if `unsound`, which a kernel returned, is the index of an invalid column; -1: all are valid."""
    if unsound >= 0:
        raise KernelError(f"column {int(columns[unsound])} is not among the {vocab} of the vocabulary, or not ascending")
