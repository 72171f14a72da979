"""The document of a bench of the output layer: bars, predictions from sizes, and reading it back (FVP-09)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simnmt.calibrate.projection_bench import ProjectionBench, Setting, StepTime, read_bench
from simnmt.calibrate.settings import CalibrationError
from simnmt.kernels.projection_cost import ProjectionCost, StageCost


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


def per_column(seconds: float) -> StageCost:
    return StageCost(rows=(1,), fixed_s=(0.0,), s_per_number=(0.0,), s_per_column=(seconds,))


def test_bars_are_reached_or_missed_at_their_shares() -> None:
    done = bench(step(2, 40.0), step(6.3, 10.0), step(11.5, 4.9), step(12, 50.0, rows=8), step(12, 50.0, width=512))
    bars = [(bar.share, bar.asked, bar.measured, bar.reached) for bar in done.bars]
    assert bars == [(0.06, 10.0, 10.0, True), (0.12, 5.0, 4.9, False)]
    assert bench(step(4, 40.0)).bars == (), "4 % stands for no bar"
    for other in ({"threads": 2}, {"device": "cuda"}, {"dtype": "float16"}):
        assert bench(step(6, 12.0), **other).bars == (), "asked of one thread and float32 on a CPU alone"


def test_a_prediction_from_sizes_uses_the_method_and_overlap_of_the_cost() -> None:
    """FVP-09 is judged so; what is told the way and the indices of the step judged has an easier task."""
    known = cost(union=per_column(1e-6), row_wise=per_column(2e-6), gather=per_column(3e-6))
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
