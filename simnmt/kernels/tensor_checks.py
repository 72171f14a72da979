"""Checks of the tensors that are handed to a kernel: type, shape, device, and memory."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex

import torch
from torch import Tensor

from simnmt.kernels.errors import KernelError

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
                if tensor.is_neg():
                    raise KernelError(f"{name}: a view whose memory has the other sign; hand in {name}.resolve_neg()")
                address = tensor.data_ptr()
                if address or not tensor.numel():
                    return address
                raise KernelError(f"{name}: a tensor without memory of its own")
    except (AttributeError, RuntimeError):  # RuntimeError: a sparse or nested tensor, or one under a transformation
        if isinstance(tensor, Tensor):
            raise KernelError(f"{name}: a tensor without plain memory ({tensor.layout}); a dense one is needed") from None
    if not isinstance(tensor, Tensor):
        raise KernelError(f"{name} of type {type(tensor).__name__}: a dense torch tensor is needed")
    wanted_shape = ", ".join("any" if size is ANY_SIZE else str(size) for size in shape)
    kinds = " or ".join(str(dtype).removeprefix("torch.") for dtype in types)
    given_type = str(tensor.dtype).removeprefix("torch.")
    raise KernelError(f"{name} is {given_type} {list(given)}: contiguous {kinds} [{wanted_shape}] is needed")


def check_beside(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Raise `KernelError` if two tensors are on different devices."""
    if not (tensor.is_cpu and other.is_cpu) and tensor.device != other.device:
        raise KernelError(f"{name} on {tensor.device} and {other_name} on {other.device}: both must be on one device")


def output_tensor(out: Tensor | None, rows: int, columns: int, beside: Tensor) -> Tensor:
    """Return `out` if it is float32 [rows, columns], a new tensor on the device of `beside` for None. Raises `KernelError`."""
    if out is None:
        return torch.empty((rows, columns), dtype=torch.float32, device=beside.device)
    check_tensor("out", out, (torch.float32,), (rows, columns))
    check_beside("out", out, "what it is made from", beside)
    return out


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
    if unsound < 0:
        return
    column = int(columns[unsound])
    if not 0 <= column < vocab:
        raise missing_column_error(column, vocab)
    raise KernelError(f"columns are not ascending, each once: {column} follows {int(columns[unsound - 1])}")


def missing_column_error(column: int, vocab: int) -> KernelError:
    """Return the error of a column outside the vocabulary."""
    return KernelError(f"column {column} is not among the {vocab} of the vocabulary")


def check_whole(name: str, given: object, least: int = 1) -> None:
    """Raise `KernelError` unless `given` is a whole number (numpy's included, but no bool) and at least `least`."""
    if isinstance(given, bool) or not isinstance(given, SupportsIndex):
        raise KernelError(f"{name}={given!r}: a whole number is needed")
    if operator.index(given) < least:
        raise KernelError(f"{given} {name}: {least} is the least")
