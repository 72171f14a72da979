"""Any depth and any slices give valid output, and all of them the model as it was (STI-01, STI-02)."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from simnmt.streaming.encoder import EncoderConfiguration, EncoderWeights
from simnmt.streaming.training import ElasticClassifier
from tests.streaming.made_encoder import logits_of

LAYERS, SLICES = 3, 4


def made(pooling: Literal["mean", "first"] = "mean") -> ElasticClassifier:
    """A model of ours whose every number is random, biases and norms too."""
    configuration = EncoderConfiguration(
        "elastic", LAYERS, SLICES, 32, 64, 50, 16, 3, norm="pre", norm_epsilon=1e-5, pooling=pooling, head=False
    )
    with torch.random.fork_rng([]):
        torch.manual_seed(7)
        model = ElasticClassifier(configuration, dropout=0.0, embedding_dropout=0.0).eval().requires_grad_(False)
        for tensor in model.parameters():
            tensor.add_(0.2 * torch.randn(tensor.shape))
    return model


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    mask = torch.arange(9)[None] < torch.tensor([9, 4, 1])[:, None]
    return torch.randint(1, 50, (3, 9), generator=generator) * mask, mask


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_all_shards_give_what_the_trained_model_gives(pooling: Literal["mean", "first"]) -> None:
    model, (tokens, mask) = made(pooling), batch()
    assert torch.allclose(logits_of(model.exported(), tokens, mask), model(tokens, mask), atol=1e-5)


@given(st.integers(1, LAYERS), st.sets(st.integers(0, SLICES - 1), min_size=1))
def test_every_submodel_gives_what_training_saw_of_it(depth: int, chosen: set[int]) -> None:
    """Slices as the trained module leaves them out, in whatever order they lie in the buffer."""
    model, (tokens, mask) = MODEL, batch()
    slices = sorted(chosen, reverse=True)
    logits = logits_of(WEIGHTS, tokens, mask, layers=depth, slices=slices)
    expected = model(tokens, mask, depth=depth, slices=[torch.tensor(slices)] * depth)
    assert logits.shape == (3, 3) and torch.allclose(logits, expected, atol=1e-5)


def test_equal_models_have_one_fingerprint_and_any_changed_number_another() -> None:
    weights = made().exported()
    assert weights.fingerprint == WEIGHTS.fingerprint
    resident = {**weights.resident, "classifier.bias": weights.resident["classifier.bias"] + 1.0}
    assert EncoderWeights(weights.configuration, resident, weights.layer).fingerprint != weights.fingerprint
    weights.layer(2).ffn_out[0, 0] += 1.0
    assert EncoderWeights(weights.configuration, weights.resident, weights.layer).fingerprint != WEIGHTS.fingerprint


MODEL = made()
WEIGHTS = MODEL.exported()
