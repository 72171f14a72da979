"""Forward pass of an encoder at any depth and width; each layer computes from a buffer of its shards (STI-02)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from simnmt.streaming.encoder.encoder_configuration import MATRICES, EncoderConfiguration, EncoderWeights, check_resident
from simnmt.streaming.store.shard_format import LayerBuffer

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": functional.gelu, "relu": functional.relu, "tanh": torch.tanh}


class ElasticEncoder:
    """A classifier with its resident tensors in memory; a buffer provides the matrices of each layer.

    Any bottom n layers with any m slices each give logits; the whole model gives the logits of the original.
    """

    def __init__(self, configuration: EncoderConfiguration, resident: Mapping[str, Tensor]) -> None:
        """Check and keep the tensors of `EncoderWeights.resident`; raises `StreamingError` if they do not fit."""
        check_resident(configuration, resident)
        self.configuration = configuration
        self.geometry = configuration.geometry
        self._resident = resident
        self._activation = _ACTIVATIONS[configuration.activation]

    @classmethod
    def of(cls, weights: EncoderWeights) -> ElasticEncoder:
        """Return the encoder of these weights without the matrices of its layers."""
        return cls(weights.configuration, weights.resident)

    def embed(self, token_ids: Tensor, mask: Tensor) -> Tensor:
        """Return the input of the first layer, [b, l, d]; `token_ids`, `mask` [b, l]: True at tokens, which come first."""
        configuration, resident = self.configuration, self._resident
        length = token_ids.shape[1]
        positions = resident["embeddings.position"][configuration.position_offset : configuration.position_offset + length]
        hidden = functional.embedding(token_ids, resident["embeddings.word"]) + positions
        if "embeddings.type" in resident:
            hidden = hidden + resident["embeddings.type"][self._types(token_ids)]
        if configuration.norm == "post":
            hidden = self._normed(hidden, "embeddings.norm")
        if "embeddings.project.weight" in resident:
            hidden = self._linear(hidden, "embeddings.project")
        return hidden

    def layer(self, hidden: Tensor, mask: Tensor, layer_index: int, slices: Sequence[int], buffer: LayerBuffer) -> Tensor:
        """Return the output of a layer, [b, l, d], with only `slices`, whose shards are in `buffer` in this order."""
        at, configuration = f"layers.{layer_index}", self.configuration
        part = {name: torch.from_numpy(buffer.segment(name)) for name in MATRICES}
        whole = len(slices) == configuration.heads and list(slices) == list(range(configuration.heads))
        chosen = None if whole else torch.as_tensor(list(slices))
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
        hidden = hidden + (mixed @ part["o"] + self._resident[f"{at}.o.bias"])
        if not before:
            hidden = self._normed(hidden, f"{at}.norm_attention")
        read = self._normed(hidden, f"{at}.norm_ffn") if before else hidden
        inner = self._activation(functional.linear(read, part["ffn_in"], bias("ffn_in")))
        hidden = hidden + (inner @ part["ffn_out"] + self._resident[f"{at}.ffn_out.bias"])
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
        if configuration.head_activation is not None:
            pooled = _ACTIVATIONS[configuration.head_activation](self._linear(pooled, "head"))
        return self._linear(pooled, "classifier")

    def _types(self, token_ids: Tensor) -> Tensor:
        separator = self.configuration.separator_token
        if separator is None:
            return torch.zeros_like(token_ids)
        marks = (token_ids == separator).long()
        return ((marks.cumsum(1) - marks) >= 1).long()  # padding has the second type too, which has no effect

    def _normed(self, hidden: Tensor, name: str) -> Tensor:
        weight, bias = self._resident[f"{name}.weight"], self._resident[f"{name}.bias"]
        return functional.layer_norm(hidden, (weight.shape[0],), weight, bias, self.configuration.norm_epsilon)

    def _linear(self, read: Tensor, name: str) -> Tensor:
        return functional.linear(read, self._resident[f"{name}.weight"], self._resident[f"{name}.bias"])
