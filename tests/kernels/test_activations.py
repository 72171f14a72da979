"""tanh and sigmoid in every way against float64, over all reals (SHARP-08)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from simnmt.kernels.sharp_decoder import Activation, activate
from tests.campaigns.harness import SCALE
from tests.kernels.implementations import needs_compiled

pytestmark = needs_compiled
Function = Literal["tanh", "sigmoid"]

ERROR_BOUNDS: dict[tuple[Function, Activation], float] = {
    ("tanh", "library"): 1.3e-7,
    ("tanh", "table"): 0.001954,
    ("tanh", "polynomial"): 6e-7,
    ("sigmoid", "library"): 1.3e-7,
    ("sigmoid", "table"): 0.000489,
    ("sigmoid", "polynomial"): 4e-7,
}
"""Absolute error over all reals. For tables: half a step times the steepest slope (SHARP-08)."""

each_function = pytest.mark.parametrize("function", ["tanh", "sigmoid"])
each_method = pytest.mark.parametrize("method", ["library", "table", "polynomial"])


def exact(function: Function, x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return np.tanh(x) if function == "tanh" else 1 / (1 + np.exp(-x))


def reals() -> np.ndarray:
    """Dense where the functions bend, the middles of the tables' intervals, and beyond their ends."""
    middles = (np.arange(4096) + 0.5) / 256 - 8
    most = np.finfo(np.float32).max
    ends = [sign * end for sign in (1.0, -1.0) for end in (0.0, 1e-40, 8.0, 700.0, most, np.inf)]
    dense = np.linspace(-12, 12, 100_003)
    return np.concatenate([dense, middles, np.nextafter(middles, 9), np.array(ends)]).astype(np.float32)


@each_function
@each_method
@pytest.mark.filterwarnings("ignore:overflow")  # of the oracle's exp
def test_no_real_is_off_by_more_than_the_bound(function: Function, method: Activation) -> None:
    """And no value leaves the range of the function: a state beyond [-1, 1] would leave the fixed point's limit too."""
    x = np.sort(reals())
    values = activate(function, x, method).astype(np.float64)
    assert np.abs(values - exact(function, x)).max() <= ERROR_BOUNDS[function, method]
    assert values.max() <= 1 + 2.5e-7 and values.min() >= (-1 - 2.5e-7 if function == "tanh" else -2e-7)
    assert np.diff(values).min() >= -5e-7, "it may fall by roundings alone"


@each_function
def test_worked_bounds_of_sharp_08(function: Function) -> None:
    """4096 intervals on [-8, 8]: 0.001954 and 0.000489, which the nearest entry comes close to."""
    x = reals()[:-12]
    inside = x[np.abs(x) <= 8]
    nearest = np.abs(activate(function, inside, "table") - exact(function, inside)).max()
    step = 16 / 4096
    most_slope, entry_rounding = 1.0 if function == "tanh" else 0.25, 1e-7
    assert 0.95 * step / 2 * most_slope < nearest <= step / 2 * most_slope + entry_rounding
    assert nearest <= {"tanh": 0.001954, "sigmoid": 0.000489}[function]


@each_function
@each_method
@settings(max_examples=round(8 * SCALE))
@given(
    x=arrays.arrays(
        np.float32, arrays.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=40), elements=st.floats(width=32)
    )
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_any_size_works_in_place_and_keeps_nan(function: Function, method: Activation, x: np.ndarray) -> None:
    result = activate(function, x, method)
    assert (np.isnan(result) == np.isnan(x)).all()
    fine = ~np.isnan(x)
    assert (np.abs(result[fine] - exact(function, x[fine])) <= ERROR_BOUNDS[function, method]).all()
    assert activate(function, x, method, x) is x
    assert np.array_equal(result, x, equal_nan=True)
