"""Alignments by attention: what each kind of model looks at, and what that adds up to."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the extra packages of simnmt[models] are not installed")

from simnmt.nmt.attentional_model import AttentionalModel  # noqa: E402
from simnmt.nmt.errors import NmtError  # noqa: E402
from simnmt.nmt.marian_model import MarianModel  # noqa: E402
from simnmt.nmt.models import TranslationModel, build_model  # noqa: E402
from simnmt.nmt.sharp_translator import SharpTranslator  # noqa: E402
from simnmt.nmt.step_model import pad  # noqa: E402
from simnmt.nmt.vocabulary import alignment as module  # noqa: E402
from simnmt.nmt.vocabulary.alignment import attention_alignment  # noqa: E402
from simnmt.profile.decoder_settings import DecoderSettings  # noqa: E402
from tests.nmt.lexical_rows import row  # noqa: E402
from tests.nmt.tiny import ARCHITECTURES, BLIND, lively, sources  # noqa: E402

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


def test_a_lexical_table_sums_the_attention_of_each_target_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the pairs are batched and the sums are merged."""
    model = lively("gru")
    alone, _, _ = sources(ARCHITECTURES["gru"], [3, 6, 4])
    expected = torch.zeros(model.vocab, model.vocab, dtype=torch.float64)
    with torch.inference_mode():
        for source, target in zip(alone, TARGETS, strict=True):
            tgt_in = torch.tensor([[model.start_token, *target[:-1]]])
            weights = model.attention(torch.tensor([source]), torch.tensor([len(source)]), tgt_in)[0]
            for step, token in enumerate(target):
                for place, one in enumerate(source):
                    expected[one, token] += float(weights[step, place])
    for batch, merged in ((64, 4_000_000), (1, 5)):
        monkeypatch.setattr(module, "BATCH", batch)
        monkeypatch.setattr(module, "MERGED", merged)
        table = attention_alignment(model, alone, TARGETS)
        for source in range(model.vocab):
            tokens, probabilities = row(table, source)
            wanted = expected[source] / expected[source].sum().clamp(min=1e-300)
            assert tokens.tolist() == wanted.nonzero()[:, 0].tolist()
            assert probabilities == pytest.approx(wanted[wanted > 0].tolist(), rel=1e-4)


def test_pairs_too_long_for_the_model_are_left_out() -> None:
    model = lively("marian")
    long = [5] * (ARCHITECTURES["marian"].max_positions + 1)
    assert row(attention_alignment(model, [[5, 0], long], [[7], [8]]), 5)[0].tolist() == [7]
    with pytest.raises(NmtError, match="no sentence pair"):
        attention_alignment(model, [long], [[7]])


def test_a_model_without_attention_is_refused() -> None:
    with pytest.raises(NmtError, match="without attention"):
        attention_alignment(build_model(BLIND).eval(), [[5, 3]], [[7]])
