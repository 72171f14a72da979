"""What is asked of a real pipeline, and whether `python -m benchmarks.sti_pipeline` found it (STI-06, STI-16, STI-21)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simnmt.costs.shard_geometry import BERT_BASE
from simnmt.sti.timeline import ROUNDING

FASTER_BY, MOST_STALL, LARGEST_ERROR, LEAST_PLANS, UNPACKS_BY, EVEN = 4.0, 0.15, 0.10, 10, 2.0, 0.8


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
        ("unpacking over the best of torch and numba, least over bits", unpacked["least_ratio"], ">=", UNPACKS_BY),
        ("unpacking 6 bits, of the speed of 2", unpacked["six_over_two"], ">=", EVEN),
        ("6 bits in a pipeline over 32 bits loaded first, least over paces", least, ">=", FASTER_BY),
        ("plans predicted not to stall at the paper's skew", len(free), ">=", LEAST_PLANS),
        ("their largest share of stall", max((row["stall_share"] for row in free), default=1.0), "<=", MOST_STALL),
        ("largest relative error of a simulated latency", max(errors), "<=", LARGEST_ERROR),
    ]
    return [
        {"bar": what, "found": value, "asked": f"{sign} {bar:g}", "reached": value >= bar if sign == ">=" else value <= bar}
        for what, value, sign, bar in found
    ]
