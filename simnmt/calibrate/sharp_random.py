"""Random weights of the paper's models (SHARP-15, SHARP-16)."""

from __future__ import annotations

from collections.abc import Iterable

from simnmt.kernels.sharp import SharpWeights
from simnmt.kernels.sharp.operations import DecoderShape
from simnmt.kernels.sharp.random_models import RandomModels
from simnmt.nmt.sharp_architecture import SHARP_MODELS, AttentionalArchitecture


def random_weights(names: Iterable[str], vocab: int | None = None, seed: int = 1) -> dict[str, SharpWeights]:
    """Target sides of `SHARP_MODELS` by name, their large tables shared; `vocab`: another vocabulary than theirs."""
    models, found = RandomModels(seed), dict[str, SharpWeights]()
    for name in names:
        architecture = SHARP_MODELS[name]
        words = vocab or architecture.tgt_vocab
        found[name] = models.of(_shape(architecture, words), words, architecture.attention)
    return found


def _shape(architecture: AttentionalArchitecture, words: int) -> DecoderShape:
    return DecoderShape(
        "attgru" if architecture.cell == "gru" else "attlstm",
        architecture.hidden,
        architecture.embedding,
        2 * architecture.source_hidden,
        architecture.compared,
        tuple((layer.kind, layer.width) for layer in architecture.layers),
        words,
    )
