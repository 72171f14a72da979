"""The fitted cost of products: lines between measured rows, their fit, and their measurement on a model (FVP-09)."""

from __future__ import annotations

from itertools import count

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simnmt.kernels import product_timing
from simnmt.kernels.product_timing import measure_products
from simnmt.kernels.projection_cost import StageCost, StagePoint, fit_stage


def test_the_dense_product_of_a_model_replaces_that_of_torch() -> None:
    """Of packed weights torch's would take far longer, and active columns seem to pay where they do not."""
    seen: list[tuple[int, ...]] = []
    ticks = count()

    def product(hidden: torch.Tensor) -> None:
        seen.append(tuple(hidden.shape))
        for _ in range(100):
            next(ticks)

    costs = measure_products(torch.randn(500, 16), rounds=1, clock=lambda: float(next(ticks)), dense=product)
    assert {(1, 16), (8, 16)} <= set(seen)
    assert costs.dense.seconds(8, 500) == pytest.approx(101.0), "by the same clock as all other products"


def test_of_a_large_layer_the_first_columns_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_timing, "MOST_DENSE", 16 * 50)
    ticks = count()
    costs = measure_products(torch.randn(500, 16), rounds=1, clock=lambda: float(next(ticks)))
    assert costs.dense.seconds(1, 500) == pytest.approx(10.0), "a tenth in one tick"
    assert costs.dense.rows == costs.product.rows == product_timing.ROWS


def test_between_measured_rows_lies_a_line_and_beyond_them_it_goes_on() -> None:
    cost = StageCost(rows=(1, 8, 40), fixed_s=(1.0, 2.0, 10.0), s_per_column=(0.0,) * 3)
    expected = {1: 1.0, 8: 2.0, 24: 6.0, 40: 10.0, 80: 20.0}
    assert {rows: cost.seconds(rows, 1) for rows in expected} == pytest.approx(expected)


@given(st.floats(1e-6, 1e-3), st.floats(0.0, 1e-6), st.lists(st.integers(100, 50_000), min_size=2, max_size=9, unique=True))
def test_costs_are_found_again(fixed_s: float, s_per_column: float, columns: list[int]) -> None:
    """The lines that made the times, for each number of rows, in any order."""
    points = [StagePoint(rows, many, rows * (fixed_s + s_per_column * many)) for many in columns for rows in (8, 1)]
    cost = fit_stage(points)
    assert cost.rows == (1, 8)
    for rows, many, seconds in points:
        assert cost.seconds(rows, many) == pytest.approx(seconds, rel=1e-6)
    assert cost.seconds(4, 1e3) == pytest.approx(4 * (fixed_s + s_per_column * 1e3), rel=1e-5)
    assert fit_stage(points[:1]).seconds(8, 1e6) == pytest.approx(points[0].seconds), "a constant, where columns do not differ"
