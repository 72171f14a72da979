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

from simnmt.kernels.native_library import KernelError, checked, checked_out, compiled, huge_pages
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

    @property
    def rescale(self) -> float:
        """Factor of a sum of integers that gives the product."""
        return 1 / (self.weight * self.input)

    @property
    def most_input(self) -> int:
        return int(np.rint(np.float32(self.input_limit) * np.float32(self.input)))

    def quantise_weight(self, weight: Float32) -> NDArray[np.int16]:
        """Return round(clip(w, -1, 1) * scale), ties to even, for weights of `choose_scales`."""
        held = np.clip(weight, np.float32(-WEIGHT_LIMIT), np.float32(WEIGHT_LIMIT))
        return np.asarray(np.rint(held * np.float32(self.weight)), np.int16)

    def error_bound(self, weight_l1: ArrayLike, input_l1: ArrayLike, inner: int) -> NDArray[np.float64]:
        """Return the largest error of a product of clipped weights and inputs before its rounding to float32 (SHARP-05).

        `weight_l1`, `input_l1`: sums of magnitudes of each output's weights and of each row's inputs, which broadcast.
        """
        w, x = np.asarray(weight_l1, np.float64), np.asarray(input_l1, np.float64)
        bound: NDArray[np.float64] = w / (2 * self.input) + x / (2 * self.weight) + inner / 4 * self.rescale
        return bound


def choose_scales(weight: Float32, input_limit: float) -> Scales:
    """Return the scales with the least `error_bound` without overflow, for inputs of half the limit on average.

    The weights prove that no sum overflows: the largest sum of magnitudes of an output's quantised weights, times the largest
    quantised input, stays below 2^31; partial sums in any order are not larger. `weight`: [out, in]. Raises `KernelError`.
    """
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


@dataclass(frozen=True, slots=True)
class Clipping:
    """Number of weights of a model's products beyond [-1, 1], which 16-bit products clip (SHARP-05)."""

    clipped: int
    weights: int

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
        clipped += sum(int(np.count_nonzero(np.abs(part) > WEIGHT_LIMIT)) for part in _parts(matrix))
        weights += matrix.size
    return Clipping(clipped, weights)


def checked_weight(weight: Float32) -> Float32:
    """Return the weights [out, in] of a product if they are finite and not empty. Raises `KernelError`."""
    if 0 in checked("weight", weight, np.float32, (None, None)).shape or not np.isfinite(weight).all():
        raise KernelError("weight is empty, or holds NaN or infinity")
    return weight


def _octaves(most: float) -> list[float]:
    finest = min(math.floor(math.log2(MOST_INTEGER / most)), FINEST) if most else FINEST
    return [2.0**octave for octave in range(finest - _OCTAVES, finest + 1)]


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


class PackedMatrix:
    """Weights [out, in] in the order of one pass: clipped to [-1, 1] in 16 bits, or in float32 (SHARP-05).

    The float32 form is the baseline that shows the gain of 16 bits alone.
    """

    def __init__(self, weight: Float32, input_limit: float | None = None, *, scales: Scales | None = None) -> None:
        """Pack weights, in 16 bits for inputs within `input_limit`, in float32 for None.

        `scales`: the result of `choose_scales` for the same weights, if at hand. Raises `KernelError` for a wrong array, and
        without compiled kernels.
        """
        self.outputs, self.inner = checked_weight(weight).shape
        if input_limit is not None and scales is None:
            scales = choose_scales(weight, input_limit)
        self.scales, self._kernels = scales, compiled()
        self._packed = packed_panels(self._kernels, weight if scales is None else scales.quantise_weight(weight))
        self.address: int = self._packed.ctypes.data

    def multiply(self, x: Float32, out: Float32 | None = None) -> Float32:
        """Return `x` @ weight.T, [rows, out]; 16-bit products clip `x` [rows, in] to the limit.

        Raises `KernelError` for a wrong array, and in 16 bits for NaN.
        """
        rows = checked("x", x, np.float32, (None, self.inner)).shape[0]
        out, scales = checked_out("out", out, (rows, self.outputs)), self.scales
        scratch = np.empty(rows * (self.inner + 1), np.float32 if scales is None else np.int16)
        factors = x.ctypes.data, rows, self.address, self.outputs, self.inner
        if scales is None:
            self._kernels.simnmt_product_float32(*factors, scratch.ctypes.data, out.ctypes.data)
        else:
            number = scales.input, scales.input_limit, scales.rescale
            if not self._kernels.simnmt_product_int16(*factors, *number, scratch.ctypes.data, out.ctypes.data):
                raise KernelError(f"x holds NaN in row {int(np.isnan(x).any(axis=1).argmax())}")
        return out


def packed_panels(kernels: ctypes.CDLL, rows: NDArray[Any]) -> NDArray[Any]:
    """Pack contiguous rows [out, in] of int16 or float32 for the compiled products."""
    units = even_rows(rows).view(np.int32)
    packed = huge_pages(kernels.simnmt_packed_size(*units.shape), np.int32)
    kernels.simnmt_pack(units.ctypes.data, units.shape[1], None, len(units), packed.ctypes.data)
    return packed


def even_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Return rows that are whole units of 4 bytes: an odd number of int16 gets a zero beside the last."""
    return np.pad(rows, ((0, 0), (0, 1))) if rows.dtype == np.int16 and rows.shape[1] % 2 else rows
