"""Decoding: sentences that join and leave one by one, and searches against Hugging Face's, enumeration and themselves."""

from __future__ import annotations

import itertools
import math
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simnmt.batching import mini
from simnmt.nmt.agreement import decode_alone
from simnmt.nmt.decoder import Decoder, EncodedSentence
from simnmt.nmt.errors import NmtError, OutOfMemory
from simnmt.nmt.models import TranslationModel
from simnmt.nmt.output_layer import largest, largest_sums
from simnmt.nmt.search import Search
from simnmt.nmt.sentence_decoder import DecodeRequest, Hypothesis
from simnmt.nmt.transformer_model import TransformerModel
from tests.campaigns.harness import deep
from tests.nmt.tiny import ARCHITECTURES, Table, lively, sources, tiny_engine, together

LENGTHS = [3, 9, 5, 7, 4, 8]
MOST = 14


@cache
def decoded_alone(name: str, beam: int) -> list[Hypothesis]:
    model = lively(name)
    return [decode_alone(model, source, beam, MOST) for source in sentences(name)]


def sentences(name: str) -> list[list[int]]:
    return sources(lively(name).architecture, LENGTHS)[0]


def decode_to_end(decoder: Decoder) -> dict[int, Hypothesis]:
    """Step until all are done."""
    hypotheses: dict[int, Hypothesis] = {}
    while decoder.active:
        hypotheses.update(decoder.step())
    return hypotheses


def encoded_by(decoder: Decoder, some: list[list[int]], forced: list[int | None] | None = None) -> list[EncodedSentence]:
    return decoder.encode([DecodeRequest(*pair, MOST) for pair in zip(some, forced or [None] * len(some), strict=True)])


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_sentence_that_joins_midway_is_translated_as_alone(name: str, beam: int) -> None:
    """Against the search in numpy; two join at first, the others one by one, two steps apart."""
    decoder = Decoder(lively(name), mini(len(LENGTHS)), Search(beam))
    encoded = encoded_by(decoder, sentences(name)[:3]) + encoded_by(decoder, sentences(name)[3:])
    decoder.join([encoded[4], encoded[0]], [4, 0])
    hypotheses: dict[int, Hypothesis] = {}
    for late in (1, 5, 3, 2):
        hypotheses.update(decoder.step())
        hypotheses.update(decoder.step())
        decoder.join([encoded[late]], [late])
    hypotheses.update(decode_to_end(decoder))
    expected = decoded_alone(name, beam)
    assert [hypotheses[at].tokens for at in range(6)] == [lone.tokens for lone in expected]
    assert [hypotheses[at].steps for at in range(6)] == [lone.steps for lone in expected]
    if beam > 1:
        assert [hypotheses[at].score for at in range(6)] == pytest.approx([lone.score for lone in expected], rel=1e-4)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", ["gru", "marian"])
def test_each_sentence_keeps_its_forced_length_or_its_limit(name: str, beam: int) -> None:
    """Forced ones never end before; the others do so beside them, or at a limit of their own."""
    model = lively(name)
    decoder = Decoder(model, mini(6), Search(beam))
    forced, most = [7, None, 1, None, 12, None], [None, MOST, None, 2, None, 1]
    requests = [DecodeRequest(*given) for given in zip(sentences(name), forced, most, strict=True)]
    assert decoder.join(decoder.encode(requests), range(6)) == []
    hypotheses = decode_to_end(decoder)
    assert [len(hypotheses[at].tokens) for at in (0, 2, 4)] == [7, 1, 12]
    assert model.eos_token not in hypotheses[0].tokens + hypotheses[4].tokens
    assert hypotheses[1].tokens == decoded_alone(name, beam)[1].tokens
    for at, limit in ((3, 2), (5, 1)):
        assert hypotheses[at].tokens == decode_alone(model, sentences(name)[at], beam, limit).tokens


@pytest.mark.parametrize("where", ["join", "body", "reorder"])
def test_too_little_memory_drops_all_sentences_and_the_decoder_stays_usable(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    decoder = Decoder(lively("gru"), mini(3), Search(2))
    encoded = encoded_by(decoder, sentences("gru")[:3])
    decoder.join(encoded[:1], [0])

    def short(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(decoder._slots, where, short)
        with pytest.raises(OutOfMemory, match="cpu has too little memory for this work"):
            decoder.join(encoded[1:2], [1]) if where == "join" else decoder.step()
    assert decoder.active == 0
    decoder.join(encoded, range(3))
    hypotheses = decode_to_end(decoder)
    assert [hypotheses[at].tokens for at in range(3)] == [lone.tokens for lone in decoded_alone("gru", 2)[:3]]


@pytest.mark.parametrize(("joining", "others", "beam"), [(1, 0, 1), (4, 0, 1), (3, 5, 1), (4, 4, 3)])
def test_joining_and_leaving_are_timed_apart_from_each_other_and_from_the_step(
    tmp_path: Path, joining: int, others: int, beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock that advances by 1 s a join of guests and 0.25 s for each sentence that leaves, whatever steps take."""
    now = [0.0]
    join, step = Decoder.join, Decoder.step

    def slow_join(self: Decoder, *given: object) -> object:
        now[0] += 1.0
        return join(self, *given)  # type: ignore[arg-type]

    def slow_step(self: Decoder) -> object:
        done = step(self)
        now[0] += 7.0 + 0.25 * len(done)
        return done

    monkeypatch.setattr(Decoder, "join", slow_join)
    monkeypatch.setattr(Decoder, "step", slow_step)
    engine = tiny_engine(tmp_path, "gru")
    monkeypatch.setattr(engine, "_now_s", lambda: now[0])
    timer = engine.joining_timer(joining, others, src_len=3, beam=beam)
    assert timer() == timer() == pytest.approx({"join_s": 1.0, "leave_s": 0.25 * joining})


def encoded(model: TranslationModel, lengths: list[int], seed: int = 1) -> Any:
    _, src, src_lengths = sources(model.architecture, lengths, seed)
    return model.encode(src, src_lengths)


class Alone:
    """Every sentence in slots; what it has been fed, with the logits of one pass over all of it."""

    def __init__(self, model: TranslationModel, beam: int, capacity_rows: int = 1) -> None:
        self.model, self.beam, self.slots = model, beam, model.slots(capacity_rows)
        self.fed: list[tuple[list[int], torch.Tensor]] = []
        """By slot: the source, and the tokens of its rows [beam, steps]."""
        self.draw = torch.Generator().manual_seed(5)
        self.difference = 0.0

    def join(self, lengths: list[int], chosen: list[int], seed: int = 1) -> None:
        sentences, src, src_lengths = sources(self.model.architecture, lengths, seed)
        self.slots.join(self.model.encode(src, src_lengths), chosen, [lengths[at] for at in chosen], self.beam)
        self.fed += [(sentences[at], torch.zeros((self.beam, 0), dtype=torch.int64)) for at in chosen]

    def leave(self, gone: list[int]) -> None:
        order = self.slots.leave(gone, self.beam)
        assert sorted(order) == [slot for slot in range(len(self.fed)) if slot not in gone]
        self.fed = [self.fed[slot] for slot in order]

    def step(self) -> None:
        """One step of all, and where there are beams, one of them takes another's place."""
        tokens = torch.randint(4, 40, (len(self.fed), self.beam), generator=self.draw)
        parents = torch.randint(0, self.beam, tokens.shape, generator=self.draw)
        logits = self.model.project(self.slots.body(tokens.view(-1))).view(*tokens.shape, -1)
        for slot, (source, before) in enumerate(self.fed):
            fed = torch.cat((before, tokens[slot][:, None]), dim=1)
            src, lengths = torch.tensor([source] * self.beam), torch.full((self.beam,), len(source))
            expected = self.model(src, lengths, fed)[:, -1]
            apart = float((logits[slot] - expected).abs().max() / expected.abs().max())
            self.difference = math.nan if math.isnan(apart) else max(self.difference, apart)
            self.fed[slot] = source, fed[parents[slot]]
        if self.beam > 1:
            self.slots.reorder((parents + torch.arange(0, tokens.numel(), self.beam)[:, None]).view(-1))


@st.composite
def turns(draw: st.DrawFn) -> list[tuple[list[int], list[int], list[int], int]]:
    """Lengths encoded together, which of them join, which slots leave first (taken modulo the active), steps."""
    drawn = []
    for _ in range(draw(st.integers(2, 5))):
        lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
        chosen = draw(st.permutations(range(len(lengths))))[: draw(st.integers(0, len(lengths)))]
        drawn.append((lengths, chosen, draw(st.lists(st.integers(0, 9), max_size=4)), draw(st.integers(0, 4))))
    return drawn


@pytest.mark.parametrize("name", ARCHITECTURES)
@given(turns(), st.sampled_from([1, 3]), st.integers(1, 8))
def test_a_sentence_has_the_logits_it_has_alone_whoever_joins_and_leaves(
    name: str, drawn: list[tuple[list[int], list[int], list[int], int]], beam: int, capacity_rows: int
) -> None:
    model = lively(name)
    with torch.inference_mode():
        both = Alone(model, beam, capacity_rows)
        for seed, (lengths, chosen, leaving, steps) in enumerate(drawn):
            if both.fed:
                both.leave(sorted({slot % len(both.fed) for slot in leaving}))
            both.join(lengths, chosen, seed)
            for _ in range(steps if both.fed else 0):
                both.step()
        assert both.difference < 1e-4


@pytest.mark.parametrize("name", ["gru", "bilstm", "marian"])
def test_nan_in_one_sentence_does_not_reach_others(name: str) -> None:
    """Not even the next one in its place: not-a-number times a weight of 0 is not a number."""
    model = lively(name)
    with torch.inference_mode():
        both = Alone(model, 1, 3)
        broken = encoded(model, [9])
        for part in (broken.source, *broken.state):
            part.fill_(torch.nan)
        both.join([9, 2], [0, 1])
        both.slots.join(broken, [0], [9], 1)
        for _ in range(4):
            assert both.slots.body(torch.tensor([5, 5, 5])).isnan().any(dim=1).tolist() == [False, False, True]
            both.fed = [(source, torch.cat((fed, torch.tensor([[5]])), dim=1)) for source, fed in both.fed]
        assert both.slots.leave([2], 1) == [0, 1]
        both.join([3], [0], seed=4)
        for _ in range(3):
            both.step()
        assert both.difference < 1e-4


def test_positions_are_counted_per_sentence() -> None:
    """The model has 64: the first sentence ends there, one that joined 30 steps later goes on."""
    model = lively("marian")
    with torch.inference_mode():
        both = Alone(model, 1, 2)
        both.join([4], [0])
        for _ in range(30):
            both.step()
        both.join([6], [0])
        for _ in range(34):
            both.step()
        with pytest.raises(NmtError, match="64"):
            both.slots.body(torch.tensor([5, 5]))
        both.leave([0])
        for _ in range(30):
            both.step()
        assert both.difference < 1e-4


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
    alone, src, lengths = sources(model.architecture, LENGTHS, seed)
    ours = together(model, alone, Search(beams, scored=True), max_len=40)
    theirs = hugging_face(model, src, lengths, beams, 40)
    assert [hypothesis.tokens for hypothesis in ours] == theirs
    assert len(set(theirs)) > 1


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_greedy_output_is_identical_on_repeat(name: str) -> None:
    """CNMT-13."""
    model = lively(name)
    alone, _, _ = sources(model.architecture, LENGTHS)
    assert together(model, alone, max_len=30) == together(model, alone, max_len=30)


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
    hypotheses = together(Table(table), [[5]], Search(81, scored=True, length_penalty=0.0), max_len=4)
    assert hypotheses[0].score == pytest.approx(max(outputs.values()), abs=1e-4)
    assert outputs[hypotheses[0].tokens] == pytest.approx(max(outputs.values()), abs=1e-4)  # orders of the same pairs tie


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_greedy_search_chooses_equally_without_scores(name: str) -> None:
    """FNI-06: the likeliest token needs no softmax."""
    model = lively(name)
    alone, _, _ = sources(model.architecture, LENGTHS)
    scored, bare = (together(model, alone, Search(scored=scored), max_len=30) for scored in (True, False))
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
