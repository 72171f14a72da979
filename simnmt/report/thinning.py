"""Fewer points that draw the same picture: quantiles of a distribution, extremes of a series, rounding."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]


def shares(count: int) -> NDArray[np.float64]:
    """Return about 500 cumulated shares from 0 to 1, ever denser towards both ends, where a distribution bends most.

    No share is nearer to an end than 1 / `count`, because no request lies between.
    """
    finest = 1.0 / max(count, 1)
    low, high = np.logspace(-6.0, -2.0, 120, endpoint=False), np.logspace(-1.0, -6.0, 200)[1:]
    body = np.linspace(0.01, 0.9, 260)
    return np.concatenate([[0.0], low[low > finest], body, 1.0 - high[high > finest], [1.0]])


def quantiles(values: Values, at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return quantiles by one sort, interpolated linearly; empty for no values."""
    ordered = np.sort(values)
    return np.interp(at * (ordered.size - 1), np.arange(ordered.size), ordered) if values.size else np.empty(0)


def extremes(values: Values, most: int) -> NDArray[np.int64]:
    """Return indices of at most `most` points that keep every peak and trough a picture of that width can show.

    The series is cut into equal buckets, of which each keeps its least and its greatest value; first and last always stay.
    """
    if values.size <= most:
        return np.arange(values.size)
    buckets = max((most - 2) // 2, 1)
    starts = np.linspace(0, values.size, buckets + 1).astype(np.int64)
    kept = [0, values.size - 1]
    for start, end in itertools.pairwise(starts.tolist()):
        piece = values[start:end]
        kept += [start + int(np.argmin(piece)), start + int(np.argmax(piece))]
    return np.unique(np.array(kept, dtype=np.int64))


def numbers(values: Values, digits: int = 5) -> list[float | None]:
    """Return plain floats with `digits` significant digits, which are short in JSON; None for values that are not finite."""
    shortened = f".{digits}g"
    return [float(format(value, shortened)) if math.isfinite(value) else None for value in values.tolist()]
