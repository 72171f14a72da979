"""Load an encoder by folder or preset name, and write the folder of a trained one.

A folder of `simnmt sti train` holds configuration, weights, vocabulary and a record of the training. Folders of
`transformers` and presets with random weights can be loaded too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from simnmt.base.files import MOST_MODEL_BYTES, read_bounded, written_whole
from simnmt.nmt.checkpoint import TRAINING_FILE, WEIGHTS_FILE, TensorFileError, read_tensors, write_tensors
from simnmt.streaming.encoder.encoder_configuration import (
    MATRICES,
    EncoderConfiguration,
    EncoderWeights,
    LayerWeights,
    check_resident,
)
from simnmt.streaming.encoder.tokenizer import PIECES_FILE, Pieces, Tokenizer
from simnmt.streaming.errors import StreamingError

ENCODER_FILE = "encoder.json"
VERSION = 1
_AGAIN = "train again, or copy the folder again"


def is_elastic_folder(folder: str | os.PathLike[str]) -> bool:
    """Return whether `simnmt sti train` wrote this folder."""
    return (Path(folder) / ENCODER_FILE).is_file()


def save_encoder(folder: Path, weights: EncoderWeights, account: Mapping[str, Any]) -> None:
    """Write a trained encoder and its account; `encoder.json`, which marks the folder, comes last. Raises `StreamingError`."""
    tensors = dict(weights.resident)
    for index in range(weights.geometry.layers):
        tensors |= {f"layers.{index}.{name}.weight": tensor for name, tensor in weights.layer(index).named().items()}
    try:
        write_tensors(folder / WEIGHTS_FILE, tensors)
        write_json(folder / TRAINING_FILE, account)
        write_json(folder / ENCODER_FILE, {"schema_version": VERSION, **asdict(weights.configuration)})
    except (OSError, SafetensorError) as error:
        raise unusable(folder, error) from None


def load_elastic(folder: str | os.PathLike[str]) -> tuple[EncoderWeights, Pieces]:
    """Return an encoder and its tokenizer; raises `StreamingError` if a file is missing, damaged or of another model."""
    path = Path(folder)
    document = read_json(path / ENCODER_FILE)
    if document.pop("schema_version", None) != VERSION:
        raise StreamingError(f"not an encoder of version {VERSION}", path=path / ENCODER_FILE, remedy=_AGAIN)
    configuration = EncoderConfiguration.from_json(document, path / ENCODER_FILE)
    try:
        tensors, _ = read_tensors(path / WEIGHTS_FILE)
        pieces = Pieces(read_bounded(path / PIECES_FILE, MOST_MODEL_BYTES))
    except OSError as error:
        raise unusable(path, error) from None
    except TensorFileError:
        raise StreamingError("damaged, or no safetensors file", path=path / WEIGHTS_FILE, remedy=_AGAIN) from None

    def matrix(index: int, name: str) -> Tensor:
        tensor = tensors.pop(f"layers.{index}.{name}.weight", None)
        if tensor is None or tuple(tensor.shape) != configuration.matrix_shape(name):
            what = f"layers.{index}.{name}.weight is missing or of another shape"
            raise StreamingError(what, path=path / WEIGHTS_FILE, remedy=_AGAIN)
        return tensor

    matrices = [LayerWeights(*(matrix(index, name) for name in MATRICES)) for index in range(configuration.layers)]
    check_resident(configuration, tensors, path / WEIGHTS_FILE)
    if pieces.size != configuration.vocabulary:
        raise StreamingError("weights and vocabulary are of two models", path=path, remedy=_AGAIN)
    return EncoderWeights(configuration, tensors, matrices.__getitem__, origin=os.fspath(folder)), pieces


def class_names(folder: Path, classes: int) -> tuple[str, ...]:
    """Return the names of the classes from the account; raises `StreamingError` unless each class has one."""
    names = read_json(folder / TRAINING_FILE).get("label_names")
    strings = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    if not len(strings) == len(set(strings)) == classes or names != strings:
        raise StreamingError(f"no label_names of {classes} classes", path=folder / TRAINING_FILE, remedy=_AGAIN)
    return tuple(strings)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write one JSON object, whole or not at all."""
    with written_whole(path) as partial:
        partial.write_text(json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; raises `StreamingError`."""
    try:
        content = json.loads(read_bounded(path))
    except OSError as error:
        raise unusable(path, error) from None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise StreamingError("no JSON object", path=path, remedy=_AGAIN)
    return content


def unusable(path: Path, error: Exception) -> StreamingError:
    """Return a system error about a path as a `StreamingError`."""
    what = f"cannot be used: {getattr(error, 'strerror', None) or error}"
    return StreamingError(what, path=path, remedy="give another folder")


PRESETS = ("bert-base",)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedEncoder:
    """The weights of an encoder, its tokenizer and the names of its classes."""

    weights: EncoderWeights
    tokenizer: Tokenizer | None
    """None if the encoder accepts only token ids."""
    label_names: tuple[str, ...]


def load_encoder(model: str | os.PathLike[str], *, seed: int = 1) -> LoadedEncoder:
    """Return the encoder in a folder or of a preset; `seed` draws the weights if a folder holds none.

    Raises `StreamingError` with the folder and the remedy.
    """
    path = Path(model)
    if is_elastic_folder(path):
        weights, pieces = load_elastic(path)
        return LoadedEncoder(weights, pieces, class_names(path, weights.configuration.classes))
    if path.is_dir():
        if (path / TRAINING_FILE).is_file():
            raise StreamingError("its training has not ended", path=path, remedy="give its simnmt sti train again")
        from simnmt.streaming.encoder.hugging_face_encoders import load_hugging_face

        return LoadedEncoder(*load_hugging_face(path, seed=seed))
    if os.fspath(model) in PRESETS:
        from simnmt.streaming.encoder.hugging_face_encoders import bert_base

        weights = bert_base(seed=seed)
        return LoadedEncoder(weights, None, tuple(str(index) for index in range(weights.configuration.classes)))
    remedy = f"name a folder that simnmt sti train wrote or one of transformers, or {', '.join(PRESETS)}"
    raise StreamingError("no such model", path=model, remedy=remedy)
