"""Configuration and weights of a Transformer classifier, and the checks that both fit each other.

Weights are kept apart by where they live: the matrices of the layers are streamed, all other tensors stay in memory.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor

from simnmt.profile.streaming_cost import ShardGeometry
from simnmt.streaming.errors import StreamingError

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


def problem_of(settings: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the fields of an encoder's configuration, in words; None if nothing is."""
    for name, least in LEAST.items():
        value = settings[name]
        if not _whole(value) or value < least:
            return f"{name} {value!r}, where a whole number from {least} on is needed"
    for name, known in CHOICES.items():
        if settings[name] not in known:
            return f"{name} {settings[name]!r}, of which {', '.join(str(choice) for choice in known)} are known"
    epsilon = settings["norm_epsilon"]
    if not isinstance(epsilon, float) or not 0.0 < epsilon < math.inf:
        return f"norm_epsilon {epsilon!r}, where a number above 0 is needed"
    separator = settings["separator_token"]
    if separator is not None and (not _whole(separator) or separator < 0):
        return f"separator_token {separator!r}, where a token or nothing is needed"
    for name in ("padding_token", "separator_token"):
        if settings[name] is not None and settings[name] >= settings["vocabulary"]:
            return f"{name} {settings[name]} in a vocabulary of {settings['vocabulary']}"
    return None


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_resident(
    configuration: EncoderConfiguration, resident: Mapping[str, Tensor], path: str | os.PathLike[str] | None = None
) -> None:
    """Raise `StreamingError` for a tensor that is missing, of another shape, not float32, or that the encoder does not know."""
    known: set[str] = set()
    for name, shape in _shapes(configuration, resident):
        known.add(name)
        tensor = resident.get(name)
        if tensor is None:
            raise StreamingError(f"lacks the encoder's {name}", path=path, remedy=REMEDY)
        if tuple(tensor.shape) != shape or tensor.dtype != torch.float32:
            held = f"{_format_shape(tuple(tensor.shape))} {str(tensor.dtype).removeprefix('torch.')}"
            what = f"{name} is {held}, where the encoder needs {_format_shape(shape)} float32"
            raise StreamingError(what, path=path, remedy=REMEDY)
    if unknown := sorted(set(resident) - known):
        raise StreamingError(f"holds {unknown[0]}, which the encoder has not", path=path, remedy=REMEDY)


def _shapes(configuration: EncoderConfiguration, resident: Mapping[str, Tensor]) -> Iterator[tuple[str, Shape]]:
    """Return the shape of every tensor; `resident` gives the width of embedded tokens and the number of types."""
    width, embedded = configuration.width, configuration.width
    if "embeddings.project.weight" in resident and resident["embeddings.project.weight"].dim() == 2:
        embedded = resident["embeddings.project.weight"].shape[1]
        yield from _dense("embeddings.project", width, embedded)
    yield "embeddings.word", (configuration.vocabulary, embedded)
    yield "embeddings.position", (configuration.positions + configuration.position_offset, embedded)
    if configuration.separator_token is not None or "embeddings.type" in resident:
        types = resident["embeddings.type"].shape[0] if "embeddings.type" in resident else 2
        yield "embeddings.type", (max(types, 1 if configuration.separator_token is None else 2), embedded)
    yield from _norm("embeddings.norm", embedded) if configuration.norm == "post" else _norm("final_norm", width)
    if configuration.head_activation is not None:
        yield from _dense("head", width, width)
    yield from _dense("classifier", configuration.classes, width)
    for layer in range(configuration.layers):
        for name in ("q", "k", "v", "o", "ffn_in", "ffn_out"):
            yield f"layers.{layer}.{name}.bias", (configuration.ffn if name == "ffn_in" else width,)
        for name in ("norm_attention", "norm_ffn"):
            yield from _norm(f"layers.{layer}.{name}", width)


def _dense(name: str, out: int, read: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (out, read)
    yield f"{name}.bias", (out,)


def _norm(name: str, width: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def _format_shape(shape: Shape) -> str:
    return " x ".join(map(str, shape)) or "one number"


@dataclass(frozen=True, slots=True)
class EncoderConfiguration:
    """All that an encoder's forward pass depends on beside its tensors; written into a shard store beside them."""

    kind: str
    """`elastic` is our own; the others are those of `transformers`."""
    layers: int
    heads: int
    width: int
    ffn: int
    vocabulary: int
    positions: int
    """Most tokens of a text."""
    classes: int
    norm: Literal["pre", "post"] = "post"
    """Whether a layer normalises what it reads, or the sum it writes."""
    activation: Literal["gelu", "relu"] = "gelu"
    norm_epsilon: float = 1e-12
    pooling: Literal["first", "mean"] = "first"
    """What the classifier reads: the first token's vector, or the mean over all tokens."""
    head_activation: Literal["tanh", "relu", "gelu"] | None = "tanh"
    """Of the dense layer before the classifier; None: there is no such layer."""
    padding_token: int = 0
    separator_token: int | None = None
    """Tokens after the first of these are of the second type; None: the model knows no types."""
    position_offset: int = 0
    """What the first token's position is called; not counted among `positions`."""

    @property
    def geometry(self) -> ShardGeometry:
        """Of the layers that are cut into shards; raises `StreamingError` where the heads do not divide the sizes."""
        try:
            return ShardGeometry(layers=self.layers, heads=self.heads, width=self.width, ffn=self.ffn)
        except ValueError as error:
            raise StreamingError(
                f"cannot be cut into shards: {error}", remedy="take a model whose heads divide its sizes"
            ) from None

    def as_json(self) -> dict[str, Any]:
        """Every field."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any], path: str | os.PathLike[str] | None = None) -> EncoderConfiguration:
        """Return the configuration from the result of `as_json`; raises `StreamingError` with the field for anything else."""
        known = [field.name for field in fields(cls)]
        if odd := [name for name in (*known, *document) if (name in document) != (name in known)]:
            what = f"no configuration of an encoder: {odd[0]} is {'unknown' if odd[0] in document else 'missing'}"
            raise StreamingError(what, path=path, remedy=REMEDY)
        return cls(**document).checked(path)

    def checked(self, path: str | os.PathLike[str] | None = None, *, remedy: str = REMEDY) -> EncoderConfiguration:
        """Itself; raises `StreamingError`, which names the field, where it cannot be an encoder's."""
        problem = problem_of(self.as_json())
        if problem is not None:
            raise StreamingError(f"no configuration of an encoder: {problem}", path=path, remedy=remedy)
        try:
            _ = self.geometry
        except StreamingError as error:
            raise StreamingError(error.what, path=path, remedy=error.remedy) from None
        return self


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """The six weight matrices of one layer, float32, rows the outputs as torch keeps them."""

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    """These four [d, d]."""
    ffn_in: Tensor
    """[F, d]"""
    ffn_out: Tensor
    """[d, F]"""

    def named(self) -> dict[str, Tensor]:
        """By field name, in this order."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class EncoderWeights:
    """A classifier's tensors: `layer(i)` for what is cut into shards, `resident` for what always is in memory.

    `resident` names: `embeddings.word`, `embeddings.position`, `embeddings.type`, `embeddings.norm.{weight,bias}`,
    `layers.I.{q,k,v,o,ffn_in,ffn_out}.bias`, `layers.I.{norm_attention,norm_ffn}.{weight,bias}`,
    `final_norm.{weight,bias}` (pre-norm), `head.{weight,bias}` (the dense layer, if any), `classifier.{weight,bias}`.
    """

    def __init__(
        self,
        configuration: EncoderConfiguration,
        resident: Mapping[str, Tensor],
        layer: Callable[[int], LayerWeights],
        *,
        origin: str = "",
        random: bool = False,
    ) -> None:
        """`origin`: what to call the model; `random`: whether nobody has trained it. Raises `StreamingError`."""
        self.configuration = configuration
        self.geometry = configuration.geometry
        self.resident = {name: tensor.detach().to(torch.float32).contiguous() for name, tensor in resident.items()}
        self.origin, self.random = origin, random
        self._layer = layer
        self._fingerprint: str | None = None

    @property
    def kind(self) -> str:
        """As the configuration has it."""
        return self.configuration.kind

    @property
    def norm(self) -> str:
        """`pre` or `post`."""
        return self.configuration.norm

    @property
    def activation(self) -> str:
        """Of the feed-forward neurons."""
        return self.configuration.activation

    def layer(self, index: int) -> LayerWeights:
        """The matrices of layer `index`, from 0."""
        if not 0 <= index < self.geometry.layers:
            raise IndexError(index)
        return self._layer(index)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over configuration and tensors, in hexadecimal: equal for equal models, wherever they lie."""
        if self._fingerprint is None:
            digest = hashlib.sha256(repr(sorted(self.configuration.as_json().items())).encode())
            for name in sorted(self.resident):
                _take(digest, name, self.resident[name])
            for index in range(self.geometry.layers):
                for name, tensor in self.layer(index).named().items():
                    _take(digest, f"{index}.{name}", tensor)
            self._fingerprint = digest.hexdigest()
        return self._fingerprint


def _take(digest: Any, name: str, tensor: Tensor) -> None:
    digest.update(f"{name}{tuple(tensor.shape)}".encode())
    digest.update(tensor.detach().to(torch.float32).contiguous().numpy().data)
