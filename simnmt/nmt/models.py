"""Build or load a model: by name, from an architecture file, a checkpoint folder, or a folder or id of Hugging Face."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from logging import CRITICAL
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoConfig, MarianMTModel
from transformers.utils import logging

from simnmt.base.errors import describe_error
from simnmt.base.files import MOST_MODEL_BYTES, check_model_folder, read_bounded
from simnmt.base.suggestions import did_you_mean
from simnmt.nmt.architecture import (
    ARCHITECTURES,
    Architecture,
    AttentionalArchitecture,
    MultilingualArchitecture,
    RecurrentArchitecture,
    T5Architecture,
    architecture_of,
    read_architecture,
)
from simnmt.nmt.attentional_model import AttentionalModel
from simnmt.nmt.checkpoint import ARCHITECTURE_FILE, load_weights
from simnmt.nmt.errors import NmtError, OutOfMemory, within_memory
from simnmt.nmt.hub import model_path
from simnmt.nmt.marian_model import MarianModel, PretrainedModel
from simnmt.nmt.recurrent_model import RecurrentModel

_FOLDER = "name a folder of Marian, M2M100, NLLB, mBART or T5 as transformers saves it, with config.json and weights"
WEIGHTS_ONLY_HOLDS = torch.__version__ >= "2.6"
"""Earlier versions could run code of a pickle that is read as weights only (CVE-2025-32434)."""


@dataclass(frozen=True, slots=True)
class _Family:
    """How a model type of Hugging Face is read."""

    hf_class: Callable[[], Any]
    """Returns the class of `transformers`, imported when it is needed."""
    sizes: Callable[[Any], dict[str, Any]]
    """Returns the architecture's keys of a configuration."""
    model: Callable[[Any, Any], PretrainedModel]
    """Makes the step model of an architecture and a loaded model."""


def load_hf(folder: str | os.PathLike[str]) -> PretrainedModel:
    """Load a Hugging Face folder, with weights in safetensors or weights-only form, without running code in it.

    Raises `NmtError` and `OutOfMemory`.
    """
    architecture, family = _architecture_in(folder)
    if not any((Path(folder) / name).exists() for name in _WEIGHT_FILES):
        what, remedy = f"no usable weights: neither {_WEIGHT_FILES[0]} nor {_WEIGHT_FILES[2]}", _FOLDER
        if any(Path(folder).glob("*.onnx")):
            what, remedy = "only holds weights for ONNX Runtime", "give --backend onnxruntime"
        raise NmtError(what, path=folder, remedy=remedy)
    try:
        loaded = within_memory("cpu", lambda: _weights(folder, family.hf_class()))
    except OutOfMemory:
        raise
    except Exception as error:  # pickle, zip, safetensors and torch each have their own
        raise NmtError(f"no usable weights: {describe_error(error)}", path=folder, remedy=_FOLDER) from None
    hf, report = loaded
    if lacking := sorted(report["missing_keys"]):
        raise NmtError(f"the weights lack {lacking[0]}", path=folder, remedy=_FOLDER)
    return family.model(architecture, hf.float().eval())


def hf_architecture(folder: str | os.PathLike[str]) -> Architecture:
    """Return the architecture of a Hugging Face folder from its config.json. Raises `NmtError`."""
    return _architecture_in(folder)[0]


_WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def _architecture_in(folder: str | os.PathLike[str]) -> tuple[Architecture, _Family]:
    try:
        check_model_folder(Path(folder))
    except OSError as error:
        raise NmtError(f"cannot be read: {error.strerror}", path=error.filename or folder, remedy=_FOLDER) from None
    refuse_code(folder, "config.json")
    try:
        with quiet_transformers():
            # Without `trust_remote_code=False` the user is asked whether to run the folder's code.
            config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise NmtError(f"no Hugging Face configuration: {describe_error(error)}", path=folder, remedy=_FOLDER) from None
    if (family := _FAMILIES.get(config.model_type)) is None:
        known = ", ".join(_FAMILIES)
        raise NmtError(f"holds a model of type {config.model_type} where one of {known} is read", path=folder, remedy=_FOLDER)
    sizes = family.sizes(config)
    for name, (encoder, decoder) in sizes.pop("equal").items():
        if encoder != decoder:
            raise NmtError(f"{name}: {encoder} in the encoder, {decoder} in the decoder", path=folder, remedy=_FOLDER)
    return architecture_of(sizes | _special_tokens(config), folder), family


def refuse_code(folder: str | os.PathLike[str], name: str) -> None:
    """Raise `NmtError` if a JSON file of a folder names Python code to be run, which is never done.

    A file that is missing or no JSON is left to its reader.
    """
    try:
        content = json.loads(read_bounded(Path(folder) / name, MOST_MODEL_BYTES))
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(content, dict) and content.get("auto_map"):
        what = f"{name} names Python code to be run (auto_map), which is never done"
        raise NmtError(what, path=folder, remedy="give a model that transformers itself implements")


def _weights(folder: str | os.PathLike[str], hf_class: Any) -> Any:
    sdpa = getattr(hf_class, "_supports_sdpa", False)
    with quiet_transformers():
        return hf_class.from_pretrained(
            folder,
            local_files_only=True,
            weights_only=True,
            use_safetensors=None if WEIGHTS_ONLY_HOLDS else True,
            attn_implementation="sdpa" if sdpa else "eager",  # else config.json may name code to be fetched
            output_loading_info=True,
        )


def _special_tokens(config: Any) -> dict[str, int]:
    start = config.decoder_start_token_id
    if start is None:  # mBART-50 leaves it to its generation_config.json
        start = config.eos_token_id if config.model_type == "mbart" else config.pad_token_id
    tokens = {"pad_token": config.pad_token_id, "eos_token": config.eos_token_id, "start_token": start}
    return tokens | ({} if config.model_type == "marian" else {"unk_token": 3 if config.model_type != "t5" else 2})


def _bart_sizes(config: Any) -> dict[str, Any]:
    """Return the keys that configurations of Marian, M2M100 and mBART share."""
    return {
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "d_model": config.d_model,
        "heads": config.encoder_attention_heads,
        "ffn": config.encoder_ffn_dim,
        "vocab": config.vocab_size,
        "max_positions": config.max_position_embeddings,
        "activation": "swish" if config.activation_function == "silu" else config.activation_function,
        "scale_embedding": config.scale_embedding,
        "equal": {
            "attention heads": (config.encoder_attention_heads, config.decoder_attention_heads),
            "feed-forward width": (config.encoder_ffn_dim, config.decoder_ffn_dim),
            "vocabulary": (config.vocab_size, getattr(config, "decoder_vocab_size", None) or config.vocab_size),
        },
    }


def _t5_sizes(config: Any) -> dict[str, Any]:
    scaled = config.model_type == "t5" and getattr(config, "scale_decoder_outputs", config.tie_word_embeddings)
    return {
        "kind": "t5",
        "encoder_layers": config.num_layers,
        "decoder_layers": config.num_decoder_layers,
        "d_model": config.d_model,
        "heads": config.num_heads,
        "head_width": config.d_kv,
        "ffn": config.d_ff,
        "vocab": config.vocab_size,
        "activation": config.feed_forward_proj,
        "scaled_output": scaled,
        "position_buckets": config.relative_attention_num_buckets,
        "max_distance": config.relative_attention_max_distance,
        "equal": {},
    }


def _hf_class(name: str) -> Callable[[], Any]:
    def imported() -> Any:
        import transformers

        return getattr(transformers, name)

    return imported


def _multilingual(architecture: Any, hf: Any) -> PretrainedModel:
    from simnmt.nmt.multilingual_models import MultilingualModel

    return MultilingualModel(architecture, hf)


def _t5(architecture: Any, hf: Any) -> PretrainedModel:
    from simnmt.nmt.t5_model import T5Model

    return T5Model(architecture, hf)


_FAMILIES: dict[str, _Family] = {
    "marian": _Family(lambda: MarianMTModel, lambda config: {"kind": "transformer"} | _bart_sizes(config), MarianModel),
    "m2m_100": _Family(
        _hf_class("M2M100ForConditionalGeneration"), lambda config: {"kind": "m2m100"} | _bart_sizes(config), _multilingual
    ),
    "mbart": _Family(
        _hf_class("MBartForConditionalGeneration"), lambda config: {"kind": "mbart"} | _bart_sizes(config), _multilingual
    ),
    "t5": _Family(_hf_class("T5ForConditionalGeneration"), _t5_sizes, _t5),
    "mt5": _Family(_hf_class("MT5ForConditionalGeneration"), _t5_sizes, _t5),
}
"""By the `model_type` of config.json; NLLB is of type m2m_100."""


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


TranslationModel = RecurrentModel | AttentionalModel | PretrainedModel
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
        if isinstance(architecture, MultilingualArchitecture):
            from simnmt.nmt.multilingual_models import MultilingualModel

            return MultilingualModel(architecture, dropout=dropout)
        if isinstance(architecture, T5Architecture):
            from simnmt.nmt.t5_model import T5Model

            return T5Model(architecture, dropout=dropout)
        return MarianModel(architecture, dropout=dropout)


def load_model(model: str, *, seed: int = 0) -> LoadedModel:
    """Load a model by name, architecture file, own checkpoint folder, Hugging Face folder or Hugging Face id.

    Names and architecture files get random weights drawn from `seed`. Raises `NmtError`.
    """
    path = Path(model_path(model))
    if model not in ARCHITECTURES and path.is_dir():
        if (path / ARCHITECTURE_FILE).is_file():
            architecture = read_architecture(path / ARCHITECTURE_FILE)
            trained = build_model(architecture)
            load_weights(path, trained)
            return LoadedModel(model, trained.eval(), architecture, "checkpoint")
        if (path / "config.json").is_file():
            pretrained = load_hf(path)
            return LoadedModel(model, pretrained, pretrained.architecture, "checkpoint")
        raise NmtError(f"holds neither {ARCHITECTURE_FILE} nor config.json", path=path, remedy="name a model's folder")
    if model not in ARCHITECTURES and not path.exists():
        known = f"known: {', '.join(ARCHITECTURES)}, or a file or folder that exists, or a Hugging Face id"
        raise NmtError(f"no model called {model}", remedy=did_you_mean(model, ARCHITECTURES, known))
    architecture = ARCHITECTURES[model] if model in ARCHITECTURES else read_architecture(path)
    return LoadedModel(model, build_model(architecture, seed=seed).eval(), architecture, "random")
