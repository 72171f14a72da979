"""What follows from the paper's printed figures, and the claims that they decide without a device (STI-05, 20 to 23)."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from simnmt.papers.kit.claims import Claim, Printed, Result, of_paper
from simnmt.papers.kit.paper import read_paper
from simnmt.profile.streaming_cost import BERT_BASE, BITS
from simnmt.report.table import Table
from simnmt.report.typography import number
from simnmt.streaming.plan.presets import LAYER_COMP_S, LAYER_LOAD_S, OUTLIERS, PRELOAD_BYTES
from simnmt.streaming.plan.timeline import Work, load_then_run, timeline

PAPER = read_paper("sti")
GAINS = PAPER.table("printed-gains")
BASELINES: list[str] = GAINS.column("method")
BOARDS = {"Odroid": "odroid", "Jetson": "jetson"}
MB = 1e6
LAYERS, HEADS = BERT_BASE.layers, BERT_BASE.heads
LAYER_MB = BERT_BASE.float32_bytes_per_layer / MB
MODEL_MB = LAYERS * LAYER_MB
"""All layers of BERT's base size in float32, embeddings left out."""
INDEX_MB = {bits: BERT_BASE.index_bytes(bits) / MB for bits in BITS}
"""Indices of one shard."""
SIX_BITS_MB = LAYERS * HEADS * INDEX_MB[6]
LOW_MB = LAYERS * HEADS * sum(INDEX_MB[bits] for bits in BITS[:-1])
"""Indices of the five low versions."""
OUTLIERS_MB = OUTLIERS * LAYERS * BERT_BASE.weights_per_layer * len(BITS[:-1]) / MB
"""Outliers of the five low versions, in millions."""
STALLED = 100 * (LAYER_LOAD_S - LAYER_COMP_S) / LAYER_LOAD_S
"""Percentage of a layer's load during which the computation waits."""
_DISTIL = [LAYER_LOAD_S] * PAPER["distil_layers"], Work([LAYER_COMP_S] * PAPER["distil_layers"])
PIPELINE, LOADED_FIRST = timeline(*_DISTIL), load_then_run(*_DISTIL)
"""Six layers of DistilBERT, each loaded whole while the one before is computed, and loaded first (STI-21)."""
IDLE = 100 * (1.0 - PAPER["distil_layers"] * LAYER_COMP_S / PIPELINE.latency_s)
"""Percentage of the pipeline's time in which nothing is computed."""


def memory_ratio(model_mb: float) -> float:
    """Return a model's size over the preload buffer's, mean over both boards (STI-23)."""
    return fmean(MB * model_mb / size for size in PRELOAD_BYTES.values())


def mean_gain(*baselines: str) -> float:
    """Return the mean of the printed gains over these baselines (by default all) on both boards."""
    return fmean(GAINS[name, board] for board in BOARDS.values() for name in baselines or BASELINES)


ALL_GAIN, FULL_GAIN, LOW_GAIN = mean_gain(), mean_gain("StdPL-32"), mean_gain("StdPL-2", "StdPL-6")
MEAN_GAIN = fmean([ALL_GAIN, PAPER["preload_gain"]])
LEAST_GAIN = min(GAINS[name, board] for board in BOARDS.values() for name in BASELINES)
FULL_RATIO, SIX_BITS_RATIO = memory_ratio(MODEL_MB), memory_ratio(SIX_BITS_MB)
INTRODUCTION = f"{PAPER['intro_gains'][0]:g} to {PAPER['intro_gains'][1]:g}"


def _rounds(value: float, printed: float, decimals: int) -> bool:
    """Return True if the value rounds to the printed one, or was cut off there."""
    return abs(value - printed) <= 0.5 * 10.0**-decimals + 1e-9


def _claim(identifier: str, supports: bool, ours: str, why: str) -> Claim[Printed]:
    return Claim(identifier, value=lambda _: Result(supports, ours, why))


PRINTED_CLAIMS: list[Claim[Printed]] = of_paper(
    PAPER,
    [
        _claim(
            "STI-21 (a)",
            100 * PAPER["stalled"] < IDLE,
            f"{IDLE:.1f} % of the {1e3 * PIPELINE.latency_s:.0f} ms of six layers, which is judged; loaded first, they take "
            f"{1e3 * LOADED_FIRST.latency_s:.0f} ms",
            "our timeline over 339 ms of loading and 95 ms of computation a layer, for DistilBERT’s six layers; the printed 72 "
            f"is probably the stall of one layer, (339 - 95) / 339 = {STALLED:.2f} %, rounded",
        ),
        _claim(
            "STI-22 (g)",
            _rounds(ALL_GAIN, PAPER["demand_gain"], 0)
            and _rounds(FULL_GAIN, PAPER["full_gain"], 1)
            and _rounds(LOW_GAIN, PAPER["low_gain"], 1)
            and _rounds(MEAN_GAIN, PAPER["mean_gain"], 1),
            f"{ALL_GAIN:.2f}; {FULL_GAIN:.2f}; {LOW_GAIN:.2f}; {MEAN_GAIN:.2f}",
            "the last as the mean of both groups, those on demand and PreloadModel",
        ),
        _claim(
            "STI-22 (h)",
            PAPER["intro_gains"][0] - 0.05 <= LEAST_GAIN,
            f"means from {LEAST_GAIN:.2f} on",
            "the least mean printed, over StdPL-6 on Jetson; single cells are in Table 5, which is lost",
        ),
        _claim(
            "STI-23 (a)",
            _rounds(FULL_RATIO, PAPER["memory_full"], 0),
            f"{FULL_RATIO:.1f} times",
            "all layers in float32 over the buffer, mean of both boards",
        ),
        _claim(
            "STI-23 (b)",
            _rounds(SIX_BITS_RATIO, PAPER["memory_6"], 0),
            f"{SIX_BITS_RATIO:.1f} times",
            f"indices of 6 bits, {SIX_BITS_MB:.1f} MB; 41 implies 68 MB, more than dictionary and outliers add",
        ),
        _claim(
            "STI-05",
            LOW_MB <= PAPER["store_mb"] <= LOW_MB + 8 * OUTLIERS_MB,
            f"{LOW_MB:.1f} MB of indices; {LOW_MB + 4 * OUTLIERS_MB:.1f} to {LOW_MB + 8 * OUTLIERS_MB:.1f} with outliers",
            "0.15 % outliers, as their value alone or with their place",
        ),
    ],
)

_OUTLIERS, _MATRICES = "0.15 % of the weights", "4 matrices of width x width and 2 of width x 4 width (STI-01)"
DERIVED = [
    ("weights of a layer", BERT_BASE.weights_per_layer, "", "", _MATRICES),
    ("weights of a shard", BERT_BASE.weights_per_shard, "", "", "one head and its twelfth of the feed-forward"),
    ("shard, 2 bits", INDEX_MB[2], "MB", "", "indices alone"),
    ("shard, 6 bits", INDEX_MB[6], "MB", "", "indices alone"),
    ("three shards, 2 bits", 3 * INDEX_MB[2], "MB", "0.4 MB of a buffer (Table 7’s text)", ""),
    ("three shards, 6 bits", 3 * INDEX_MB[6], "MB", "1 MB holds a first layer", ""),
    ("twelve shards, 2 bits", HEADS * INDEX_MB[2], "MB", "5 MB holds a first layer", ""),
    ("twelve shards, 6 bits", HEADS * INDEX_MB[6], "MB", "5 MB holds a first layer", ""),
    ("layer, 32 bits", LAYER_MB, "MB", "", ""),
    ("six layers, 32 bits", 6 * LAYER_MB, "MB", "170 MB of DistilBERT", ""),
    ("twelve layers, 32 bits", MODEL_MB, "MB", "418, as MiB of a model with embeddings", ""),
    ("five low versions", LOW_MB, "MB", "215 MB", "indices alone"),
    ("the same with outliers, value alone", LOW_MB + 4 * OUTLIERS_MB, "MB", "215 MB", _OUTLIERS),
    ("the same with outliers, value and place", LOW_MB + 8 * OUTLIERS_MB, "MB", "215 MB", _OUTLIERS),
    ("rate of reading a layer", LAYER_MB / LAYER_LOAD_S, "MB/s", "", "28.3 MB in 339 ms"),
    ("rate of reading DistilBERT", PAPER["distil_mb"] / PAPER["distil_load_s"], "MB/s", "", "170 MB in 2.1 s"),
    ("rate of reading its file", PAPER["file_mb"] / PAPER["file_load_s"], "MB/s", "", "240 MB in 3.1 s"),
    ("load over computation of a layer", LAYER_LOAD_S / LAYER_COMP_S, "", "", "the skew that pipelines meet"),
    ("a layer’s stall", STALLED, "%", "more than 72 %", ""),
    ("pipeline of six layers", 1e3 * PIPELINE.latency_s, "ms", "", "our timeline (STI-12)"),
    ("its idle computation", IDLE, "%", "more than 72 %", ""),
    ("load, then run", 1e3 * LOADED_FIRST.latency_s, "ms", "", ""),
    ("mean gain over loading on demand", ALL_GAIN, "points", f"{PAPER['demand_gain']:g}", "all eight printed"),
    ("mean gain over StdPL-full", FULL_GAIN, "points", f"{PAPER['full_gain']:g}", ""),
    ("mean gain over StdPL-2 and StdPL-6", LOW_GAIN, "points", f"{PAPER['low_gain']:g}", ""),
    ("mean gain over all baselines", MEAN_GAIN, "points", f"{PAPER['mean_gain']:g}", "on demand and PreloadModel"),
    ("smallest mean gain over a pipeline", LEAST_GAIN, "points", f"{INTRODUCTION} in the introduction", ""),
    ("memory against PreloadModel-full", FULL_RATIO, "times", f"{PAPER['memory_full']:g}", "1 and 5 MB, mean"),
    ("memory against PreloadModel-6", SIX_BITS_RATIO, "times", f"{PAPER['memory_6']:g}", "63.7 MB of indices"),
    ("size that 41 times implies", PAPER["memory_6"] / memory_ratio(1.0), "MB", "", ""),
    ("mean of both printed", fmean([PAPER["memory_full"], PAPER["memory_6"]]), "times", f"{PAPER['mean_memory']:g}", ""),
]
"""Figures that follow from printed ones: what, value, unit, what the text says, and the basis."""


def _shown_value(row: Mapping[str, Any]) -> float | str:
    return number(row["value"], 0) if row["value"] >= 1e4 else row["value"]


def derived_table() -> Table:
    """Return the figures that follow from the printed ones."""
    rows = [dict(zip(("what", "value", "unit", "said", "meaning"), row, strict=True)) for row in DERIVED]
    return PAPER.shown_table("derived", rows, shown_value=_shown_value)
