"""Candidate lists: what a sentence may say, how many that are, and whose they are (SHARP-02)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simnmt.kernels.columns import gathered_products
from simnmt.nmt.errors import NmtError
from simnmt.nmt.models import build_model
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.bundle_file import read_bundle
from simnmt.nmt.vocabulary.candidate_lists import CandidateLists, LexicalTable, build_candidates, candidate_lists, ibm_model1
from tests.nmt import tiny, toy_language


def random_lists(vocab: int, count: int, never: set[int], always: list[int], seed: int = 1) -> CandidateLists:
    """So many of each source token, drawn at random."""
    draw = np.random.default_rng(seed)
    some = [token for token in range(vocab) if token not in never]
    columns = np.concatenate([draw.choice(some, count, replace=False) for _ in range(vocab)]).astype(np.int32)
    starts = np.arange(vocab + 1, dtype=np.int64) * count
    return CandidateLists(starts, columns, np.array(sorted(always), np.int32), vocab)


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[tuple[int, int], int], int, int]:
    sizes = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    pair = st.tuples(st.integers(0, sizes[0] - 1), st.integers(0, sizes[1] - 1))
    return draw(st.dictionaries(pair, st.integers(0, 4), max_size=30)), *sizes


@given(tables(), st.integers(1, 9), st.data())
def test_a_sentence_has_exactly_the_best_candidates_of_its_tokens(
    table: tuple[dict[tuple[int, int], int], int, int], count: int, data: st.DataObject
) -> None:
    """SHARP-02: at most `count` a source token and two more."""
    counts, src_vocab, tgt_vocab = table
    count = min(count, tgt_vocab)
    keys = sorted(counts)
    packed = np.array([source * tgt_vocab + target for source, target in keys], np.int64)
    lexical = LexicalTable(packed, np.array([counts[key] for key in keys], np.float64), src_vocab, tgt_vocab)
    control = {0, tgt_vocab - 1}
    lists = candidate_lists(lexical, control, count=count)
    source = data.draw(st.lists(st.integers(0, src_vocab - 1), max_size=5))
    expected = set(control)
    for token in source:
        ranked = sorted((-number, target) for (one, target), number in counts.items() if one == token and number)
        expected |= {target for _, target in ranked[:count]}
        assert lists.list_of(token).tolist() == [target for _, target in ranked[:count]]
    columns = lists.of(source)
    assert columns.dtype == np.int32
    assert columns.tolist() == sorted(expected)
    assert len(columns) <= count * len(source) + 2


@pytest.mark.parametrize("name", ["gru", "marian", "sharp"])
def test_logits_of_listed_words_equal_the_full_ones(name: str) -> None:
    """SHARP-02."""
    model, architecture = tiny.lively(name), tiny.ARCHITECTURES[name]
    lists = random_lists(tiny.VOCAB, 4, {architecture.pad_token}, [architecture.eos_token, architecture.unk_token])
    (source,), src, lengths = tiny.sources(architecture, [6])
    with torch.inference_mode():
        hidden = tiny.stepwise(model, src, lengths, torch.tensor([[model.start_token]]))[:, 0]
        columns = torch.from_numpy(lists.of(source))
        logits = gathered_products(model.weight, hidden, columns) + model.bias[columns.long()]
        full = model.project(hidden)[:, columns.long()]
    torch.testing.assert_close(logits, full, rtol=1e-5, atol=1e-5)


def test_a_bundle_returns_the_saved_lists_and_is_refused_for_another_model(tmp_path: Path) -> None:
    model = tiny.lively("gru")
    lists = replace(random_lists(tiny.VOCAB, 5, {0, 2}, [1, 3]), pairs=7)
    lists.save(tmp_path / "bundle", model, {"model": "small"})
    again = CandidateLists.load(tmp_path / "bundle", model)
    for name in ("starts", "columns", "always"):
        assert np.array_equal(getattr(again, name), getattr(lists, name))
        assert getattr(again, name).dtype == getattr(lists, name).dtype
    assert read_bundle(tmp_path / "bundle", {"candidates": lambda file: file.note})["model"] == "small"
    assert again.pairs == 7
    with pytest.raises(NmtError, match="another model"):
        CandidateLists.load(tmp_path / "bundle", build_model(tiny.GRU, seed=9))


def test_lists_with_a_token_outside_the_vocabulary_are_refused() -> None:
    lists = random_lists(tiny.VOCAB, 2, set(), [1, 3])
    for always in ([-1], [tiny.VOCAB]):
        with pytest.raises(ValueError, match="not all among"):
            replace(lists, always=np.array(always, np.int32))


@pytest.fixture(scope="module")
def toy() -> tuple[Translator, list[str], list[str]]:
    """A model that has learnt nothing, over a vocabulary in which each word is one token; and text of both sides."""
    ours, theirs = (list(side) for side in zip(*toy_language.pairs(600), strict=True))
    subwords = toy_language.subwords(ours, 30), toy_language.subwords(theirs, 28)
    return Translator(build_model(toy_language.GRU, seed=1).eval(), *subwords), ours, theirs


def test_a_real_sentence_has_bounded_candidates_and_its_end_mark_adds_none(
    toy: tuple[Translator, list[str], list[str]],
) -> None:
    """SHARP-02: at most 20 |S| + 2, the end mark being no word."""
    translator, ours, theirs = toy
    for count in (2, 3):
        lists = build_candidates(translator, ours, theirs, count=count)
        assert lists.list_of(translator.source.eos).tolist() == []
        sizes = [(len(lists.of(source)), count * len(set(source[:-1])) + 2) for source in translator.source.encode(ours)]
        assert all(size <= bound for size, bound in sizes)
        assert any(size > bound - count for size, bound in sizes)


Pairs = list[tuple[list[int], list[int]]]
VOCAB = 5


def learnt(pairs: Pairs, iterations: int = 5) -> dict[tuple[int, int], float]:
    """Probabilities by source and target token."""
    table = ibm_model1(pairs, src_vocab=VOCAB, tgt_vocab=VOCAB, iterations=iterations)
    return {divmod(pair, VOCAB): value for pair, value in zip(table.pairs.tolist(), table.probabilities.tolist(), strict=True)}


def test_the_textbooks_example_gives_its_numbers() -> None:
    """Koehn, Statistical Machine Translation, figure 4.4: das Haus, das Buch, ein Buch."""
    das, haus, buch, ein = the, house, book, a = range(4)
    pairs = [([das, haus], [the, house]), ([das, buch], [the, book]), ([ein, buch], [a, book])]
    expected = {  # by iteration
        (das, the): [0.5, 0.6364, 0.7479],
        (das, book): [0.25, 0.1818, 0.1208],
        (das, house): [0.25, 0.1818, 0.1313],
        (buch, the): [0.25, 0.1818, 0.1208],
        (buch, book): [0.5, 0.6364, 0.7479],
        (buch, a): [0.25, 0.1818, 0.1313],
        (ein, book): [0.5, 0.4286, 0.3466],
        (ein, a): [0.5, 0.5714, 0.6534],
        (haus, the): [0.5, 0.4286, 0.3466],
        (haus, house): [0.5, 0.5714, 0.6534],
    }
    for iterations in (1, 2, 3):
        table = learnt(pairs, iterations)
        for pair, values in expected.items():
            assert round(table[pair], 4) == values[iterations - 1]


def test_ibm_model1_recovers_the_dictionary_of_a_text_and_aligns_its_articles_to_the_end_mark() -> None:
    """Words in random order, an article before each sentence; token 0 ends each source."""
    draw = np.random.default_rng(2)
    vocab, article = 30, 29
    meant = draw.permutation(np.arange(1, 29))
    pairs = []
    for _ in range(400):
        source = draw.choice(np.arange(1, 29), draw.integers(2, 7), replace=False)
        pairs.append(([*source.tolist(), 0], [article, *draw.permutation(meant[source - 1]).tolist()]))
    lists = candidate_lists(ibm_model1(pairs, src_vocab=vocab, tgt_vocab=vocab, iterations=5), [], count=1)
    assert lists.starts.tolist() == [*range(30), 29], "a token that was never seen has no list"
    assert lists.columns.tolist() == [article, *meant.tolist()]
