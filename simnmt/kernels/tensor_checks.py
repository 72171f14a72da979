"""Checks of the tensors that are handed to a kernel: type, shape, device, and memory of their own."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch import Tensor

from simnmt.kernels.errors import KernelError

REAL_TYPES = (torch.float32, torch.float16, torch.bfloat16)
ANY_SIZE = None
"""A size that may be anything."""


def check_tensor(name: str, tensor: Tensor, types: Sequence[torch.dtype], shape: tuple[int | None, ...]) -> int:
    """Return the address of a dense contiguous tensor of one of these types and this shape. Raises `KernelError` for others."""
    # Called three or four times a step, which of a small vocabulary takes some 10 us in all.
    try:
        given = tensor.shape
        if tensor.dtype in types and len(given) == len(shape) and tensor.is_contiguous():
            for wanted, size in zip(shape, given, strict=True):
                if wanted is not ANY_SIZE and wanted != size:
                    break
            else:
                if tensor.is_neg():
                    raise KernelError(f"{name}: a view whose memory has the other sign; hand in {name}.resolve_neg()")
                at = tensor.data_ptr()
                if at or not tensor.numel():
                    return at
                raise KernelError(f"{name}: a tensor without memory of its own")
    except (AttributeError, RuntimeError):  # RuntimeError: sparse, nested, or seen through a transformation
        if isinstance(tensor, Tensor):
            raise KernelError(f"{name}: a tensor without plain memory ({tensor.layout}); a dense one is needed") from None
    if not isinstance(tensor, Tensor):
        raise KernelError(f"{name} of type {type(tensor).__name__}: a dense torch tensor is needed")
    wanted_shape = ", ".join("any" if size is ANY_SIZE else str(size) for size in shape)
    kinds = " or ".join(str(dtype).removeprefix("torch.") for dtype in types)
    given_type = str(tensor.dtype).removeprefix("torch.")
    raise KernelError(f"{name} is {given_type} {list(given)}: contiguous {kinds} [{wanted_shape}] is needed")


def check_beside(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Refuse two tensors on two devices. Raises `KernelError`."""
    if not (tensor.is_cpu and other.is_cpu) and tensor.device != other.device:
        raise KernelError(f"{name} on {tensor.device} and {other_name} on {other.device}: both must be on one device")


def output_tensor(out: Tensor | None, rows: int, columns: int, beside: Tensor) -> Tensor:
    """float32 [rows, columns] to write to: `out` where it fits, a new one for None. Raises `KernelError`."""
    if out is None:
        return torch.empty((rows, columns), dtype=torch.float32, device=beside.device)
    check_tensor("out", out, (torch.float32,), (rows, columns))
    check_beside("out", out, "what it is made from", beside)
    return out


def check_columns(columns: Tensor, vocab: int) -> None:
    """Refuse columns on the CPU that are not ascending and within the vocabulary; on CUDA torch's own indexing looks at them.

    Raises `KernelError`.
    """
    if not columns.is_cpu or not columns.numel():
        return
    unsound = (columns < 0) | (columns >= vocab)
    unsound[1:] |= columns[1:] <= columns[:-1]
    if bool(unsound.any()):
        raise column_error(columns, int(unsound.nonzero()[0]), vocab)


def column_error(columns: Tensor, at: int, vocab: int) -> KernelError:
    """Why the column at this place cannot be taken."""
    column = int(columns[at])
    if not 0 <= column < vocab:
        return missing_column_error(column, vocab)
    return KernelError(f"columns are not ascending, each once: {column} follows {int(columns[at - 1])}")


def missing_column_error(column: int, vocab: int) -> KernelError:
    """The error of a column that there is not."""
    return KernelError(f"column {column} is not among the {vocab} of the vocabulary")


def raise_for_column(unsound: int, columns: Tensor, vocab: int) -> None:
    """Raise `KernelError` for what a function answered: the index of a column that it cannot take, -1 where it took all."""
    if unsound >= 0:
        raise column_error(columns, unsound, vocab)


def check_whole(name: str, given: object, least: int = 1) -> None:
    """Refuse what is no whole number, numpy's being one too and True none, or less than the least. Raises `KernelError`."""
    try:
        number = None if isinstance(given, bool) else operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None:
        raise KernelError(f"{name}={given!r}: a whole number is needed")
    if number < least:
        raise KernelError(f"{number} {name}: {least} is the least")
