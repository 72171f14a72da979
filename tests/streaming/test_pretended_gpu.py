"""The training of an elastic encoder on a pretended GPU."""

from __future__ import annotations

import pytest
import torch

from simnmt.streaming.encoder.learner import ElasticLearner, ElasticRecipe
from tests.pretended_gpu import GPU, pretended_gpu
from tests.streaming.made_encoder import made_weights

RECIPE = ElasticRecipe(layers=2, slices=4, width=16, ffn=32, vocab=50, positions=40, dropout=0.0, embedding_dropout=0.0)


def test_a_training_on_a_gpu_has_the_losses_of_the_processor_and_waits_little() -> None:
    configuration = made_weights(layers=2).configuration
    tokens, labels = torch.arange(5, 17).view(3, 4), torch.tensor([0, 1, 1])
    mask = torch.arange(4)[None, :] < torch.tensor([4, 2, 3])[:, None]

    def losses(learner: ElasticLearner, steps: range) -> list[float]:
        return [learner.step(tokens, mask, labels, step=step, share=0.1) for step in steps]

    on_processor = ElasticLearner(configuration, RECIPE, torch.device("cpu"))
    expected = losses(on_processor, range(1, 5))
    with pretended_gpu() as gpu:
        learner = ElasticLearner(configuration, RECIPE, GPU)
        gpu.waits.clear()
        assert losses(learner, range(1, 3)) == pytest.approx(expected[:2], rel=1e-5)
        assert sum(count for place, count in gpu.waits.items() if not place.startswith("to ")) <= 2 * 2, gpu.waits
        restored = ElasticLearner(configuration, RECIPE, GPU)
        restored.restore({name: tensor.cpu() for name, tensor in learner.tensors().items()})
        assert losses(restored, range(3, 5)) == pytest.approx(expected[2:], rel=1e-5)
        assert torch.equal(restored.predicted(tokens, mask), on_processor.predicted(tokens, mask))
