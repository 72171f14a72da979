"""tanh and sigmoid by three methods: the C library, a table, and a polynomial in vectors (SHARP-08)."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.arrays import KernelError, checked, checked_out
from simnmt.kernels.native_library import compiled

Activation = Literal["library", "table", "polynomial"]
Function = Literal["tanh", "sigmoid"]


def activate(
    function: Function, x: NDArray[np.float32], method: Activation = "library", out: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """Return tanh or sigmoid of each element of an array of any shape; in place if `out` is `x`. NaN stays NaN.

    The sharp decoder's C calls the same functions. The table has 4096 intervals on [-8, 8] and is constant beyond. Raises
    `KernelError` for a wrong array, function or method, and without compiled kernels.
    """
    if function not in get_args(Function) or method not in get_args(Activation):
        known = f"the function is one of {get_args(Function)}, the method one of {get_args(Activation)}"
        raise KernelError(f"{method} {function}: {known}")
    checked("x", x, np.float32, (None,) * np.ndim(x))
    out, kernels = checked_out("out", out, x.shape), compiled()
    kernel = kernels.simnmt_tanh if function == "tanh" else kernels.simnmt_sigmoid
    kernel(x.ctypes.data, x.size, get_args(Activation).index(method), out.ctypes.data)
    return out
