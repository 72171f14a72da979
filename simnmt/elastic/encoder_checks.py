"""Whether an encoder's configuration and resident tensors make one model, told before anything is computed with them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from simnmt.elastic.errors import ElasticError

if TYPE_CHECKING:
    from torch import Tensor

    from simnmt.elastic.encoder_weights import EncoderConfiguration

LEAST = {
    "layers": 1,
    "heads": 1,
    "width": 1,
    "ffn": 1,
    "vocabulary": 1,
    "positions": 1,
    "classes": 2,
    "padding_token": 0,
    "position_offset": 0,
}
"""Fields that are whole numbers, and the least that each may be."""
CHOICES: Mapping[str, tuple[str | None, ...]] = {
    "kind": ("elastic", "bert", "roberta", "camembert", "distilbert", "electra"),
    "norm": ("pre", "post"),
    "activation": ("gelu", "relu"),
    "pooling": ("first", "mean"),
    "head_activation": ("tanh", "relu", "gelu", None),
}
REMEDY = "train or shard the model again"
Shape = tuple[int, ...]


def problem_of(said: Mapping[str, Any]) -> str | None:
    """What is wrong with the fields of an encoder's configuration, in words; None: nothing."""
    for name, least in LEAST.items():
        value = said[name]
        if not _whole(value) or value < least:
            return f"{name} {value!r}, where a whole number from {least} on is needed"
    for name, known in CHOICES.items():
        if said[name] not in known:
            return f"{name} {said[name]!r}, of which {', '.join(str(each) for each in known)} are known"
    epsilon = said["norm_epsilon"]
    if not isinstance(epsilon, float) or not 0.0 < epsilon < math.inf:
        return f"norm_epsilon {epsilon!r}, where a number above 0 is needed"
    separator = said["separator_token"]
    if separator is not None and (not _whole(separator) or separator < 0):
        return f"separator_token {separator!r}, where a token or nothing is needed"
    for name in ("padding_token", "separator_token"):
        if said[name] is not None and said[name] >= said["vocabulary"]:
            return f"{name} {said[name]} in a vocabulary of {said['vocabulary']}"
    return None


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_resident(
    told: EncoderConfiguration, resident: Mapping[str, Tensor], path: str | os.PathLike[str] | None = None
) -> None:
    """Raise `ElasticError` for a tensor that is missing, of another shape, not float32, or that the encoder does not know."""
    known: set[str] = set()
    for name, shape in _shapes(told, resident):
        known.add(name)
        found = resident.get(name)
        if found is None:
            raise ElasticError(f"lacks the encoder's {name}", path=path, remedy=REMEDY)
        if tuple(found.shape) != shape or found.dtype != torch.float32:
            held = f"{_told(tuple(found.shape))} {str(found.dtype).removeprefix('torch.')}"
            what = f"{name} is {held}, where the encoder needs {_told(shape)} float32"
            raise ElasticError(what, path=path, remedy=REMEDY)
    if unknown := sorted(set(resident) - known):
        raise ElasticError(f"holds {unknown[0]}, which the encoder has not", path=path, remedy=REMEDY)


def _shapes(told: EncoderConfiguration, resident: Mapping[str, Tensor]) -> Iterator[tuple[str, Shape]]:
    """Every tensor's shape; how wide the embedded tokens are, and how many types there are, is theirs to say."""
    width, embedded = told.width, told.width
    if "embeddings.project.weight" in resident and resident["embeddings.project.weight"].dim() == 2:
        embedded = resident["embeddings.project.weight"].shape[1]
        yield from _dense("embeddings.project", width, embedded)
    yield "embeddings.word", (told.vocabulary, embedded)
    yield "embeddings.position", (told.positions + told.position_offset, embedded)
    if told.separator_token is not None or "embeddings.type" in resident:
        types = resident["embeddings.type"].shape[0] if "embeddings.type" in resident else 2
        yield "embeddings.type", (max(types, 1 if told.separator_token is None else 2), embedded)
    yield from _norm("embeddings.norm", embedded) if told.norm == "post" else _norm("final_norm", width)
    if told.head_activation is not None:
        yield from _dense("head", width, width)
    yield from _dense("classifier", told.classes, width)
    for layer in range(told.layers):
        for name in ("q", "k", "v", "o", "ffn_in", "ffn_out"):
            yield f"layers.{layer}.{name}.bias", (told.ffn if name == "ffn_in" else width,)
        for name in ("norm_attention", "norm_ffn"):
            yield from _norm(f"layers.{layer}.{name}", width)


def _dense(name: str, out: int, read: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (out, read)
    yield f"{name}.bias", (out,)


def _norm(name: str, width: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def _told(shape: Shape) -> str:
    return " x ".join(map(str, shape)) or "one number"
