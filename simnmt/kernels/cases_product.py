"""The cases of products with packed weights: 1024 x 1024, a beam's rows, weights in the cache and out of it (SHARP-18)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from simnmt.kernels.cases_output import level_name
from simnmt.kernels.contract import Case, Comparison, Contest, Work
from simnmt.kernels.interleaved import Run, interleaved
from simnmt.kernels.products import PackedFloat32, PackedInt16
from simnmt.kernels.roofline import Number, last_cache_bytes

Float32 = NDArray[np.float32]
T = TypeVar("T")

SIZE = 1024
ROWS = tuple(range(1, 9))
TARGET, TARGET_ROWS = 2.5, range(2, 9)
INPUT_LIMIT = 1.0
"""Of a recurrent state (SHARP-05)."""
LIBRARY, LINEAR = "best float32 library call", "torch linear"
LIBRARY_WAYS = ("torch, weights [out, in]", "torch, weights [in, out]", "numpy, weights [out, in]", "numpy, weights [in, out]")
PACKED = "packed float32"
INT16 = "int16"


def int16_cases(threads: int, size: int = SIZE) -> Iterator[Case]:
    """Rows 1 to 8, hot and cold."""
    for cold, rows in itertools.product((False, True), ROWS):
        target = TARGET if cold and rows in TARGET_ROWS else None
        yield Case(_text(rows, size), cold, level_name(), partial(_contest, INT16, rows, size, cold, target))


def float32_cases(threads: int, size: int = SIZE) -> Iterator[Case]:
    """Few rows, hot and cold: the packed kernel that int16 is held against must itself be a good one."""
    for cold, rows in itertools.product((False, True), (1, 6)):
        yield Case(_text(rows, size), cold, level_name(), partial(_contest, PACKED, rows, size, cold, None))


def product_work(rows: int, outputs: int, inner: int, number: Number) -> Work:
    """Weights and inputs read, outputs written."""
    weights = outputs * inner * (4 if number == "float32" else 2)
    return Work(weights + 4 * rows * (outputs + inner), rows * outputs * inner, number)


def product_rates(rounds: int) -> tuple[float, float] | None:
    """Multiply-adds per second of our float32 and int16 products at their best, in the cache; None without native kernels."""
    weight, x, out = _drawn(256, 512), _drawn(24, 512), np.empty((24, 256), np.float32)
    float32, int16 = PackedFloat32.of(weight), PackedInt16.of(weight, INPUT_LIMIT)
    if int16.level is None:
        return None
    runs: dict[str, Run] = {PACKED: lambda: float32.multiply(x, out), INT16: lambda: int16.multiply(x, out)}
    times = interleaved(runs, rounds, least_s=0.02)
    return 24 * weight.size / times.least_s(PACKED), 24 * weight.size / times.least_s(INT16)


def _text(rows: int, size: int) -> str:
    return f"{rows} row{'s' if rows > 1 else ''}, {size} x {size}"


def _contest(ours: str, rows: int, size: int, cold: bool, target: float | None) -> Contest:
    weight, x = _drawn(size, size), _drawn(rows, size)
    # Cold: as many copies, taken in turn, as fill twice the cache, so that none is still there when its turn comes again.
    copies = -(-2 * last_cache_bytes() // (2 * weight.size)) if cold else 1
    int16, float32 = PackedInt16.of(weight, INPUT_LIMIT), PackedFloat32.of(weight)
    exact = x.astype(np.float64) @ weight.astype(np.float64).T
    if ours == INT16:
        bound = float(int16.error_bound(x).max())
        error = float(np.abs(int16.multiply(x) - exact).max())
    else:
        bound = size * 2.0**-24 * float((np.abs(x) @ np.abs(weight).T).max())
        error = float(np.abs(float32.multiply(x) - exact).max())
    number: Number = "int16" if ours == INT16 else "float32"
    work = product_work(rows, size, size, number)
    runs: dict[str, Run] = dict(zip(LIBRARY_WAYS, _library(weight, x, -(-copies // 2)), strict=True))
    out = np.empty((rows, size), np.float32)
    packed_float32 = _in_turn([float32] + [PackedFloat32.of(weight) for _ in range(-(-copies // 2) - 1)])
    runs[PACKED] = lambda: packed_float32().multiply(x, out)
    comparisons = [Comparison(ours, LIBRARY, LIBRARY_WAYS, work, target, error=error, error_bound=bound)]
    if ours == PACKED:
        comparisons.append(Comparison(ours, LINEAR, (LIBRARY_WAYS[0],), work, error=error, error_bound=bound))
    else:
        scales = int16.scales
        packed = _in_turn([int16] + [PackedInt16.of(weight, INPUT_LIMIT, scales=scales) for _ in range(copies - 1)])
        runs[INT16] = lambda: packed().multiply(x, out)
        comparisons.append(Comparison(ours, PACKED, (PACKED,), work, error=error, error_bound=bound))
    return Contest(runs, tuple(comparisons))


def _library(weight: Float32, x: Float32, copies: int) -> Iterator[Run]:
    """In the order of `LIBRARY_WAYS`: each with its own copies of the weights."""
    rows, tensor = x.shape[0], torch.from_numpy(x)
    result = torch.empty(rows, weight.shape[0])
    out = np.empty((rows, weight.shape[0]), np.float32)

    def by_torch(weights: Callable[[], torch.Tensor]) -> object:
        return torch.mm(tensor, weights(), out=result)

    def by_numpy(weights: Callable[[], Float32]) -> object:
        return np.matmul(x, weights(), out=out)

    def laid_out(turned: bool) -> list[Float32]:
        return [np.ascontiguousarray(weight.T) if turned else weight.copy().T for _ in range(copies)]

    for turned in (False, True):
        yield partial(by_torch, _in_turn([torch.from_numpy(each) for each in laid_out(turned)]))
    for turned in (False, True):
        yield partial(by_numpy, _in_turn(laid_out(turned)))


def _in_turn(items: Sequence[T]) -> Callable[[], T]:
    return itertools.cycle(items).__next__


def _drawn(rows: int, columns: int) -> Float32:
    """Uniform in [-1, 1]; weights a fraction of that, as trained ones are."""
    generator = np.random.default_rng(rows)
    return generator.uniform(-0.1 if rows > 32 else -1.0, 0.1 if rows > 32 else 1.0, (rows, columns)).astype(np.float32)
