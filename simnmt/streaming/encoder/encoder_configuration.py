"""Configuration and weights of a Transformer classifier, and the checks that they fit each other.

The matrices of the layers are streamed; all other tensors are resident, which means that they stay in memory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from simnmt.base.configuration import checked_dataclass
from simnmt.profile.streaming_cost import ShardGeometry
from simnmt.streaming.errors import StreamingError

MATRICES = ("q", "k", "v", "o", "ffn_in", "ffn_out")
"""Weight matrices of a layer, in this order everywhere."""
REMEDY = "train or shard the model again"
Shape = tuple[int, ...]


def check_resident(
    configuration: EncoderConfiguration, resident: Mapping[str, Tensor], path: str | os.PathLike[str] | None = None
) -> None:
    """Raise `StreamingError` for a tensor that is missing, unknown, not float32 or of another shape."""
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
    """Yield name and shape of every tensor; `resident` gives the width of embedded tokens and the number of types."""
    width, embedded = configuration.width, configuration.width
    if "embeddings.project.weight" in resident and resident["embeddings.project.weight"].dim() == 2:
        embedded = resident["embeddings.project.weight"].shape[1]
        yield from _dense("embeddings.project", width, embedded)
    yield "embeddings.word", (configuration.vocabulary, embedded)
    yield "embeddings.position", (configuration.positions + configuration.position_offset, embedded)
    if configuration.separator_token is not None or "embeddings.type" in resident:
        types = resident["embeddings.type"].shape[0] if "embeddings.type" in resident else 2
        yield "embeddings.type", (max(types, 1 if configuration.separator_token is None else 2), embedded)
    yield from _dense("embeddings.norm", embedded) if configuration.norm == "post" else _dense("final_norm", width)
    if configuration.head_activation is not None:
        yield from _dense("head", width, width)
    yield from _dense("classifier", configuration.classes, width)
    for layer in range(configuration.layers):
        for name in MATRICES:
            yield f"layers.{layer}.{name}.bias", configuration.matrix_shape(name)[:1]
        for name in ("norm_attention", "norm_ffn"):
            yield from _dense(f"layers.{layer}.{name}", width)


def random_resident(configuration: EncoderConfiguration, generator: torch.Generator, scale: float = 1.0) -> dict[str, Tensor]:
    """Draw embeddings and the matrices of the classifier; norms have weight 1, and all biases are 0."""

    def tensor(name: str, shape: Shape) -> Tensor:
        if name.endswith(".bias"):
            return torch.zeros(shape)
        return torch.ones(shape) if "norm" in name else scale * torch.randn(shape, generator=generator)

    return {name: tensor(name, shape) for name, shape in _shapes(configuration, {})}


def _dense(name: str, out: int, *read: int) -> Iterator[tuple[str, Shape]]:
    """Yield weight and bias of a dense layer, or of a norm, which reads no other width."""
    yield f"{name}.weight", (out, *read)
    yield f"{name}.bias", (out,)


def _format_shape(shape: Shape) -> str:
    return " x ".join(map(str, shape)) or "one number"


Activation = Literal["gelu", "relu"]
Positive = Annotated[int, Field(ge=1)]
TokenId = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class EncoderConfiguration:
    """Settings of the forward pass of an encoder, which a shard store holds beside the tensors.

    Raises `ValueError` for heads that do not divide the sizes, and for tokens beyond the vocabulary.
    """

    kind: Literal["elastic", "bert", "roberta", "camembert", "distilbert", "electra"]
    """`elastic` is trained by simnmt; the other kinds belong to `transformers`."""
    layers: Positive
    heads: Positive
    width: Positive
    ffn: Positive
    vocabulary: Positive
    positions: Positive
    """Most tokens of a text."""
    classes: Annotated[int, Field(ge=2)]
    norm: Literal["pre", "post"] = "post"
    """`pre`: a layer normalises its input; `post`: a layer normalises its output."""
    activation: Activation = "gelu"
    norm_epsilon: Annotated[float, Field(gt=0.0)] = 1e-12
    pooling: Literal["first", "mean"] = "first"
    """Input of the classifier: the vector of the first token, or the mean over all tokens."""
    head_activation: Literal["tanh", "relu", "gelu"] | None = "tanh"
    """Activation of the dense layer before the classifier; None if there is no such layer."""
    padding_token: TokenId = 0
    separator_token: TokenId | None = None
    """Tokens after the first of these are of the second type; None if the model knows no types."""
    position_offset: TokenId = 0
    """Number of the first token's position; not counted among `positions`."""

    def __post_init__(self) -> None:
        _ = self.geometry
        for name, token in (("padding_token", self.padding_token), ("separator_token", self.separator_token)):
            if token is not None and token >= self.vocabulary:
                raise ValueError(f"{name} {token} in a vocabulary of {self.vocabulary}")

    @property
    def geometry(self) -> ShardGeometry:
        """Sizes of the layers that are cut into shards."""
        return ShardGeometry(layers=self.layers, heads=self.heads, width=self.width, ffn=self.ffn)

    @classmethod
    def from_json(
        cls, document: object, path: str | os.PathLike[str] | None = None, *, remedy: str = REMEDY
    ) -> EncoderConfiguration:
        """Return the configuration of a JSON object; raises `StreamingError` with the name of a wrong field."""
        try:
            return checked_dataclass(cls, document)
        except ValueError as error:
            raise StreamingError(f"no configuration of an encoder: {error}", path=path, remedy=remedy) from None

    def matrix_shape(self, name: str) -> tuple[int, int]:
        """Return the shape of one of `MATRICES`; rows are outputs."""
        return self.ffn if name == "ffn_in" else self.width, self.ffn if name == "ffn_out" else self.width


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """The six weight matrices of one layer, float32; rows are outputs, as in torch."""

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    """q, k, v and o: [d, d]."""
    ffn_in: Tensor
    """[F, d]"""
    ffn_out: Tensor
    """[d, F]"""

    def named(self) -> dict[str, Tensor]:
        """Return the matrices by name, in the order of `MATRICES`."""
        return {name: getattr(self, name) for name in MATRICES}


class EncoderWeights:
    """Tensors of a classifier: `layer(i)` gives matrices that are cut into shards, `resident` holds all other tensors.

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
        """Keep the tensors; `origin`: name of the model, `random`: True for untrained weights."""
        self.configuration = configuration
        self.geometry = configuration.geometry
        self.resident = {name: tensor.detach().to(torch.float32).contiguous() for name, tensor in resident.items()}
        self.origin, self.random = origin, random
        self._layer = layer
        self._fingerprint: str | None = None

    def layer(self, index: int) -> LayerWeights:
        """Return the matrices of layer `index`, counted from 0."""
        if not 0 <= index < self.geometry.layers:
            raise IndexError(index)
        return self._layer(index)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of configuration and tensors, in hexadecimal."""
        if self._fingerprint is None:
            digest = hashlib.sha256(repr(sorted(asdict(self.configuration).items())).encode())
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
