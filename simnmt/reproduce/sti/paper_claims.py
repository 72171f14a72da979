"""What the paper's printed figures say of its own sentences; no device needed (STI-05, 21 to 23)."""

from __future__ import annotations

from simnmt.costs.shard_geometry import BERT_BASE
from simnmt.reproduce.sti import published
from simnmt.reproduce.sti.derived import (
    HEADS,
    LAYERS,
    LOW_BITS,
    MB,
    MODEL_BYTES,
    SIX_BITS_BYTES,
    load_then_run_s,
    mean_gain,
    memory_ratio,
    motivating_pipeline,
)
from simnmt.reproduce.verdicts import UNKNOWN, Records, record_of


def paper_claims() -> Records:
    """Every sentence that printed figures decide, and those that nothing here can."""
    return [*_motivation(), *_gains(), *_memory(), *_beyond()]


def _motivation() -> Records:
    pipeline, load, comp = motivating_pipeline(), published.LAYER_LOAD_S, published.LAYER_COMP_S
    idle = 1.0 - published.DISTIL_LAYERS * comp / pipeline.latency_s
    return [
        record_of(
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
    least = min(min(own.values()) for own in published.GAINS.values())
    return [
        record_of(
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
        record_of(
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
        record_of(
            "STI-23 (a)",
            "A buffer of 1 MB, or 5 MB, is 204 times less than the whole model in memory",
            f"{printed['PreloadModel-32']:g} times",
            f"{full:.1f} times",
            _rounds(full, printed["PreloadModel-32"], 0),
            "all layers in float32 over the buffer, mean of both boards",
            basis="published",
        ),
        record_of(
            "STI-23 (b)",
            "The same is 41 times less than the whole model at 6 bits",
            f"{printed['PreloadModel-6']:g} times",
            f"{six:.1f} times",
            _rounds(six, printed["PreloadModel-6"], 0),
            f"indices of 6 bits, {SIX_BITS_BYTES / MB:.1f} MB; 41 implies 68 MB, more than dictionary and outliers add",
            basis="published",
        ),
        record_of(
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
        record_of(
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
