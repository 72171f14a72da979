"""What follows from the paper's printed figures, and the claims that they decide without a device (STI-05, 20 to 23)."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from simnmt.papers.kit.claim import UNKNOWN, Records, claim_record
from simnmt.papers.sti import published
from simnmt.profile.streaming_cost import BERT_BASE, BITS
from simnmt.streaming.plan.timeline import Timeline, timeline

MB = 1e6
LOW_BITS = tuple(bits for bits in BITS if bits != 32)
LAYERS, HEADS = BERT_BASE.layers, BERT_BASE.heads
MODEL_BYTES = LAYERS * BERT_BASE.float32_bytes_per_layer
"""Of all layers of BERT's base size in float32, embeddings left out."""
SIX_BITS_BYTES = LAYERS * HEADS * BERT_BASE.index_bytes(6)


def motivating_pipeline() -> Timeline:
    """Six layers of DistilBERT, each loaded whole while the one before is computed (STI-21)."""
    layers = published.DISTIL_LAYERS
    return timeline([published.LAYER_LOAD_S] * layers, [published.LAYER_COMP_S] * layers)


def load_then_run_s() -> float:
    """The same one after the other."""
    return published.DISTIL_LAYERS * (published.LAYER_LOAD_S + published.LAYER_COMP_S)


def memory_ratio(model_bytes: float) -> float:
    """A model's bytes over the preload buffer's, mean over both boards (STI-23)."""
    return fmean(model_bytes / size for size in published.PRELOAD_BYTES.values())


def mean_gain(*baselines: str) -> float:
    """Of the gains printed, over both boards."""
    return fmean(gains[name] for gains in published.GAINS.values() for name in baselines or gains)


@dataclass(frozen=True, slots=True)
class Derived:
    """One figure that follows from printed ones."""

    what: str
    value: float
    unit: str
    said: str
    """By the text."""
    meaning: str = ""


def derived() -> list[Derived]:
    """Sizes by the shapes, the motivating pipeline, means of gains, memory."""
    return [*_sizes(), *_derived_motivation(), *_derived_gains(), *_derived_memory()]


def _sizes() -> list[Derived]:
    layer, shard = BERT_BASE.weights_per_layer, BERT_BASE.weights_per_shard
    low = sum(LAYERS * HEADS * BERT_BASE.index_bytes(bits) for bits in LOW_BITS)
    outliers = 0.0015 * LAYERS * layer * len(LOW_BITS)
    return [
        Derived("weights of a layer", layer, "", "", "4 matrices of width x width and 2 of width x 4 width (STI-01)"),
        Derived("weights of a shard", shard, "", "", "one head and its twelfth of the feed-forward"),
        Derived("shard, 2 bits", BERT_BASE.index_bytes(2) / MB, "MB", "", "indices alone"),
        Derived("shard, 6 bits", BERT_BASE.index_bytes(6) / MB, "MB", "", "indices alone"),
        Derived("three shards, 2 bits", 3 * BERT_BASE.index_bytes(2) / MB, "MB", "0.4 MB of a buffer (Table 7’s text)"),
        Derived("three shards, 6 bits", 3 * BERT_BASE.index_bytes(6) / MB, "MB", "1 MB holds a first layer"),
        Derived("twelve shards, 2 bits", HEADS * BERT_BASE.index_bytes(2) / MB, "MB", "5 MB holds a first layer"),
        Derived("twelve shards, 6 bits", HEADS * BERT_BASE.index_bytes(6) / MB, "MB", "5 MB holds a first layer"),
        Derived("layer, 32 bits", BERT_BASE.float32_bytes_per_layer / MB, "MB", ""),
        Derived("six layers, 32 bits", 6 * BERT_BASE.float32_bytes_per_layer / MB, "MB", "170 MB of DistilBERT"),
        Derived("twelve layers, 32 bits", MODEL_BYTES / MB, "MB", "418, as MiB of a model with embeddings"),
        Derived("five low versions", low / MB, "MB", "215 MB", "indices alone"),
        Derived("the same with outliers, value alone", (low + 4 * outliers) / MB, "MB", "215 MB", "0.15 % of the weights"),
        Derived("the same with outliers, value and place", (low + 8 * outliers) / MB, "MB", "215 MB", "0.15 %"),
    ]


def _derived_motivation() -> list[Derived]:
    pipeline = motivating_pipeline()
    load, comp = published.LAYER_LOAD_S, published.LAYER_COMP_S
    latency_s = pipeline.latency_s
    idle = 1.0 - published.DISTIL_LAYERS * comp / latency_s
    return [
        Derived("rate of reading a layer", BERT_BASE.float32_bytes_per_layer / MB / load, "MB/s", "", "28.3 MB in 339 ms"),
        Derived("rate of reading DistilBERT", published.DISTIL_MB / published.DISTIL_LOAD_S, "MB/s", "", "170 MB in 2.1 s"),
        Derived("rate of reading its file", published.FILE_MB / published.FILE_LOAD_S, "MB/s", "", "240 MB in 3.1 s"),
        Derived("load over computation of a layer", load / comp, "", "", "the skew that pipelines meet"),
        Derived("a layer’s stall", 100 * (load - comp) / load, "%", "more than 72 %"),
        Derived("pipeline of six layers", 1e3 * latency_s, "ms", "", "our timeline (STI-12)"),
        Derived("its idle computation", 100 * idle, "%", "more than 72 %"),
        Derived("load, then run", 1e3 * load_then_run_s(), "ms", ""),
    ]


def _derived_gains() -> list[Derived]:
    all_of, full, low = mean_gain(), mean_gain("StdPL-32"), mean_gain("StdPL-2", "StdPL-6")
    both = fmean([all_of, published.PRELOAD_GAIN])
    return [
        Derived("mean gain over loading on demand", all_of, "points", f"{published.DEMAND_GAIN:g}", "all eight printed"),
        Derived("mean gain over StdPL-full", full, "points", f"{published.FULL_GAIN:g}"),
        Derived("mean gain over StdPL-2 and StdPL-6", low, "points", f"{published.LOW_GAIN:g}"),
        Derived("mean gain over all baselines", both, "points", f"{published.MEAN_GAIN:g}", "on demand and PreloadModel"),
        Derived("smallest mean gain over a pipeline", min(min(gains.values()) for gains in published.GAINS.values()), "points",
                f"{published.INTRO_GAINS[0]:g} to {published.INTRO_GAINS[1]:g} in the introduction"),
    ]  # fmt: skip


def _derived_memory() -> list[Derived]:
    full, six = memory_ratio(MODEL_BYTES), memory_ratio(SIX_BITS_BYTES)
    printed = published.MEMORY
    implied = printed["PreloadModel-6"] / memory_ratio(1.0)
    return [
        Derived("memory against PreloadModel-full", full, "times", f"{printed['PreloadModel-32']:g}", "1 and 5 MB, mean"),
        Derived("memory against PreloadModel-6", six, "times", f"{printed['PreloadModel-6']:g}", "63.7 MB of indices"),
        Derived("size that 41 times implies", implied / MB, "MB", ""),
        Derived("mean of both printed", fmean(printed.values()), "times", f"{published.MEAN_MEMORY:g}"),
    ]


def paper_claims() -> Records:
    """Every sentence that printed figures decide, and those that nothing here can."""
    return [*_motivation(), *_gains(), *_memory(), *_beyond()]


def _motivation() -> Records:
    pipeline, load, comp = motivating_pipeline(), published.LAYER_LOAD_S, published.LAYER_COMP_S
    idle = 1.0 - published.DISTIL_LAYERS * comp / pipeline.latency_s
    return [
        claim_record(
            "STI-21 (a)",
            "Loading a layer while the one before is computed leaves the processor idle for more than 72 % of the time",
            "more than 72 %",
            f"{100 * (load - comp) / load:.2f} % of a layer; {100 * idle:.1f} % of six: {1e3 * pipeline.latency_s:.0f} ms, one "
            f"after the other {1e3 * load_then_run_s():.0f} ms",
            idle > published.STALLED,
            "our timeline over 339 ms of loading and 95 ms of computation a layer; 71.98 % rounds to the printed 72",
            basis="published",
        )
    ]  # fmt: skip


def _gains() -> Records:
    all_of, full, low = mean_gain(), mean_gain("StdPL-32"), mean_gain("StdPL-2", "StdPL-6")
    both = (all_of + published.PRELOAD_GAIN) / 2
    least = min(min(gains.values()) for gains in published.GAINS.values())
    return [
        claim_record(
            "STI-22 (g)",
            "The mean gains follow from the eight that are printed",
            f"{published.DEMAND_GAIN:g} on demand, {published.FULL_GAIN:g} over StdPL-full, {published.LOW_GAIN:g} over "
            f"StdPL-2 and 6, {published.MEAN_GAIN:g} over all",
            f"{all_of:.2f}; {full:.2f}; {low:.2f}; {both:.2f}",
            _rounds(all_of, published.DEMAND_GAIN, 0)
            and _rounds(full, published.FULL_GAIN, 1)
            and _rounds(low, published.LOW_GAIN, 1)
            and _rounds(both, published.MEAN_GAIN, 1),
            "the last as the mean of both groups, those on demand and PreloadModel",
            basis="published",
        ),
        claim_record(
            "STI-22 (h)",
            "STI gains 5.9 to 54.1 points over pipelines",
            "5.9 to 54.1",
            f"means from {least:.2f} on",
            least >= published.INTRO_GAINS[0] - 0.05,
            "the least mean printed, over StdPL-6 on Jetson; single cells are in Table 5, which is lost",
            basis="published",
        ),
    ]  # fmt: skip


def _memory() -> Records:
    full, six = memory_ratio(MODEL_BYTES), memory_ratio(SIX_BITS_BYTES)
    printed = published.MEMORY
    low = sum(LAYERS * HEADS * BERT_BASE.index_bytes(bits) for bits in LOW_BITS) / MB
    outliers = 0.0015 * LAYERS * BERT_BASE.weights_per_layer * len(LOW_BITS) / MB
    return [
        claim_record(
            "STI-23 (a)",
            "A buffer of 1 MB, or 5 MB, is 204 times less than the whole model in memory",
            f"{printed['PreloadModel-32']:g} times",
            f"{full:.1f} times",
            _rounds(full, printed["PreloadModel-32"], 0),
            "all layers in float32 over the buffer, mean of both boards",
            basis="published",
        ),
        claim_record(
            "STI-23 (b)",
            "The same is 41 times less than the whole model at 6 bits",
            f"{printed['PreloadModel-6']:g} times",
            f"{six:.1f} times",
            _rounds(six, printed["PreloadModel-6"], 0),
            f"indices of 6 bits, {SIX_BITS_BYTES / MB:.1f} MB; 41 implies 68 MB, more than dictionary and outliers add",
            basis="published",
        ),
        claim_record(
            "STI-05",
            "Five low versions take 215 MB",
            f"{published.STORE_MB:g} MB",
            f"{low:.1f} MB of indices; {low + 4 * outliers:.1f} to {low + 8 * outliers:.1f} with outliers",
            low <= published.STORE_MB <= low + 8 * outliers,
            "0.15 % outliers, as their value alone or with their place",
            basis="published",
        ),
    ]  # fmt: skip


def _beyond() -> Records:
    return [
        claim_record(
            "STI-22 (i)",
            "STI reaches DistilBERT’s accuracy on GLUE",
            "comparable to gold",
            "",
            UNKNOWN,
            "needs DistilBERT and DynaBERT fine-tuned to GLUE; a trained classifier of ours stands for them: STI-22 (a) to (f)",
            basis="published",
        )
    ]


def _rounds(value: float, printed: float, decimals: int) -> bool:
    """Whether it rounds to what is printed, or was cut off there."""
    return abs(value - printed) <= 0.5 * 10.0**-decimals + 1e-9
