"""A measurement of the output layer that was never made: as it is asked to be."""

from __future__ import annotations

from typing import Any

from simnmt.calibrate.projection_bench import BreakEven, ProjectionBench, Setting, StepTime

STAGES = dict.fromkeys(("assign", "union", "row_wise", "gather", "scatter", "search"), 1e-3)


def step(share: float = 0.06, ratio: float = 11.0, rows: int = 1, **changed: Any) -> StepTime:
    """Of V 250,000 and width 1,024, dense in 100 ms; predicted to 5 %."""
    columns_s = 0.1 / ratio
    return StepTime(
        **{
            "vocab": 250_000,
            "width": 1_024,
            "rows": rows,
            "columns": 250_000 * share,
            "indices": 250_000 * share,
            "fitted": True,
            "method": "row_wise",
            "stages_s": STAGES,
            "dense_s": 0.1,
            "dense_method": "linear",
            "columns_s": columns_s,
            "scattered_s": 1.2 * columns_s,
            "ratios": {"columns": ratio, "scattered": ratio / 1.2},
            "predicted_s": 1.05 * columns_s,
            "predicted_knowing_s": 1.02 * columns_s,
            **changed,
        }
    )


def bench(*steps: StepTime, device: str = "cpu", **changed: Any) -> ProjectionBench:
    """Both shares that are asked for, and one that was not fitted."""
    measured_steps = steps or (step(), step(0.12, 6.0), step(0.04, 15.0, fitted=False))
    return ProjectionBench(
        **{
            "kind": "measured",
            "setting": Setting(device=device),
            "box": "a GPU" if device == "cuda" else "a processor, 1 thread",
            "date": "2026-11-21",
            "seconds": 200.0,
            "others_cpus": 0.0,
            "steps": measured_steps,
            "break_even": (
                BreakEven(vocab=250_000, width=1_024, rows=1, columns=None, scattered=0.8, fastest=0.6),
                BreakEven(vocab=250_000, width=1_024, rows=40, columns=0.4, scattered=0.3, fastest=0.2),
            ),
            "costs": (),
            **changed,
        }
    )
