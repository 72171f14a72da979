"""Small attentional decoders with weights drawn at random, spread enough that beams have something to choose."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import torch

from simnmt.calibrate.sharp_speeds import random_model
from simnmt.kernels.sharp_model import Cell, Float32, Kind, SharpTokens, SharpWeights
from simnmt.nmt import sharp_translator
from simnmt.nmt.architecture import AttentionalArchitecture, StackBlock
from simnmt.nmt.attentional_model import AttentionalModel

TOKENS = SharpTokens(start=2, eos=3, pad=0)


def model(seed: int, **sizes: object) -> AttentionalModel:
    """A model with biases, so that each of them counts."""
    made = random_model(AttentionalArchitecture.model_validate({"kind": "attentional", **sizes}), seed)
    with torch.no_grad():
        for bias in (weight for name, weight in made.named_parameters() if "bias" in name):
            bias.normal_(0.0, 0.3)
    return made


def target_model(
    seed: int = 0,
    *,
    kind: Cell = "gru",
    additive: bool = False,
    r: int = 37,
    e: int = 21,
    s: int = 30,
    a: int = 19,
    vocab: int = 67,
    stack: Sequence[tuple[Kind, int]] = (),
) -> AttentionalModel:
    """A model of which the target side counts."""
    blocks = [StackBlock(kind=kind, width=width, layers=len([*layers])) for (kind, width), layers in groupby(stack)]
    sizes = {"cell": kind, "hidden": r, "embedding": e, "attention_width": a, "stack": blocks, "tgt_vocab": vocab}
    source = {"source_layers": 1, "source_hidden": s // 2, "src_vocab": vocab}
    return model(seed, attention="additive" if additive else "dot_of_tanh", **sizes, **source)


def weights(seed: int = 0, **sizes: object) -> SharpWeights:
    return sharp_translator.sharp_weights(target_model(seed, **sizes))


def source(seed: int = 0, src_len: int = 7, s: int = 30) -> Float32:
    return np.tanh(np.random.default_rng(1000 + seed).normal(0, 1, (src_len, s))).astype(np.float32)


def source_model(
    seed: int = 0, *, kind: Cell = "gru", layers: int = 2, w: int = 19, e: int = 21, vocab: int = 50
) -> AttentionalModel:
    sizes = {"source_cell": kind, "source_layers": layers, "source_hidden": w, "src_vocab": vocab}
    return model(seed, hidden=8, embedding=e, tgt_vocab=vocab, **sizes)
