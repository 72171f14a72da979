"""The compiled functions of column sets and of products with some columns, their types declared."""

from __future__ import annotations

import ctypes
import functools

from torch import Tensor

from simnmt.kernels.gathered_arguments import unsound_column
from simnmt.kernels.native_at import native_at
from simnmt.kernels.native_library import NativeLibrary


@functools.cache
def functions(native: NativeLibrary) -> ctypes.CDLL:
    """The library, ready to be called with whole numbers and addresses."""
    pointer, size, flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    for name, result, *arguments in (
        ("union", size, pointer, size, pointer, pointer, pointer, size, pointer),
        ("scatter", size, pointer, size, pointer, size, size, pointer, pointer),
        ("row_wise", size, pointer, size, size, pointer, size, pointer, size, pointer),
        ("gathered_scratch", size, size, size),
        ("gathered", size, pointer, size, size, pointer, size, pointer, size, pointer, pointer),
        ("pack_columns", size, pointer, size, size, pointer, size, pointer),
        ("packed_size", size, size, size),
        ("product_float32", None, pointer, size, pointer, size, size, flag, pointer, pointer),
    ):
        function = getattr(native.cdll, f"simnmt_{name}")
        function.restype, function.argtypes = result, arguments
    return native.cdll


def functions_at(level: str | None) -> ctypes.CDLL | None:
    """Those of `native_at`; None where torch has to do."""
    native = native_at(level)
    return None if native is None else functions(native)


def refuse(unsound: int, columns: Tensor, vocab: int) -> None:
    """Raise `KernelError` for what a function answered: the index of a column that it cannot take, -1 where it took all."""
    if unsound >= 0:
        raise unsound_column(columns, unsound, vocab)
