"""Random weights of the paper's models, of which times depend on the shapes alone (SHARP-15, SHARP-16)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.sharp import Attention, BottomCell, SharpTokens, SharpWeights, StackLayer
from simnmt.kernels.sharp.weights import GATES, Float32
from simnmt.nmt.sharp_architecture import SHARP_MODELS, AttentionalArchitecture
from simnmt.streams import stream

_Draw = Callable[..., Float32]

TOKENS = SharpTokens(start=1, eos=0, unk=2, pad=3)
RECURRENT = ("gru", "lstm")


def random_weights(names: Iterable[str], vocab: int | None = None, seed: int = 1) -> dict[str, SharpWeights]:
    """Target sides of `SHARP_MODELS` by name, their large tables shared; `vocab`: another vocabulary than theirs.

    Of the size that training keeps weights in: uniform, of variance 1 / inputs, within [-1, 1].
    """
    generator = stream(seed, 0, "sharp weights")
    tables: dict[tuple[int, int], Float32] = {}

    def uniform(*shape: int) -> Float32:
        found: Float32 = generator.random(shape, np.float32)
        return (found - np.float32(0.5)) * np.float32(2.0 * (3.0 / shape[-1]) ** 0.5)

    def table(rows: int, width: int) -> Float32:
        if (rows, width) not in tables:
            tables[rows, width] = uniform(rows, width)
        return tables[rows, width]

    return {name: _weights(SHARP_MODELS[name], vocab or SHARP_MODELS[name].tgt_vocab, uniform, table) for name in names}


def _weights(architecture: AttentionalArchitecture, vocab: int, uniform: _Draw, table: _Draw) -> SharpWeights:
    r, e, a, s = architecture.hidden, architecture.embedding, architecture.compared, 2 * architecture.source_hidden
    kind: Literal["attgru", "attlstm"] = "attgru" if architecture.cell == "gru" else "attlstm"
    rows = GATES[kind] * r
    score = uniform(a) if architecture.attention == "additive" else None
    attention = Attention(architecture.attention, uniform(a, r), uniform(a, e), uniform(a, s), score)
    bottom = BottomCell(kind, uniform(rows, r), uniform(rows, e), uniform(rows, s), np.zeros(rows, np.float32), attention)
    stack, below = [], r
    for layer in architecture.layers:
        wide = GATES[layer.kind] * layer.width
        recurrent = layer.kind in RECURRENT
        own = uniform(wide, layer.width) if recurrent else None
        stack.append(StackLayer(layer.kind, uniform(wide, below), own, np.zeros(wide, np.float32) if recurrent else None))
        below = layer.width
    return SharpWeights(table(vocab, e), bottom, tuple(stack), table(vocab, below), np.zeros(vocab, np.float32), TOKENS)


def random_sentence(
    weights: SharpWeights, src_len: int, candidates: int, covered: float, frequent: int, seed: int = 1
) -> tuple[Float32, NDArray[np.int64]]:
    """(source states [src_len, s] within [-1, 1], candidates ascending), the end token among these.

    `covered`: share of the candidates among the `frequent` first words, as the paper's cache of embeddings covers tokens.
    """
    generator = stream(seed, 0, "sharp sentence")
    states = generator.random((src_len, weights.source_width), np.float32) * np.float32(1.8) - np.float32(0.9)
    frequent = min(frequent, weights.vocab)
    rare = min(round((1.0 - covered) * candidates), weights.vocab - frequent)
    words = generator.choice(np.arange(4, frequent), candidates - rare - 1, replace=False)
    others = frequent + generator.choice(weights.vocab - frequent, rare, replace=False)
    return states, np.sort(np.concatenate([[TOKENS.eos], words, others]).astype(np.int64))
