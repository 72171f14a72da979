"""Load an encoder by folder or preset name, and write the folder of a trained one.

A folder of `simnmt sti train` holds configuration, weights, vocabulary and a record of the training. Classifiers of
`transformers` in a local folder, fine-tuned or as a configuration alone, and presets with random weights can be loaded too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simnmt.base.configuration import checked_dataclass
from simnmt.base.errors import describe_error
from simnmt.base.files import MOST_MODEL_BYTES, check_model_folder, read_bounded, written_whole
from simnmt.nmt.checkpoint import TRAINING_FILE, WEIGHTS_FILE, read_tensors, write_tensors
from simnmt.nmt.errors import need
from simnmt.nmt.pretrained_config import read_pretrained
from simnmt.streaming.encoder import EncoderConfiguration, EncoderWeights, check_encoder_tensors, matrix_names, random_resident
from simnmt.streaming.errors import StreamingError
from simnmt.streaming.shards import SEGMENTS, LayerWeights
from simnmt.streaming.texts import PIECES_FILE, TOKENIZER_FILE, Pieces

ENCODER_FILE = "encoder.json"
VERSION = 1
PRESET = "bert-base"
_VOCABULARIES = (TOKENIZER_FILE, "vocab.txt")
_AGAIN = "train again, or copy the folder again"
_CLASSIFIER = "name a folder of a fine-tuned BERT classifier"


def load_encoder(model: str | os.PathLike[str]) -> EncoderWeights:
    """Return the encoder in a folder or of a preset; its weights are random if there are none.

    Raises `StreamingError` with the folder and the remedy.
    """
    path = Path(model)
    if (path / ENCODER_FILE).is_file():
        return _load_elastic(path)
    if (path / TRAINING_FILE).is_file():
        raise StreamingError("no trained encoder", path=path, remedy="give its simnmt sti train again, until it has ended")
    if path.is_dir():
        return _load_hugging_face(path)
    if os.fspath(model) == PRESET:
        return replace(random_weights(BERT_BASE, PRESET), label_names=("0", "1"))
    remedy = f"name a folder that simnmt sti train wrote or one of transformers, or {PRESET}"
    raise StreamingError("no such model", path=model, remedy=remedy)


def save_encoder(folder: Path, weights: EncoderWeights, account: Mapping[str, Any]) -> None:
    """Write a trained encoder and its account; `encoder.json`, which marks the folder, comes last. Raises `OSError`."""
    layers = (matrix for index in range(weights.configuration.layers) for matrix in weights.layer(index))
    matrices = dict(zip(matrix_names(weights.configuration), layers, strict=True))
    configuration = {"schema_version": VERSION, **asdict(weights.configuration)}
    write_tensors(folder / WEIGHTS_FILE, {**weights.resident, **matrices})
    for name, content in ((TRAINING_FILE, account), (ENCODER_FILE, configuration)):
        with written_whole(folder / name) as partial:
            text = json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)
            partial.write_text(f"{text}\n", encoding="utf-8")


def _load_elastic(path: Path) -> EncoderWeights:
    try:
        document, account = (json.loads(read_bounded(path / name)) for name in (ENCODER_FILE, TRAINING_FILE))
        if document.pop("schema_version") != VERSION:
            raise ValueError(f"{ENCODER_FILE} is not of version {VERSION}")
        configuration = checked_dataclass(EncoderConfiguration, document)
        names = tuple(map(str, account["label_names"]))
        tensors, _ = read_tensors(path / WEIGHTS_FILE)
        vocabulary = read_bounded(path / PIECES_FILE, MOST_MODEL_BYTES)
    except OSError as error:
        raise StreamingError(f"cannot be read: {error.strerror}", path=error.filename or path, remedy=_AGAIN) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StreamingError(f"damaged: {describe_error(error)}", path=path, remedy=_AGAIN) from None
    check_encoder_tensors(configuration, tensors, path / WEIGHTS_FILE, matrices=True)
    if len(set(names)) != configuration.classes or Pieces(vocabulary).size != configuration.vocabulary:
        raise StreamingError("weights, vocabulary and label_names are of two models", path=path, remedy=_AGAIN)
    return _encoder_of(configuration, tensors, os.fspath(path), files={PIECES_FILE: vocabulary}, label_names=names)


def _encoder_of(
    configuration: EncoderConfiguration, tensors: dict[str, Tensor], origin: str, **tokens_and_names: Any
) -> EncoderWeights:
    """Return the encoder of all its tensors by name; the matrices are taken out of `tensors`."""
    matrices = [tensors.pop(name) for name in matrix_names(configuration)]
    layers = [LayerWeights(*matrices[at : at + len(SEGMENTS)]) for at in range(0, len(matrices), len(SEGMENTS))]
    return EncoderWeights(configuration, tensors, layers.__getitem__, origin, **tokens_and_names)


BERT_BASE = EncoderConfiguration("bert", 12, 12, 768, 3072, 30_522, 512, 2, separator_token=102)


def random_weights(configuration: EncoderConfiguration, origin: str) -> EncoderWeights:
    """Return an encoder with random weights, drawn layer by layer: for measuring speed and size, not accuracy."""

    def layer(index: int) -> LayerWeights:
        drawn = torch.Generator().manual_seed(1 + index)
        return LayerWeights(*(0.02 * torch.randn(configuration.matrix_shape(name), generator=drawn) for name in SEGMENTS))

    resident = random_resident(configuration, torch.Generator().manual_seed(0), 0.02)
    return EncoderWeights(configuration, resident, layer, origin=origin, random=True)


_RENAMED = (
    ("bert.encoder.layer.", "layers."),
    ("bert.embeddings.", "embeddings."),
    ("_embeddings.weight", ""),
    ("embeddings.token_type", "embeddings.type"),
    ("embeddings.LayerNorm", "embeddings.norm"),
    ("attention.self.query", "q"),
    ("attention.self.key", "k"),
    ("attention.self.value", "v"),
    ("attention.output.dense", "o"),
    ("attention.output.LayerNorm", "norm_attention"),
    ("intermediate.dense", "ffn_in"),
    ("output.dense", "ffn_out"),
    ("output.LayerNorm", "norm_ffn"),
    ("bert.pooler.dense", "head"),
)
"""Parts of the names in `transformers`, and ours, replaced in this order."""


def _load_hugging_face(path: Path) -> EncoderWeights:
    """Return the classifier in a folder of `transformers`; runs no code of the folder and never reads from the network."""
    need("transformers")
    from simnmt.nmt.models import read_pretrained_weights

    try:
        check_model_folder(path)
        files, separator = dict[str, bytes](), None
        config = read_pretrained("AutoConfig", path)
        if any((path / name).is_file() for name in _VOCABULARIES):
            tokenizer = read_pretrained("AutoTokenizer", path)
            files, separator = {TOKENIZER_FILE: tokenizer.backend_tokenizer.to_str().encode()}, tokenizer.sep_token_id
        configuration = _configuration_of(config, separator)
        names = tuple(str(config.id2label[index]) for index in range(configuration.classes))
        if not any(path.glob("model.safetensors*")) and not any(path.glob("pytorch_model.bin*")):
            return replace(random_weights(configuration, os.fspath(path)), files=files, label_names=names)
        # "eager": otherwise config.json may name code to download
        given = {"config": config, "attn_implementation": "eager", "dtype": torch.float32}
        model, _ = read_pretrained_weights("AutoModelForSequenceClassification", path, **given)
    except Exception as error:  # transformers, pickle, zip, safetensors and torch have their own errors
        what = error.what if isinstance(error, StreamingError) else f"cannot be loaded: {describe_error(error)}"
        raise StreamingError(what, path=path, remedy=_CLASSIFIER) from None
    tensors = {}
    for name, tensor in model.state_dict().items():
        for theirs, ours in _RENAMED:
            name = name.replace(theirs, ours)
        if not name.endswith("_ids"):  # numbers of positions and types, kept as buffers
            tensors[name] = tensor.detach().float().contiguous()
    types = tensors.pop("embeddings.type")
    if configuration.separator_token is None:  # all tokens are of the first type
        tensors["embeddings.position"] = tensors["embeddings.position"] + types[0]
    else:
        tensors["embeddings.type"] = types[:2]
    check_encoder_tensors(configuration, tensors, path, matrices=True)
    return _encoder_of(configuration, tensors, os.fspath(path), files=files, label_names=names)


def _configuration_of(config: Any, separator: int | None) -> EncoderConfiguration:
    """Return our form of a configuration of `transformers`; raises `StreamingError`, and `ValueError` for a field."""
    if config.model_type != "bert" or config.is_decoder:
        raise StreamingError(f"holds a model of type {config.model_type}, or a decoder")
    if getattr(config, "position_embedding_type", None) not in (None, "absolute"):
        raise StreamingError("positions that are not absolute")
    fields = {
        "kind": "bert",
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "width": config.hidden_size,
        "ffn": config.intermediate_size,
        "vocabulary": config.vocab_size,
        "positions": config.max_position_embeddings,
        "classes": config.num_labels,
        "activation": config.hidden_act,
        "norm_epsilon": config.layer_norm_eps,
        "padding_token": config.pad_token_id or 0,
        "separator_token": separator if config.type_vocab_size > 1 else None,
    }
    return checked_dataclass(EncoderConfiguration, fields)
