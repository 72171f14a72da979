"""Build or load a model: by name, from an architecture file, a checkpoint folder, or a Hugging Face Marian folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from logging import CRITICAL
from pathlib import Path
from typing import Any, Literal, cast

import torch
from transformers import AutoConfig, MarianConfig, MarianMTModel
from transformers.utils import logging

from simnmt.base.errors import describe_error
from simnmt.base.files import check_model_folder
from simnmt.base.suggestions import did_you_mean
from simnmt.nmt.architecture import (
    ARCHITECTURES,
    Architecture,
    AttentionalArchitecture,
    RecurrentArchitecture,
    TransformerArchitecture,
    architecture_of,
    read_architecture,
)
from simnmt.nmt.attentional_model import AttentionalModel
from simnmt.nmt.checkpoint import ARCHITECTURE_FILE, load_weights
from simnmt.nmt.errors import NmtError, OutOfMemory, within_memory
from simnmt.nmt.marian_model import MarianModel
from simnmt.nmt.recurrent_model import RecurrentModel

_FOLDER = "name a folder of MarianMTModel with config.json and weights"
_HAS_SDPA: bool = getattr(MarianMTModel, "_supports_sdpa", False)
WEIGHTS_ONLY_HOLDS = torch.__version__ >= "2.6"
"""Earlier versions could run code of a pickle that is read as weights only (CVE-2025-32434)."""


def load_hf(folder: str | os.PathLike[str]) -> MarianModel:
    """Load a Hugging Face Marian folder, with weights in safetensors or weights-only form, without running code in it.

    Raises `NmtError` and `OutOfMemory`.
    """
    try:
        check_model_folder(Path(folder))
    except OSError as error:
        raise NmtError(f"cannot be read: {error.strerror}", path=error.filename or folder, remedy=_FOLDER) from None
    try:
        with quiet_transformers():
            # Without `trust_remote_code=False` the user is asked whether to run the folder's code.
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
    with quiet_transformers():
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
def quiet_transformers() -> Iterator[None]:
    """Suppress progress bars and advice of `transformers` until the block ends; these settings are global."""
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


TranslationModel = RecurrentModel | MarianModel | AttentionalModel
"""Every kind of model; each is a `StepModel`."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model, ready to decode, and its origin."""

    name: str
    """The name or path from which it was loaded."""
    model: TranslationModel
    architecture: Architecture
    weights: Literal["random", "checkpoint"]


def build_model(architecture: Architecture, *, seed: int = 0, dropout: float = 0.0) -> TranslationModel:
    """Build a model in training mode with random float32 weights drawn from `seed`, on the CPU.

    The global random generator is not changed.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if isinstance(architecture, RecurrentArchitecture):
            return RecurrentModel(architecture, dropout)
        if isinstance(architecture, AttentionalArchitecture):
            return AttentionalModel(architecture, dropout)
        return MarianModel(architecture, dropout=dropout)


def load_model(model: str, *, seed: int = 0) -> LoadedModel:
    """Load a model by name, architecture file, own checkpoint folder or Hugging Face Marian folder; raises `NmtError`.

    Names and architecture files get random weights drawn from `seed`.
    """
    path = Path(model)
    if model not in ARCHITECTURES and path.is_dir():
        if (path / ARCHITECTURE_FILE).is_file():
            architecture = read_architecture(path / ARCHITECTURE_FILE)
            trained = build_model(architecture)
            load_weights(path, trained)
            return LoadedModel(model, trained.eval(), architecture, "checkpoint")
        if (path / "config.json").is_file():
            marian = load_hf(path)
            return LoadedModel(model, marian, marian.architecture, "checkpoint")
        raise NmtError(f"holds neither {ARCHITECTURE_FILE} nor config.json", path=path, remedy="name a model's folder")
    if model not in ARCHITECTURES and not path.exists():
        known = f"known: {', '.join(ARCHITECTURES)}, or a file or folder that exists"
        raise NmtError(f"no model called {model}", remedy=did_you_mean(model, ARCHITECTURES, known))
    architecture = ARCHITECTURES[model] if model in ARCHITECTURES else read_architecture(path)
    return LoadedModel(model, build_model(architecture, seed=seed).eval(), architecture, "random")
