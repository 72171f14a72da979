"""Products of a few rows with weights packed beforehand: 16-bit fixed point, and float32 packed the same way (SHARP-05)."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.arrays import checked, checked_out, huge_pages
from simnmt.kernels.errors import KernelError
from simnmt.kernels.native_at import native_at
from simnmt.kernels.native_library import NativeLibrary
from simnmt.kernels.scales import WEIGHT_LIMIT, Scales, beyond_limit, checked_weight, choose_scales

Float32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PackedInt16:
    """Weights [out, in] clipped to [-1, 1], in 16 bits, laid out for one pass (SHARP-05)."""

    outputs: int
    inner: int
    scales: Scales
    weight_l1: NDArray[np.float64]
    """Sum of the magnitudes of each output's clipped weights, [out]."""
    beyond_l1: NDArray[np.float64]
    """Sum of what clipping takes off the magnitudes of each output's weights, [out]."""
    clipped: int
    """Weights beyond the range."""
    level: str | None
    """Of the native kernels that packed them; None for the fallback, which gives the same integers."""
    _packed: NDArray[Any]
    _address: int
    _native: ctypes.CDLL | None

    @classmethod
    def of(cls, weight: Float32, input_limit: float, *, scales: Scales | None = None, level: str | None = None) -> PackedInt16:
        """Pack weights for inputs within `input_limit`.

        `scales`: others than `choose_scales` gives. `level`: the widest of the native kernels to be used, or "none", as the
        variable SIMNMT_KERNELS says it. Raises `KernelError` for a wrong array and for scales with which a sum could overflow.
        """
        outputs, inner = checked_weight(weight).shape
        if scales is None:
            scales = choose_scales(weight, input_limit)
        elif scales.input_limit != input_limit:
            raise KernelError(f"the scales are for inputs up to {scales.input_limit}, not {input_limit}")
        else:
            scales.check(weight)
        weight_l1 = np.minimum(np.abs(weight), WEIGHT_LIMIT).sum(axis=1, dtype=np.float64)
        beyond_l1, clipped = beyond_limit(weight)
        native = native_at(level)
        if native is None:
            packed: NDArray[Any] = scales.quantise_weight(weight).T.astype(np.float64)
            return cls(outputs, inner, scales, weight_l1, beyond_l1, clipped, None, packed, 0, None)
        cdll, integers = _functions(native), np.empty(weight.shape, np.int16)
        cdll.simnmt_quantise(weight.ctypes.data, weight.size, scales.weight, WEIGHT_LIMIT, integers.ctypes.data)
        packed = packed_panels(native, integers)
        return cls(outputs, inner, scales, weight_l1, beyond_l1, clipped, native.level, packed, packed.ctypes.data, cdll)

    def multiply(self, x: Float32, out: Float32 | None = None, *, add: bool = False) -> Float32:
        """`x` @ weight.T, [rows, out], added to `out` where `add`; `x` [rows, in] is clipped to the limit.

        Off by `error_bound` at most. Raises `KernelError` for a wrong array and for NaN.
        """
        rows = checked("x", x, np.float32, (None, self.inner)).shape[0]
        out = _out(out, (rows, self.outputs), add)
        if self._native is None:
            if np.isnan(x).any():
                raise _no_number(x)
            # Sums below 2^31 of products below 2^30 are exact in float64, in whatever order.
            sums = self.scales.quantise_input(x).astype(np.float64) @ self._packed
            return _put(sums.astype(np.float32) * np.float32(self.scales.rescale), out, add)
        scratch = np.empty(rows * (self.inner + 1), np.int16)
        fine = self._native.simnmt_product_int16(
            x.ctypes.data,
            rows,
            self._address,
            self.outputs,
            self.inner,
            self.scales.input,
            self.scales.input_limit,
            self.scales.rescale,
            add,
            scratch.ctypes.data,
            out.ctypes.data,
        )
        if not fine:
            raise _no_number(x)
        return out

    def error_bound(self, x: Float32) -> NDArray[np.float64]:
        """Return how far each of `multiply(x)` can be off the product of weights and clipped inputs, [rows, out] (SHARP-05).

        What clipping took off the weights counts, times the largest input of the row.
        """
        limit = self.scales.input_limit
        input_l1 = np.minimum(np.abs(x), limit).sum(axis=1, dtype=np.float64)
        fixed_point = self.scales.error_bound(self.weight_l1, input_l1[:, None], self.inner)
        most = np.minimum(self.weight_l1 * limit, input_l1[:, None] * WEIGHT_LIMIT) + fixed_point
        bound: NDArray[np.float64] = fixed_point + most * 2.0**-24  # the sum of integers, rounded to float32 once
        largest = np.minimum(np.abs(x), limit).max(axis=1, initial=0.0).astype(np.float64)
        bound += largest[:, None] * self.beyond_l1
        return bound


@dataclass(frozen=True, slots=True)
class PackedFloat32:
    """Weights [out, in] in float32 with the layout of `PackedInt16`: the baseline that shows what 16 bits alone gain."""

    outputs: int
    inner: int
    level: str | None
    """As in `PackedInt16`."""
    _packed: Float32
    _address: int
    _native: ctypes.CDLL | None

    @classmethod
    def of(cls, weight: Float32, *, level: str | None = None) -> PackedFloat32:
        """Pack weights; `level` and errors as in `PackedInt16.of`."""
        outputs, inner = checked_weight(weight).shape
        native = native_at(level)
        if native is None:
            return cls(outputs, inner, None, weight.T.copy(), 0, None)
        packed = packed_panels(native, weight)
        return cls(outputs, inner, native.level, packed, packed.ctypes.data, _functions(native))

    def multiply(self, x: Float32, out: Float32 | None = None, *, add: bool = False) -> Float32:
        """`x` @ weight.T, [rows, out], added to `out` where `add`. Raises `KernelError` for a wrong array."""
        rows = checked("x", x, np.float32, (None, self.inner)).shape[0]
        out = _out(out, (rows, self.outputs), add)
        if self._native is None:
            return _put(x @ self._packed, out, add)
        scratch = np.empty(rows * (self.inner + 1), np.float32)
        self._native.simnmt_product_float32(
            x.ctypes.data,
            rows,
            self._address,
            self.outputs,
            self.inner,
            add,
            scratch.ctypes.data,
            out.ctypes.data,
        )
        return out


def packed_panels(native: NativeLibrary, rows: NDArray[Any]) -> NDArray[Any]:
    """Contiguous rows [out, in] of int16 or float32 as the native products take them."""
    cdll = _functions(native)
    packed = huge_pages(cdll.simnmt_packed_size(*rows.shape), rows.dtype.type)
    pack = cdll.simnmt_pack_int16 if rows.dtype == np.int16 else cdll.simnmt_pack_float32
    pack(rows.ctypes.data, *rows.shape, packed.ctypes.data)
    return packed


@functools.cache
def _functions(native: NativeLibrary) -> ctypes.CDLL:
    """The library with the types of what is called here declared."""
    pointer, size, real, flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int
    for name, result, *arguments in (
        ("packed_size", size, size, size),
        ("quantise", flag, pointer, size, real, real, pointer),
        ("pack_int16", None, pointer, size, size, pointer),
        ("pack_float32", None, pointer, size, size, pointer),
        ("product_int16", flag, pointer, size, pointer, size, size, real, real, real, flag, pointer, pointer),
        ("product_float32", None, pointer, size, pointer, size, size, flag, pointer, pointer),
    ):
        function = getattr(native.cdll, f"simnmt_{name}")
        function.restype, function.argtypes = result, arguments
    return native.cdll


def _out(out: Float32 | None, shape: tuple[int, int], add: bool) -> Float32:
    if add and out is None:
        raise KernelError("there is no out to add the product to")
    return checked_out("out", out, shape)


def _put(product: Float32, out: Float32, add: bool) -> Float32:
    if add:
        out += product
    else:
        out[:] = product
    return out


def _no_number(x: Float32) -> KernelError:
    return KernelError(f"x holds NaN in row {int(np.isnan(x).any(axis=1).argmax())}")
