"""Figures that follow from the paper's printed ones, and the claims that they decide without a device (STI-05, 20 to 23)."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from simnmt.papers.kit.claim import UNKNOWN, ClaimRecord, printed_claim
from simnmt.papers.sti import published
from simnmt.profile.streaming_cost import BERT_BASE, BITS
from simnmt.streaming.plan.timeline import Work, load_then_run, timeline

MB = 1e6
LAYERS, HEADS = BERT_BASE.layers, BERT_BASE.heads
MODEL_MB = LAYERS * BERT_BASE.float32_bytes_per_layer / MB
"""All layers of BERT's base size in float32, embeddings left out."""
SIX_BITS_MB = LAYERS * HEADS * BERT_BASE.index_bytes(6) / MB
LOW_MB = LAYERS * HEADS * sum(map(BERT_BASE.index_bytes, BITS[:-1])) / MB
"""Indices of the five low versions."""
OUTLIERS_MB = published.OUTLIERS * LAYERS * BERT_BASE.weights_per_layer * len(BITS[:-1]) / MB
"""Outliers of the five low versions, in millions."""
LOAD_S, COMP_S = published.LAYER_LOAD_S, published.LAYER_COMP_S
STALLED = 100 * (LOAD_S - COMP_S) / LOAD_S
"""Percentage of a layer's load during which the computation waits."""
_DISTIL = [LOAD_S] * published.DISTIL_LAYERS, Work([COMP_S] * published.DISTIL_LAYERS)
PIPELINE, LOADED_FIRST = timeline(*_DISTIL), load_then_run(*_DISTIL)
"""Six layers of DistilBERT, each loaded whole while the one before is computed, and loaded first (STI-21)."""
IDLE = 100 * (1.0 - published.DISTIL_LAYERS * COMP_S / PIPELINE.latency_s)
"""Percentage of the pipeline's time in which nothing is computed."""


def memory_ratio(model_mb: float) -> float:
    """Return a model's size over the preload buffer's, mean over both boards (STI-23)."""
    return fmean(MB * model_mb / size for size in published.PRELOAD_BYTES.values())


def mean_gain(*baselines: str) -> float:
    """Return the mean of the printed gains over these baselines (by default all) on both boards."""
    return fmean(gains[name] for gains in published.GAINS.values() for name in baselines or gains)


ALL_GAIN, FULL_GAIN, LOW_GAIN = mean_gain(), mean_gain("StdPL-32"), mean_gain("StdPL-2", "StdPL-6")
MEAN_GAIN = fmean([ALL_GAIN, published.PRELOAD_GAIN])
LEAST_GAIN = min(min(gains.values()) for gains in published.GAINS.values())


INDEX_MB = {bits: BERT_BASE.index_bytes(bits) / MB for bits in BITS}
"""Indices of one shard."""
LAYER_MB = BERT_BASE.float32_bytes_per_layer / MB
FULL_RATIO, SIX_BITS_RATIO = memory_ratio(MODEL_MB), memory_ratio(SIX_BITS_MB)
FULL_PRINTED, SIX_BITS_PRINTED = (f"{published.MEMORY[method]:g}" for method in ("PreloadModel-32", "PreloadModel-6"))
INTRODUCTION = f"{published.INTRO_GAINS[0]:g} to {published.INTRO_GAINS[1]:g}"


@dataclass(frozen=True, slots=True)
class Derived:
    """A figure that follows from printed ones."""

    what: str
    value: float
    unit: str
    printed: str
    """In the text."""
    meaning: str = ""


DERIVED = [
    Derived(
        "weights of a layer",
        BERT_BASE.weights_per_layer,
        "",
        "",
        "4 matrices of width x width and 2 of width x 4 width (STI-01)",
    ),
    Derived("weights of a shard", BERT_BASE.weights_per_shard, "", "", "one head and its twelfth of the feed-forward"),
    Derived("shard, 2 bits", INDEX_MB[2], "MB", "", "indices alone"),
    Derived("shard, 6 bits", INDEX_MB[6], "MB", "", "indices alone"),
    Derived("three shards, 2 bits", 3 * INDEX_MB[2], "MB", "0.4 MB of a buffer (Table 7’s text)"),
    Derived("three shards, 6 bits", 3 * INDEX_MB[6], "MB", "1 MB holds a first layer"),
    Derived("twelve shards, 2 bits", HEADS * INDEX_MB[2], "MB", "5 MB holds a first layer"),
    Derived("twelve shards, 6 bits", HEADS * INDEX_MB[6], "MB", "5 MB holds a first layer"),
    Derived("layer, 32 bits", LAYER_MB, "MB", ""),
    Derived("six layers, 32 bits", 6 * LAYER_MB, "MB", "170 MB of DistilBERT"),
    Derived("twelve layers, 32 bits", MODEL_MB, "MB", "418, as MiB of a model with embeddings"),
    Derived("five low versions", LOW_MB, "MB", "215 MB", "indices alone"),
    Derived("the same with outliers, value alone", LOW_MB + 4 * OUTLIERS_MB, "MB", "215 MB", "0.15 % of the weights"),
    Derived("the same with outliers, value and place", LOW_MB + 8 * OUTLIERS_MB, "MB", "215 MB", "0.15 %"),
    Derived("rate of reading a layer", LAYER_MB / LOAD_S, "MB/s", "", "28.3 MB in 339 ms"),
    Derived("rate of reading DistilBERT", published.DISTIL_MB / published.DISTIL_LOAD_S, "MB/s", "", "170 MB in 2.1 s"),
    Derived("rate of reading its file", published.FILE_MB / published.FILE_LOAD_S, "MB/s", "", "240 MB in 3.1 s"),
    Derived("load over computation of a layer", LOAD_S / COMP_S, "", "", "the skew that pipelines meet"),
    Derived("a layer’s stall", STALLED, "%", "more than 72 %"),
    Derived("pipeline of six layers", 1e3 * PIPELINE.latency_s, "ms", "", "our timeline (STI-12)"),
    Derived("its idle computation", IDLE, "%", "more than 72 %"),
    Derived("load, then run", 1e3 * LOADED_FIRST.latency_s, "ms", ""),
    Derived("mean gain over loading on demand", ALL_GAIN, "points", f"{published.DEMAND_GAIN:g}", "all eight printed"),
    Derived("mean gain over StdPL-full", FULL_GAIN, "points", f"{published.FULL_GAIN:g}"),
    Derived("mean gain over StdPL-2 and StdPL-6", LOW_GAIN, "points", f"{published.LOW_GAIN:g}"),
    Derived("mean gain over all baselines", MEAN_GAIN, "points", f"{published.MEAN_GAIN:g}", "on demand and PreloadModel"),
    Derived("smallest mean gain over a pipeline", LEAST_GAIN, "points", f"{INTRODUCTION} in the introduction"),
    Derived("memory against PreloadModel-full", FULL_RATIO, "times", FULL_PRINTED, "1 and 5 MB, mean"),
    Derived("memory against PreloadModel-6", SIX_BITS_RATIO, "times", SIX_BITS_PRINTED, "63.7 MB of indices"),
    Derived("size that 41 times implies", published.MEMORY["PreloadModel-6"] / memory_ratio(1.0), "MB", ""),
    Derived("mean of both printed", fmean(published.MEMORY.values()), "times", f"{published.MEAN_MEMORY:g}"),
]


def _rounds(value: float, printed: float, decimals: int) -> bool:
    """Return True if the value rounds to the printed one, or was cut off there."""
    return abs(value - printed) <= 0.5 * 10.0**-decimals + 1e-9


PAPER_CLAIMS = [
    printed_claim(
        "STI-21 (a)",
        "Loading a layer while the one before is computed leaves the processor idle for more than 72 % of the time",
        "more than 72 %",
        f"{IDLE:.1f} % of the {1e3 * PIPELINE.latency_s:.0f} ms of six layers, which is judged; loaded first, they take "
        f"{1e3 * LOADED_FIRST.latency_s:.0f} ms",
        IDLE > 100 * published.STALLED,
        "our timeline over 339 ms of loading and 95 ms of computation a layer, for DistilBERT’s six layers; the printed 72 is "
        f"probably the stall of one layer, (339 - 95) / 339 = {STALLED:.2f} %, rounded",
    ),
    printed_claim(
        "STI-22 (g)",
        "The mean gains follow from the eight that are printed",
        f"{published.DEMAND_GAIN:g} on demand, {published.FULL_GAIN:g} over StdPL-full, {published.LOW_GAIN:g} over "
        f"StdPL-2 and 6, {published.MEAN_GAIN:g} over all",
        f"{ALL_GAIN:.2f}; {FULL_GAIN:.2f}; {LOW_GAIN:.2f}; {MEAN_GAIN:.2f}",
        _rounds(ALL_GAIN, published.DEMAND_GAIN, 0)
        and _rounds(FULL_GAIN, published.FULL_GAIN, 1)
        and _rounds(LOW_GAIN, published.LOW_GAIN, 1)
        and _rounds(MEAN_GAIN, published.MEAN_GAIN, 1),
        "the last as the mean of both groups, those on demand and PreloadModel",
    ),
    printed_claim(
        "STI-22 (h)",
        f"STI gains {INTRODUCTION} points over pipelines",
        INTRODUCTION,
        f"means from {LEAST_GAIN:.2f} on",
        published.INTRO_GAINS[0] - 0.05 <= LEAST_GAIN,
        "the least mean printed, over StdPL-6 on Jetson; single cells are in Table 5, which is lost",
    ),
    printed_claim(
        "STI-23 (a)",
        "A buffer of 1 MB, or 5 MB, is 204 times less than the whole model in memory",
        f"{FULL_PRINTED} times",
        f"{FULL_RATIO:.1f} times",
        _rounds(FULL_RATIO, published.MEMORY["PreloadModel-32"], 0),
        "all layers in float32 over the buffer, mean of both boards",
    ),
    printed_claim(
        "STI-23 (b)",
        "The same is 41 times less than the whole model at 6 bits",
        f"{SIX_BITS_PRINTED} times",
        f"{SIX_BITS_RATIO:.1f} times",
        _rounds(SIX_BITS_RATIO, published.MEMORY["PreloadModel-6"], 0),
        f"indices of 6 bits, {SIX_BITS_MB:.1f} MB; 41 implies 68 MB, more than dictionary and outliers add",
    ),
    printed_claim(
        "STI-05",
        "Five low versions take 215 MB",
        f"{published.STORE_MB:g} MB",
        f"{LOW_MB:.1f} MB of indices; {LOW_MB + 4 * OUTLIERS_MB:.1f} to {LOW_MB + 8 * OUTLIERS_MB:.1f} with outliers",
        LOW_MB <= published.STORE_MB <= LOW_MB + 8 * OUTLIERS_MB,
        "0.15 % outliers, as their value alone or with their place",
    ),
    ClaimRecord(
        "STI-22 (i)",
        "STI reaches DistilBERT’s accuracy on GLUE",
        "comparable to gold",
        "",
        UNKNOWN,
        "needs DistilBERT and DynaBERT fine-tuned to GLUE; a trained classifier of ours stands for them: STI-22 (a) to (f)",
        basis="published",
    ),
]
"""Every claim that printed figures decide, and those that no measurement here can decide."""
