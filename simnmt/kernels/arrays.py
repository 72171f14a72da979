"""What an array handed to a native kernel must be: checked before its address is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.errors import KernelError


def checked(name: str, array: NDArray[Any], dtype: type[np.generic], shape: tuple[int | None, ...]) -> NDArray[Any]:
    """The array itself, where it is contiguous with this type and shape; None in `shape` is any size.

    Raises `KernelError`, which names the array.
    """
    if not isinstance(array, np.ndarray):
        raise KernelError(f"{name} is a {type(array).__name__}, not a numpy array")
    if array.dtype != dtype:
        raise KernelError(f"{name} is {array.dtype}, not {np.dtype(dtype)}")
    if array.ndim != len(shape) or any(asked not in (None, size) for asked, size in zip(shape, array.shape, strict=True)):
        asked_for = ", ".join("any" if asked is None else str(asked) for asked in shape)
        raise KernelError(f"{name} has the shape {list(array.shape)}, not [{asked_for}]")
    if not array.flags.c_contiguous:
        raise KernelError(f"{name} is not contiguous, row after row")
    return array


def checked_out(name: str, out: NDArray[np.float32] | None, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """A float32 array of this shape to write into: `out` itself where it fits, a new one for None. Raises `KernelError`."""
    if out is None:
        return np.empty(shape, np.float32)
    if not checked(name, out, np.float32, shape).flags.writeable:
        raise KernelError(f"{name} cannot be written to")
    return out
