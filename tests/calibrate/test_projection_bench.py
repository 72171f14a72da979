"""The document of a bench of the output layer: bars, predictions from sizes, and reading it back (FVP-09)."""

from __future__ import annotations

import json
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from simnmt.calibrate.projection_bench import ProjectionBench, ProjectionCost, Setting, StepTime, read_bench
from simnmt.calibrate.settings import CalibrationError
from simnmt.kernels.projection_cost import StageCost


def step(percent: float, ratio: float, **changed: Any) -> StepTime:
    fields: dict[str, Any] = {
        "vocab": 250_000, "width": 1_024, "rows": 1, "columns": 2_500.0 * percent, "indices": 2_500.0 * percent,
        "fitted": True, "method": "row_wise", "stages_s": {"assign": 1e-4, "union": 2e-4, "scatter": 1e-4},
        "dense_s": 1e-3, "dense_method": "whole", "columns_s": 1e-3 / ratio, "scattered_s": 1e-3,
        "ratios": {"columns": ratio, "scattered": 1.0},
    }  # fmt: skip
    return StepTime(**fields | changed)


def bench(*steps: StepTime, **setting: Any) -> ProjectionBench:
    return ProjectionBench(
        kind="synthetic", setting=Setting(**setting), box="a box", date="2026-11-21", seconds=1.0, others_cpus=None,
        steps=steps, break_even=(), costs=(cost(),),
    )  # fmt: skip


def cost(**changed: StageCost) -> ProjectionCost:
    nothing = StageCost(rows=(1,), fixed_s=(0.0,), s_per_number=(0.0,), s_per_column=(0.0,))
    names = ("assign", "union", "row_wise", "gather", "scatter", "search", "dense")
    stages: Any = {name: changed.get(name, nothing) for name in names}
    return ProjectionCost(kind="synthetic", vocab=(250_000,), width=(1_024,), **stages)


def stage(fixed_s: float = 0.0, s_per_number: float = 0.0, s_per_column: float = 0.0) -> StageCost:
    return StageCost(rows=(1,), fixed_s=(fixed_s,), s_per_number=(s_per_number,), s_per_column=(s_per_column,))


def test_bars_are_reached_or_missed_at_their_shares() -> None:
    done = bench(step(2, 40.0), step(6.3, 10.0), step(11.5, 4.9), step(12, 50.0, rows=8), step(12, 50.0, width=512))
    bars = [(bar.share, bar.asked, bar.measured, bar.reached) for bar in done.bars]
    assert bars == [(0.06, 10.0, 10.0, True), (0.12, 5.0, 4.9, False)]
    assert bench(step(4, 40.0)).bars == (), "4 % stands for no bar"
    for other in ({"threads": 2}, {"device": "cuda"}, {"dtype": "float16"}):
        assert bench(step(6, 12.0), **other).bars == (), "asked of one thread and float32 on a CPU alone"


def test_a_prediction_from_sizes_uses_the_method_and_overlap_of_the_cost() -> None:
    """FVP-09 is judged so; what is told the way and the indices of the step judged has an easier task."""
    known = cost(union=stage(s_per_column=1e-6), row_wise=stage(s_per_column=2e-6), gather=stage(s_per_column=3e-6))
    measured = step(0.04, 1.0, rows=2, columns=100.0, indices=150.0, method="gather", fitted=False, columns_s=4.5e-4)
    predicted = measured.predicted(known, 0)
    assert predicted.predicted_s == pytest.approx(2 * 100e-6 + 100 * 2e-6), "twice the columns in the sets, and row_wise"
    assert predicted.predicted_knowing_s == pytest.approx(150e-6 + 100 * 3e-6)
    done = bench(step(6, 10.0, predicted_s=1.0), predicted, predicted.model_copy(update={"predicted_s": 4.95e-4}))
    assert done.heldout_error == pytest.approx((0.5 / 4.5 + 0.45 / 4.5) / 2)
    assert done.most_heldout_error == pytest.approx(0.5 / 4.5)
    assert done.heldout_error_knowing == pytest.approx(0.0, abs=1e-12)
    assert bench(step(6, 10.0)).heldout_error is None


def test_a_document_is_read_back_from_its_file(tmp_path: Path) -> None:
    done, path = bench(step(6, 10.0), heldout_shares=()), tmp_path / "bench.json"
    path.write_text(done.model_dump_json(indent=1))
    assert read_bench(path) == done
    assert done.steps[0].overhead_share == pytest.approx(0.4)


def test_another_document_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(json.loads(bench(step(6, 10.0)).model_dump_json()) | {"document": "profile"}))
    with pytest.raises(CalibrationError, match="document: ") as caught:
        read_bench(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value) and caught.value.remedy


def test_break_even_of_the_published_lines() -> None:
    """FVP-09: 150.3 us + 12.05 us for each percent of 250,000 against 720 us dense; FVP-15's two models' own lines."""
    models = ((150.3, 12.05, 720.0, 250_000, 0.4728), (165.2, 4.02, 600.0, 128_000, None))
    for fixed_us, us_per_percent, dense_us, vocab, expected in models:
        product = stage(s_per_column=1e-6 * us_per_percent / (0.01 * vocab))
        known = cost(assign=stage(1e-6 * fixed_us), row_wise=product, gather=product, dense=stage(1e-6 * dense_us))
        share = known.break_even_share(vocab, 1024, 2000, 40)
        assert share == (None if expected is None else pytest.approx(expected, abs=1e-4))


def test_at_the_break_even_both_take_as_long() -> None:
    known = cost(
        assign=stage(1e-5, 1e-10),
        union=stage(0.0, 1e-10, 1e-9),
        row_wise=stage(1e-5, 4e-10),
        gather=stage(9e-4, 2.5e-10),
        search=stage(1e-6, 0.0, 1e-10),
        dense=stage(0.0, 2e-10),
    )
    size = {"vocab": 250_000, "width": 1024}
    share = known.break_even_share(**size, clusters=2000, rows=1)
    assert share is not None and 0.0 < share < 1.0

    def total_s(columns: int) -> float:
        return known.stages_s(**size, clusters=2000, columns=columns, rows=1).total_s

    dense_s, columns = known.dense_s(**size, rows=1), round(share * 250_000)
    assert total_s(columns) == pytest.approx(dense_s, rel=1e-4)
    assert total_s(columns - 500) < dense_s < total_s(columns + 500)
    fastest = known.break_even_share(**size, clusters=2000, rows=1, fastest=True)
    assert fastest is not None and fastest <= share, "all columns by the same product are what dense may be too"
    with_scatter = cost(**{name: getattr(known, name) for name in ("assign", "row_wise", "dense")}, scatter=stage(1.0))
    assert with_scatter.break_even_share(**size, clusters=2000, rows=1, scatter=True) == 0.0, "dense always wins"
    assert cost(dense=stage(1.0)).break_even_share(**size, clusters=2000, rows=1) is None, "dense never does"


def test_stages_are_counted_apart() -> None:
    known = cost(
        assign=stage(0.0, 1.0), union=stage(0.0, 1.0, 100.0), row_wise=stage(0.0, 2.0), gather=stage(0.0, 3.0),
        scatter=stage(0.0, 1.0, 1.0), search=stage(0.0, 10.0),
    )  # fmt: skip
    size = {"vocab": 7, "width": 3, "columns": 5, "rows": 1}
    assert astuple(known.stages_s(**size, clusters=4)) == (12.0, 507.0, 30.0, 0.0, 50.0)
    assert astuple(known.stages_s(**size, clusters=4, scatter=True)) == (12.0, 507.0, 30.0, 12.0, 70.0)
    assert known.stages_s(**size, clusters=0).assign_s == 0.0, "lists ask no centroid"
    assert known.stages_s(**size, clusters=4, method="gather", indices=9).total_s == 12.0 + 907.0 + 45.0 + 50.0
    assert known.stages_s(**size, clusters=4).overhead_s == 519.0
    assert known.dense_s(vocab=7, width=3, rows=1) == 70.0


def test_the_faster_way_is_taken() -> None:
    known = cost(row_wise=stage(0.0, 4.0), gather=stage(100.0, 2.0))
    assert [known.method(columns, 1, 1) for columns in (49, 50, 51)] == ["row_wise", "row_wise", "gather"]
