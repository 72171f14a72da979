"""IBM model 1: the textbook's numbers, a slow oracle, and what expectation maximisation promises."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from simnmt.nmt.vocabulary import alignment as module
from simnmt.nmt.vocabulary.alignment import ibm_model1

Pairs = list[tuple[list[int], list[int]]]
VOCAB = 5


def row(table: module.LexicalTable, source: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Target tokens of one source token, ascending, and their probabilities."""
    here = slice(int(table.starts[source]), int(table.starts[source + 1]))
    return table.tokens[here], table.probabilities[here]


def learnt(pairs: Pairs, iterations: int = 5) -> module.IbmModel1:
    sources, targets = zip(*pairs, strict=True)
    return ibm_model1(sources, targets, src_vocab=VOCAB, tgt_vocab=VOCAB, iterations=iterations)


def by_loops(pairs: Pairs, iterations: int) -> tuple[dict[tuple[int, int], float], list[float]]:
    """The same, as the textbook writes it."""
    chance: dict[tuple[int, int], float] = defaultdict(lambda: 1.0 / VOCAB)
    likelihoods = []
    for left in range(iterations, -1, -1):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        likelihood = 0.0
        for source, target in pairs:
            for token in target:
                total = sum(chance[one, token] for one in source)
                likelihood += math.log(total / len(source))
                for one in source:
                    counts[one, token] += chance[one, token] / total
        likelihoods.append(likelihood)
        if left:
            totals: dict[int, float] = defaultdict(float)
            for (one, _), count in counts.items():
                totals[one] += count
            chance = defaultdict(float, {pair: count / totals[pair[0]] for pair, count in counts.items()})
    return dict(chance), likelihoods


def corpora() -> st.SearchStrategy[Pairs]:
    side = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=5)
    return st.lists(st.tuples(side, side), min_size=1, max_size=8)


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
        table = learnt(pairs, iterations).table
        for (source, target), values in expected.items():
            tokens, probabilities = row(table, source)
            assert round(float(probabilities[tokens.tolist().index(target)]), 4) == values[iterations - 1]


@given(corpora(), st.integers(1, 4))
def test_ibm_model1_equals_the_textbooks_loops(pairs: Pairs, iterations: int) -> None:
    model = learnt(pairs, iterations)
    chance, likelihoods = by_loops(pairs, iterations)
    assert model.log_likelihood == pytest.approx(likelihoods, rel=1e-9, abs=1e-9)
    for (source, target), value in chance.items():
        tokens, probabilities = row(model.table, source)
        assert float(probabilities[tokens.tolist().index(target)]) == pytest.approx(value, rel=1e-9, abs=1e-300)


@given(corpora())
def test_the_likelihood_never_falls_and_each_row_sums_to_one(pairs: Pairs) -> None:
    model = learnt(pairs, 8)
    steps = np.diff(model.log_likelihood)
    assert (steps >= -1e-9 * abs(model.log_likelihood[0])).all()
    seen = {token for source, _ in pairs for token in source}
    sums = {source: float(row(model.table, source)[1].sum()) for source in range(VOCAB)}
    assert sums == {source: pytest.approx(1.0 if source in seen else 0.0) for source in range(VOCAB)}


def test_the_size_of_blocks_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(1)
    pairs = [tuple(draw.integers(0, VOCAB, draw.integers(1, 6)).tolist() for _ in range(2)) for _ in range(40)]
    whole = learnt(pairs)
    monkeypatch.setattr(module, "BLOCK", 50)
    parted = learnt(pairs)
    assert parted.log_likelihood == pytest.approx(whole.log_likelihood)
    assert parted.table.probabilities == pytest.approx(whole.table.probabilities)


def test_ibm_model1_recovers_the_dictionary_of_a_text_and_aligns_its_articles_to_the_end_mark() -> None:
    """Words in random order, an article before each sentence; token 0 ends each source."""
    draw = np.random.default_rng(2)
    vocab, article = 30, 29
    meant = draw.permutation(np.arange(1, 29))
    sources, targets = [], []
    for _ in range(400):
        source = draw.choice(np.arange(1, 29), draw.integers(2, 7), replace=False)
        sources.append([*source.tolist(), 0])
        targets.append([article, *draw.permutation(meant[source - 1]).tolist()])
    table = ibm_model1(sources, targets, src_vocab=vocab, tgt_vocab=vocab).table
    starts, tokens, _ = table.best(1)
    assert starts.tolist() == [*range(30), 29], "a token that was never seen has no row"
    assert tokens.tolist() == [article, *meant.tolist()]
