"""Read a `transformers` classifier from a local folder, fine-tuned or as a configuration alone; never from the network."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from simnmt.base.errors import describe_error
from simnmt.base.files import MOST_MODEL_BYTES, check_model_folder, read_bounded
from simnmt.nmt.errors import need
from simnmt.streaming.encoder.encoder_configuration import (
    MATRICES,
    EncoderConfiguration,
    EncoderWeights,
    LayerWeights,
    check_resident,
    random_resident,
)
from simnmt.streaming.encoder.tokenizer import TOKENIZER_FILES, HuggingFaceTokenizer
from simnmt.streaming.errors import StreamingError

_FOLDER = "name a folder of a fine-tuned BERT, RoBERTa, CamemBERT, DistilBERT or ELECTRA classifier"
_WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_VOCABULARY_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model")


@dataclass(frozen=True, slots=True)
class _Names:
    """Names of the tensors of one kind of model."""

    body: str
    layer: str
    parts: Mapping[str, str]
    """Name in `transformers` by our name of a matrix or norm."""
    head_activation: str
    head: str
    """The dense layer before the classifier."""
    classifier: str = "classifier"


_BERT_PARTS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "o": "attention.output.dense",
    "norm_attention": "attention.output.LayerNorm",
    "ffn_in": "intermediate.dense",
    "ffn_out": "output.dense",
    "norm_ffn": "output.LayerNorm",
}
_DISTIL_PARTS = {
    "q": "attention.q_lin",
    "k": "attention.k_lin",
    "v": "attention.v_lin",
    "o": "attention.out_lin",
    "norm_attention": "sa_layer_norm",
    "ffn_in": "ffn.lin1",
    "ffn_out": "ffn.lin2",
    "norm_ffn": "output_layer_norm",
}
_OUTPUT = {"head": "classifier.dense", "classifier": "classifier.out_proj"}
_NAMES = {
    "bert": _Names("bert", "encoder.layer", _BERT_PARTS, "tanh", head="bert.pooler.dense"),
    "roberta": _Names("roberta", "encoder.layer", _BERT_PARTS, "tanh", **_OUTPUT),
    "camembert": _Names("roberta", "encoder.layer", _BERT_PARTS, "tanh", **_OUTPUT),
    "distilbert": _Names("distilbert", "transformer.layer", _DISTIL_PARTS, "relu", head="pre_classifier"),
    "electra": _Names("electra", "encoder.layer", _BERT_PARTS, "gelu", **_OUTPUT),
}


def load_hugging_face(
    folder: str | os.PathLike[str], *, seed: int = 1
) -> tuple[EncoderWeights, HuggingFaceTokenizer | None, tuple[str, ...]]:
    """Return the encoder in a folder, its tokenizer or None, and the names of its classes; runs no code of the folder.

    Without a file of weights, they are drawn with `seed` and marked as random. Raises `StreamingError` for an unknown kind of
    model, for weights that are damaged or lack the pooler or the classifier, and for sizes that heads do not divide.
    """
    need("transformers")
    from transformers import AutoConfig

    from simnmt.nmt.pretrained_config import quiet_transformers

    path = Path(folder)
    try:
        check_model_folder(path)
        files = {name: read_bounded(path / name, MOST_MODEL_BYTES) for name in TOKENIZER_FILES if (path / name).is_file()}
    except OSError as error:
        raise StreamingError(f"cannot be read: {error.strerror}", path=error.filename or path, remedy=_FOLDER) from None
    try:
        with quiet_transformers():
            # Explicit: without a value, transformers asks the user whether to run code of the folder.
            config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # many kinds of errors
        raise StreamingError(f"no configuration of transformers: {describe_error(error)}", path=path, remedy=_FOLDER) from None
    tokenizer = _tokenizer(files, path)
    configuration = _configuration_of(config, path, None if tokenizer is None else tokenizer.separator)
    names = _class_names(config, configuration.classes, path)
    random = not any((path / name).is_file() for name in _WEIGHT_FILES)
    model = _load_model(path, config, seed if random else None)
    weights = _taken(model, configuration, os.fspath(folder), random)
    check_resident(configuration, weights.resident, path)
    return weights, tokenizer, names


def _tokenizer(files: Mapping[str, bytes], path: Path) -> HuggingFaceTokenizer | None:
    if not any(name in files for name in _VOCABULARY_FILES):
        return None
    try:
        return HuggingFaceTokenizer(files)
    except StreamingError as error:  # an error without the path
        raise StreamingError(error.what, path=path, remedy=error.remedy) from None


def _class_names(config: Any, classes: int, path: Path) -> tuple[str, ...]:
    named = config.id2label
    if sorted(named) != list(range(classes)):
        what = f"id2label names the classes {', '.join(map(str, sorted(named)))}, where 0 to {classes - 1} are needed"
        raise StreamingError(what, path=path, remedy="number them from 0 without gaps")
    return tuple(str(named[index]) for index in range(classes))


def bert_base(*, seed: int = 1) -> EncoderWeights:
    """Return BERT-base with random weights, drawn layer by layer: for measuring speed and size, not accuracy."""
    configuration = EncoderConfiguration("bert", 12, 12, 768, 3072, 30_522, 512, 2, separator_token=102)

    def generator(number: int) -> torch.Generator:
        return torch.Generator().manual_seed(seed * 1_000 + number)

    def layer(index: int) -> LayerWeights:
        drawn = generator(index)
        shapes = map(configuration.matrix_shape, MATRICES)
        return LayerWeights(*(0.02 * torch.randn(shape, generator=drawn) for shape in shapes))

    resident = random_resident(configuration, generator(999), 0.02)
    return EncoderWeights(configuration, resident, layer, origin="bert-base", random=True)


def _configuration_of(config: Any, path: Path, separator: int | None) -> EncoderConfiguration:
    kind = config.model_type
    if kind not in _NAMES:
        raise StreamingError(f"holds a model of type {kind}", path=path, remedy=_FOLDER)
    distil = kind == "distilbert"
    activation = config.activation if distil else config.hidden_act
    if activation not in ("gelu", "relu"):
        raise StreamingError(f"its feed-forward activation is {activation}", path=path, remedy="known: gelu, relu")
    if getattr(config, "position_embedding_type", None) not in (None, "absolute"):
        raise StreamingError(f"its positions are {config.position_embedding_type}", path=path, remedy="known: absolute")
    if getattr(config, "is_decoder", False):
        raise StreamingError("it is a decoder, which reads from left to right", path=path, remedy=_FOLDER)
    if config.num_labels < 2:
        raise StreamingError("its head has one output, a number and no class", path=path, remedy=_FOLDER)
    typed = kind in ("bert", "electra") and config.type_vocab_size > 1
    if kind in ("roberta", "camembert") and config.pad_token_id is None:
        what = "no pad_token_id, from which its positions are counted"
        raise StreamingError(what, path=path, remedy="give it as the model was trained with, usually 1")
    offset = config.pad_token_id + 1 if kind in ("roberta", "camembert") else 0
    fields = {
        "kind": kind,
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "width": config.hidden_size,
        "ffn": config.hidden_dim if distil else config.intermediate_size,
        "vocabulary": config.vocab_size,
        "positions": config.max_position_embeddings - offset,
        "classes": config.num_labels,
        "activation": activation,
        "norm_epsilon": 1e-12 if distil else config.layer_norm_eps,
        "head_activation": _NAMES[kind].head_activation,
        "padding_token": config.pad_token_id or 0,
        "separator_token": separator if typed else None,
        "position_offset": offset,
    }
    return EncoderConfiguration.from_json(fields, path, remedy="correct its config.json, or name another folder")


def _load_model(path: Path, config: Any, seed: int | None) -> Any:
    """Return the model of a folder, or of its configuration with random weights drawn with `seed`."""
    from transformers import AutoModelForSequenceClassification

    from simnmt.nmt.models import WEIGHTS_ONLY_HOLDS
    from simnmt.nmt.pretrained_config import quiet_transformers

    auto: Any = AutoModelForSequenceClassification  # untyped
    try:
        with quiet_transformers(), torch.random.fork_rng([]):
            if seed is not None:
                torch.manual_seed(seed)
                return auto.from_config(config, trust_remote_code=False)
            model, report = auto.from_pretrained(
                path,
                config=config,
                local_files_only=True,
                trust_remote_code=False,
                weights_only=True,
                use_safetensors=None if WEIGHTS_ONLY_HOLDS else True,
                attn_implementation="eager",  # otherwise config.json may name code to download
                output_loading_info=True,
                dtype=torch.float32,
            )
    except Exception as error:  # pickle, zip, safetensors and torch have their own errors; memory may be short
        what = "no usable weights" if seed is None else "no model can be made of it"
        raise StreamingError(f"{what}: {describe_error(error)}", path=path, remedy=_FOLDER) from None
    if lacking := sorted(report["missing_keys"]):
        head = [name for name in lacking if name.startswith(("classifier", "pre_classifier")) or ".pooler." in name]
        what = f"no classifier: the weights lack {head[0]}" if head else f"the weights lack {lacking[0]}"
        raise StreamingError(what, path=path, remedy="fine-tune the model on a classification task first")
    return model


def _taken(model: Any, configuration: EncoderConfiguration, origin: str, random: bool) -> EncoderWeights:
    """Return the tensors of a transformers model under our names."""
    names, state = _NAMES[configuration.kind], {name: tensor.detach() for name, tensor in model.state_dict().items()}
    at = f"{names.body}.embeddings"
    resident = {
        "embeddings.word": state[f"{at}.word_embeddings.weight"],
        "embeddings.position": state[f"{at}.position_embeddings.weight"],
    }
    if f"{at}.token_type_embeddings.weight" in state:
        resident["embeddings.type"] = state[f"{at}.token_type_embeddings.weight"]
    dense = {"embeddings.norm": f"{at}.LayerNorm", "classifier": names.classifier, "head": names.head}
    if f"{names.body}.embeddings_project.weight" in state:
        dense["embeddings.project"] = f"{names.body}.embeddings_project"
    layers: list[LayerWeights] = []
    for index in range(configuration.layers):
        theirs = {ours: f"{names.body}.{names.layer}.{index}.{name}" for ours, name in names.parts.items()}
        layers.append(LayerWeights(**{name: state[f"{theirs[name]}.weight"].float() for name in MATRICES}))
        resident |= {f"layers.{index}.{name}.bias": state[f"{theirs[name]}.bias"] for name in MATRICES}
        dense |= {f"layers.{index}.{name}": theirs[name] for name in ("norm_attention", "norm_ffn")}
    for ours, theirs_name in dense.items():
        resident |= {f"{ours}.{kind}": state[f"{theirs_name}.{kind}"] for kind in ("weight", "bias")}
    return EncoderWeights(configuration, resident, layers.__getitem__, origin=origin, random=random)
