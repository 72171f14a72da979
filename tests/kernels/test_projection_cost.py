"""The fitted cost of the output layer: what its lines say, and when the active columns pay (FVP-09)."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.kernels.projection_cost import ProjectionCost, StageCost, StagePoint, fit_stage


def stage(fixed_s: float = 0.0, s_per_number: float = 0.0, s_per_column: float = 0.0) -> StageCost:
    return StageCost(rows=(1,), fixed_s=(fixed_s,), s_per_number=(s_per_number,), s_per_column=(s_per_column,))


def made(**changed: StageCost) -> ProjectionCost:
    """Nothing costs anything but what is named."""
    names = ("assign", "union", "row_wise", "gather", "scatter", "search", "dense")
    costs = {name: changed.get(name, stage()) for name in names}
    return ProjectionCost(kind="synthetic", vocab=(250_000,), width=(1024,), **costs)  # type: ignore[arg-type]


def test_break_even_of_the_published_lines() -> None:
    """FVP-09: 150.3 us + 12.05 us for each percent of 250,000 against 720 us dense; FVP-15's two models' own lines."""
    models = ((150.3, 12.05, 720.0, 250_000, 0.4728), (165.2, 4.02, 600.0, 128_000, None))
    for fixed_us, us_per_percent, dense_us, vocab, expected in models:
        product = stage(s_per_column=1e-6 * us_per_percent / (0.01 * vocab))
        cost = made(assign=stage(1e-6 * fixed_us), row_wise=product, gather=product, dense=stage(1e-6 * dense_us))
        share = cost.break_even_share(vocab, 1024, 2000, 40)
        assert share == (None if expected is None else pytest.approx(expected, abs=1e-4))


def test_at_the_break_even_both_take_as_long() -> None:
    cost = made(
        assign=stage(1e-5, 1e-10),
        union=stage(0.0, 1e-10, 1e-9),
        row_wise=stage(1e-5, 4e-10),
        gather=stage(9e-4, 2.5e-10),
        search=stage(1e-6, 0.0, 1e-10),
        dense=stage(0.0, 2e-10),
    )
    size = {"vocab": 250_000, "width": 1024}
    share = cost.break_even_share(**size, clusters=2000, rows=1)
    assert share is not None and 0.0 < share < 1.0

    def total_s(columns: int) -> float:
        return cost.stages_s(**size, clusters=2000, columns=columns, rows=1).total_s

    dense_s, columns = cost.dense_s(**size, rows=1), round(share * 250_000)
    assert total_s(columns) == pytest.approx(dense_s, rel=1e-4)
    assert total_s(columns - 500) < dense_s < total_s(columns + 500)
    own = cost.break_even_share(**size, clusters=2000, rows=1, fastest=True)
    assert own is not None and own <= share, "all columns by the same product are what dense may be too"
    with_scatter = made(**{name: getattr(cost, name) for name in ("assign", "row_wise", "dense")}, scatter=stage(1.0))
    assert with_scatter.break_even_share(**size, clusters=2000, rows=1, scatter=True) == 0.0, "dense always wins"
    assert made(dense=stage(1.0)).break_even_share(**size, clusters=2000, rows=1) is None, "dense never does"


def test_stages_are_counted_apart() -> None:
    cost = made(
        assign=stage(0.0, 1.0), union=stage(0.0, 1.0, 100.0), row_wise=stage(0.0, 2.0), gather=stage(0.0, 3.0),
        scatter=stage(0.0, 1.0, 1.0), search=stage(0.0, 10.0),
    )  # fmt: skip
    size = {"vocab": 7, "width": 3, "columns": 5, "rows": 1}
    assert astuple(cost.stages_s(**size, clusters=4)) == (12.0, 507.0, 30.0, 0.0, 50.0)
    assert astuple(cost.stages_s(**size, clusters=4, scatter=True)) == (12.0, 507.0, 30.0, 12.0, 70.0)
    assert cost.stages_s(**size, clusters=0).assign_s == 0.0, "lists ask no centroid"
    assert cost.stages_s(**size, clusters=4, method="gather", indices=9).total_s == 12.0 + 907.0 + 45.0 + 50.0
    assert cost.stages_s(**size, clusters=4).overhead_s == 519.0
    assert cost.dense_s(vocab=7, width=3, rows=1) == 70.0


def test_the_faster_way_is_taken() -> None:
    cost = made(row_wise=stage(0.0, 4.0), gather=stage(100.0, 2.0))
    assert [cost.method(columns, 1, 1) for columns in (49, 50, 51)] == ["row_wise", "row_wise", "gather"]


def test_between_measured_rows_lies_a_line_and_beyond_them_it_goes_on() -> None:
    cost = StageCost(rows=(1, 8, 40), fixed_s=(1.0, 2.0, 10.0), s_per_number=(0.0,) * 3, s_per_column=(0.0,) * 3)
    expected = {1: 1.0, 8: 2.0, 24: 6.0, 40: 10.0, 80: 20.0}
    assert {rows: cost.seconds(rows, 1, 1) for rows in expected} == pytest.approx(expected)


@given(st.lists(st.floats(0.0, 1e-4), min_size=3, max_size=3), st.integers(0, 2**32 - 1))
def test_costs_are_found_again_and_judge_without_error(true: list[float], seed: int) -> None:
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

    found = fit_stage(drawn(12), drawn(4))
    assert found.heldout_points == 8 and found.heldout_error == pytest.approx(0.0, abs=1e-6)
    assert found.seconds(4, 1e6, 1e3) == pytest.approx(4 * (fixed_s + s_per_number * 1e6 + s_per_column * 1e3), rel=1e-5)


def test_of_one_width_all_is_counted_to_the_numbers() -> None:
    """Else half of it would be each column's, whatever its width."""
    found = fit_stage([StagePoint(1, 64.0 * c, c, 1e-3 * c) for c in (10, 20, 40)])
    assert found.s_per_column == (0.0,) and found.s_per_number == pytest.approx([1e-3 / 64])
    alone = fit_stage([StagePoint(1, 100.0, 10.0, 2.0)])
    assert alone.seconds(1, 200.0, 20.0) == pytest.approx(4.0), "of one point, in proportion"
