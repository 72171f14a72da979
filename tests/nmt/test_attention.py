"""The source positions to which each kind of model attends."""

from __future__ import annotations

import pytest
import torch

from simnmt.nmt.attentional_model import AttentionalModel
from simnmt.nmt.marian_model import MarianModel
from simnmt.nmt.models import TranslationModel
from simnmt.nmt.sharp_translator import SharpTranslator
from simnmt.nmt.step_model import pad
from simnmt.profile.decoder_settings import DecoderSettings
from tests.nmt.tiny import ARCHITECTURES, lively, sources

ATTENTIVE = ["bilstm", "gru", "marian", "own tokens", "sharp"]
TARGETS = [[5, 6, 7], [9], [4, 4, 8, 10]]


def fed(model: TranslationModel) -> torch.Tensor:
    return pad([[model.start_token, *target[:-1]] for target in TARGETS], model.pad_token)[0]


@pytest.mark.parametrize("name", ATTENTIVE)
def test_attention_weights_sum_to_one_over_the_source_and_are_zero_on_padding(name: str) -> None:
    model = lively(name)
    alone, src, lengths = sources(ARCHITECTURES[name], [3, 6, 4])
    with torch.inference_mode():
        weights = model.attention(src, lengths, fed(model))
        assert weights.shape == (3, 4, 6)
        torch.testing.assert_close(weights.sum(dim=2), torch.ones(3, 4))
        assert not weights[0, :, 3:].any()
        assert not weights[2, :, 4:].any()
        for row, source in enumerate(alone):
            tgt_in = torch.tensor([[model.start_token, *TARGETS[row][:-1]]])
            alone_weights = model.attention(torch.tensor([source]), torch.tensor([len(source)]), tgt_in)
            torch.testing.assert_close(weights[row, : len(TARGETS[row]), : len(source)], alone_weights[0], rtol=1e-4, atol=1e-5)


def test_attention_of_the_model_equals_the_positions_reported_by_the_sharp_decoder() -> None:
    model = lively("sharp")
    assert isinstance(model, AttentionalModel)
    (source,), src, lengths = sources(ARCHITECTURES["sharp"], [7])
    (translation,) = SharpTranslator([model], DecoderSettings(), max_len=12).translate([source])
    with torch.inference_mode():
        weights = model.attention(src, lengths, torch.tensor([[model.start_token, *translation.tokens[:-1]]]))
    assert weights[0].argmax(dim=1).tolist() == list(translation.attended)


def test_a_transformers_weights_are_those_that_make_its_contexts() -> None:
    """The mean of the heads of the last layer but one, which is the first of two; and its fast attention is back afterwards."""
    model = lively("marian")
    assert isinstance(model, MarianModel)
    (_,), src, lengths = sources(ARCHITECTURES["marian"], [5])
    tgt_in = torch.tensor([[model.start_token, 5, 6]])
    caught: list[torch.Tensor] = []
    layer = model.hf.model.decoder.layers[0].encoder_attn
    hooks = [
        layer.q_proj.register_forward_hook(lambda _, __, made: caught.append(made)),
        layer.k_proj.register_forward_hook(lambda _, __, made: caught.append(made)),
    ]
    usual = model.hf.config._attn_implementation
    with torch.inference_mode():
        weights = model.attention(src, lengths, tgt_in)
    for hook in hooks:
        hook.remove()
    queries, keys = (projected.view(1, -1, 2, 8).transpose(1, 2) for projected in caught)
    expected = (queries @ keys.transpose(2, 3) / 8**0.5).softmax(dim=3).mean(dim=1)
    torch.testing.assert_close(weights, expected)
    assert model.hf.config._attn_implementation == usual
