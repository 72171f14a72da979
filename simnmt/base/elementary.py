"""Exponentials and logarithms by the C library: numpy's vector forms differ by processor in the last bit.

Results of a run are to have the same bytes on every processor. Sums of products serve the same end in place of matrix products,
in which BLAS adds in an order that depends on the processor.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def exp(values: Floats) -> Floats:
    """Return e to the power of each value; same shape."""
    return np.exp(values.astype(np.complex128)).real.copy()  # numpy calls the C library for complex numbers


def log(values: Floats) -> Floats:
    """Return the natural logarithm of each positive value; same shape."""
    return np.log(values.astype(np.complex128)).real.copy()


def cbrt(values: Floats) -> Floats:
    """Return the real cube root of each value; same shape."""
    from scipy.special import cbrt  # takes a tenth of a second to import

    roots: Floats = cbrt(values)
    return roots
