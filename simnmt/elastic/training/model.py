"""The encoder that is trained: pre-norm, its weights kept slice by slice so that any depth and any slices can be run."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from simnmt.elastic.encoder_weights import EncoderConfiguration, EncoderWeights, LayerWeights


class ElasticLayer(nn.Module):
    """One pre-norm Transformer layer of M slices: a head and F/M feed-forward neurons each (STI-01)."""

    def __init__(self, configuration: EncoderConfiguration, dropout: float) -> None:
        super().__init__()
        width, slices = configuration.width, configuration.heads
        self.head, self.neurons, self.dropout = width // slices, configuration.ffn // slices, dropout
        self.width = width
        self.qkv = nn.Parameter(torch.empty(3, slices, self.head, width))
        self.o = nn.Parameter(torch.empty(slices, self.head, width))
        self.ffn_in = nn.Parameter(torch.empty(slices, self.neurons, width))
        self.ffn_out = nn.Parameter(torch.empty(slices, self.neurons, width))
        self.qkv_bias = nn.Parameter(torch.zeros(3, slices, self.head))
        self.o_bias = nn.Parameter(torch.zeros(width))
        self.in_bias = nn.Parameter(torch.zeros(slices, self.neurons))
        self.out_bias = nn.Parameter(torch.zeros(width))
        self.norm_attention = nn.LayerNorm(width, eps=configuration.norm_epsilon)
        self.norm_ffn = nn.LayerNorm(width, eps=configuration.norm_epsilon)
        shrink = 1.0 / math.sqrt(2.0 * configuration.layers)
        """So that the sum over all layers starts no larger than what enters the first."""
        nn.init.normal_(self.qkv, std=width**-0.5)
        nn.init.normal_(self.o, std=width**-0.5 * shrink)
        nn.init.normal_(self.ffn_in, std=width**-0.5)
        nn.init.normal_(self.ffn_out, std=configuration.ffn**-0.5 * shrink)

    def forward(self, hidden: Tensor, mask: Tensor, slices: Tensor | None) -> Tensor:
        """`hidden` [b, l, d], `mask` [b, 1, 1, l] of what may be attended to; `slices`: which are run, None for all."""
        qkv: Tensor = self.qkv
        qkv_bias: Tensor = self.qkv_bias
        o: Tensor = self.o
        ffn_in: Tensor = self.ffn_in
        in_bias: Tensor = self.in_bias
        ffn_out: Tensor = self.ffn_out
        if slices is not None:
            qkv, qkv_bias, o = qkv[:, slices], qkv_bias[:, slices], o[slices]
            ffn_in, in_bias, ffn_out = ffn_in[slices], in_bias[slices], ffn_out[slices]
        batch, length, width = hidden.shape
        dropout = self.dropout if self.training else 0.0
        read = functional.linear(self.norm_attention(hidden), qkv.reshape(-1, width), qkv_bias.reshape(-1))
        query, key, value = read.view(batch, length, 3, -1, self.head).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, mask).transpose(1, 2).reshape(batch, length, -1)
        hidden = hidden + functional.dropout(mixed @ o.reshape(-1, width) + self.o_bias, dropout, self.training)
        inner = functional.gelu(functional.linear(self.norm_ffn(hidden), ffn_in.reshape(-1, width), in_bias.reshape(-1)))
        return hidden + functional.dropout(inner @ ffn_out.reshape(-1, width) + self.out_bias, dropout, self.training)

    def weights(self) -> LayerWeights:
        """As transformers keep them: rows the outputs."""
        q, k, v = (part.reshape(-1, self.width).detach().clone() for part in self.qkv)
        o, out = (part.reshape(-1, self.width).t().detach().contiguous() for part in (self.o, self.ffn_out))
        return LayerWeights(q, k, v, o, self.ffn_in.reshape(-1, self.width).detach().clone(), out)


class ElasticClassifier(nn.Module):
    """Embeddings, layers, a last norm, the mean over the tokens, and a line of classes."""

    def __init__(self, configuration: EncoderConfiguration, *, dropout: float, embedding_dropout: float) -> None:
        super().__init__()
        self.configuration, self.embedding_dropout = configuration, embedding_dropout
        self.word = nn.Embedding(configuration.vocabulary, configuration.width)
        self.position = nn.Parameter(_waves(configuration.positions, configuration.width))
        self.layers = nn.ModuleList(ElasticLayer(configuration, dropout) for _ in range(configuration.layers))
        self.final_norm = nn.LayerNorm(configuration.width, eps=configuration.norm_epsilon)
        self.classifier = nn.Linear(configuration.width, configuration.classes)
        nn.init.normal_(self.word.weight, std=0.3)
        nn.init.zeros_(self.classifier.weight)

    def forward(
        self, tokens: Tensor, mask: Tensor, *, depth: int | None = None, slices: Sequence[Tensor] | None = None
    ) -> Tensor:
        """Logits [b, classes] of the bottom `depth` layers with `slices` of each, None: all; `mask` [b, l], True: a token."""
        hidden = self.word(tokens) + self.position[: tokens.shape[1]]
        hidden = functional.dropout(hidden, self.embedding_dropout, self.training)
        attended = mask[:, None, None, :]
        for index, layer in enumerate(self.layers[:depth]):
            hidden = layer(hidden, attended, None if slices is None else slices[index])
        hidden = self.final_norm(hidden)
        if self.configuration.pooling == "first":
            pooled = hidden[:, 0]
        else:
            weight = mask.to(hidden.dtype)[:, :, None]
            pooled = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1.0)
        logits: Tensor = self.classifier(functional.dropout(pooled, self.embedding_dropout, self.training))
        return logits

    def exported(self, origin: str = "") -> EncoderWeights:
        """The weights as every encoder's are kept."""
        resident = {
            "embeddings.word": self.word.weight,
            "embeddings.position": self.position,
            "final_norm.weight": self.final_norm.weight,
            "final_norm.bias": self.final_norm.bias,
            "classifier.weight": self.classifier.weight,
            "classifier.bias": self.classifier.bias,
        }
        layers = [layer for layer in self.layers if isinstance(layer, ElasticLayer)]
        for index, layer in enumerate(layers):
            q, k, v = (part.reshape(-1) for part in layer.qkv_bias)
            biases = {"q": q, "k": k, "v": v, "o": layer.o_bias, "ffn_in": layer.in_bias.reshape(-1), "ffn_out": layer.out_bias}
            resident |= {f"layers.{index}.{name}.bias": bias for name, bias in biases.items()}
            for name, norm in (("norm_attention", layer.norm_attention), ("norm_ffn", layer.norm_ffn)):
                resident |= {f"layers.{index}.{name}.weight": norm.weight, f"layers.{index}.{name}.bias": norm.bias}
        kept = [layer.weights() for layer in layers]
        return EncoderWeights(
            self.configuration,
            {name: tensor.detach().clone() for name, tensor in resident.items()},
            kept.__getitem__,
            origin=origin,
        )


def _waves(positions: int, width: int) -> Tensor:
    """Sines and cosines of falling frequency [positions, width]: neighbours are found by a fixed turn from the start."""
    angles = torch.arange(positions)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    waves = torch.zeros(positions, width)
    waves[:, 0::2], waves[:, 1::2] = angles.sin(), angles.cos()[:, : width // 2]
    return 0.3 * waves
