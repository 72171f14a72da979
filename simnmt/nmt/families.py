"""The families of Transformers of `transformers`: all in which one differs from another, an entry each. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Family:
    """How a kind of architecture is built, read and stepped."""

    model_type: str
    """Its name in config.json, by which `transformers` builds it."""
    norm_first: bool
    """Whether layer norm comes before each block, not after it; then the last layer is followed by one."""
    positions: Callable[[Any], Any]
    """Return the vectors of the positions from 0, given the module of the positions."""
    scales_embedding: bool = False
    """Whether the decoder scales vectors of tokens; else its `embed_tokens` does."""
    norms_embedding: bool = False
    """Whether a further layer norm follows the embeddings."""
    multilingual: bool = True
    """Whether a target begins with the token of its language."""
    unk_token: int = 3
    """The token of unknown words, which no configuration names."""
    usual_start: str = "pad_token_id"
    """Key of the token that starts the decoder where the configuration names none."""
    tokenizer_files: tuple[str, ...] = ("tokenizer.json or sentencepiece.bpe.model",)
    """Files without which its tokeniser cannot be read."""


FAMILIES = {
    "transformer": Family(
        "marian",
        norm_first=False,
        positions=lambda module: module.weight,
        scales_embedding=True,
        multilingual=False,
        unk_token=1,
        tokenizer_files=("source.spm", "target.spm", "vocab.json"),
    ),
    "m2m100": Family("m2m_100", norm_first=True, positions=lambda module: module.weights[module.padding_idx + 1 :]),
    "mbart": Family(
        "mbart",
        norm_first=True,
        positions=lambda module: module.weight[module.offset :],
        norms_embedding=True,
        usual_start="eos_token_id",  # mBART-50 leaves it to its generation_config.json
    ),
}
"""By the kind of the architecture: Marian, M2M100 and NLLB, mBART. A new family is one entry."""

CONFIG_KEYS = {
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "d_model": "d_model",
    "heads": "encoder_attention_heads",
    "ffn": "encoder_ffn_dim",
    "vocab": "vocab_size",
    "max_positions": "max_position_embeddings",
    "activation": "activation_function",
    "scale_embedding": "scale_embedding",
    "pad_token": "pad_token_id",
    "eos_token": "eos_token_id",
    "start_token": "decoder_start_token_id",
}
"""The key in config.json of each field of an architecture, in every family."""
