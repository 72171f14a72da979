"""Our own trained models on disk: a folder of architecture.json and model.safetensors, tokenizers and account beside them."""

from __future__ import annotations

import os
from pathlib import Path

from safetensors import SafetensorError
from torch import nn

from simnmt.files import written_whole
from simnmt.nmt.architecture import Architecture
from simnmt.nmt.errors import NmtError
from simnmt.nmt.tensor_files import TensorFileError, own_tensors, read_tensors, write_tensors

ARCHITECTURE_FILE, WEIGHTS_FILE = "architecture.json", "model.safetensors"
SOURCE_TOKENIZER, TARGET_TOKENIZER, TRAINING_FILE = "source.model", "target.model", "training.json"

_AGAIN = "train again, or copy the folder again"


def save_checkpoint(folder: str | os.PathLike[str], model: nn.Module, architecture: Architecture) -> None:
    """Write architecture and weights into a folder, made where missing; raises `NmtError` where it cannot be written."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_tensors(Path(folder) / WEIGHTS_FILE, own_tensors(model))
        with written_whole(Path(folder) / ARCHITECTURE_FILE) as partial:
            partial.write_text(architecture.model_dump_json(indent=2) + "\n", encoding="utf-8")
    except (OSError, SafetensorError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise NmtError(f"cannot be written: {said}", path=folder, remedy="choose another folder") from None


def load_weights(folder: str | os.PathLike[str], model: nn.Module) -> None:
    """Fill a model with a folder's weights; raises `NmtError` where they are damaged or do not fit it."""
    path = Path(folder) / WEIGHTS_FILE
    try:
        weights, _ = read_tensors(path)
    except OSError as error:
        raise NmtError(f"cannot read the weights: {error.strerror or 'no such file'}", path=path, remedy=_AGAIN) from None
    except TensorFileError:
        raise NmtError("damaged, or no safetensors file", path=path, remedy=_AGAIN) from None
    for name, tensor in own_tensors(model).items():
        if name not in weights:
            raise NmtError(f"{name} is missing, which {ARCHITECTURE_FILE} asks for", path=path, remedy=_AGAIN)
        if weights[name].shape != tensor.shape:
            found, asked = list(weights[name].shape), list(tensor.shape)
            raise NmtError(f"{name} is {found} where {ARCHITECTURE_FILE} asks for {asked}", path=path, remedy=_AGAIN)
    if extra := sorted(weights.keys() - model.state_dict().keys()):
        raise NmtError(f"{extra[0]} is no weight of what {ARCHITECTURE_FILE} describes", path=path, remedy=_AGAIN)
    model.load_state_dict(weights, strict=False)
