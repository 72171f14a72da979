"""Reads a Marian model from a folder as Hugging Face keeps it; never from the network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from logging import CRITICAL
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoConfig, MarianConfig, MarianMTModel
from transformers.utils import logging

from simnmt.errors import describe_error
from simnmt.files import check_model_folder
from simnmt.nmt.architecture import TransformerArchitecture, architecture_of
from simnmt.nmt.errors import NmtError, OutOfMemory
from simnmt.nmt.marian import MarianModel
from simnmt.nmt.memory import within_memory

_FOLDER = "name a folder of MarianMTModel with config.json and weights"
_HAS_SDPA: bool = getattr(MarianMTModel, "_supports_sdpa", False)
WEIGHTS_ONLY_HOLDS = torch.__version__ >= "2.6"
"""Before, reading a pickle as weights only could run code of it (CVE-2025-32434)."""


def load_hf(folder: str | os.PathLike[str]) -> MarianModel:
    """A Hugging Face Marian folder's model, its weights in safetensors or weights-only form; runs no code of the folder.

    Raises `NmtError` and `OutOfMemory`.
    """
    try:
        check_model_folder(Path(folder))
    except OSError as error:
        raise NmtError(f"cannot be read: {error.strerror}", path=error.filename or folder, remedy=_FOLDER) from None
    try:
        with silent():
            # Said in so many words: where it is left open, the user is asked whether to run the folder's code.
            config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise NmtError(f"no Hugging Face configuration: {describe_error(error)}", path=folder, remedy=_FOLDER) from None
    if not isinstance(config, MarianConfig):
        raise NmtError(f"holds a model of type {config.model_type} where marian is read", path=folder, remedy=_FOLDER)
    architecture = _architecture_of(config, folder)
    try:
        loaded = within_memory("cpu", lambda: _weights(folder))
    except OutOfMemory:
        raise
    except Exception as error:  # pickle, zip, safetensors and torch each have their own
        raise NmtError(f"no usable weights: {describe_error(error)}", path=folder, remedy=_FOLDER) from None
    hf, report = loaded
    if lacking := sorted(report["missing_keys"]):
        raise NmtError(f"the weights lack {lacking[0]}", path=folder, remedy=_FOLDER)
    return MarianModel(architecture, hf.float().eval())


def _weights(folder: str | os.PathLike[str]) -> Any:
    with silent():
        return MarianMTModel.from_pretrained(
            folder,
            local_files_only=True,
            weights_only=True,
            use_safetensors=None if WEIGHTS_ONLY_HOLDS else True,
            attn_implementation="sdpa" if _HAS_SDPA else "eager",  # else config.json may name code to be fetched
            output_loading_info=True,
        )


def _architecture_of(config: MarianConfig, folder: str | os.PathLike[str]) -> TransformerArchitecture:
    pairs = {
        "attention heads": (config.encoder_attention_heads, config.decoder_attention_heads),
        "feed-forward width": (config.encoder_ffn_dim, config.decoder_ffn_dim),
        "vocabulary": (config.vocab_size, getattr(config, "decoder_vocab_size", None) or config.vocab_size),
    }
    for name, (encoder, decoder) in pairs.items():
        if encoder != decoder:
            raise NmtError(f"{name}: {encoder} in the encoder, {decoder} in the decoder", path=folder, remedy=_FOLDER)
    return cast(
        TransformerArchitecture,
        architecture_of(
            {
                "kind": "transformer",
                "encoder_layers": config.encoder_layers,
                "decoder_layers": config.decoder_layers,
                "d_model": config.d_model,
                "heads": config.encoder_attention_heads,
                "ffn": config.encoder_ffn_dim,
                "vocab": config.vocab_size,
                "max_positions": config.max_position_embeddings,
                "activation": "swish" if config.activation_function == "silu" else config.activation_function,
                "scale_embedding": config.scale_embedding,
                "pad_token": config.pad_token_id,
                "eos_token": config.eos_token_id,
                "start_token": config.decoder_start_token_id,
            },
            folder,
        ),
    )


@contextmanager
def silent() -> Iterator[None]:
    """No progress bars and no advice from `transformers`, whose settings are the process's: put back at the end."""
    log: Any = logging  # untyped
    bars, verbosity = log.is_progress_bar_enabled(), log.get_verbosity()
    log.disable_progress_bar()
    log.set_verbosity(CRITICAL)
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()
