"""A small encoder of random weights, the same for the same seed."""

from __future__ import annotations

import torch

from simnmt.streaming.encoder.encoder_configuration import EncoderConfiguration, EncoderWeights, LayerWeights


def random_layer(width: int, ffn: int, seed: int = 0, scale: float = 0.04) -> LayerWeights:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(width, width)] * 4 + [(ffn, width), (width, ffn)]
    return LayerWeights(*(scale * torch.randn(shape, generator=generator) for shape in shapes))


def random_weights(layers: int = 3, heads: int = 4, width: int = 16, ffn: int = 32, seed: int = 0) -> EncoderWeights:
    configuration = EncoderConfiguration(
        kind="elastic", layers=layers, heads=heads, width=width, ffn=ffn, vocabulary=8, positions=8, classes=2
    )
    resident = {"classifier.weight": torch.full((2, width), 0.5), "classifier.bias": torch.zeros(2)}
    made = [random_layer(width, ffn, 100 * seed + layer) for layer in range(layers)]
    return EncoderWeights(configuration, resident, made.__getitem__, origin="made", random=True)
