"""The page's tables of what trained classifiers measured: methods under deadlines, submodels, raised shards (STI-22 to 27)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simnmt.papers.kit.page import Figure, Line, table
from simnmt.report.typography import number, signed, significant

Rows = Sequence[Mapping[str, Any]]

MOST_SHOWN = 24
"""Rows that are not folded away."""
SHOWN_DIGITS = 16
"""Of a sum of 64, which the JSON tells whole."""


def studied_models(rows: Rows) -> dict[str, Any]:
    """Which model, which task."""
    return table(
        "studied",
        "What was studied",
        "Guessing: what naming the largest class would reach. Shards: all of them in float32. Ranked on: the examples by which "
        "shards were put in order, which should not be those that judge.",
        ("study", "layers x slices", "width", "shards, MB", "2 bits, kB a shard", "outliers, %", "examples", "guessing, %",
         "ranked on", "SHA-256"),
        [
            Line(
                row["study"],
                (
                    f"{row['model']['layers']} x {row['model']['heads']}",
                    f"{row['model']['width']}, {row['model']['ffn']}",
                    number(row["layers_mb"], 1),
                    number(row["store"]["shard_bytes"]["2"] / 1e3, 1),
                    number(100 * row["store"]["outlier_share"], 3),
                    number(row["task"]["examples"], 0),
                    number(100 * row["task"]["largest_class"], 1),
                    Figure("the same" if row["importance_on_same"] else row["importance_task"] or "others", words=True),
                    Figure(row["model"]["sha256"][:SHOWN_DIGITS], words=True),
                ),
                small=row["model"]["kind"],
            )
            for row in rows
        ],
    )  # fmt: skip


def submodels(rows: Rows) -> dict[str, Any]:
    """n x m by deadline."""
    shares = sorted({share for row in rows for share in row["sizes"]}, key=float)
    return table(
        "submodels",
        "Submodels by deadline, layers x slices",
        "Deadlines as shares of the whole model’s computation. Held: parameters between executions; working: layers in "
        "float32 beside them, without the compressed shards that are read. Table 6 itself is not in the source text.",
        ("way", "device", *(f"{share} %" for share in shares), "held, MB", "working, MB", "missed", "accuracy, %"),
        [
            Line(
                method_label(row["method"], row["preload_share"], f"{number(100 * (row['preload_share'] or 0.0), 2)} %"),
                (
                    row["device"],
                    *(" x ".join(map(str, row["sizes"].get(share, ()))) for share in shares),
                    significant(row["held_mb"], 3),
                    significant(row["working_mb"], 3),
                    number(row["missed"], 0),
                    number(100 * row["accuracy"], 1),
                ),
                small=row["study"],
            )
            for row in rows
        ],
    )


def upgrades(rows: Rows) -> dict[str, Any]:
    """Raised by importance and at random."""
    return table(
        "upgrades",
        "Shards raised by importance and at random",
        "Of a submodel with all shards at 2 bits. At random: the mean over orders; small print: the least and the most. Table "
        "7 itself is not in the source text; by it importance gains 8.19 points on average.",
        ("submodel", "raised", "to bits", "none raised, %", "by importance, %", "at random, %", "points", "orders no better"),
        [
            Line(
                f"{row['layers']} x {row['slices']}",
                (
                    number(row["raised"], 0),
                    number(row["to_bits"], 0),
                    number(100 * row["base"], 1),
                    number(100 * row["best"], 1),
                    ""
                    if row["random_mean"] is None
                    else Figure(
                        number(100 * row["random_mean"], 1),
                        f"{number(100 * row['random_least'], 1)} to {number(100 * row['random_most'], 1)}",
                    ),
                    ""
                    if row["gain"] is None
                    else Figure(signed(row["gain"]), f"{signed(row['low'])} to {signed(row['high'])}"),
                    f"{row['beaten']} of {row['orders']}",
                ),
                small=row["study"],
            )
            for row in rows
        ],
    )


def uniform(rows: Rows) -> dict[str, Any]:
    """Every shard at one bitwidth."""
    return table(
        "uniform",
        "Bits, layers and slices",
        "Every shard at the same bits, the most important slices of the bottom layers. Alike: examples that the whole model in "
        "32 bits answers alike.",
        ("submodel", "bits", "accuracy, %", "log-likelihood", "alike, %"),
        [
            Line(
                f"{row['layers']} x {row['slices']}",
                (
                    number(row["bits"], 0),
                    number(100 * row["accuracy"], 1),
                    signed(row["log_likelihood"], 3),
                    _percent(row["agreement"]),
                ),
                small=row["study"],
            )
            for row in rows
        ],
    )


_HEADS = ("way", "device", "deadline", "n x m", "bits", "held, MB", "ms", "stall, ms", "reads, ms", "accuracy, %", "alike, %")


def grid(rows: Rows) -> dict[str, Any]:
    """Every way under every deadline."""
    note = "Deadline: in ms, and of the whole model’s computation. Bits: mean over shards. Late: beyond its deadline."
    return table("grid", "Every way under every deadline", note, _HEADS, map(_point, rows), folded=len(rows) > MOST_SHOWN)


def sizes(rows: Rows) -> dict[str, Any]:
    """STI with buffers of many sizes."""
    note = "Plans with other buffers, all else the same."
    return table("sizes", "Sizes of the preload buffer", note, _HEADS, map(_point, rows), folded=len(rows) > MOST_SHOWN)


def _point(row: Mapping[str, Any]) -> Line:
    late = "late" if row["misses"] else ""
    return Line(
        method_label(row["method"], row["preload_share"], f"{significant(row['preload_mb'], 3)} MB"),
        (
            row["device"],
            Figure(number(row["deadline_ms"], 1), f"{number(100 * row['deadline_share'], 1)} %"),
            f"{row['layers']} x {row['slices']}" if row["layers"] else "none",
            "" if row["mean_bits"] is None else number(row["mean_bits"], 1),
            significant(row["held_mb"], 3),
            Figure(number(row["latency_ms"], 1), late),
            number(row["stall_ms"], 1),
            number(row["io_busy_ms"], 1),
            _percent(row["accuracy"]),
            _percent(row["agreement"]),
        ),
        small=row["study"],
    )


def greedy(rows: Rows) -> dict[str, Any]:
    """The planner beside the exact one."""
    return table(
        "greedy",
        "The planner beside the exact one, small cases",
        "Both keep the timeline; the exact one maximises importance-weighted fidelity over all plans of the same submodel.",
        ("case", "device", "deadline, ms", "buffer, kB", "planner", "exact", "gap, %"),
        [
            Line(
                f"{row['layers']} x {row['slices']}",
                (
                    row["device"],
                    number(1e3 * row["deadline_s"], 1),
                    number(row["preload_bytes"] / 1e3, 1),
                    significant(row["greedy"], 4),
                    significant(row["exact"], 4),
                    number(100 * row["gap"], 2),
                ),
                small=row["study"],
            )
            for row in rows
        ],
        folded=len(rows) > MOST_SHOWN,
    )


def devices(rows: Rows) -> dict[str, Any]:
    """The costs that plans were made by."""
    return table(
        "devices",
        "The costs that plans were made by",
        "Skew: reading a whole layer in 32 bits over computing it; the paper’s Arm board has 3.57. Ends: embedding and head, 0 "
        "where nothing tells them.",
        (
            "device",
            "kind",
            "layer computed, ms",
            "a quarter of it, ms",
            "ends, ms",
            "shard read, ms",
            "skew",
            "buffer, %",
            "from",
        ),
        [
            Line(
                row["device"],
                (
                    Figure("", kind=row["kind"]),
                    significant(row["layer_ms"], 3),
                    significant(row["quarter_ms"], 3),
                    significant(row["embed_ms"] + row["head_ms"], 3),
                    Figure(significant(row["io_ms"]["2"], 3), f"{significant(row['io_ms']['32'], 3)} in 32 bits"),
                    number(row["skew"], 2),
                    number(100 * row["preload_share"], 2),
                    Figure(row["said"], words=True),
                ),
                small=row["study"],
            )
            for row in rows
        ],
    )


def runs(rows: Rows) -> dict[str, Any]:
    """How and when."""
    return table(
        "runs",
        "How it was measured",
        "Others: CPUs that others used when it began. Evaluations: submodels that answered every example.",
        ("part", "date", "s", "evaluations", "threads", "others", "machine"),
        [
            Line(
                row["part"],
                (
                    row["date"][:16].replace("T", " "),
                    number(row["seconds"], 0),
                    number(row["evaluations"], 0),
                    number(row["threads"], 0),
                    "" if row["others_cpus"] is None else number(row["others_cpus"], 1),
                    Figure(row["machine"] + ("; quick" if row["quick"] else ""), words=True),
                ),
                small=row["study"],
            )
            for row in rows
        ],
    )


def method_label(method: str, share: float | None, size: str) -> str:
    """A way of running the model with its buffer, where it may have one; `size` tells how large a buffer of `share` is."""
    if share is None:
        return method
    return f"{method}, buffer of {size}" if share else f"{method}, no buffer"


def _percent(share: float | None) -> str:
    return "" if share is None else number(100 * share, 1)
