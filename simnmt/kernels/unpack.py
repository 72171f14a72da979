"""Unpacking of shards: a centroid for each code, and the outliers laid over them (STI-06)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.native_library import KernelError, at_once, checked, checked_out, native
from simnmt.kernels.registry import Case, Kernel, Run, one_after_another

if TYPE_CHECKING:
    from torch import Tensor

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


@dataclass(frozen=True, slots=True, eq=False)
class PackedWeights:
    """Weights as codes of a few bits that index centroids, and outliers with separate values."""

    bits: int
    """2 to 6, or 32: then `codes` are the bytes of the weights, and the other arrays are empty."""
    weights: int
    codes: NDArray[np.uint8]
    """The code of weight i in bits [i * bits, (i + 1) * bits), the least significant bit first."""
    centroids: Float32
    outlier_at: NDArray[np.int32]
    """Ascending indices of the outliers; their code is 0."""
    outlier_values: Float32

    @classmethod
    def random(cls, bits: int, weights: int, *, outlier_share: float = OUTLIER_SHARE, seed: int = 1) -> PackedWeights:
        """Draw random codes, centroids and outliers, by default with the published share of outliers."""
        draw, outliers = np.random.default_rng(seed), round(outlier_share * weights)
        return cls(
            bits,
            weights,
            draw.integers(0, 256, -(-weights * bits // 8), np.uint8),
            np.sort(draw.normal(0.0, 0.04, 1 << bits)).astype(np.float32),
            np.sort(draw.choice(weights, outliers, replace=False)).astype(np.int32),
            draw.normal(0.0, 0.2, outliers).astype(np.float32),
        )

    def check(self, needed: int) -> None:
        """Raise `KernelError` for arrays that do not fit together, and for codes of fewer than `needed` weights."""
        codes = checked("codes", self.codes, np.uint8, (None,)).size * 8
        if self.bits not in (*PACKED_BITS, WHOLE_BITS) or needed > codes // self.bits:
            raise KernelError(f"{self.codes.size:,} bytes hold no {needed:,} weights of {self.bits} bits")
        if self.bits == WHOLE_BITS:
            return
        checked("centroids", self.centroids, np.float32, (1 << self.bits,))
        checked("outlier_at", self.outlier_at, np.int32, (None,))
        checked("outlier_values", self.outlier_values, np.float32, (len(self.outlier_at),))
        if len(self.outlier_at) and (self.outlier_at[0] < 0 or bool((self.outlier_at[1:] <= self.outlier_at[:-1]).any())):
            raise KernelError("outlier_at: not ascending from 0, each once")


def unpack(packed: PackedWeights, out: Float32, places: Sequence[Place] | NDArray[np.int64]) -> None:
    """Write the weights of each of `places` into `out`, a flat float32 array, and leave its other elements unchanged (STI-06).

    Runs on one thread, because a shard is too small to be divided; `at_once` divides whole shards. Without compiled kernels
    numpy computes the same result. Raises `KernelError` for arrays that do not fit together.
    """
    rows = np.ascontiguousarray(places, dtype=np.int64).reshape(-1, 3)
    reached = int((rows[:, 1] + rows[:, 2]).max(initial=0))
    if reached > checked_out("out", out, (out.size,)).size or int(rows.min(initial=0)) < 0 or (rows[:, 0] % ALIGNED).any():
        raise KernelError(f"places reach to {reached:,} of an out of {out.size:,}, before its first element, or within a byte")
    packed.check(int((rows[:, 0] + rows[:, 2]).max(initial=0)))
    kernels = native()
    if kernels is None:
        reference(packed, out, rows)
        return
    tables = (array.ctypes.data for array in (packed.centroids, packed.outlier_at, packed.outlier_values))
    outliers = 0 if packed.bits == WHOLE_BITS else len(packed.outlier_at)
    codes = packed.codes.ctypes.data, packed.codes.size, packed.bits
    kernels.simnmt_unpack(*codes, *tables, outliers, rows.ctypes.data, len(rows), out.ctypes.data)


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


def reference(packed: PackedWeights, out: Float32, places: NDArray[np.int64]) -> None:
    bits, codes, outlier_at = packed.bits, packed.codes, packed.outlier_at
    for first, to, count in places.tolist():
        if bits == WHOLE_BITS:
            out[to : to + count].view(np.uint8)[:] = codes[4 * first : 4 * (first + count)]
            continue
        np.take(packed.centroids, codes_of(codes, bits, first, count), out=out[to : to + count])
        low, high = np.searchsorted(outlier_at, [first, first + count])
        out[to + outlier_at[low:high] - first] = packed.outlier_values[low:high]


WORD = {2: 4, 3: 4, 4: 2, 5: 2, 6: 2}
"""By bits: codes of a word that torch looks up at once."""


def unpack_run(packed: PackedWeights, out: Float32, start: int = 0) -> Run:
    """Return a run that unpacks six segments with the kernel, one after another from `start` of `out`."""
    length = packed.weights // 6 // ALIGNED * ALIGNED
    begins = [segment * length for segment in range(6)] + [packed.weights]
    places: list[Place] = [(low, start + low, high - low) for low, high in pairwise(begins)]
    return partial(unpack, packed, out, np.array(places, np.int64))


def torch_unpack_run(packed: PackedWeights, out: Tensor) -> Run:
    """Return a run that unpacks with torch to the start of `out`: it looks up words of codes in a table prepared beforehand.

    A code at a time took 1.4 to 25 times as long.
    """
    import torch

    bits, count = packed.bits, WORD[packed.bits]
    width = bits * count
    period = math.lcm(width, 8) // 8  # bytes after which a word starts at a byte again
    codes, centroids = torch.from_numpy(packed.codes).view(-1, period), torch.from_numpy(packed.centroids)
    table = centroids[torch.arange(1 << width)[:, None] >> torch.arange(count) * bits & (1 << bits) - 1]
    at, values = torch.from_numpy(packed.outlier_at).long(), torch.from_numpy(packed.outlier_values)
    kind = torch.int32 if period < 4 else torch.int64
    flat, shifts = out[: packed.weights], torch.arange(8 * period // width, dtype=kind) * width

    def run() -> None:
        words = codes[:, 0].to(kind)
        for byte in range(1, period):
            words = words | codes[:, byte].to(kind) << 8 * byte
        if len(shifts) > 1:
            words = (words[:, None] >> shifts & (1 << width) - 1).view(-1)
        torch.index_select(table, 0, words, out=flat.view(-1, count))
        flat.index_copy_(0, at, values)

    return run


SHARD_WEIGHTS = 589_824
"""A twelfth of a layer (STI-01)."""
SHARDS = 12


def unpack_cases(threads: int, weights: int = SHARD_WEIGHTS) -> Iterator[Case]:
    """Yield one shard, and the 12 shards of a layer, divided among `threads`, into a buffer of 28 MB, at each bitwidth."""
    import torch

    for text, count in (("a shard", 1), ("a layer of 12 shards", SHARDS)):
        out, source = np.zeros(weights * count, np.float32), np.zeros(weights * count, np.float32)
        starts = range(0, weights * count, weights)
        for bits in PACKED_BITS:
            shards = [PackedWeights.random(bits, weights, seed=1 + number) for number in range(count)]
            pieces = [unpack_run(shard, out, start) for shard, start in zip(shards, starts, strict=True)]
            divided = [one_after_another(pieces[part::threads]) for part in range(min(threads, count))]
            by_torch = [torch_unpack_run(shard, torch.from_numpy(out)[at:]) for shard, at in zip(shards, starts, strict=True)]
            runs: dict[str, Run] = {
                "unpack": partial(at_once, divided),
                "torch": one_after_another(by_torch),
                "copy of as many weights": partial(np.copyto, out, source),
            }
            yield Case(f"{text}, {bits} bits", runs)


KERNELS = [
    Kernel(
        name="unpack",
        meaning="a shard's codes of 2 to 6 bits to float32 weights in their places, outliers laid over them",
        source="STI-06",
        bound="none: the same weights",
        cases=unpack_cases,
    )
]
