"""Models on a pretended GPU: the tokens, the losses and the errors of the processor."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from simnmt.kernels.columns import Centroids
from simnmt.kernels.output_reference import reference_best
from simnmt.nmt.engine import Work
from simnmt.nmt.models import TranslationModel, build_model
from simnmt.nmt.output_layer import Output
from simnmt.nmt.search import Search
from simnmt.nmt.sentence_decoder import Hypothesis
from simnmt.nmt.training.recipe import Recipe
from simnmt.nmt.training.translation import EncodedPairs, TranslationLearner
from simnmt.nmt.vocabulary.restricted_vocabulary import clustered
from tests.nmt.made_subsets import drawn
from tests.nmt.tiny import ARCHITECTURES, VOCAB, sources, tiny_engine, together
from tests.pretended_gpu import PretendedTensor, pretended_gpu

LENGTHS = [3, 6, 4]
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


@cache
def untrained(name: str) -> TranslationModel:
    return build_model(ARCHITECTURES[name], seed=3).eval()


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pretended GPU whose kernel of Triton is the reference."""
    if find_spec("triton") is not None:
        monkeypatch.setattr("simnmt.kernels.triton_output.best_into", best_into)
    with pretended_gpu():
        yield


def best_into(workspace: Any, products: PretendedTensor, bias: PretendedTensor, *, with_sum: bool = True) -> None:
    """Compute what the kernel computes, of tensors on the GPU alone."""
    count = workspace.best.columns.held.shape[1]
    for place, part in zip(workspace.best, reference_best(products.held.clone(), bias.held, count), strict=True):
        place.held.copy_(part)


def decoded(name: str, output: str, device: str, beam: int) -> tuple[Hypothesis, ...]:
    """Decode sentences of different lengths by a copy of the model on this device."""
    model = deepcopy(untrained(name)).to(device)
    alone, _, _ = sources(model.architecture, LENGTHS)
    clusters = drawn(VOCAB, model.weight.shape[1], 6, 0.4, [model.eos_token], seed=2)
    clusters = replace(clusters, centroids=Centroids.of(0.1 * clusters.centroids.points))  # so that a step falls into several
    vocabulary = clustered(clusters, device=device) if output == "restricted" else None
    return together(model, alone, Search(beam, scored=True), Output(output == "fused", vocabulary), max_len=6)


@pytest.mark.parametrize(
    "output", ["plain", pytest.param("fused", marks=needs_triton), pytest.param("restricted", marks=needs_triton)]
)
@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", ["gru", "bilstm", "marian"])
def test_a_gpu_gives_the_translations_of_the_processor(name: str, beam: int, output: str) -> None:
    expected, translated = (decoded(name, output, device, beam) for device in ("cpu", "cuda"))
    assert [one.tokens for one in translated] == [one.tokens for one in expected]
    assert [one.score for one in translated] == pytest.approx([one.score for one in expected], abs=1e-5)


@pytest.mark.parametrize(
    ("name", "precision"), [("gru", "bfloat16"), ("bilstm", "bfloat16"), ("sharp", "bfloat16"), ("own tokens", "float32")]
)
def test_a_training_on_a_gpu_has_the_losses_of_the_processor(name: str, precision: str) -> None:
    """The pretended GPU computes all products in float32."""
    architecture = ARCHITECTURES[name]
    recipe = Recipe(architecture, peak_rate=0.02, warmup_steps=2, dropout=0.0)
    alone, src, src_lengths = sources(architecture, LENGTHS)
    texts = [row[:length] for row, length in zip(src.tolist(), src_lengths.tolist(), strict=True)]
    pairs = EncodedPairs(texts, alone)
    on_processor, on_gpu = (
        TranslationLearner(deepcopy(untrained(name)), replace(recipe, precision=kind), torch.device(device), pairs)
        for kind, device in (("float32", "cpu"), (precision, "cuda"))
    )
    rows = np.arange(len(texts))
    losses = [[learner.step(rows, step) for step in (1, 2)] for learner in (on_processor, on_gpu)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert on_gpu.mean_loss(pairs) == pytest.approx(on_processor.mean_loss(pairs))


@pytest.mark.parametrize("compute_type", ["float32", "float16", "bfloat16"])
def test_an_engine_times_the_encoder_and_each_step_of_a_gpu(compute_type: str, tmp_path: Path) -> None:
    engine = tiny_engine(tmp_path, "gru", device="cuda", threads=None, compute_type=compute_type)
    assert (engine.account.device, engine.account.device_name) == ("cuda:0", "a pretended GPU")
    timing = engine.run(Work(src_len=3, tgt_len=4, batch=2, beam=2))
    assert len(timing.steps_s) == 4
    assert 0.0 < timing.encode_s + sum(timing.steps_s) < timing.total_s
