"""tanh and sigmoid by four methods: the C library, two tables, and a polynomial in vectors (SHARP-08)."""

from __future__ import annotations

import functools
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.arrays import check_apart, checked, checked_out
from simnmt.kernels.errors import KernelError
from simnmt.kernels.native_library import native_at

Float32 = NDArray[np.float32]
Activation = Literal["library", "table", "polynomial", "linear_table"]
"""A decoder offers the first three; `linear_table` interpolates between the entries of the table."""
Function = Literal["tanh", "sigmoid"]

TABLE_INTERVALS = 4096
TABLE_RANGE = 8.0
"""Tables cover [-8, 8] and are constant beyond (SHARP-08)."""

ERROR_BOUNDS: dict[tuple[Function, Activation], float] = {
    ("tanh", "library"): 1.3e-7,
    ("tanh", "table"): 0.001954,
    ("tanh", "linear_table"): 1.7e-6,
    ("tanh", "polynomial"): 6e-7,
    ("sigmoid", "library"): 1.3e-7,
    ("sigmoid", "table"): 0.000489,
    ("sigmoid", "linear_table"): 3.36e-4,
    ("sigmoid", "polynomial"): 4e-7,
}
"""Absolute error over all reals. For tables: half a step times the steepest slope, or the error beyond the table (SHARP-08)."""


def activate(
    function: Function, x: Float32, method: Activation = "library", out: Float32 | None = None, *, level: str | None = None
) -> Float32:
    """Return tanh or sigmoid of each element of an array of any shape; in place if `out` is `x`. NaN stays NaN.

    `level`: the widest native kernels to use, or "none", as in the variable SIMNMT_KERNELS. The error is at most
    `ERROR_BOUNDS`. Raises `KernelError` for a wrong array, function or method, and for an `out` that overlaps part of `x`.
    """
    if function not in get_args(Function) or method not in get_args(Activation):
        known = f"the function is one of {get_args(Function)}, the method one of {get_args(Activation)}"
        raise KernelError(f"{method} {function}: {known}")
    checked("x", x, np.float32, (None,) * np.ndim(x))
    out = checked_out("out", out, x.shape)
    check_apart("x", x, out)
    native = native_at(level)
    if native is None:
        out[...] = _fallback(function, x, method)
    else:
        kernel = native.cdll.simnmt_tanh if function == "tanh" else native.cdll.simnmt_sigmoid
        kernel(x.ctypes.data, x.size, get_args(Activation).index(method), out.ctypes.data)
    return out


@functools.cache
def table(function: Function) -> Float32:
    """Return the function at the ends of the intervals, shape (4097,) (SHARP-08)."""
    return _exact(function, np.linspace(-TABLE_RANGE, TABLE_RANGE, TABLE_INTERVALS + 1)).astype(np.float32)


def _exact(function: Function, x: NDArray[np.float64]) -> NDArray[np.float64]:
    tanh: NDArray[np.float64] = np.tanh(x if function == "tanh" else x / 2)
    return tanh if function == "tanh" else 0.5 + tanh / 2


def _fallback(function: Function, x: Float32, method: Activation) -> Float32:
    """Compute without native kernels; `polynomial` takes the library's function, since it gains only vector speed."""
    if method in ("library", "polynomial"):
        return _exact(function, x.astype(np.float64)).astype(np.float32)
    half = TABLE_INTERVALS // 2
    steps = np.clip(np.nan_to_num(x), -TABLE_RANGE, TABLE_RANGE) * np.float32(half / TABLE_RANGE)
    if method == "table":
        values = table(function)[(steps + np.float32(half + 0.5)).astype(np.int64)]
    else:
        index = np.minimum(steps + np.float32(half), np.float32(TABLE_INTERVALS - 1)).astype(np.int64)
        low, high = table(function)[index], table(function)[index + 1]
        values = low + (steps - (index - half).astype(np.float32)) * (high - low)
    return np.where(np.isnan(x), x, values)
