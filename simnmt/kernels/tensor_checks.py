"""Checks of the tensors that are handed to a kernel: type, shape, and memory."""

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
    sizes = ", ".join("any" if size is ANY_SIZE else str(size) for size in shape)
    raise KernelError(f"{name} is {tensor.dtype} {list(given)}: contiguous {' or '.join(map(str, types))} [{sizes}] is needed")


def check_beside(name: str, tensor: Tensor, other: Tensor) -> None:
    """Raise `KernelError` if two tensors are on different devices."""
    if not (tensor.is_cpu and other.is_cpu) and tensor.device != other.device:
        raise KernelError(f"{name} on {tensor.device}, but the other tensors on {other.device}")


def check_columns(columns: Tensor, vocab: int, unsound: int | None = None) -> None:
    """Raise `KernelError` for columns that are not ascending or not within the vocabulary.

    `unsound`: the index of an invalid column, which a kernel returned, -1 if all are valid; None: torch looks for it, but on
    CUDA, where indexing does.
    """
    if unsound is None and columns.is_cpu and columns.numel():
        invalid = (columns < 0) | (columns >= vocab)
        invalid[1:] |= columns[1:] <= columns[:-1]
        unsound = int(invalid.nonzero()[0]) if bool(invalid.any()) else -1
    if unsound is not None and unsound >= 0:
        raise KernelError(f"column {int(columns[unsound])} is not among the {vocab} of the vocabulary, or not ascending")
