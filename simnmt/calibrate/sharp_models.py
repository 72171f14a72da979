"""The sharp models of the paper: their multiply-adds by layer (SHARP-13), and random weights and sentences of their sizes.

Times depend on the sizes and, with merged states, on the number of distinct states (SHARP-09): random weights are drawn so that
the beam of a random model branches as often as the beam of the paper.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import nn

from simnmt.base.random_streams import stream
from simnmt.kernels.beam_search import Ints
from simnmt.kernels.sharp_model import GATES, Kind
from simnmt.nmt.architecture import SHARP_MODELS, AttentionalArchitecture
from simnmt.nmt.attentional_model import AttentionalModel
from simnmt.nmt.models import build_model
from simnmt.profile.decoder_settings import FREQUENT_WORDS, DecoderSettings

KEPT_SHARES = {"computed": 0.0, "precomputed": 1.0, "frequent": 0.95}
"""Share of a text's words whose products are kept (SHARP-06).

The paper attributes 95 % with 8,000 of 80,000 words to Zipf's law. Its plain form gives 80.6 %; 95 % needs an exponent of
1.227.
"""
ACTIVATIONS: dict[Kind, int] = {"gru": 3, "lstm": 5, "fc_tanh": 1, "fc_relu": 0}
"""Activations of a layer per element of its width."""


def layer_operations(kind: Kind, width: int, below: int) -> int:
    """Return the multiply-adds of a layer of the stack.

    At equal widths a GRU takes 6 times and an LSTM 8 times those of a fully connected layer (SHARP-13).
    """
    return GATES[kind] * width * (below + (width if kind in ("gru", "lstm") else 0))


def operations(
    model: AttentionalArchitecture, settings: DecoderSettings, src_len: int, words: int, distinct_share: float = 1.0
) -> dict[str, float]:
    """Count the multiply-adds of one hypothesis in one step, by part, and `once` a sentence before its first step.

    `words`: words that the output layer scores; `distinct_share`: share of distinct states in the beam, if they are merged
    (SHARP-09). Kept products of embeddings take none (SHARP-06).
    """
    gates, compared, source = GATES[model.cell] * model.hidden, model.compared, 2 * model.source_hidden
    kept = settings.attention == "precomputed"
    below = [model.hidden, *(layer.width for layer in model.layers)]
    return {
        "recurrent": (gates + compared) * model.hidden * (distinct_share if settings.merge else 1.0),
        "embedding": (gates + compared) * model.embedding * (1.0 - KEPT_SHARES[settings.embeddings]),
        "context": 0.0 if kept else gates * source,
        "attention": src_len * (compared + (gates if kept else source)),
        "stack": sum(
            layer_operations(layer.kind, layer.width, width) for layer, width in zip(model.layers, below, strict=False)
        ),
        "output": words * below[-1],
        "once": src_len * source * (compared + (gates if kept else 0)),
    }


def operations_per_word(
    model: AttentionalArchitecture,
    settings: DecoderSettings,
    *,
    src_len: int,
    tgt_len: int,
    words: int,
    members: int = 1,
    distinct_share: float = 1.0,
) -> dict[str, float]:
    """Count the operations per word of an ensemble of equal models; see `SharpSpeeds.counts`."""
    counted = operations(model, settings, src_len, words, distinct_share)
    once, attention = counted.pop("once"), counted.pop("attention")
    width, rows = model.source_hidden, GATES[model.source_cell] * model.source_hidden
    above = model.source_layers - 1
    source_input = src_len * 2 * rows * (model.embedding * (1.0 - KEPT_SHARES[settings.embeddings]) + above * 2 * width)
    recurrent = members * (src_len - 1) * 2 * rows * width * model.source_layers / tgt_len
    products = members * (settings.beam * sum(counted.values()) + (once + source_input) / tgt_len)
    layers: list[tuple[Kind, int]] = [(model.cell, model.hidden), *((layer.kind, layer.width) for layer in model.layers)]
    compared = model.compared * (src_len if model.attention == "additive" else 1)
    activations = settings.beam * (compared + sum(ACTIVATIONS[kind] * size for kind, size in layers))
    source_activations = model.source_layers * 2 * ACTIVATIONS[model.source_cell] * width * src_len / tgt_len
    return {
        "products": products,
        "source_recurrent": recurrent,
        "attention": members * settings.beam * attention,
        "multiply_adds": products + recurrent + members * settings.beam * attention,
        "activations": members * (activations + source_activations),
    }


WORD_REACH, OUTPUT_REACH = 2.0, 8.0
"""Factors of the spread of a word's input to the states, and of the logits; products have a spread of 1.

With both factors at 1, half of a beam's states are distinct. With these it is 0.70 of 6, as in the paper (SHARP-09), in
sentences of 25 to 28 words with the bottom cell alone (0.68 to 0.74); layers above it lead some searches into loops and give
0.5 to 0.9.
"""


def random_models(names: Iterable[str], vocab: int | None = None) -> dict[str, AttentionalModel]:
    """Build models of `SHARP_MODELS` by name, which share equal tables and source sides; `vocab` replaces theirs."""
    sizes = {} if vocab is None else {"src_vocab": vocab, "tgt_vocab": vocab}
    models: dict[str, AttentionalModel] = {}
    for name in names:
        model = random_model(SHARP_MODELS[name].model_copy(update=sizes))
        for other in models.values():
            for part in ("src_embedding", "tgt_embedding", "projection", "encoder"):
                if repr(getattr(other, part)) == repr(getattr(model, part)):
                    setattr(model, part, getattr(other, part))
        models[name] = model
    return models


@torch.no_grad()
def random_model(architecture: AttentionalArchitecture, seed: int = 1) -> AttentionalModel:
    """Build a model whose products have variance 1, scaled by `WORD_REACH` and `OUTPUT_REACH`, with weights in [-1, 1].

    Embeddings are uniform in [-1, 1], biases 0.
    """
    model = build_model(architecture, seed=seed).eval()
    assert isinstance(model, AttentionalModel)
    for module in model.modules():
        for weight in module.parameters(recurse=False):
            weight.mul_(1.0 if isinstance(module, nn.Embedding) else 3.0**0.5)
    model.bottom.feed.weight[model.bottom.compared :].mul_(WORD_REACH)
    model.projection.weight.mul_(OUTPUT_REACH)
    for weight in model.parameters():
        weight.clamp_(-1.0, 1.0)
    return model


def random_candidates(model: AttentionalModel, count: int) -> Ints:
    """Draw different words, the end token among them, in ascending order."""
    words = _drawn(stream(1, 0, "sharp sentence"), model.vocab, count - 1, replace=False)
    return np.sort(np.concatenate([[model.eos_token], words])).astype(np.int64)


def random_words(model: AttentionalModel, src_len: int, seed: int) -> Ints:
    """Draw a source sentence of `src_len` words with the end token."""
    words = _drawn(stream(seed, 0, "sharp source"), model.architecture.src_vocab, src_len - 1, replace=True)
    return np.concatenate([words, [model.eos_token]]).astype(np.int64)


def _drawn(generator: np.random.Generator, vocab: int, count: int, *, replace: bool) -> Ints:
    """Draw words in a random order, `KEPT_SHARES["frequent"]` of which are among the first `FREQUENT_WORDS`."""
    frequent = min(FREQUENT_WORDS, vocab)
    rare = min(round((1.0 - KEPT_SHARES["frequent"]) * count), vocab - frequent)
    words = generator.choice(np.arange(4, frequent), count - rare, replace)
    others = frequent + generator.choice(vocab - frequent, rare, replace) if rare else np.empty(0, np.int64)
    return generator.permutation(np.concatenate([words, others]))
