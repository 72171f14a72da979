"""The paper's two models by their shapes: how many parameters, and what clusters hold beside them (FVP-12, 13, 18)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from simnmt.reproduce.vocab.published import Model

if TYPE_CHECKING:
    from simnmt.nmt.vocabulary.memory_account import MemoryAccount

HALF_BYTES = 2
"""Of a number in float16."""


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
    """So many layers, one with experts."""
    said: str
    """Its size in the text."""

    @property
    def parameters(self) -> int:
        """Weights, biases and norms of all layers, and the embedding."""
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
        """In float16."""
        return HALF_BYTES * self.parameters


PRESETS: dict[Model, Preset] = {
    "dense": Preset(24, 12, 1024, 4096, 250_000, 1, 1, "0.7 billion in the text"),
    "m3": Preset(24, 12, 1024, 4096, 128_000, 32, 2, "5 billion in the text; experts in every second layer"),
}


def preset_account(model: Model, clusters: int, mean_share: float, centroid_bytes: int = HALF_BYTES) -> MemoryAccount:
    """What clusters hold beside a preset in float16, columns as 32-bit indices (FVP-12); `mean_share`: of V, of a set.

    `centroid_bytes`: of a number of a centroid, 4 where centroids stay in float32 beside a model in float16.
    """
    # Here, so that the published tables need no more than their digits.
    from simnmt.nmt.vocabulary.memory_account import memory_account

    own = PRESETS[model]
    return memory_account(own.vocab, own.width, clusters, mean_share, centroid_bytes, model_bytes=own.model_bytes)


def most_clusters(model: Model, mean_share: float, share_of_model: float, centroid_bytes: int = HALF_BYTES) -> int:
    """The most clusters that hold less than a share of the preset's own bytes."""
    # Linear in the number of clusters.
    none, thousand = (preset_account(model, count, mean_share, centroid_bytes).total for count in (0, 1000))
    left = share_of_model * PRESETS[model].model_bytes - none
    return max(0, ceil(1000 * left / (thousand - none)) - 1)
