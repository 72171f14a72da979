"""Memory of clusters beside the paper's two models, by the models' shapes, and the claims about it (FVP-12, 13, 18)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean
from typing import TYPE_CHECKING

from simnmt.papers.fvp import published
from simnmt.papers.fvp.published import FIGURE_3_BEST, FIGURE_4, MODELS, TABLE_5, TYPICAL_CLUSTERS, Model
from simnmt.papers.kit.claim import ClaimRecord, format_span, holds_if

if TYPE_CHECKING:
    from simnmt.nmt.vocabulary.memory_account import MemoryAccount
    from simnmt.papers.fvp.study import Study

HALF_BYTES = 2
"""Bytes of a number in float16."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A transformer's shapes (FVP-13); the embedding is tied: one matrix for both sides and the output layer."""

    encoder_layers: int
    decoder_layers: int
    width: int
    feed_forward: int
    vocab: int
    experts: int
    """Feed-forward blocks of a layer that has several; 1: none has."""
    expert_every: int
    """Number of layers of which one has experts."""
    printed_size: str
    """Number of parameters as the text gives it."""

    @property
    def parameters(self) -> int:
        """Count the weights, biases and norms of all layers, and the embedding."""
        attention = 4 * self.width * (self.width + 1)
        block = self.width * self.feed_forward * 2 + self.feed_forward + self.width
        norm = 2 * self.width
        layers = self.encoder_layers + self.decoder_layers
        sparse = 0 if self.experts == 1 else layers // self.expert_every
        gates = sparse * self.width * self.experts
        blocks = (layers - sparse + sparse * self.experts) * block
        attentions = self.encoder_layers + 2 * self.decoder_layers
        norms = attentions + layers + 2
        return self.vocab * self.width + attentions * attention + blocks + gates + norms * norm

    @property
    def model_bytes(self) -> int:
        """Bytes of the parameters in float16."""
        return HALF_BYTES * self.parameters


PRESETS: dict[Model, Preset] = {
    "dense": Preset(24, 12, 1024, 4096, 250_000, 1, 1, "0.7 billion in the text"),
    "m3": Preset(24, 12, 1024, 4096, 128_000, 32, 2, "5 billion in the text; experts in every second layer"),
}


def preset_account(model: Model, clusters: int, mean_share: float, centroid_bytes: int = HALF_BYTES) -> MemoryAccount:
    """Return the memory of clusters beside a preset in float16, columns as 32-bit indices (FVP-12).

    `mean_share`: mean share of V of a set; `centroid_bytes`: bytes of a number of a centroid, 4 for float32.
    """
    # Here, so that the published tables need no more than their digits.
    from simnmt.nmt.vocabulary.memory_account import memory_account

    preset = PRESETS[model]
    return memory_account(preset.vocab, preset.width, clusters, mean_share, centroid_bytes, model_bytes=preset.model_bytes)


def most_clusters(model: Model, mean_share: float, share_of_model: float, centroid_bytes: int = HALF_BYTES) -> int:
    """Return the largest number of clusters that hold less than a share of the preset's own bytes."""
    # Linear in the number of clusters.
    none, thousand = (preset_account(model, count, mean_share, centroid_bytes).total for count in (0, 1000))
    left = share_of_model * PRESETS[model].model_bytes - none
    return max(0, ceil(1000 * left / (thousand - none)) - 1)


CENTROID_BYTES = {2: "float16", 4: "float32"}
"""Types of centroids by bytes of a number: as the presets run, and as a model in float32 keeps them."""


@dataclass(frozen=True, slots=True)
class PresetMemory:
    """Memory of clusters beside a preset."""

    model: Model
    clusters: int
    mean_share: float
    """Mean share of V in a set."""
    shares_of: str
    """Source of the share: a figure of the paper, or a model of ours."""
    centroid_bytes: int
    account: MemoryAccount

    @property
    def of_model(self) -> float:
        """Share of the weights in float16."""
        return self.account.share or 0.0

    @property
    def of_published(self) -> float:
        """Share of Table 5's memory, which holds more than weights."""
        (gb,) = {row.baseline_gb for row in TABLE_5 if row.model == self.model}
        return self.account.total / (gb * 1e9)


def preset_memory(studies: Sequence[Study] = ()) -> list[PresetMemory]:
    """Return the memory of both presets with the shares of figure 4 and of our sets, at 1,300 and, for K = 1, 2,000 clusters.

    The shares that the paper prints for cluster 0 are taken for all clusters.
    """
    cases = [(clusters, 1, size) for clusters in (FIGURE_3_BEST, TYPICAL_CLUSTERS) for size in CENTROID_BYTES]
    cases += [(FIGURE_3_BEST, top, HALF_BYTES) for top in FIGURE_4 if top != 1]
    shares = [(clusters, FIGURE_4[top] / 100.0, f"figure 4, K = {top}", size) for clusters, top, size in cases]
    shares += [
        (sizes.clusters, fmean(sizes.columns) / study.model.vocab, f"{study.name}, {sizes.label}, K = {sizes.top}", HALF_BYTES)
        for study in studies
        for sizes in study.per_cluster
        if sizes.clusters == FIGURE_3_BEST
    ]
    return [
        PresetMemory(model, clusters, share, origin, size, preset_account(model, clusters, share, size))
        for model in MODELS
        for clusters, share, origin, size in shares
    ]


def memory_claims() -> list[ClaimRecord]:
    """Return the claims on the presets with K = 1 at the best and at the typical number of clusters of the paper."""
    larger = ", ".join(
        f"{100 * memory.of_model:.1f} % ({memory.shares_of})"
        for memory in preset_memory()
        if memory.mean_share > FIGURE_4[1] / 100.0 and memory.model == "dense"
    )
    return [
        _memory_claim("FVP-18 (a)", FIGURE_3_BEST, "its best", f"; ZCode Dense with larger K: {larger}"),
        _memory_claim("FVP-18 (b)", TYPICAL_CLUSTERS, "what it calls typical", ""),
    ]


def _memory_claim(identifier: str, clusters: int, choice: str, more: str) -> ClaimRecord:
    share, most = FIGURE_4[1] / 100.0, published.MOST_MEMORY
    with_one = [memory for memory in preset_memory() if (memory.clusters, memory.mean_share) == (clusters, share)]
    half, single = ([memory for memory in with_one if memory.centroid_bytes == size] for size in CENTROID_BYTES)
    crossed = "; ".join(
        f"{name}: up to {most_clusters(model, share, most, 2):,} clusters with centroids in float16, "
        f"{most_clusters(model, share, most, 4):,} in float32"
        for model, name in MODELS.items()
    )
    why = (
        f"of the weights alone in float16; centroids in float16, as the preset runs; in float32 {_format_memory(single)}; "
        f"of the memory that Table 5 prints {', '.join(f'{100 * memory.of_published:.2f} %' for memory in half)}; the "
        f"paper prints cluster 0's share, about {FIGURE_4[1]:.0f} % of the columns, which is taken for all clusters; below "
        f"{100 * most:.0f} %: {crossed}{more}"
    )
    return ClaimRecord(
        identifier,
        f"{clusters:,} clusters, {choice}, add less than {100 * most:.0f} % to the model's memory",
        f"{format_span([row.more_percent for row in TABLE_5])} %",
        _format_memory(half),
        holds_if(all(memory.of_model < most for memory in half)),
        why,
        basis="inferred",
    )


def _format_memory(memories: Sequence[PresetMemory]) -> str:
    return "; ".join(
        f"{MODELS[memory.model]} {memory.account.total / 1e6:.1f} MB, {100 * memory.of_model:.2f} %" for memory in memories
    )
