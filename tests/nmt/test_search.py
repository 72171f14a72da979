"""Search against Hugging Face's, against the enumeration of all outputs, and against itself."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simnmt.nmt.attentional_model import AttentionalModel
from simnmt.nmt.models import TranslationModel
from simnmt.nmt.output_layer import largest, largest_sums
from simnmt.nmt.sentence_decoder import Hypothesis
from simnmt.nmt.sharp_translator import SharpTranslator
from simnmt.nmt.step_model import pad
from simnmt.nmt.transformer_model import TransformerModel
from simnmt.profile.decoder_settings import DecoderSettings
from tests.campaigns.harness import deep
from tests.nmt.tiny import ARCHITECTURES, Table, decode_batch, lively, sources

LENGTHS = [3, 9, 5, 7]


def hugging_face(
    model: TransformerModel, src: torch.Tensor, lengths: torch.Tensor, beams: int, max_len: int
) -> list[tuple[int, ...]]:
    """Its outputs without start, end and padding."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = model.hf.generate(
            input_ids=src,
            attention_mask=(torch.arange(src.shape[1])[None, :] < lengths[:, None]).long(),
            num_beams=beams,
            do_sample=False,
            max_new_tokens=max_len,
            bad_words_ids=[[model.pad_token]] if model.pad_token != model.eos_token else None,
            length_penalty=1.0,
            early_stopping=False,
        )
    special = {model.pad_token, model.eos_token}
    return [tuple(token for token in row[1:] if token not in special) for row in out.tolist()]


@pytest.mark.parametrize("beams", [1, 2, 4])
@pytest.mark.parametrize("seed", [1, deep(2), deep(3)])
@pytest.mark.parametrize("name", ["marian", "own tokens"])
def test_marian_gives_the_tokens_of_hugging_face(name: str, seed: int, beams: int) -> None:
    model = lively(name)
    assert isinstance(model, TransformerModel)
    _, src, lengths = sources(model.architecture, LENGTHS, seed)
    ours = decode_batch(model, src, lengths, beam=beams, max_len=40)
    theirs = hugging_face(model, src, lengths, beams, 40)
    assert [hypothesis.tokens for hypothesis in ours] == theirs
    assert len(set(theirs)) > 1


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_greedy_output_is_identical_on_repeat(name: str) -> None:
    """CNMT-13."""
    model = lively(name)
    _, src, lengths = sources(model.architecture, LENGTHS)
    assert decode_batch(model, src, lengths, max_len=30) == decode_batch(model, src, lengths, max_len=30)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_tokens_behind_the_end_of_a_source_change_nothing(name: str) -> None:
    model = lively(name)
    _, src, lengths = sources(model.architecture, LENGTHS)
    other = torch.where(torch.arange(src.shape[1])[None, :] < lengths[:, None], src, 7)
    tgt_in = torch.full((len(LENGTHS), 3), 5)
    with torch.inference_mode():
        assert torch.allclose(model(src, lengths, tgt_in), model(other, lengths, tgt_in), atol=1e-5)


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_forced_length_is_kept_by_every_sentence(name: str, width: int) -> None:
    model = lively(name)
    _, src, lengths = sources(model.architecture, LENGTHS)
    for forced in (1, 12):
        hypotheses = decode_batch(model, src, lengths, beam=width, max_len=3, forced_len=forced)
        assert [len(hypothesis.tokens) for hypothesis in hypotheses] == [forced] * len(LENGTHS)
        assert not {model.eos_token, model.pad_token} & {token for one in hypotheses for token in one.tokens}


def every_output(table: torch.Tensor, max_len: int) -> dict[tuple[int, ...], float]:
    """All that the table can say in so many steps, with its log-probability: ended, or cut at the last step."""
    log = table.double()
    words = range(2, table.shape[1])
    outputs = {}
    for length in range(max_len + 1):
        for tokens in itertools.product(words, repeat=length):
            path = [2, *tokens] if length == max_len else [2, *tokens, 1]
            outputs[tokens] = sum(float(log[a, b]) for a, b in itertools.pairwise(path))
    return outputs


def random_table(seed: int, vocab: int = 5) -> torch.Tensor:
    logits = torch.randn((vocab, vocab), generator=torch.Generator().manual_seed(seed)) * 2
    logits[:, 0] = float("-inf")
    return logits.log_softmax(dim=1)


@given(st.integers(0, 10_000))
def test_a_beam_as_wide_as_all_outputs_finds_the_likeliest(seed: int) -> None:
    """By enumeration; with no length penalty, where stopping early loses nothing."""
    table = random_table(seed)
    outputs = every_output(table, 4)
    hypotheses = decode_batch(
        Table(table), torch.zeros((1, 1), dtype=torch.int64), torch.tensor([1]), beam=81, max_len=4, length_penalty=0.0
    )
    assert hypotheses[0].score == pytest.approx(max(outputs.values()), abs=1e-4)
    assert outputs[hypotheses[0].tokens] == pytest.approx(max(outputs.values()), abs=1e-4)  # orders of the same pairs tie


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_a_score_is_that_of_its_tokens_however_narrow_the_beam(seed: int, width: int) -> None:
    table = random_table(seed)
    (hypothesis,) = decode_batch(Table(table), torch.zeros((1, 1), dtype=torch.int64), torch.tensor([1]), beam=width, max_len=4)
    counted = min(len(hypothesis.tokens) + 1, 4)
    assert hypothesis.score == pytest.approx(every_output(table, 4)[hypothesis.tokens] / counted, abs=1e-4)


def test_a_worked_example_where_the_beam_beats_greed() -> None:
    """Greedy takes token 3 (0.6), whose ends are poor (0.3); the beam sees that 4 (0.4) ends for sure."""
    p = torch.full((5, 5), 1e-9)
    p[2, 3], p[2, 4], p[4, 1], p[3, 1], p[3, 3], p[3, 4] = 0.6, 0.4, 1.0, 0.3, 0.35, 0.35
    src = torch.zeros((1, 1), dtype=torch.int64)
    assert decode_batch(Table(p.log()), src, torch.tensor([1]), max_len=2)[0].tokens == (3, 3)
    (hypothesis,) = decode_batch(Table(p.log()), src, torch.tensor([1]), beam=2, max_len=2, length_penalty=0.0)
    assert hypothesis == Hypothesis((4,), pytest.approx(torch.tensor(0.4).log().item(), abs=1e-5))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_greedy_search_chooses_equally_without_scores(name: str) -> None:
    """FNI-06: the likeliest token needs no softmax."""
    model = lively(name)
    _, src, lengths = sources(model.architecture, LENGTHS)
    scored, bare = (decode_batch(model, src, lengths, max_len=30, scored=scored) for scored in (True, False))
    assert [hypothesis.tokens for hypothesis in scored] == [hypothesis.tokens for hypothesis in bare]
    assert {hypothesis.score for hypothesis in bare} == {None}


WIDTHS = [5, 1_025, 30_000, 32_000, 32_001]


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_largest_column_equals_torchs_and_is_the_first_of_equals(columns: int) -> None:
    draw = torch.Generator().manual_seed(1)
    logits = torch.randn((70, columns), generator=draw)
    assert torch.equal(largest(logits), logits.argmax(dim=1))
    logits[0] = 0.0
    logits[1] = float("-inf")
    logits[1, columns - 1] = 0.0
    logits[2, [columns // 2, columns - 1]] = 9.0
    assert largest(logits)[:3].tolist() == [0, columns - 1, columns // 2]


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_largest_sums_are_those_of_all_sums_sorted(columns: int) -> None:
    draw = torch.Generator().manual_seed(2)
    log_probs = torch.randn((14 * 5, columns), generator=draw, dtype=torch.float64).float()
    scores = torch.randn((14, 5), generator=draw)
    scores[0, 1:] = float("-inf")
    count = min(10, columns)
    sums, rows, words = largest_sums(log_probs, scores, count)
    every = (log_probs.view(14, 5, columns) + scores[:, :, None]).flatten(1)
    assert torch.equal(sums, every.sort(dim=1, descending=True).values[:, :count])
    assert torch.equal(every.gather(1, rows * columns + words), sums)
    assert all(len(set(places)) == count for places in (rows * columns + words).tolist())


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
