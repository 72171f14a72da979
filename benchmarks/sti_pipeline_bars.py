"""What `benchmarks.sti_pipeline` measured, against what the project asks of it, and for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simnmt.cli.tables import aligned
from simnmt.costs.shard_geometry import BERT_BASE
from simnmt.sti.timeline import ROUNDING

FASTER, STALL_SHARE, ERROR, LEAST_PLANS, UNPACK, EVEN = 4.0, 0.15, 0.10, 10, 2.0, 0.8


def why_unjudged(figures: Mapping[str, Any]) -> str | None:
    """Why these figures can be held against no bar; None where they can."""
    if any(figures[name] != getattr(BERT_BASE, name) for name in ("layers", "heads", "width", "ffn")):
        return "the model is not of BERT's base size"
    if not all(each["cold"] for each in [*figures["faster"], *figures["grid"]]):
        return "the store's file could not be dropped from memory, so that reads were not cold"
    return None


def stall_free(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Plans at the paper's skew that are predicted not to stall."""
    pace = figures["skew"]["pace_mb"]
    return [
        row for row in figures["grid"] if row["pace_mb"] == pace and row["simulated_stall_s"] <= ROUNDING * row["simulated_s"]
    ]


def bars(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the project asks of each part, what was found, and whether that is enough; none where it cannot be judged."""
    if why_unjudged(figures) is not None:
        return []
    unpacked, free = figures["unpack"], stall_free(figures)
    least, errors = min(row["ratio"] for row in figures["faster"]), [abs(row["error"]) for row in figures["grid"]]
    found = [
        ("unpacking over the best of torch and numba, least over bits", unpacked["least_ratio"], ">=", UNPACK),
        ("unpacking 6 bits, of the speed of 2", unpacked["six_over_two"], ">=", EVEN),
        ("6 bits in a pipeline over 32 bits loaded first, least over paces", least, ">=", FASTER),
        ("plans predicted not to stall at the paper's skew", len(free), ">=", LEAST_PLANS),
        ("their largest share of stall", max((row["stall_share"] for row in free), default=1.0), "<=", STALL_SHARE),
        ("largest relative error of a simulated latency", max(errors), "<=", ERROR),
    ]
    return [
        {"bar": what, "found": value, "asked": f"{sign} {bar:g}", "reached": value >= bar if sign == ">=" else value <= bar}
        for what, value, sign, bar in found
    ]


def told(figures: Mapping[str, Any]) -> str:
    """For a person."""
    lines = [f"{figures['model']}: {figures['layers']} layers, medians of {figures['repeats']}", ""]
    lines += [
        f"{row['pace_mb']:g} MB/s: 32 bits loaded first {1e3 * row['load_then_run_s']:.0f} ms, pipeline at 6 bits "
        f"{1e3 * row['bits_6_s']:.0f} ms, at 2 bits {1e3 * row['bits_2_s']:.0f} ms: {row['ratio']:.2f} times as fast"
        for row in figures["faster"]
    ]
    lines += [
        f"{row['pace_mb']:.0f} MB/s, {row['length']} tokens: layers take {row['slowed']:.2f} times as long beside reads"
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
    lines += ["", aligned(header, rows, 0)]
    lines += ["error: by costs measured in the same rounds as the plans; before: by those measured ahead of all rounds"]
    lines += ["stall %: measured; (0) where none was predicted", ""]
    unjudged = why_unjudged(figures)
    return "\n".join(
        [
            *lines,
            *([] if unjudged is None else [f"No bar is judged: {unjudged}."]),
            *(
                f"{'reached' if bar['reached'] else 'MISSED '}  {bar['bar']}: {bar['found']:.3g} (asked {bar['asked']})"
                for bar in bars(figures)
            ),
        ]
    )
