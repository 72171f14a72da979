"""tanh and sigmoid by three methods: the C library, a table, and a polynomial in vectors (SHARP-08)."""

from __future__ import annotations

import functools
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.arrays import KernelError, checked, checked_out
from simnmt.kernels.native_library import native

Float32 = NDArray[np.float32]
Activation = Literal["library", "table", "polynomial"]
Function = Literal["tanh", "sigmoid"]

TABLE_INTERVALS = 4096
TABLE_RANGE = 8.0
"""Tables cover [-8, 8] and are constant beyond (SHARP-08)."""

ERROR_BOUNDS: dict[tuple[Function, Activation], float] = {
    ("tanh", "library"): 1.3e-7,
    ("tanh", "table"): 0.001954,
    ("tanh", "polynomial"): 6e-7,
    ("sigmoid", "library"): 1.3e-7,
    ("sigmoid", "table"): 0.000489,
    ("sigmoid", "polynomial"): 4e-7,
}
"""Absolute error over all reals. For tables: half a step times the steepest slope (SHARP-08)."""


def activate(function: Function, x: Float32, method: Activation = "library", out: Float32 | None = None) -> Float32:
    """Return tanh or sigmoid of each element of an array of any shape; in place if `out` is `x`. NaN stays NaN.

    The error is at most `ERROR_BOUNDS`. Raises `KernelError` for a wrong array, function or method.
    """
    if function not in get_args(Function) or method not in get_args(Activation):
        known = f"the function is one of {get_args(Function)}, the method one of {get_args(Activation)}"
        raise KernelError(f"{method} {function}: {known}")
    checked("x", x, np.float32, (None,) * np.ndim(x))
    out = checked_out("out", out, x.shape)
    kernels = native()
    if kernels is None:
        out[...] = reference(function, x, method)
    else:
        kernel = kernels.simnmt_tanh if function == "tanh" else kernels.simnmt_sigmoid
        kernel(x.ctypes.data, x.size, get_args(Activation).index(method), out.ctypes.data)
    return out


def reference(function: Function, x: Float32, method: Activation) -> Float32:
    """Compute in numpy; `polynomial` takes the library's function, since it gains only vector speed."""
    if method != "table":
        return _exact(function, x.astype(np.float64)).astype(np.float32)
    half = TABLE_INTERVALS // 2
    steps = np.clip(np.nan_to_num(x), -TABLE_RANGE, TABLE_RANGE) * np.float32(half / TABLE_RANGE)
    return np.where(np.isnan(x), x, table(function)[(steps + np.float32(half + 0.5)).astype(np.int64)])


@functools.cache
def table(function: Function) -> Float32:
    """Return the function at the ends of the intervals, shape (4097,) (SHARP-08)."""
    return _exact(function, np.linspace(-TABLE_RANGE, TABLE_RANGE, TABLE_INTERVALS + 1)).astype(np.float32)


def _exact(function: Function, x: NDArray[np.float64]) -> NDArray[np.float64]:
    tanh: NDArray[np.float64] = np.tanh(x if function == "tanh" else x / 2)
    return tanh if function == "tanh" else 0.5 + tanh / 2
