"""What `benchmarks.sti_pipeline` measured, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simnmt.base.text_tables import format_table
from simnmt.papers.sti.pipeline import PipelineMeasurement
from simnmt.streaming.plan.timeline import ROUNDING


def told(figures: Mapping[str, Any]) -> str:
    """For a person."""
    lines = [
        f"{figures['model']}: {figures['layers']} layers, medians of {figures['repeats']}; plans of {figures['executions']} "
        "executions",
        "",
    ]
    lines += [
        f"{row['pace_mb']:g} MB/s: 32 bits loaded first {1e3 * row['load_then_run_s']:.0f} ms, pipeline at 6 bits "
        f"{1e3 * row['bits_6_s']:.0f} ms, at 2 bits {1e3 * row['bits_2_s']:.0f} ms: {row['ratio']:.2f} times as fast"
        for row in figures["faster"]
    ]
    lines += [
        f"{row['pace_mb']:.0f} MB/s, {row['length']} tokens: layers take {min(row['slowed']):.2f} to {max(row['slowed']):.2f} "
        "times as long beside reads"
        for row in figures["costs"]
    ]
    header = ["MB/s", "tokens", "deadline ms", "preload MB", "n x m", "mean bits"]
    header += ["simulated ms", "measured ms", "error %", "before %", "stall %"]
    rows = [
        [
            f"{row['pace_mb']:.0f}",
            str(row["length"]),
            f"{row['deadline_ms']:.1f}",
            f"{row['preload_mb']:g}",
            f"{row['layers']} x {row['slices']}",
            f"{row['mean_bits']:.1f}",
            f"{1e3 * row['simulated_s']:.1f}",
            f"{1e3 * row['measured_s']:.1f}",
            f"{100 * row['error']:+.1f}",
            f"{100 * row['error_before']:+.1f}",
            f"{100 * row['stall_share']:.1f}" + ("" if row["simulated_stall_s"] > ROUNDING * row["simulated_s"] else " (0)"),
        ]
        for row in figures["grid"]
    ]
    lines += ["", format_table(header, rows, 0)]
    lines += ["error: by costs measured in the same rounds as the plans; before: by those measured ahead of all rounds"]
    lines += ["stall %: measured; (0) where none was predicted", ""]
    measured = PipelineMeasurement.model_validate(figures)
    return "\n".join(
        [
            *lines,
            *([] if measured.why_unjudged is None else [f"No bar is judged: {measured.why_unjudged}."]),
            *(
                f"{'reached' if bar['reached'] else 'MISSED '}  {bar['bar']}: {bar['found']:.3g} (asked {bar['asked']})"
                for bar in measured.bars()
            ),
        ]
    )
