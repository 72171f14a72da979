"""Packed codes become weights in their places: centroids for codes, outliers laid over them (STI-06)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.arrays import checked, checked_out
from simnmt.kernels.errors import KernelError
from simnmt.kernels.native_library import native_at

PACKED_BITS = (2, 3, 4, 5, 6)
WHOLE_BITS = 32
"""Weights as they are: copied."""
ALIGNED = 8
"""Weights: so many codes end with a byte, whatever their width."""

Place = tuple[int, int, int]
"""First weight of the shard, first element of the layer's buffer, and how many."""
Float32 = NDArray[np.float32]


def unpack(
    codes: NDArray[np.uint8],
    bits: int,
    centroids: Float32,
    outlier_at: NDArray[np.int32],
    outlier_values: Float32,
    out: Float32,
    places: Sequence[Place] | NDArray[np.int64],
    *,
    level: str | None = None,
) -> None:
    """Write the weights of each of `places` into `out`, a flat float32 array; the rest of it stays as it is (STI-06).

    `codes` uint8: weight i in bits [i * bits, (i + 1) * bits), the least significant first; for 32 `bits` the weights' own
    bytes, and then centroids and outliers are not looked at. `centroids`: 2^bits of them. `outlier_at`: ascending weights of
    the shard that have a value of their own. Runs on one thread, for a shard is too little to be divided: `at_once` divides
    whole shards. Without compiled kernels numpy gives the same result. Raises `KernelError` for arrays that do not fit
    together, `KernelLevelError` for an unknown level.
    """
    known = _checked_places(places)
    _check_packed(codes, bits, centroids, outlier_at, outlier_values, known)
    checked_out("out", out, (out.size,))
    if len(known) and int((known[:, 1] + known[:, 2]).max()) > out.size:
        raise KernelError(f"places reach to {int((known[:, 1] + known[:, 2]).max()):,} of an out of {out.size:,}")
    native = native_at(level)
    if native is None:
        _by_numpy(codes, bits, centroids, outlier_at, outlier_values, out, known)
        return
    addresses = [array.ctypes.data for array in (codes, centroids, outlier_at, outlier_values, out)]
    codes_at, centroids_at, at_at, values_at, out_at = addresses
    count = 0 if bits == WHOLE_BITS else len(outlier_at)
    shard_arguments = (codes_at, codes.size, bits, centroids_at, at_at, values_at, count)
    native.cdll.simnmt_unpack(*shard_arguments, known.ctypes.data, len(known), out_at)


def _checked_places(places: Sequence[Place] | NDArray[np.int64]) -> NDArray[np.int64]:
    known = np.ascontiguousarray(places, dtype=np.int64).reshape(-1, 3)
    if known.size and int(known.min()) < 0:
        raise KernelError("places: neither a weight nor an element before the first, nor a negative number of them")
    if bool((known[:, 0] % ALIGNED != 0).any()):
        raise KernelError(
            f"places: weight {int(known[known[:, 0] % ALIGNED != 0][0, 0])} is within a byte, not at its beginning"
        )
    return known


def _check_packed(
    codes: NDArray[np.uint8],
    bits: int,
    centroids: Float32,
    outlier_at: NDArray[np.int32],
    outlier_values: Float32,
    places: NDArray[np.int64],
) -> None:
    checked("codes", codes, np.uint8, (None,))
    if bits not in (*PACKED_BITS, WHOLE_BITS):
        raise KernelError(f"{bits} bits: one of {', '.join(map(str, PACKED_BITS))} or {WHOLE_BITS}")
    weights = codes.size * 8 // bits
    if len(places) and int((places[:, 0] + places[:, 2]).max()) > weights:
        needed = int((places[:, 0] + places[:, 2]).max())
        raise KernelError(f"codes of {codes.size:,} bytes hold {weights:,} weights of {bits} bits, not {needed:,}")
    if bits == WHOLE_BITS:
        return
    checked("centroids", centroids, np.float32, (1 << bits,))
    checked("outlier_at", outlier_at, np.int32, (None,))
    checked("outlier_values", outlier_values, np.float32, (len(outlier_at),))
    if len(outlier_at) and (int(outlier_at[0]) < 0 or bool((outlier_at[1:] <= outlier_at[:-1]).any())):
        raise KernelError("outlier_at: not ascending from 0, each once")


def codes_of(codes: NDArray[np.uint8], bits: int, first: int, count: int) -> NDArray[np.uint8]:
    """Return the codes of `count` weights from `first`, a multiple of 8, one code per byte."""
    eights = -(-count // ALIGNED)
    packed = codes[first // ALIGNED * bits :][: eights * bits]
    padded = np.zeros(eights * bits, np.uint8)
    padded[: packed.size] = packed
    words = np.zeros(eights, np.uint64)
    for byte in range(bits):
        words |= padded[byte::bits].astype(np.uint64) << np.uint64(8 * byte)
    shifts = np.arange(ALIGNED, dtype=np.uint64) * np.uint64(bits)
    unpacked = (words[:, None] >> shifts) & np.uint64((1 << bits) - 1)
    return unpacked.astype(np.uint8).reshape(-1)[:count]


def _by_numpy(
    codes: NDArray[np.uint8],
    bits: int,
    centroids: Float32,
    outlier_at: NDArray[np.int32],
    outlier_values: Float32,
    out: Float32,
    places: NDArray[np.int64],
) -> None:
    for first, to, count in places.tolist():
        if bits == WHOLE_BITS:
            out[to : to + count].view(np.uint8)[:] = codes[4 * first : 4 * (first + count)]
            continue
        np.take(centroids, codes_of(codes, bits, first, count), out=out[to : to + count])
        low, high = np.searchsorted(outlier_at, [first, first + count])
        out[to + outlier_at[low:high] - first] = outlier_values[low:high]
