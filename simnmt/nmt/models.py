"""Build or load a model: by name, from an architecture file, a checkpoint folder, or a folder or id of Hugging Face."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeGuard, TypeVar

import torch

from simnmt.base.errors import describe_error
from simnmt.base.suggestions import did_you_mean
from simnmt.nmt.architecture import (
    ARCHITECTURES,
    Architecture,
    AttentionalArchitecture,
    LlamaArchitecture,
    RecurrentArchitecture,
    TransformerArchitecture,
    read_architecture,
)
from simnmt.nmt.attentional_model import AttentionalModel
from simnmt.nmt.checkpoint import ARCHITECTURE_FILE, load_weights
from simnmt.nmt.errors import NmtError, OutOfMemory, within_memory
from simnmt.nmt.llama_model import LlamaModel
from simnmt.nmt.pretrained_config import FOLDER_REMEDY, model_path, read_pretrained, read_pretrained_architecture
from simnmt.nmt.pretrained_tokenizer import Languages, PretrainedTokenizer, newline_tokens, open_tokenizer
from simnmt.nmt.recurrent_model import RecurrentModel
from simnmt.nmt.transformer_model import TransformerModel

WEIGHTS_ONLY_HOLDS = torch.__version__ >= "2.6"
"""Earlier versions could run code of a pickle that is read as weights only (CVE-2025-32434)."""

TranslationModel = RecurrentModel | AttentionalModel | TransformerModel
"""Every kind of model with an encoder; each is a `StepModel`."""
AnyModel = TranslationModel | LlamaModel
ModelT = TypeVar("ModelT", covariant=True, bound=AnyModel)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[ModelT]):
    """A model, ready to decode, and its origin."""

    name: str
    """The name or path from which it was loaded."""
    model: ModelT
    architecture: Architecture
    weights: Literal["random", "checkpoint"]


LoadedModel = Loaded[TranslationModel]


def build_model(architecture: Architecture, *, seed: int = 0, dropout: float = 0.0) -> TranslationModel:
    """Build a model in training mode with random float32 weights drawn from `seed`, on the CPU.

    The global random generator is not changed. Raises `NmtError` for a decoder-only model.
    """
    if isinstance(architecture, LlamaArchitecture):
        raise NmtError(_DECODER_ONLY, remedy=_SERVE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if isinstance(architecture, RecurrentArchitecture):
            return RecurrentModel(architecture, dropout)
        if isinstance(architecture, AttentionalArchitecture):
            return AttentionalModel(architecture, dropout)
        assert isinstance(architecture, TransformerArchitecture)
        return TransformerModel(architecture, dropout=dropout)


_DECODER_ONLY, _SERVE = "a decoder-only model, which calibrate and live server alone run, with torch", "give another model"


def load_model(model: str, *, seed: int = 0) -> LoadedModel:
    """Load a model with an encoder; see `load_any_model`. Raises `NmtError`, also for a decoder-only model."""
    return with_encoder(load_any_model(model, seed=seed))


def is_llama(loaded: Loaded[AnyModel]) -> TypeGuard[Loaded[LlamaModel]]:
    """Return whether a model is decoder-only."""
    return isinstance(loaded.model, LlamaModel)


def with_encoder(loaded: Loaded[AnyModel]) -> LoadedModel:
    """Return a model that has an encoder. Raises `NmtError` for a decoder-only one."""
    if isinstance(loaded.model, LlamaModel):
        raise NmtError(_DECODER_ONLY, path=loaded.name, remedy=_SERVE)
    return Loaded(loaded.name, loaded.model, loaded.architecture, loaded.weights)


def load_any_model(model: str, *, seed: int = 0) -> Loaded[AnyModel]:
    """Load a model by name, architecture file, own checkpoint folder, Hugging Face folder or Hugging Face id.

    Names and architecture files get random weights drawn from `seed`. Raises `NmtError`.
    """
    trained: AnyModel
    path = Path(model_path(model, weights=True))
    if model not in ARCHITECTURES and path.is_dir():
        if (path / ARCHITECTURE_FILE).is_file():
            trained = build_model(read_architecture(path / ARCHITECTURE_FILE))
            load_weights(path, trained)
        elif (path / "config.json").is_file():
            trained = _load_hf(path)
        else:
            raise NmtError(f"holds neither {ARCHITECTURE_FILE} nor config.json", path=path, remedy="name a model's folder")
        return Loaded(model, trained.eval(), trained.architecture, "checkpoint")
    if model not in ARCHITECTURES and not path.exists():
        known = f"known: {', '.join(ARCHITECTURES)}, or a file or folder that exists, or a Hugging Face id"
        raise NmtError(f"no model called {model}", remedy=did_you_mean(model, ARCHITECTURES, known))
    architecture = ARCHITECTURES[model] if model in ARCHITECTURES else read_architecture(path)
    if isinstance(architecture, LlamaArchitecture):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return Loaded(model, LlamaModel(architecture).eval(), architecture, "random")
    return Loaded(model, build_model(architecture, seed=seed).eval(), architecture, "random")


def load_pretrained(folder: Path, languages: Languages) -> tuple[LoadedModel, PretrainedTokenizer]:
    """Load a Hugging Face folder or id with its tokeniser, ready to translate between these languages.

    Raises `NmtError` for a damaged folder, for a decoder-only model, and for languages that are missing, unknown or of no use
    to the model.
    """
    path = Path(model_path(str(folder), weights=True)).absolute()  # a folder may have the name of an architecture, such as gru
    if isinstance(architecture := read_pretrained_architecture(path), LlamaArchitecture):
        raise NmtError(_DECODER_ONLY, path=folder, remedy=_SERVE)
    tokenizer = open_tokenizer(path, architecture, languages)  # before the weights are read
    loaded = load_model(str(path))
    assert isinstance(loaded.model, TransformerModel)
    if tokenizer.language is not None:
        loaded.model.start_with_language(tokenizer.language, after_start=tokenizer.after_start)
    return loaded, tokenizer


def _load_hf(folder: str | os.PathLike[str]) -> AnyModel:
    """Load a Hugging Face folder, with weights in safetensors or weights-only form, without running code in it."""
    architecture = read_pretrained_architecture(folder)
    auto = "AutoModelForCausalLM" if isinstance(architecture, LlamaArchitecture) else "AutoModelForSeq2SeqLM"
    try:
        # "sdpa": else config.json may name code to be fetched
        hf, unexpected = read_pretrained_weights(auto, folder, attn_implementation="sdpa")
    except OutOfMemory:
        raise
    except Exception as error:  # pickle, zip, safetensors and torch each have their own
        raise NmtError(f"no usable weights: {describe_error(error)}", path=folder, remedy=FOLDER_REMEDY) from None
    if unknown := sorted(key for key in unexpected if ".layers." in key):
        raise NmtError(f"the weights hold a layer that {architecture.kind} does not have: {unknown[0]}", path=folder)
    if isinstance(architecture, LlamaArchitecture):
        return LlamaModel(architecture, hf.float(), newline_tokens(Path(folder)))
    return TransformerModel(architecture, hf.float())


def read_pretrained_weights(auto: str, folder: str | os.PathLike[str], **options: Any) -> tuple[Any, list[str]]:
    """Return a model of `transformers` with all its weights, and the names of those in the folder that it does not have.

    Weights are read in safetensors or weights-only form. Raises `OutOfMemory`, `ValueError` for weights that are missing, and
    many other errors for damaged files.
    """
    options |= {"weights_only": True, "use_safetensors": None if WEIGHTS_ONLY_HOLDS else True, "output_loading_info": True}
    model, report = within_memory("cpu", lambda: read_pretrained(auto, folder, **options))
    if lacking := sorted(report["missing_keys"]):
        raise ValueError(f"the weights lack {lacking[0]}")
    return model, report["unexpected_keys"]
