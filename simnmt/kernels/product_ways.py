"""All ways to take one product with few rows: ours packed in 16 and in 32 bits, and the libraries' (SHARP-18).

Each has weights of its own, on huge pages all of them: a pass over weights on small ones would take longer whoever makes it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from simnmt.kernels.arrays import huge_pages
from simnmt.kernels.interleaved import Run
from simnmt.kernels.products import PackedFloat32, PackedInt16
from simnmt.kernels.roofline import last_cache_bytes

Float32 = NDArray[np.float32]
T = TypeVar("T")

INT16, PACKED = "int16", "packed float32"
LIBRARY_WAYS = ("torch, weights [out, in]", "torch, weights [in, out]", "numpy, weights [out, in]", "numpy, weights [in, out]")
"""By how the weights lie in memory."""
INPUT_LIMIT = 1.0
"""Of a recurrent state (SHARP-05)."""


@dataclass(frozen=True, slots=True)
class ProductWays:
    """Square weights and their copies, laid out for each way; good for any number of rows.

    Where cold, each way takes as many copies in turn as fill twice the last-level cache, so that none is still there when its
    turn comes again.
    """

    weight: Float32
    int16: tuple[PackedInt16, ...]
    float32: tuple[PackedFloat32, ...]
    library: tuple[tuple[Float32, ...], ...]
    """In the order of `LIBRARY_WAYS`, as [in, out] each."""

    @classmethod
    def of(cls, size: int, cold: bool) -> ProductWays:
        """Weights a fraction of 1, as trained ones are."""
        weight = drawn(size, size, 0.1)
        copies = -(-2 * last_cache_bytes() // (2 * weight.size)) if cold else 1
        halved = -(-copies // 2)
        first = PackedInt16.of(weight, INPUT_LIMIT)
        others = (PackedInt16.of(weight, INPUT_LIMIT, scales=first.scales) for _ in range(copies - 1))
        return cls(
            weight,
            (first, *others),
            tuple(PackedFloat32.of(weight) for _ in range(halved)),
            tuple(tuple(_laid_out(weight, turned) for _ in range(halved)) for turned in (False, True) * 2),
        )

    def runs(self, x: Float32) -> dict[str, Run]:
        """Calls by name, each with the next of its copies and an output that stands ready."""
        shape = len(x), len(self.weight)
        out, tensor, result = np.empty(shape, np.float32), torch.from_numpy(x), torch.empty(shape)

        def packed(weights: Callable[[], PackedInt16 | PackedFloat32]) -> object:
            return weights().multiply(x, out)

        def by_torch(weights: Callable[[], torch.Tensor]) -> object:
            return torch.mm(tensor, weights(), out=result)

        def by_numpy(weights: Callable[[], Float32]) -> object:
            return np.matmul(x, weights(), out=out)

        tensors = [[torch.from_numpy(each) for each in copies] for copies in self.library[:2]]
        calls: Iterator[Run] = itertools.chain(
            (partial(by_torch, _in_turn(copies)) for copies in tensors),
            (partial(by_numpy, _in_turn(copies)) for copies in self.library[2:]),
        )
        own = {INT16: partial(packed, _in_turn(self.int16)), PACKED: partial(packed, _in_turn(self.float32))}
        return own | dict(zip(LIBRARY_WAYS, calls, strict=True))


def drawn(rows: int, columns: int, reach: float = 1.0) -> Float32:
    """Uniform in [-reach, reach]."""
    return np.random.default_rng(rows).uniform(-reach, reach, (rows, columns)).astype(np.float32)


def _laid_out(weight: Float32, turned: bool) -> Float32:
    """A copy of the weights as [in, out], their columns (or, where turned, rows) side by side."""
    kept = weight.T if turned else weight
    copy: NDArray[Any] = huge_pages(weight.size, np.float32).reshape(kept.shape)
    copy[:] = kept
    return copy if turned else copy.T


def _in_turn(items: Sequence[T]) -> Callable[[], T]:
    return itertools.cycle(items).__next__
