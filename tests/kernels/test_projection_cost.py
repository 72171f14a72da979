"""The fitted cost of products: lines between measured rows, their fit, and their measurement on a model (FVP-09)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simnmt.kernels import product_timing
from simnmt.kernels.product_timing import measure_products
from simnmt.kernels.projection_cost import StageCost, StagePoint, fit_stage


def test_every_product_of_a_model_is_timed_and_of_a_large_layer_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_timing, "MOST_DENSE", 1 << 11)
    monkeypatch.setattr(product_timing, "MOST_NUMBERS", 1 << 10)
    monkeypatch.setattr(product_timing, "last_cache_bytes", lambda: 4_096)
    weight, most = torch.randn(700, 16), list[float]()

    def watched(points: Iterable[StagePoint]) -> StageCost:
        points = list(points)
        most.extend(point.numbers for point in points)
        return fit_stage(points)

    monkeypatch.setattr(product_timing, "fit_stage", watched)
    costs = measure_products(weight, rounds=2)
    assert max(most) == 1 << 11
    assert all(stage.rows == product_timing.ROWS for stage in (costs.dense, costs.row_wise, costs.gather))
    for rows in (1, 4, 40, 64):
        assert min(costs.product_s(70, rows, 16, "row_wise"), costs.product_s(70, rows, 16, "gather")) > 0.0
    assert costs.method(70, 1, 16) in ("row_wise", "gather")


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
    assert costs.dense.seconds(8, 500 * 16, 500) == pytest.approx(101.0), "by the same clock as all other products"


def test_between_measured_rows_lies_a_line_and_beyond_them_it_goes_on() -> None:
    cost = StageCost(rows=(1, 8, 40), fixed_s=(1.0, 2.0, 10.0), s_per_number=(0.0,) * 3, s_per_column=(0.0,) * 3)
    expected = {1: 1.0, 8: 2.0, 24: 6.0, 40: 10.0, 80: 20.0}
    assert {rows: cost.seconds(rows, 1, 1) for rows in expected} == pytest.approx(expected)


@given(st.lists(st.floats(0.0, 1e-4), min_size=3, max_size=3), st.integers(0, 2**32 - 1))
def test_costs_are_found_again(true: list[float], seed: int) -> None:
    """The lines that made the times, whatever of them is zero."""
    random = np.random.default_rng(seed)
    fixed_s, s_per_number, s_per_column = 1e-5 + true[0], 1e-5 * true[1], true[2]

    def drawn(count: int) -> list[StagePoint]:
        columns, widths = random.integers(100, 50_000, count), random.choice([256.0, 512.0, 1024.0], count)
        return [
            StagePoint(rows, c * w, c, rows * (fixed_s + s_per_number * c * w + s_per_column * c))
            for rows in (1, 8)
            for c, w in zip(columns.tolist(), widths.tolist(), strict=True)
        ]

    cost = fit_stage(drawn(12))
    for rows, numbers, columns, seconds in drawn(4):
        assert cost.seconds(rows, numbers, columns) == pytest.approx(seconds, rel=1e-6)
    assert cost.seconds(4, 1e6, 1e3) == pytest.approx(4 * (fixed_s + s_per_number * 1e6 + s_per_column * 1e3), rel=1e-5)


def test_of_one_width_all_is_counted_to_the_numbers() -> None:
    """Else half of it would be each column's, whatever its width."""
    cost = fit_stage([StagePoint(1, 64.0 * c, c, 1e-3 * c) for c in (10, 20, 40)])
    assert cost.s_per_column == (0.0,) and cost.s_per_number == pytest.approx([1e-3 / 64])
    alone = fit_stage([StagePoint(1, 100.0, 10.0, 2.0)])
    assert alone.seconds(1, 200.0, 20.0) == pytest.approx(4.0), "of one point, in proportion"
