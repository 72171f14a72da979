"""Products of a few rows with packed weights: 16-bit fixed point, and float32 packed the same way (SHARP-05)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.kernels.arrays import checked, checked_out, huge_pages
from simnmt.kernels.errors import KernelError
from simnmt.kernels.native_library import NativeLibrary, native_at
from simnmt.profile.doubts import clipped_weights_message

WEIGHT_LIMIT = 1.0
"""Weights are clipped to [-1, 1] (SHARP-05)."""
MOST_INTEGER = 2**15 - 1
MOST_SUM = 2**31 - 1
FINEST = 40
"""Exponent of the largest scale; smaller values than its step count as zero."""
_OCTAVES = 16
"""Octaves that the search covers below the finest scale; at the lowest one the largest number is 0 or 1."""
_AT_ONCE = 1 << 22
"""Weights that are processed together, so that the weights of a whole vocabulary are not copied at once."""
Float32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Scales:
    """Factors of weights and inputs before they are rounded to 16 bits; powers of two (SHARP-05)."""

    weight: float
    input: float
    input_limit: float
    """Magnitude to which inputs are clipped."""

    def __post_init__(self) -> None:
        for name, scale in (("weights", self.weight), ("inputs", self.input)):
            if not (scale > 0 and math.isfinite(scale) and math.frexp(scale)[0] == 0.5 and scale <= 2**FINEST):
                raise KernelError(f"the scale of the {name} is {scale}, not a power of two up to 2^{FINEST}")
        if not (self.input_limit > 0 and math.isfinite(self.input_limit)):
            raise KernelError(f"the limit of the inputs is {self.input_limit}, not a positive number")
        if self.most_input > MOST_INTEGER:
            raise KernelError(f"inputs up to {self.input_limit} times {self.input} leave 16 bits")

    @property
    def rescale(self) -> float:
        """Factor of a sum of integers that gives the product."""
        return 1 / (self.weight * self.input)

    @property
    def most_input(self) -> int:
        """The integer of the largest input."""
        return int(np.rint(np.float32(self.input_limit) * np.float32(self.input)))

    def quantise_weight(self, weight: Float32) -> NDArray[np.int16]:
        """Return round(clip(w, -1, 1) * scale), ties to even; `check` must have passed the weights."""
        return _quantise(weight, self.weight, WEIGHT_LIMIT)

    def quantise_input(self, x: Float32) -> NDArray[np.int16]:
        """Return round(clip(x, -limit, limit) * scale), ties to even."""
        return _quantise(x, self.input, self.input_limit)

    def error_bound(self, weight_l1: ArrayLike, input_l1: ArrayLike, inner: int) -> NDArray[np.float64]:
        """Return the largest error of a product of clipped weights and inputs before its rounding to float32 (SHARP-05).

        `weight_l1`, `input_l1`: sums of magnitudes of each output's weights and of each row's inputs, which broadcast.
        """
        w, x = np.asarray(weight_l1, np.float64), np.asarray(input_l1, np.float64)
        bound: NDArray[np.float64] = w / (2 * self.input) + x / (2 * self.weight) + inner / 4 * self.rescale
        return bound

    def check(self, weight: Float32) -> None:
        """Raise `KernelError` if weights leave 16 bits, or if some input within the limit could overflow a sum."""
        magnitude, row_sum = _most(weight, self.weight)
        if magnitude > MOST_INTEGER:
            raise KernelError(f"weights times {self.weight} reach {magnitude}, which leaves 16 bits")
        most_sum = row_sum * self.most_input
        if most_sum > MOST_SUM:
            raise KernelError(f"scales {self.weight} and {self.input}: a sum could reach {most_sum}, which leaves 32 bits")


def choose_scales(weight: Float32, input_limit: float) -> Scales:
    """Return the scales with the least `error_bound` that `Scales.check` passes, for inputs of half the limit on average.

    The weights prove that no sum overflows: the largest sum of magnitudes of an output's quantised weights, times the largest
    quantised input, stays below 2^31; partial sums in any order are not larger. `weight`: [out, in]. Raises `KernelError`.
    """
    if not 0 < input_limit < 2**100:
        raise KernelError(f"the limit of the inputs is {input_limit}, not a positive number")
    inner = checked_weight(weight).shape[1]
    weight_l1, most_weight = 0.0, 0.0
    for part in _parts(weight):
        magnitudes = np.minimum(np.abs(part), WEIGHT_LIMIT)
        weight_l1 = max(weight_l1, float(magnitudes.sum(axis=1, dtype=np.float64).max()))
        most_weight = max(most_weight, float(magnitudes.max()))
    input_l1 = inner * input_limit / 2
    pairs = [Scales(*scales, input_limit) for scales in product(_octaves(most_weight), _octaves(input_limit))]
    most: dict[float, tuple[int, int]] = {}
    for scales in sorted(pairs, key=lambda pair: float(pair.error_bound(weight_l1, input_l1, inner))):
        if weight_l1 * scales.weight - inner / 2 > MOST_SUM / max(scales.most_input, 1):
            continue  # rounding changes a weight by at most a half
        if scales.weight not in most:
            most[scales.weight] = _most(weight, scales.weight)
        magnitude, row_sum = most[scales.weight]
        if magnitude <= MOST_INTEGER and row_sum * scales.most_input <= MOST_SUM:
            return scales
    raise KernelError(f"no scale keeps sums over {inner} inputs within 32 bits")


def beyond_limit(weight: Float32) -> tuple[NDArray[np.float64], int]:
    """Return the sum by which clipping reduces the magnitudes of each output's weights, [out], and the clipped weights."""
    sums, clipped = list[NDArray[np.float64]](), 0
    for part in _parts(weight):
        beyond = np.maximum(np.abs(part) - np.float32(WEIGHT_LIMIT), 0.0)
        sums.append(beyond.sum(axis=1, dtype=np.float64))
        clipped += int(np.count_nonzero(beyond))
    return np.concatenate(sums), clipped


@dataclass(frozen=True, slots=True)
class Clipping:
    """Number of weights of a model's products beyond [-1, 1], which 16-bit products clip (SHARP-05)."""

    clipped: int
    weights: int
    """All weights of these products."""

    def warning(self) -> str | None:
        """Return the warning of clipped weights; None if none is clipped."""
        return clipped_weights_message(self.clipped, self.weights)


def clipping_of(matrices: Iterable[Float32]) -> Clipping:
    """Count the clipped weights of the matrices [out, in] of a model.

    Example:
        >>> import numpy as np
        >>> clipping_of([np.float32([[0.5, -2.0]]), np.float32([[1.0]])])
        Clipping(clipped=1, weights=3)
    """
    clipped = weights = 0
    for matrix in matrices:
        clipped += beyond_limit(matrix)[1]
        weights += matrix.size
    return Clipping(clipped, weights)


def checked_weight(weight: Float32) -> Float32:
    """Return the weights [out, in] of a product if they are finite and not empty. Raises `KernelError`."""
    if 0 in checked("weight", weight, np.float32, (None, None)).shape:
        raise KernelError(f"weight has the shape {list(weight.shape)}, without an output or an input")
    if not np.isfinite(weight).all():
        raise KernelError("weight holds NaN or infinity")
    return weight


def _octaves(most: float) -> list[float]:
    finest = min(math.floor(math.log2(MOST_INTEGER / most)), FINEST) if most else FINEST
    return [2.0**octave for octave in range(finest - _OCTAVES, finest + 1)]


def _quantise(x: Float32, scale: float, limit: float) -> NDArray[np.int16]:
    return np.asarray(np.rint(np.clip(x, np.float32(-limit), np.float32(limit)) * np.float32(scale)), np.int16)


def _parts(weight: Float32) -> list[Float32]:
    rows = max(_AT_ONCE // weight.shape[1], 1)
    return [weight[start : start + rows] for start in range(0, len(weight), rows)]


def _most(weight: Float32, scale: float) -> tuple[int, int]:
    """Return the largest magnitude of the quantised weights, and the largest sum of magnitudes of one output."""
    magnitude = row_sum = 0
    for part in _parts(weight):
        integers = np.rint(np.minimum(np.abs(part), WEIGHT_LIMIT) * np.float32(scale))
        magnitude = max(magnitude, int(integers.max()))
        row_sum = max(row_sum, int(integers.sum(axis=1, dtype=np.float64).max()))
    return magnitude, row_sum


@dataclass(frozen=True, slots=True)
class PackedInt16:
    """Weights [out, in] clipped to [-1, 1] in 16 bits, in the order of one pass (SHARP-05)."""

    outputs: int
    inner: int
    scales: Scales
    weight_l1: NDArray[np.float64]
    """Sum of the magnitudes of each output's clipped weights, [out]."""
    beyond_l1: NDArray[np.float64]
    """Reduction of the magnitudes of each output's weights by clipping, in sum, [out]."""
    clipped: int
    """Number of weights beyond the range."""
    level: str | None
    """Level of the native kernels that packed them; None for the fallback, which gives the same integers."""
    _packed: NDArray[Any]
    _address: int
    _native: ctypes.CDLL | None

    @classmethod
    def of(cls, weight: Float32, input_limit: float, *, scales: Scales | None = None, level: str | None = None) -> PackedInt16:
        """Pack weights for inputs within `input_limit`.

        `scales`: replace those of `choose_scales`. `level`: widest native kernels to use, or "none", as in the variable
        SIMNMT_KERNELS. Raises `KernelError` for a wrong array and for scales with which a sum could overflow.
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
        cdll, integers = native.cdll, np.empty(weight.shape, np.int16)
        cdll.simnmt_quantise(weight.ctypes.data, weight.size, scales.weight, WEIGHT_LIMIT, integers.ctypes.data)
        packed = packed_panels(native, integers)
        return cls(outputs, inner, scales, weight_l1, beyond_l1, clipped, native.level, packed, packed.ctypes.data, cdll)

    def multiply(self, x: Float32, out: Float32 | None = None, *, add: bool = False) -> Float32:
        """Return `x` @ weight.T, [rows, out], or add it to `out`; `x` [rows, in] is clipped to the limit.

        The error is at most `error_bound`. Raises `KernelError` for a wrong array and for NaN.
        """
        rows = checked("x", x, np.float32, (None, self.inner)).shape[0]
        out = _out(out, (rows, self.outputs), add)
        if self._native is None:
            if np.isnan(x).any():
                raise _no_number(x)
            # Sums below 2^31 of products below 2^30 are exact in float64, in any order.
            sums = self.scales.quantise_input(x).astype(np.float64) @ self._packed
            return _put(sums.astype(np.float32) * np.float32(self.scales.rescale), out, add)
        scratch, scales = np.empty(rows * (self.inner + 1), np.int16), self.scales
        factors = x.ctypes.data, rows, self._address, self.outputs, self.inner, scales.input, scales.input_limit, scales.rescale
        if not self._native.simnmt_product_int16(*factors, add, scratch.ctypes.data, out.ctypes.data):
            raise _no_number(x)
        return out

    def error_bound(self, x: Float32) -> NDArray[np.float64]:
        """Return the largest error of each element of `multiply(x)` for weights and clipped inputs, [rows, out] (SHARP-05).

        The bound includes the clipping of weights, times the largest input of the row.
        """
        limit = self.scales.input_limit
        input_l1 = np.minimum(np.abs(x), limit).sum(axis=1, dtype=np.float64)
        fixed_point = self.scales.error_bound(self.weight_l1, input_l1[:, None], self.inner)
        most = np.minimum(self.weight_l1 * limit, input_l1[:, None] * WEIGHT_LIMIT) + fixed_point
        largest = np.minimum(np.abs(x), limit).max(axis=1, initial=0.0).astype(np.float64)
        rounding = most * 2.0**-24  # the sum of integers is rounded to float32 once
        return np.asarray(fixed_point + rounding + largest[:, None] * self.beyond_l1)


@dataclass(frozen=True, slots=True)
class PackedFloat32:
    """Weights [out, in] in float32 with the layout of `PackedInt16`: the baseline that shows the gain of 16 bits alone."""

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
        return cls(outputs, inner, native.level, packed, packed.ctypes.data, native.cdll)

    def multiply(self, x: Float32, out: Float32 | None = None, *, add: bool = False) -> Float32:
        """Return `x` @ weight.T, [rows, out], or add it to `out`. Raises `KernelError` for a wrong array."""
        rows = checked("x", x, np.float32, (None, self.inner)).shape[0]
        out = _out(out, (rows, self.outputs), add)
        if self._native is None:
            return _put(x @ self._packed, out, add)
        scratch = np.empty(rows * (self.inner + 1), np.float32)
        factors = x.ctypes.data, rows, self._address, self.outputs, self.inner
        self._native.simnmt_product_float32(*factors, add, scratch.ctypes.data, out.ctypes.data)
        return out


def packed_panels(native: NativeLibrary, rows: NDArray[Any]) -> NDArray[Any]:
    """Pack contiguous rows [out, in] of int16 or float32 for the native products."""
    cdll = native.cdll
    packed = huge_pages(cdll.simnmt_packed_size(*rows.shape), rows.dtype.type)
    pack = cdll.simnmt_pack_int16 if rows.dtype == np.int16 else cdll.simnmt_pack_float32
    pack(rows.ctypes.data, *rows.shape, packed.ctypes.data)
    return packed


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
