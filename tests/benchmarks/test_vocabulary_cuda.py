"""What the GPU benchmark of the active columns asks of its figures (FVP-15)."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the extra packages of simnmt[models] are not installed")

from benchmarks.vocabulary_cuda import main, missed
from simnmt.calibrate.projection_bench import ProjectionBench, Setting, StepTime


def step(percent: float, ratio: float, overhead_s: float = 1e-4) -> StepTime:
    return StepTime(
        vocab=250_000, width=1024, rows=40, columns=2_500 * percent, indices=5_000 * percent, fitted=True, method="gather",
        stages_s={"assign": overhead_s, "union": 0.0, "scatter": 0.0}, dense_s=1e-3, dense_method="whole",
        columns_s=1e-3 / ratio, kept_s=1e-3, scattered_s=1e-3, ratios={"columns": ratio, "kept": ratio, "scattered": ratio},
    )  # fmt: skip


def of(*steps: StepTime) -> list[str]:
    setting = Setting(vocabs=(250_000,))
    return missed(
        ProjectionBench(
            kind="synthetic", setting=setting, box="a GPU", date="2026-11-21", seconds=1.0, others_cpus=None, steps=steps,
            break_even=(), costs=(),
        )
    )  # fmt: skip


def test_more_than_one_and_a_half_times_is_asked_up_to_15_percent() -> None:
    assert of(step(6, 3.0), step(12, 2.0), step(20, 1.2)) == []
    assert of(step(6, 3.0), step(12, 1.5), step(20, 1.2)) == ["V 250,000, 12.0 % active: 1.50 times as fast as dense"]
    assert of(step(6, 1.1, overhead_s=6e-4)) == [], "overheads of half the dense time excuse it: the break-even is told"
    assert of(step(6, 1.1).model_copy(update={"rows": 1})) == [], "of 40 rows alone"


def test_the_ratio_must_fall_with_the_active_share() -> None:
    assert of(step(12, 3.0), step(6, 2.0)) == ["V 250,000: faster with 12.0 % active than with 6.0 %"]
    assert of(step(12, 2.05), step(6, 2.0)) == [], "within noise"


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit):
        main([])
    assert "no GPU" in capsys.readouterr().err
