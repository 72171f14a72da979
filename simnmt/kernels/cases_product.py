"""The cases of products with packed weights: 1024 x 1024, a beam's rows, weights in the cache and out of it (SHARP-18)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np

from simnmt.kernels.contract import Case, Comparison, Contest, Work
from simnmt.kernels.interleaved import Run, interleaved
from simnmt.kernels.native_at import level_name
from simnmt.kernels.product_ways import INPUT_LIMIT, INT16, LIBRARY_WAYS, PACKED, ProductWays, drawn
from simnmt.kernels.products import PackedFloat32, PackedInt16
from simnmt.kernels.roofline import Number

SIZE = 1024
ROWS = tuple(range(1, 9))
TARGET, TARGET_ROWS = 2.5, range(2, 9)
LIBRARY, LINEAR = "best float32 library call", "torch linear"


def int16_cases(threads: int, size: int = SIZE) -> Iterator[Case]:
    """Rows 1 to 8, hot and cold."""
    for cold in (False, True):
        ways = cache(partial(ProductWays.of, size, cold))
        for rows in ROWS:
            yield _case(INT16, rows, size, cold, ways, TARGET if cold and rows in TARGET_ROWS else None)


def float32_cases(threads: int, size: int = SIZE) -> Iterator[Case]:
    """Few rows, hot and cold: the packed kernel that int16 is held against must itself be a good one."""
    for cold in (False, True):
        ways = cache(partial(ProductWays.of, size, cold))
        for rows in (1, 6):
            yield _case(PACKED, rows, size, cold, ways, None)


def product_work(rows: int, outputs: int, inner: int, number: Number) -> Work:
    """Weights and inputs read, outputs written."""
    weights = outputs * inner * (4 if number == "float32" else 2)
    return Work(weights + 4 * rows * (outputs + inner), rows * outputs * inner, number)


def product_rates(rounds: int) -> tuple[float, float] | None:
    """Multiply-adds per second of our float32 and int16 products at their best, in the cache; None without native kernels."""
    weight, x, out = drawn(256, 512, 0.1), drawn(24, 512), np.empty((24, 256), np.float32)
    float32, int16 = PackedFloat32.of(weight), PackedInt16.of(weight, INPUT_LIMIT)
    if int16.level is None:
        return None
    runs: dict[str, Run] = {PACKED: lambda: float32.multiply(x, out), INT16: lambda: int16.multiply(x, out)}
    times = interleaved(runs, rounds, least_s=0.02)
    return 24 * weight.size / times.least_s(PACKED), 24 * weight.size / times.least_s(INT16)


def _case(ours: str, rows: int, size: int, cold: bool, ways: Callable[[], ProductWays], target: float | None) -> Case:
    text = f"{rows} row{'s' if rows > 1 else ''}, {size} x {size}"
    return Case(text, "cold" if cold else "hot", level_name(), lambda: _contest(ours, rows, ways(), target))


def _contest(ours: str, rows: int, ways: ProductWays, target: float | None) -> Contest:
    weight, x = ways.weight, drawn(rows, len(ways.weight))
    exact = x.astype(np.float64) @ weight.astype(np.float64).T
    number: Number
    if ours == INT16:
        number, product, bound = "int16", ways.int16[0].multiply(x), float(ways.int16[0].error_bound(x).max())
    else:
        number, product = "float32", ways.float32[0].multiply(x)
        bound = len(weight) * 2.0**-24 * float((np.abs(x) @ np.abs(weight).T).max())
    error, work = float(np.abs(product - exact).max()), product_work(rows, len(weight), len(weight), number)
    runs = ways.runs(x)
    comparisons = [Comparison(ours, LIBRARY, LIBRARY_WAYS, work, target, error=error, error_bound=bound)]
    if ours == PACKED:
        del runs[INT16]
        comparisons.append(Comparison(ours, LINEAR, (LIBRARY_WAYS[0],), work, error=error, error_bound=bound))
    else:
        comparisons.append(Comparison(ours, PACKED, (PACKED,), work, error=error, error_bound=bound))
    return Contest(runs, tuple(comparisons))
