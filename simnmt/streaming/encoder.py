"""Transformer classifier of any depth and width: configuration, weights, and a forward pass over shards (STI-02).

The matrices of the layers are streamed; all other tensors are resident, which means that they stay in memory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from simnmt.nmt.checkpoint import check_tensors
from simnmt.profile.streaming_block import ShardGeometry
from simnmt.streaming.errors import StreamingError
from simnmt.streaming.shards import SEGMENTS, LayerBuffer, LayerWeights

Shape = tuple[int, ...]
Positive = Annotated[int, Field(ge=1)]
TokenId = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class EncoderConfiguration:
    """Settings of the forward pass of an encoder, which a shard store holds beside the tensors.

    Raises `ValueError` for heads that do not divide the sizes, and for tokens beyond the vocabulary.
    """

    kind: Literal["elastic", "bert"]
    """`elastic` is trained by simnmt, `bert` by `transformers`."""
    layers: Positive
    heads: Positive
    width: Positive
    ffn: Positive
    vocabulary: Positive
    positions: Positive
    classes: Annotated[int, Field(ge=2)]
    norm: Literal["pre", "post"] = "post"
    """`pre`: a layer normalises its input; `post`: a layer normalises its output."""
    activation: Literal["gelu", "relu"] = "gelu"
    norm_epsilon: Annotated[float, Field(gt=0.0)] = 1e-12
    pooling: Literal["first", "mean"] = "first"
    """Input of the classifier: the vector of the first token, or the mean over all tokens."""
    head: bool = True
    """Whether a dense layer with tanh comes before the classifier."""
    padding_token: TokenId = 0
    separator_token: TokenId | None = None
    """Tokens after the first of these are of the second type; None if the model knows no types."""

    def __post_init__(self) -> None:
        _ = self.geometry
        for name, token in (("padding_token", self.padding_token), ("separator_token", self.separator_token)):
            if token is not None and token >= self.vocabulary:
                raise ValueError(f"{name} {token} in a vocabulary of {self.vocabulary}")

    @property
    def geometry(self) -> ShardGeometry:
        return ShardGeometry(layers=self.layers, heads=self.heads, width=self.width, ffn=self.ffn)

    def matrix_shape(self, name: str) -> tuple[int, int]:
        """Return the shape of one of `SEGMENTS`; rows are outputs."""
        return self.ffn if name == "ffn_in" else self.width, self.ffn if name == "ffn_out" else self.width


@dataclass(frozen=True)
class EncoderWeights:
    """Tensors of a classifier: `layer(i)` gives matrices that are cut into shards, `resident` holds all other tensors.

    `resident` names, all float32: `embeddings.word`, `embeddings.position`, `embeddings.type`, `embeddings.norm.{weight,bias}`,
    `layers.I.{q,k,v,o,ffn_in,ffn_out}.bias`, `layers.I.{norm_attention,norm_ffn}.{weight,bias}`,
    `final_norm.{weight,bias}` (pre-norm), `head.{weight,bias}` (the dense layer, if any), `classifier.{weight,bias}`.
    """

    configuration: EncoderConfiguration
    resident: Mapping[str, Tensor]
    layer: Callable[[int], LayerWeights]
    origin: str = ""
    random: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Contents of the tokenizer's files by name; empty if the encoder accepts only token ids."""
    label_names: tuple[str, ...] = ()
    """Names of the classes, in their order; empty if they have no names."""

    @property
    def geometry(self) -> ShardGeometry:
        return self.configuration.geometry

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of configuration and tensors, in hexadecimal."""
        digest = hashlib.sha256(repr(sorted(asdict(self.configuration).items())).encode())
        tensors = {name: self.resident[name] for name in sorted(self.resident)}
        for index in range(-1, self.configuration.layers):
            if index >= 0:
                tensors = {f"{index}.{name}": tensor for name, tensor in self.layer(index)._asdict().items()}
            for name, tensor in tensors.items():
                digest.update(f"{name}{tuple(tensor.shape)}".encode())
                digest.update(tensor.detach().to(torch.float32).contiguous().numpy().data)
        return digest.hexdigest()


def check_encoder_tensors(
    configuration: EncoderConfiguration,
    tensors: Mapping[str, Tensor],
    path: str | os.PathLike[str] | None = None,
    *,
    matrices: bool = False,
) -> None:
    """Raise `StreamingError` for a resident tensor, or a matrix, that is missing, unknown, not float32 or of another shape."""
    shapes = dict(_shapes(configuration))
    if matrices:
        shapes |= {name: configuration.matrix_shape(name.split(".")[2]) for name in matrix_names(configuration)}
    try:
        check_tensors(tensors, shapes)
        if others := [name for name, tensor in tensors.items() if tensor.dtype != torch.float32]:
            raise ValueError(f"{others[0]} is not float32")
    except ValueError as error:
        raise StreamingError(
            f"not the tensors of its encoder: {error}", path=path, remedy="train or shard the model again"
        ) from None


def matrix_names(configuration: EncoderConfiguration) -> list[str]:
    """Return the names of all matrices in a file of weights, by layer."""
    return [f"layers.{layer}.{name}.weight" for layer in range(configuration.layers) for name in SEGMENTS]


def random_resident(configuration: EncoderConfiguration, generator: torch.Generator, scale: float = 1.0) -> dict[str, Tensor]:
    """Draw embeddings and the matrices of the classifier; norms have weight 1, and all biases are 0."""

    def tensor(name: str, shape: Shape) -> Tensor:
        if name.endswith(".bias"):
            return torch.zeros(shape)
        return torch.ones(shape) if "norm" in name else scale * torch.randn(shape, generator=generator)

    return {name: tensor(name, shape) for name, shape in _shapes(configuration)}


def _shapes(configuration: EncoderConfiguration) -> Iterator[tuple[str, Shape]]:
    """Yield name and shape of every resident tensor."""
    width = configuration.width
    yield "embeddings.word", (configuration.vocabulary, width)
    yield "embeddings.position", (configuration.positions, width)
    if configuration.separator_token is not None:
        yield "embeddings.type", (2, width)
    yield from _dense("embeddings.norm" if configuration.norm == "post" else "final_norm", width)
    if configuration.head:
        yield from _dense("head", width, width)
    yield from _dense("classifier", configuration.classes, width)
    for layer in range(configuration.layers):
        for name in SEGMENTS:
            yield f"layers.{layer}.{name}.bias", configuration.matrix_shape(name)[:1]
        for name in ("norm_attention", "norm_ffn"):
            yield from _dense(f"layers.{layer}.{name}", width)


def _dense(name: str, out: int, *read: int) -> Iterator[tuple[str, Shape]]:
    """Yield weight and bias of a dense layer, or of a norm, which reads no other width."""
    yield f"{name}.weight", (out, *read)
    yield f"{name}.bias", (out,)


class ElasticEncoder:
    """A classifier with its resident tensors in memory; a buffer provides the matrices of each layer.

    Any bottom n layers with any m slices each give logits; the whole model gives the logits of the original.
    """

    def __init__(self, configuration: EncoderConfiguration, resident: Mapping[str, Tensor]) -> None:
        """Check and keep the tensors of `EncoderWeights.resident`; raises `StreamingError` if they do not fit."""
        check_encoder_tensors(configuration, resident)
        self.configuration = configuration
        self.geometry = configuration.geometry
        self._resident = resident
        self._activation = functional.gelu if configuration.activation == "gelu" else functional.relu
        self.drop_outputs: Callable[[Tensor], Tensor] = lambda output: output
        """Dropout of what attention and feed-forward networks add; training sets it."""
        self.drop_vectors: Callable[[Tensor], Tensor] = lambda vectors: vectors
        """Dropout of embedded tokens and of the input of the classifier; training sets it."""

    def embed(self, token_ids: Tensor, mask: Tensor) -> Tensor:
        """Return the input of the first layer, [b, l, d]; `token_ids`, `mask` [b, l]: True at tokens, which come first."""
        configuration, resident = self.configuration, self._resident
        positions = resident["embeddings.position"][: token_ids.shape[1]]
        hidden = functional.embedding(token_ids, resident["embeddings.word"]) + positions
        if configuration.separator_token is not None:
            # Tokens after the first separator are of the second type; padding too, which has no effect.
            marks = (token_ids == configuration.separator_token).long()
            hidden = hidden + resident["embeddings.type"][((marks.cumsum(1) - marks) >= 1).long()]
        return self.drop_vectors(self._normed(hidden, "embeddings.norm") if configuration.norm == "post" else hidden)

    def layer(self, hidden: Tensor, mask: Tensor, layer_index: int, slices: Sequence[int], buffer: LayerBuffer) -> Tensor:
        """Return the output of a layer, [b, l, d], with only `slices`, whose shards are in `buffer` in this order."""
        part = {name: torch.from_numpy(buffer.segments[name]) for name in SEGMENTS}
        whole = list(slices) == list(range(self.configuration.heads))
        return self.layer_of(part, hidden, mask, layer_index, None if whole else torch.as_tensor(list(slices)))

    def layer_of(
        self, part: Mapping[str, Tensor], hidden: Tensor, mask: Tensor, layer_index: int, chosen: Tensor | None
    ) -> Tensor:
        """Return the output of a layer with the segments of the `chosen` slices, None for all, each [m * rows, d]."""
        at, configuration = f"layers.{layer_index}", self.configuration
        batch, length, width = hidden.shape
        head = width // configuration.heads

        def bias(name: str) -> Tensor:
            full = self._resident[f"{at}.{name}.bias"]
            return full if chosen is None else full.view(configuration.heads, -1)[chosen].reshape(-1)

        def heads_of(name: str, read: Tensor) -> Tensor:
            return functional.linear(read, part[name], bias(name)).view(batch, length, -1, head).transpose(1, 2)

        before = configuration.norm == "pre"
        read = self._normed(hidden, f"{at}.norm_attention") if before else hidden
        attended = mask[:, None, None, :]
        mixed = functional.scaled_dot_product_attention(heads_of("q", read), heads_of("k", read), heads_of("v", read), attended)
        mixed = mixed.transpose(1, 2).reshape(batch, length, -1)
        hidden = hidden + self.drop_outputs(mixed @ part["o"] + self._resident[f"{at}.o.bias"])
        if not before:
            hidden = self._normed(hidden, f"{at}.norm_attention")
        read = self._normed(hidden, f"{at}.norm_ffn") if before else hidden
        inner = self._activation(functional.linear(read, part["ffn_in"], bias("ffn_in")))
        hidden = hidden + self.drop_outputs(inner @ part["ffn_out"] + self._resident[f"{at}.ffn_out.bias"])
        return hidden if before else self._normed(hidden, f"{at}.norm_ffn")

    def logits(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Return the logits of the classes, [b, classes], from the output of any layer."""
        configuration = self.configuration
        if configuration.norm == "pre":
            hidden = self._normed(hidden, "final_norm")
        if configuration.pooling == "first":
            pooled = hidden[:, 0]
        else:
            weight = mask.to(hidden.dtype)[:, :, None]
            pooled = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1.0)
        if configuration.head:
            pooled = self._linear(pooled, "head").tanh()
        return self._linear(self.drop_vectors(pooled), "classifier")

    def _normed(self, hidden: Tensor, name: str) -> Tensor:
        weight, bias = self._resident[f"{name}.weight"], self._resident[f"{name}.bias"]
        return functional.layer_norm(hidden, (weight.shape[0],), weight, bias, self.configuration.norm_epsilon)

    def _linear(self, read: Tensor, name: str) -> Tensor:
        return functional.linear(read, self._resident[f"{name}.weight"], self._resident[f"{name}.bias"])


def padded(token_ids: Sequence[Sequence[int]], padding: int, length: int | None = None) -> tuple[Tensor, Tensor]:
    """Return token ids [b, l] and mask [b, l], True at tokens, padded to `length` or the longest text."""
    longest = max(len(tokens) for tokens in token_ids) if length is None else length
    ids = torch.full((len(token_ids), longest), padding, dtype=torch.long)
    mask = torch.zeros((len(token_ids), longest), dtype=torch.bool)
    for row, tokens in enumerate(token_ids):
        ids[row, : len(tokens)] = torch.as_tensor(tokens, dtype=torch.long)
        mask[row, : len(tokens)] = True
    return ids, mask
