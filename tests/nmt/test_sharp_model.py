"""Attentional models: the cells as the paper prints them, presets, bounds that training keeps, and what a file may say."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from simnmt.nmt.architecture import ARCHITECTURES as NAMED
from simnmt.nmt.architecture import SHARP_MODELS, AttentionalArchitecture, architecture_of
from simnmt.nmt.attentional_model import AttentionalCell, AttentionalModel
from simnmt.nmt.models import build_model
from simnmt.nmt.recurrent_model import gru
from simnmt.nmt.search import Search
from simnmt.nmt.sharp_translator import SharpTranslator
from simnmt.nmt.training.recipe import Recipe
from simnmt.nmt.training.translation import EncodedPairs, TranslationLearner
from simnmt.profile.decoder_settings import DecoderSettings
from tests.nmt.tiny import SHARP, sources, together

FORMS: dict[str, dict[str, Any]] = {
    "gru": {},
    "lstm, additive": {"cell": "lstm", "source_cell": "lstm", "attention": "additive"},
    "bare": {"stack": []},
    "tall": {"stack": [{"kind": "lstm", "width": 9, "layers": 2}, {"kind": "fc_relu", "width": 11, "layers": 6}]},
}


def tiny(**other: Any) -> AttentionalArchitecture:
    architecture = architecture_of(SHARP.model_dump(mode="json") | other)
    assert isinstance(architecture, AttentionalArchitecture)
    return architecture


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_sharp_16_the_source_side_of_the_kernels_equals_torchs(cell: str, layers: int) -> None:
    """Every bias counts, that inside a GRU's reset gate too."""
    model = build_model(tiny(source_cell=cell, source_layers=layers), seed=5).eval()
    assert isinstance(model, AttentionalModel)
    with torch.inference_mode():
        for name, weight in model.encoder.named_parameters():
            if "bias" in name:
                weight.uniform_(-1.0, 1.0)
    translator = SharpTranslator([model], DecoderSettings(), max_len=5)
    for source in sources(model.architecture, [1, 2, 9])[0]:
        with torch.inference_mode():
            expected = model.read_source(torch.tensor([source]), torch.tensor([len(source)]))[0][0]
        assert translator.encode(source)[0] == pytest.approx(expected.numpy(), abs=2e-6)


def test_a_gru_step_equals_the_worked_example() -> None:
    """SHARP-04: logits 0.1 and 0.2 of the gates, h = 0.5, W_h h = 0.2, all else of the candidate 0.3 - 0.2."""
    fed, recurred = torch.tensor([[0.1, 0.2, 0.1]]), torch.tensor([[0.0, 0.0, 0.2]])
    (after,) = gru(fed, recurred, torch.tensor([[0.5]]))
    assert float(after) == pytest.approx(0.360788, abs=5e-7)


@pytest.fixture
def attending() -> AttentionalCell:
    """Two values a source word, read through a cell that gives what it finds: update gate 0, no state, no token."""
    sizes = {"hidden": 2, "embedding": 2, "source_layers": 1, "source_hidden": 1, "src_vocab": 4, "tgt_vocab": 4}
    cell = AttentionalCell(AttentionalArchitecture(kind="attentional", **sizes))
    with torch.no_grad():
        for weight in cell.parameters():
            weight.zero_()
        cell.keys.weight.copy_(torch.eye(2))
        cell.feed.weight[:2].copy_(torch.eye(2))
        cell.read.weight[4:].copy_(torch.eye(2))
        cell.read.bias[:2].fill_(-40.0)
    return cell


def test_attention_equals_the_worked_example(attending: AttentionalCell) -> None:
    """SHARP-04: keys e1 and e2, query (1, 0): scores 0.580026 and 0, weights 0.641073 and 0.358927."""
    with torch.no_grad():
        keys, values = attending.look_at(torch.eye(2)[None])
        fed = attending.feed(torch.tensor([[1.0, 0.0]]))
        (output,), weights = attending.step(fed, (torch.zeros(1, 2),), keys, values, None)
    assert weights[0].tolist() == pytest.approx([0.641073, 0.358927], abs=2e-6)
    assert output[0].atanh().tolist() == pytest.approx([0.641073, 0.358927], abs=2e-6)


def lively_of(form: str) -> AttentionalModel:
    """Random weights, larger than those that training begins with: else its outputs hardly vary."""
    model = build_model(tiny(**FORMS[form]), seed=3).eval()
    assert isinstance(model, AttentionalModel)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3.0)
    return model


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("width", [1, 5])
@pytest.mark.parametrize("form", FORMS)
def test_the_sharp_decoder_finds_what_torch_finds(form: str, width: int) -> None:
    """Every kind of layer, cell and attention goes where it belongs."""
    model = lively_of(form)
    alone, _, _ = sources(SHARP, [3, 9, 5, 2])
    theirs = together(model, alone, Search(width, scored=True, length_penalty=0.0), max_len=15)
    ours = SharpTranslator([model], DecoderSettings(beam=width), max_len=15).translate(alone)
    assert [hypothesis.tokens for hypothesis in ours] == [hypothesis.tokens for hypothesis in theirs]
    assert [hypothesis.log_prob for hypothesis in ours] == pytest.approx([hypothesis.score for hypothesis in theirs], abs=1e-3)


def test_the_models_of_table_2_have_their_sizes() -> None:
    """SHARP-15, SHARP-16; built without memory for weights."""
    with torch.device("meta"):
        models = {name: build_model(NAMED[name]) for name in SHARP_MODELS if name != "sharp"}
    assert list(models) == [f"sharp-s{number}" for number in range(1, 8)]
    layers = {name: [block.kind for block in model.architecture.layers] for name, model in models.items()}
    assert layers["sharp-s1"] == []
    assert layers["sharp-s2"] == ["gru"]
    for name, relu, top in (("s3", 3, "fc_tanh"), ("s4", 7, "fc_tanh"), ("s5", 7, "gru"), ("s6", 15, "fc_tanh")):
        assert layers[f"sharp-{name}"] == ["fc_relu"] * relu + [top]
    assert layers["sharp-s7"] == ["lstm"] * 7
    for name, model in models.items():
        assert isinstance(model, AttentionalModel)
        assert model.projection.weight.shape == (80_000, 1024)
        assert model.bottom.read.weight.shape[1] == 1024
        assert {block.width for block in model.architecture.stack if block.kind == "fc_relu"} <= {768}
        deep = (8, torch.nn.LSTM) if name == "sharp-s7" else (3, torch.nn.GRU)
        assert (model.encoder.num_layers, type(model.encoder)) == deep
        assert (model.encoder.hidden_size, model.encoder.bidirectional) == (512, True)

    def per_step(name: str) -> int:
        stacked = sum(weight.numel() for weight in models[name].stack.parameters() if weight.dim() == 2)
        return stacked + models[name].bottom.recur.weight.numel()

    order = [per_step(f"sharp-s{number}") for number in (1, 3, 4, 5, 7)]
    assert all(below < above for below, above in pairwise(order))


def test_weights_stay_within_what_16_bits_hold() -> None:
    """SHARP-05, at a rate that would carry them far beyond."""
    recipe = Recipe(SHARP, peak_rate=0.5, warmup_steps=1, dropout=0.0, clip_norm=1e9)
    texts, _, _ = sources(SHARP, [4, 6])
    fed = torch.randint(4, 16, (2, 5), generator=torch.Generator().manual_seed(1)).tolist()
    learner = TranslationLearner(build_model(SHARP, seed=1), recipe, torch.device("cpu"), EncodedPairs(texts, fed))
    learner.step(np.arange(2), 1)
    largest = {name: float(weight.detach().abs().max()) for name, weight in learner.model.named_parameters()}
    assert max(largest.values()) <= 1.0
    assert largest["projection.bias"] > 0.4
