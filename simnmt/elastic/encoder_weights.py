"""The weights of a Transformer classifier, apart by where they live: layers that are streamed, and all that stays in memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor

from simnmt.costs.shard_geometry import ShardGeometry
from simnmt.elastic.encoder_checks import REMEDY, problem_of
from simnmt.elastic.errors import ElasticError


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
        """Of the layers that are cut into shards; raises `ElasticError` where the heads do not divide the sizes."""
        try:
            return ShardGeometry(layers=self.layers, heads=self.heads, width=self.width, ffn=self.ffn)
        except ValueError as error:
            raise ElasticError(
                f"cannot be cut into shards: {error}", remedy="take a model whose heads divide its sizes"
            ) from None

    def as_json(self) -> dict[str, Any]:
        """Every field."""
        return asdict(self)

    @classmethod
    def from_json(cls, said: Mapping[str, Any], path: str | os.PathLike[str] | None = None) -> EncoderConfiguration:
        """What `as_json` gave; raises `ElasticError`, which names the field, for anything else."""
        known = [field.name for field in fields(cls)]
        if odd := [name for name in (*known, *said) if (name in said) != (name in known)]:
            what = f"no configuration of an encoder: {odd[0]} is {'unknown' if odd[0] in said else 'missing'}"
            raise ElasticError(what, path=path, remedy=REMEDY)
        return cls(**said).checked(path)

    def checked(self, path: str | os.PathLike[str] | None = None, *, remedy: str = REMEDY) -> EncoderConfiguration:
        """Itself; raises `ElasticError`, which names the field, where it cannot be an encoder's."""
        problem = problem_of(self.as_json())
        if problem is not None:
            raise ElasticError(f"no configuration of an encoder: {problem}", path=path, remedy=remedy)
        try:
            _ = self.geometry
        except ElasticError as error:
            raise ElasticError(error.what, path=path, remedy=error.remedy) from None
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
        """`origin`: what to call the model; `random`: whether nobody has trained it. Raises `ElasticError`."""
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
