"""Unpacking of shards: a centroid for each code, and the outliers laid over them (STI-06)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.arrays import checked, checked_out
from simnmt.kernels.errors import KernelError
from simnmt.kernels.native_library import native_at

PACKED_BITS = (2, 3, 4, 5, 6)
WHOLE_BITS = 32
"""Weights that are stored as they are, and copied."""
ALIGNED = 8
"""Weights: this many codes end at a whole byte, at any number of bits."""
OUTLIER_SHARE = 0.0015
"""Published share of outliers among the weights of trained models (STI-05)."""

Place = tuple[int, int, int]
"""First weight of the shard, first element of the layer's buffer, number of weights."""
Float32 = NDArray[np.float32]
P = TypeVar("P", bound="PackedWeights")


@dataclass(frozen=True, slots=True, eq=False)
class PackedWeights:
    """Weights as codes of a few bits that index centroids, and outliers with separate values."""

    bits: int
    """2 to 6, or 32: then `codes` are the bytes of the weights, and the other arrays are empty."""
    weights: int
    """Number of weights."""
    codes: NDArray[np.uint8]
    """The code of weight i in bits [i * bits, (i + 1) * bits), the least significant bit first."""
    centroids: Float32
    """[2 ** bits]"""
    outlier_at: NDArray[np.int32]
    """Ascending indices of the outliers; their code is 0."""
    outlier_values: Float32
    """The weights at `outlier_at`."""

    @classmethod
    def random(
        cls: type[P], bits: int, weights: int, *, outlier_share: float = OUTLIER_SHARE, seed: int = 1, **place: int
    ) -> P:
        """Draw random codes, centroids and outliers, by default with the published share of outliers.

        `place`: further fields of a subclass.
        """
        draw, outliers = np.random.default_rng(seed), round(outlier_share * weights)
        return cls(
            bits,
            weights,
            draw.integers(0, 256, -(-weights * bits // 8), np.uint8),
            np.sort(draw.normal(0.0, 0.04, 1 << bits)).astype(np.float32),
            np.sort(draw.choice(weights, outliers, replace=False)).astype(np.int32),
            draw.normal(0.0, 0.2, outliers).astype(np.float32),
            **place,
        )

    def check(self, needed: int) -> None:
        """Raise `KernelError` for arrays that do not fit together, and for codes of fewer than `needed` weights."""
        checked("codes", self.codes, np.uint8, (None,))
        if self.bits not in (*PACKED_BITS, WHOLE_BITS):
            raise KernelError(f"{self.bits} bits: one of {', '.join(map(str, PACKED_BITS))} or {WHOLE_BITS}")
        held = self.codes.size * 8 // self.bits
        if needed > held:
            size = f"{self.codes.size:,} bytes hold {held:,} weights"
            raise KernelError(f"codes of {size} of {self.bits} bits, not {needed:,}")
        if self.bits == WHOLE_BITS:
            return
        checked("centroids", self.centroids, np.float32, (1 << self.bits,))
        checked("outlier_at", self.outlier_at, np.int32, (None,))
        checked("outlier_values", self.outlier_values, np.float32, (len(self.outlier_at),))
        if len(self.outlier_at) and (self.outlier_at[0] < 0 or bool((self.outlier_at[1:] <= self.outlier_at[:-1]).any())):
            raise KernelError("outlier_at: not ascending from 0, each once")


def unpack(
    packed: PackedWeights, out: Float32, places: Sequence[Place] | NDArray[np.int64], *, level: str | None = None
) -> None:
    """Write the weights of each of `places` into `out`, a flat float32 array, and leave its other elements unchanged (STI-06).

    Runs on one thread, because a shard is too small to be divided; `at_once` divides whole shards. Without compiled kernels
    numpy computes the same result. Raises `KernelError` for arrays that do not fit together, `KernelLevelError` for an unknown
    level.
    """
    rows = np.ascontiguousarray(places, dtype=np.int64).reshape(-1, 3)
    if rows.size and int(rows.min()) < 0:
        raise KernelError("places: neither a weight nor an element before the first, nor a negative number of them")
    misplaced = rows[rows[:, 0] % ALIGNED != 0, 0]
    if misplaced.size:
        raise KernelError(f"places: weight {int(misplaced[0])} is within a byte, not at its beginning")
    packed.check(int((rows[:, 0] + rows[:, 2]).max(initial=0)))
    reached = int((rows[:, 1] + rows[:, 2]).max(initial=0))
    if reached > checked_out("out", out, (out.size,)).size:
        raise KernelError(f"places reach to {reached:,} of an out of {out.size:,}")
    native = native_at(level)
    if native is None:
        _by_numpy(packed, out, rows)
        return
    tables = (array.ctypes.data for array in (packed.centroids, packed.outlier_at, packed.outlier_values))
    outliers = 0 if packed.bits == WHOLE_BITS else len(packed.outlier_at)
    codes = packed.codes.ctypes.data, packed.codes.size, packed.bits
    native.cdll.simnmt_unpack(*codes, *tables, outliers, rows.ctypes.data, len(rows), out.ctypes.data)


def codes_of(codes: NDArray[np.uint8], bits: int, first: int, count: int) -> NDArray[np.uint8]:
    """Return the codes of `count` weights from `first`, a multiple of 8, one code per byte."""
    # Several times as fast as numpy's unpackbits and packbits.
    eights = -(-count // ALIGNED)
    padded = np.zeros(eights * bits, np.uint8)
    packed = codes[first // ALIGNED * bits :][: padded.size]
    padded[: packed.size] = packed
    words = np.zeros(eights, np.uint64)
    for byte in range(bits):
        words |= padded[byte::bits].astype(np.uint64) << np.uint64(8 * byte)
    shifts = np.arange(ALIGNED, dtype=np.uint64) * np.uint64(bits)
    unpacked = (words[:, None] >> shifts) & np.uint64((1 << bits) - 1)
    return unpacked.astype(np.uint8).reshape(-1)[:count]


def _by_numpy(packed: PackedWeights, out: Float32, places: NDArray[np.int64]) -> None:
    bits, codes, outlier_at = packed.bits, packed.codes, packed.outlier_at
    for first, to, count in places.tolist():
        if bits == WHOLE_BITS:
            out[to : to + count].view(np.uint8)[:] = codes[4 * first : 4 * (first + count)]
            continue
        np.take(packed.centroids, codes_of(codes, bits, first, count), out=out[to : to + count])
        low, high = np.searchsorted(outlier_at, [first, first + count])
        out[to + outlier_at[low:high] - first] = packed.outlier_values[low:high]
