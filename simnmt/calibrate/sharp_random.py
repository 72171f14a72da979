"""Random weights of the paper's models, source and target side (SHARP-15, SHARP-16)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from simnmt.kernels.sharp import SharpWeights, SourceWeights
from simnmt.kernels.sharp.operations import DecoderShape
from simnmt.kernels.sharp.random_models import RandomModels
from simnmt.nmt.sharp_architecture import SHARP_MODELS, AttentionalArchitecture


@dataclass(frozen=True, slots=True)
class RandomModel:
    """Both sides of one model."""

    source: SourceWeights
    target: SharpWeights


def random_weights(names: Iterable[str], vocab: int | None = None, seed: int = 1) -> dict[str, RandomModel]:
    """Models of `SHARP_MODELS` by name; large tables and equal source sides are shared. `vocab`: another than theirs."""
    models, drawn, sources = RandomModels(seed), dict[str, RandomModel](), dict[tuple[object, ...], SourceWeights]()
    for name in names:
        architecture = SHARP_MODELS[name]
        words, src_words = vocab or architecture.tgt_vocab, vocab or architecture.src_vocab
        target = models.of(_shape(architecture, words), words, architecture.attention)
        sizes = (
            architecture.source_cell,
            architecture.source_layers,
            architecture.source_hidden,
            architecture.embedding,
            src_words,
        )
        if sizes not in sources:
            sources[sizes] = models.source_of(*sizes)
        drawn[name] = RandomModel(sources[sizes], target)
    return drawn


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
