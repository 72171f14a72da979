"""Trained models on disk: a folder with architecture.json, model.safetensors, tokenizers and training.json.

Tensors are read from and written to safetensors files; reading a file never runs code in it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from simnmt.base.files import MOST_TENSOR_BYTES, check_regular, written_whole
from simnmt.nmt.architecture import Architecture
from simnmt.nmt.errors import NmtError

ARCHITECTURE_FILE, WEIGHTS_FILE = "architecture.json", "model.safetensors"
TRAINING_FILE = "training.json"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], note: Mapping[str, str] | None = None) -> None:
    """Write tensors, no two of which share memory, whole; raises `OSError` and `SafetensorError`."""
    with written_whole(path) as partial:
        partial.touch()
        usual = partial.stat().st_mode & 0o777
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(whole, partial, dict(note) if note else None)
        partial.chmod(usual)  # the library's new file is readable only by its owner


def read_tensors(path: str | os.PathLike[str], *, copies: bool = False) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors of a file, and the notes in its header.

    `copies`: tensors in memory of their own; otherwise they may share the file's mapped memory. Raises `OSError` for a file
    that is missing, unreadable, a device or a pipe, and `ValueError` for another or a damaged file.
    """
    check_regular(path, MOST_TENSOR_BYTES)
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            notes: dict[str, str] = file.metadata() or {}
    except OSError as error:
        raise OSError(error.errno, error.strerror or "cannot be read", os.fspath(path)) from None
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(str(error)) from None
    return ({name: tensor.clone() for name, tensor in tensors.items()} if copies else tensors), notes


def check_tensors(tensors: Mapping[str, Tensor], shapes: Mapping[str, Sequence[int]]) -> None:
    """Raise `ValueError` for the first tensor that is missing, unknown, of another shape, or not finite."""
    if missing := [name for name in shapes if name not in tensors]:
        raise ValueError(f"{missing[0]} is missing")
    for name, tensor in tensors.items():
        if name not in shapes:
            raise ValueError(f"unknown tensor {name}")
        if tuple(tensor.shape) != tuple(shapes[name]):
            raise ValueError(f"{name} is of shape {tuple(tensor.shape)}, where {tuple(shapes[name])} is needed")
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ValueError(f"{name} holds a number that is not finite")


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return weights and buffers by name, each memory once, so that tied embeddings are written once."""
    first: dict[int, str] = {}
    state = model.state_dict()
    return {name: tensor for name, tensor in state.items() if first.setdefault(tensor.data_ptr(), name) == name}


def save_checkpoint(folder: str | os.PathLike[str], model: nn.Module, architecture: Architecture) -> None:
    """Write architecture and weights into a folder, which is made if missing; raises `NmtError` if that fails."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_tensors(Path(folder) / WEIGHTS_FILE, own_tensors(model))
        with written_whole(Path(folder) / ARCHITECTURE_FILE) as partial:
            partial.write_text(architecture.model_dump_json(indent=2) + "\n", encoding="utf-8")
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NmtError(f"cannot be written: {reason}", path=folder, remedy="choose another folder") from None


def load_weights(folder: str | os.PathLike[str], model: nn.Module) -> None:
    """Load the weights in a folder into a model; raises `NmtError` if they are damaged or do not fit it."""
    path = Path(folder) / WEIGHTS_FILE
    try:
        weights, _ = read_tensors(path)
        check_tensors(weights, {name: tuple(tensor.shape) for name, tensor in own_tensors(model).items()})
    except (OSError, ValueError) as error:
        what = f"no usable weights: {getattr(error, 'strerror', None) or error}"
        raise NmtError(what, path=path, remedy="train again, or copy the folder again") from None
    model.load_state_dict(weights, strict=False)
