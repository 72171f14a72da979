"""How numbers are multiplied and squashed in the numpy search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.kernels.activations import Activation, Function, activate
from simnmt.kernels.products import PackedInt16
from simnmt.kernels.scales import Scales, choose_scales
from simnmt.kernels.sharp.weights import Float32

Floats: TypeAlias = NDArray[Any]
"""float32 or float64, as the arithmetic says."""
Squash: TypeAlias = Callable[[Floats], Floats]


class Linear(Protocol):
    """A matrix [out, in], ready to be multiplied with."""

    def __call__(self, x: Floats) -> Floats:
        """[rows, in] to [rows, out]."""

    def select(self, rows: NDArray[np.int64]) -> Linear:
        """Of some outputs alone, with the same numbers."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """One way to compute."""

    linear: Callable[[Float32, float], Linear]
    """Of a weight [out, in] and the largest absolute input."""
    tanh: Squash
    sigmoid: Squash
    dtype: type[np.floating[Any]]


class _Plain:
    def __init__(self, weight: Float32, dtype: type[np.floating[Any]]) -> None:
        self._weight, self._dtype = weight, dtype
        self._turned: Floats | None = None

    def __call__(self, x: Floats) -> Floats:
        if self._turned is None:
            self._turned = self._weight.T.astype(self._dtype)
        return np.asarray(x @ self._turned)

    def select(self, rows: NDArray[np.int64]) -> Linear:
        return _Plain(self._weight[rows], self._dtype)


class _Int16:
    def __init__(self, weight: Float32, scales: Scales) -> None:
        self._weight, self._scales = weight, scales
        self._packed: PackedInt16 | None = None

    def __call__(self, x: Floats) -> Floats:
        if self._packed is None:
            self._packed = PackedInt16.of(self._weight, self._scales.input_limit, scales=self._scales, level="none")
        return self._packed.multiply(np.ascontiguousarray(x))

    def select(self, rows: NDArray[np.int64]) -> Linear:
        return _Int16(np.ascontiguousarray(self._weight[rows]), self._scales)


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(0.5 * np.tanh(0.5 * x) + 0.5)


def plain(dtype: type[np.floating[Any]]) -> Arithmetic:
    """The library's own functions in one precision; in float64 they are the oracle."""
    return Arithmetic(lambda weight, _: _Plain(weight, dtype), np.tanh, _sigmoid, dtype)


def arithmetic(settings: DecoderSettings) -> Arithmetic:
    """float32 with the settings' noise (SHARP-05, SHARP-08). What is an identity (SHARP-06, 07, 09) leaves no trace here.

    All of it in numpy, compiled kernels or not: it is what they are held against.
    """
    exact = plain(np.float32)

    def int16(weight: Float32, limit: float) -> Linear:
        return _Int16(weight, choose_scales(weight, limit))

    def squash(function: Function, way: Activation) -> Squash:
        return lambda x: activate(function, np.ascontiguousarray(x), way, level="none")

    return Arithmetic(
        int16 if settings.gemm == "int16" else exact.linear,
        exact.tanh if settings.activations == "library" else squash("tanh", settings.activations),
        exact.sigmoid if settings.activations == "library" else squash("sigmoid", settings.activations),
        np.float32,
    )
