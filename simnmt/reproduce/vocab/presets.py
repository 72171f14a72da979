"""The paper's two models by their shapes: how many parameters, and what clusters hold beside them (FVP-12, 13, 18)."""

from __future__ import annotations

from dataclasses import dataclass
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
    heads: int
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
    "dense": Preset(24, 12, 1024, 4096, 16, 250_000, 1, 1, "0.7 billion in the text"),
    "m3": Preset(24, 12, 1024, 4096, 16, 128_000, 32, 2, "5 billion in the text; experts in every second layer"),
}


def preset_account(model: Model, clusters: int, mean_share: float) -> MemoryAccount:
    """What clusters hold beside a preset, in float16, columns as 32-bit indices (FVP-12); `mean_share`: of V, of a set."""
    # Here, so that the published tables need no more than their digits.
    from simnmt.nmt.vocabulary.memory_account import memory_account

    own = PRESETS[model]
    return memory_account(own.vocab, own.width, clusters, mean_share, HALF_BYTES, model_bytes=own.model_bytes)
