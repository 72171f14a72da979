"""The file that `simnmt vocab build` writes: safetensors with a checked note, and the fingerprint of a model's output layer."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from safetensors import SafetensorError
from torch import Tensor

from simnmt.kernels.native_library import KernelError
from simnmt.nmt.checkpoint import read_tensors, write_tensors
from simnmt.nmt.errors import NmtError
from simnmt.nmt.step_model import StepModel

VERSION = 4
_KEY = "simnmt_vocabulary"
_BUILD = "build it with simnmt vocab build"
Content = TypeVar("Content")


class BundleFile(NamedTuple):
    """The content of a bundle's file."""

    kind: str
    note: dict[str, Any]
    """Facts beside the tensors, as JSON: the `fingerprint` of the model, and others that depend on the kind."""
    tensors: dict[str, Tensor]


def write_bundle(path: str | os.PathLike[str], kind: str, note: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a bundle, whole or not at all; tensors may share memory. Raises `NmtError` for a file that cannot be written."""
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    header = {"kind": kind, "sha256": _sha256(kind, note, tensors), "note": dict(note)}
    try:
        write_tensors(Path(path), tensors, {_KEY: json.dumps(header, ensure_ascii=False, allow_nan=False)})
    except (OSError, SafetensorError) as error:
        what = getattr(error, "strerror", None) or str(error)
        raise NmtError(f"cannot be written: {what}", path=path, remedy="choose another file") from None


def read_bundle(
    path: str | os.PathLike[str], parsers: Mapping[str, Callable[[BundleFile], Content]], model: StepModel | None = None
) -> Content:
    """Return what the parser of its kind makes of a bundle, after a check against the model if one is given.

    Raises `NmtError` for a file that is no such bundle, is damaged or of another version, and for another model.
    """
    try:
        tensors, metadata = read_tensors(path)
        header = json.loads(metadata[_KEY])
        file = BundleFile(header["kind"], header["note"], tensors)
        if header["sha256"] != _sha256(*file):
            raise ValueError("another version or content")
        if file.kind in parsers and (model is None or {**file.note, **fingerprint(model)} == file.note):
            return parsers[file.kind](file)
    except OSError as error:
        raise NmtError(f"cannot be read: {error.strerror or 'no such file'}", path=path, remedy=_BUILD) from None
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, KernelError):
        raise NmtError("no vocabulary bundle, damaged, or of another version", path=path, remedy=_BUILD) from None
    what = "another model" if file.kind in parsers else f"{file.kind}, where one of {' or '.join(parsers)} is wanted"
    raise NmtError(f"a bundle of {what}", path=path, remedy=_BUILD)


def _sha256(kind: str, note: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps([VERSION, kind, note], sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}:{tensor.dtype}:{list(tensor.shape)}:".encode())
        if tensor.numel():  # an empty tensor from numpy has strides that `view` refuses
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def fingerprint(model: StepModel) -> dict[str, Any]:
    """Return `vocab`, `width` and `sha256` of a loaded model's output layer.

    The digest is that of weights and bias in float32, as loaded: a conversion to another type changes it.
    """
    digest = hashlib.sha256()
    for part in (model.weight, model.bias):
        digest.update(part.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
    vocab, width = model.weight.shape
    return {"vocab": vocab, "width": width, "sha256": digest.hexdigest()}


def control_tokens(model: StepModel) -> tuple[int, ...]:
    """Return the tokens that belong to every active set and every candidate list: the end of a sentence, and unknown.

    Padding and the start token are not among them: no search may choose padding, and no model writes the start token.
    """
    return tuple(sorted({model.eos_token, model.unk_token}))
