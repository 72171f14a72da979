"""What `simnmt vocab build` writes: one safetensors file whose metadata say what it is, and of which model's output layer."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from simnmt.nmt.errors import NmtError
from simnmt.nmt.tensor_files import read_tensors, write_tensors

VERSION = 2
_KEY = "simnmt_vocabulary"
_AGAIN = "build it again with simnmt vocab build"


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A bundle as it lies on disk, before its kind is made of it."""

    kind: str
    """clusters or candidates."""
    note: dict[str, Any]
    """What its kind says of itself beside the tensors; JSON."""
    tensors: dict[str, Tensor]


def write_bundle(path: str | os.PathLike[str], kind: str, note: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a bundle, whole or not at all; tensors may share memory. Raises `NmtError` where it cannot be written."""
    own: dict[int, str] = {}
    shared = {name for name, tensor in tensors.items() if own.setdefault(tensor.data_ptr(), name) != name}
    tensors = {name: tensor.clone() if name in shared else tensor for name, tensor in tensors.items()}
    said = {"version": VERSION, "kind": kind, "sha256": _sha256(kind, note, tensors), "note": dict(note)}
    try:
        write_tensors(Path(path), tensors, {_KEY: json.dumps(said, ensure_ascii=False, allow_nan=False)})
    except (OSError, SafetensorError) as error:
        what = getattr(error, "strerror", None) or str(error)
        raise NmtError(f"cannot be written: {what}", path=path, remedy="choose another file") from None


def read_bundle(path: str | os.PathLike[str], kind: str | None = None) -> BundleFile:
    """Read a bundle, of one kind where it is named; no code in it is run.

    Raises `NmtError` for what is no bundle, is damaged, is of a later version or of another kind.
    """
    try:
        tensors, metadata = read_tensors(path)
        if _KEY not in metadata:
            raise NmtError("no vocabulary bundle", path=path, remedy="give what simnmt vocab build wrote")
        said = json.loads(metadata[_KEY])
        version, found, sha256, note = said["version"], said["kind"], said["sha256"], said["note"]
    except OSError as error:
        what = error.strerror or "no such file"
        raise NmtError(f"cannot be read: {what}", path=path, remedy="give what simnmt vocab build wrote") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise NmtError("damaged, or no vocabulary bundle", path=path, remedy=_AGAIN) from None
    if version != VERSION:
        raise NmtError(f"a bundle of version {version}, where {VERSION} is known", path=path, remedy=_AGAIN)
    if sha256 != _sha256(found, note, tensors):
        raise NmtError("damaged: its content is not what was written", path=path, remedy=_AGAIN)
    if kind is not None and found != kind:
        raise NmtError(f"a bundle of {found}, where one of {kind} is wanted", path=path, remedy="give another")
    return BundleFile(found, note, tensors)


def _sha256(kind: str, note: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Of all that is read: a changed label or fingerprint is as bad as a changed column."""
    digest = hashlib.sha256(json.dumps([kind, note], sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}:{tensor.dtype}:{list(tensor.shape)}:".encode())
        if tensor.numel():  # an empty one of numpy's has strides that no other type can be seen with
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
