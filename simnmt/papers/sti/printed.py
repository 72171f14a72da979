"""What follows from the paper's printed figures, and the claims that they decide without a device (STI-05, 20 to 23)."""

from __future__ import annotations

from statistics import fmean

from simnmt.papers.kit.claims import Bound, Claim, Printed, Result, above, at_least, between, of_paper
from simnmt.papers.kit.paper import read_paper
from simnmt.papers.kit.rendering import Derived
from simnmt.profile.streaming_block import BERT_BASE, BITS
from simnmt.streaming.plan.plan_summary import LAYER_COMP_S, LAYER_LOAD_S, OUTLIERS, PRELOAD_BYTES
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
_OUTLIERS_MB = OUTLIERS * LAYERS * BERT_BASE.weights_per_layer * len(BITS[:-1]) / MB
STORE_MB = (LOW_MB + 4 * _OUTLIERS_MB, LOW_MB + 8 * _OUTLIERS_MB)
"""The same with outliers as their value alone, or with their place."""
_DISTIL = [LAYER_LOAD_S] * PAPER["distil_layers"], Work([LAYER_COMP_S] * PAPER["distil_layers"])
PIPELINE, LOADED_FIRST = timeline(*_DISTIL), load_then_run(*_DISTIL)
"""Six layers of DistilBERT, each loaded whole while the one before is computed, and loaded first (STI-21)."""


def memory_ratio(model_mb: float) -> float:
    """Return a model's size over the preload buffer's, mean over both boards (STI-23)."""
    return fmean(MB * model_mb / size for size in PRELOAD_BYTES.values())


def mean_gain(*baselines: str) -> float:
    """Return the mean of the printed gains over these baselines (by default all) on both boards."""
    return fmean(GAINS[name, board] for board in BOARDS.values() for name in baselines or BASELINES)


_OUTLIERS = "0.15 % of the weights; printed 215"
DERIVED = [
    Derived(
        "weights of a layer", BERT_BASE.weights_per_layer, "", "4 matrices of width x width, 2 of width x 4 width (STI-01)"
    ),
    Derived("weights of a shard", BERT_BASE.weights_per_shard, "", "one head and its twelfth of the feed-forward"),
    Derived("three shards, 2 bits", 3 * INDEX_MB[2], "MB", "indices; 0.4 MB of a buffer by the text"),
    Derived("three shards, 6 bits", 3 * INDEX_MB[6], "MB", "1 MB is said to hold a first layer"),
    Derived("twelve shards, 2 bits", HEADS * INDEX_MB[2], "MB", "5 MB is said to hold a first layer"),
    Derived("twelve shards, 6 bits", HEADS * INDEX_MB[6], "MB", "5 MB is said to hold a first layer"),
    Derived("six layers, 32 bits", 6 * LAYER_MB, "MB", "170 of DistilBERT"),
    Derived("twelve layers, 32 bits", MODEL_MB, "MB", "printed 418, as MiB of a model with embeddings"),
    Derived("five low versions", LOW_MB, "MB", "indices alone; printed 215"),
    Derived("the same with outliers, value alone", STORE_MB[0], "MB", _OUTLIERS),
    Derived("the same with outliers, value and place", STORE_MB[1], "MB", _OUTLIERS),
    Derived("rate of reading a layer", LAYER_MB / LAYER_LOAD_S, "MB/s", "28.3 MB in 339 ms"),
    Derived("rate of reading DistilBERT", PAPER["distil_mb"] / PAPER["distil_load_s"], "MB/s", "170 MB in 2.1 s"),
    Derived("rate of reading its file", PAPER["file_mb"] / PAPER["file_load_s"], "MB/s", "240 MB in 3.1 s"),
    Derived("load over computation of a layer", LAYER_LOAD_S / LAYER_COMP_S, "", "339 over 95 ms"),
    Derived("a layer’s stall", 100 * (LAYER_LOAD_S - LAYER_COMP_S) / LAYER_LOAD_S, "%", "printed: more than 72"),
    Derived("pipeline of six layers", 1e3 * PIPELINE.latency_s, "ms", "our timeline (STI-12)"),
    Derived("its idle computation", 100 * (1 - 6 * LAYER_COMP_S / PIPELINE.latency_s), "%", "printed: more than 72"),
    Derived("load, then run", 1e3 * LOADED_FIRST.latency_s, "ms", ""),
    Derived("mean gain over loading on demand", mean_gain(), "points", "all eight printed; 14 in the text"),
    Derived("mean gain over StdPL-full", mean_gain("StdPL-32"), "points", "19.9 in the text"),
    Derived("mean gain over StdPL-2 and StdPL-6", mean_gain("StdPL-2", "StdPL-6"), "points", "8.2 in the text"),
    Derived("mean gain over all baselines", fmean([mean_gain(), PAPER["preload_gain"]]), "points", "7.1 in the text"),
    Derived(
        "smallest mean gain over a pipeline",
        min(GAINS[name, board] for board in BOARDS.values() for name in BASELINES),
        "points",
        "5.9 to 54.1 in the introduction",
    ),
    Derived("memory against PreloadModel-full", memory_ratio(MODEL_MB), "times", "1 and 5 MB, mean; 204 in the text"),
    Derived("memory against PreloadModel-6", memory_ratio(SIX_BITS_MB), "times", "63.7 MB of indices; 41 in the text"),
    Derived("size that 41 times implies", PAPER["memory_6"] / memory_ratio(1.0), "MB", "63.7 by the shapes"),
    Derived("mean of both printed", fmean([PAPER["memory_full"], PAPER["memory_6"]]), "times", "122 in the text"),
]
VALUES = {figure.what: figure.value for figure in DERIVED}


_MEANS = {
    "mean gain over loading on demand": ("demand_gain", 0),
    "mean gain over StdPL-full": ("full_gain", 1),
    "mean gain over StdPL-2 and StdPL-6": ("low_gain", 1),
    "mean gain over all baselines": ("mean_gain", 1),
}
"""Names and decimals of the printed means."""


def _claim(identifier: str, what: str, holds: Bound, form: str = ".1f") -> Claim[Printed]:
    return Claim(identifier, value=lambda _: VALUES[what], holds=holds, form=form)


def _rounds_to(printed: float) -> Bound:
    return between(printed - 0.5, printed + 0.5)


PRINTED_CLAIMS: list[Claim[Printed]] = of_paper(
    PAPER,
    [
        _claim("STI-21 (a)", "its idle computation", above(100 * PAPER["stalled"])),
        Claim(
            "STI-22 (g)",
            value=lambda _: Result(
                all(round(VALUES[what], decimals) == PAPER[printed] for what, (printed, decimals) in _MEANS.items()),
                "; ".join(f"{VALUES[what]:.2f}" for what in _MEANS),
                "the last as the mean of both groups, those on demand and PreloadModel",
            ),
        ),
        _claim("STI-22 (h)", "smallest mean gain over a pipeline", at_least(PAPER["intro_gains"][0] - 0.05), ".2f"),
        _claim("STI-23 (a)", "memory against PreloadModel-full", _rounds_to(PAPER["memory_full"])),
        _claim("STI-23 (b)", "memory against PreloadModel-6", _rounds_to(PAPER["memory_6"])),
        Claim(
            "STI-05",
            value=lambda _: Result(
                LOW_MB <= PAPER["store_mb"] <= STORE_MB[1],
                f"{LOW_MB:.1f} MB of indices; {STORE_MB[0]:.1f} to {STORE_MB[1]:.1f} with outliers",
            ),
        ),
    ],
)
