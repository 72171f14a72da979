"""The output layer over some columns: the worked example, the same as scattering, and what may not be chosen."""

from __future__ import annotations

from math import exp, log
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from simnmt.kernels.columns import gathered_products, scatter
from simnmt.kernels.output_reference import Best
from simnmt.nmt.output_layer import BannedTokens, Limit, SubsetOutput
from simnmt.nmt.search import BeamSearch, GreedySearch, Search
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary, clustered, listed
from tests.nmt.made_subsets import MadeLists, drawn
from tests.nmt.tiny import Table, steps_of

WEIGHT = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, -1.0], [-1.0, 1.0], [0.5, 0.5]])
BIAS = torch.tensor([0.0, 0.1, 0.0, 0.0, 0.2])


class Layer(Table):
    """The output layer of FVP-01, whose padding is no token of the example."""

    pad_token, eos_token, start_token = 2, 1, 2
    bias = BIAS
    weight = WEIGHT

    def __init__(self) -> None:
        self.vocab = 5

    def project(self, hidden: Tensor) -> Tensor:
        return hidden @ WEIGHT.T + BIAS


class Wide(Table):
    """A table whose log-probabilities are the hidden states: the output layer is the identity."""

    def __init__(self, table: Tensor) -> None:
        super().__init__(table)
        self.weight = torch.eye(self.vocab)


class Scattered(SubsetOutput):
    """As the paper has it: products among all columns, minus infinity elsewhere, then softmax and search."""

    def project(self, hidden: Tensor, best: int) -> Best:
        columns = self._subset.columns(hidden)
        products = gathered_products(self._weight, hidden, columns)
        logits = scatter(products, columns, self._model.vocab, self._model.bias)
        self._banned.ban(logits)
        values, tokens = logits.topk(min(best, self._model.vocab), dim=1)
        return Best(tokens, values, logits.logsumexp(dim=1) - values[:, 0])


def output(
    model: Any, vocabulary: RestrictedVocabulary, banned: BannedTokens | None = None, sources: Any = ((0,),)
) -> SubsetOutput:
    layer = SubsetOutput(model, banned or BannedTokens(model), vocabulary)
    layer.join(range(len(sources)), sources)
    return layer


def test_worked_example_of_fvp_07() -> None:
    """Active {1, 3, 4} of FVP-01's five: the probabilities to six digits; ratios are those of the dense ones."""
    hidden = torch.tensor([[1.0, 2.0]])
    dense = Layer().project(hidden).softmax(dim=1)
    assert Layer().project(hidden)[0].tolist() == pytest.approx([1, 2.1, 0, 1, 1.7])
    assert dense[0].tolist() == pytest.approx([0.135395, 0.406749, 0.049809, 0.135395, 0.272652], abs=5e-7)
    vocabulary = listed(MadeLists([[1, 3, 4]], 5))
    layer = output(Layer(), vocabulary)
    best = layer.project(hidden, 3)
    assert best.columns.tolist() == [[1, 4, 3]]
    assert best.log_probs.exp()[0].tolist() == pytest.approx([0.499203, 0.334626, 0.166170], abs=5e-7)
    assert (best.log_probs.exp() >= dense[0, best.columns]).all()
    assert layer.likeliest(layer.project(hidden, 0), False)[0].tolist() == [1]


@st.composite
def decodings(draw: st.DrawFn) -> tuple[Tensor, int, list[Limit], float, int]:
    """Logits of each step after each token, on a grid that no two sums share by chance, and how much of it is active."""
    vocab = draw(st.integers(8, 40))  # a beam of 5 and the special tokens
    tables = torch.randn((6, vocab, vocab), generator=torch.Generator().manual_seed(draw(st.integers(0, 10_000))))
    tables *= draw(st.sampled_from([0.3, 2.0, 9.0]))
    tables[:, :, 1] += draw(st.sampled_from([0.0, 5.0]))
    limits = draw(st.lists(st.builds(Limit, st.integers(1, 6), st.booleans()), min_size=1, max_size=5))
    return tables, draw(st.integers(1, 5)), limits, draw(st.sampled_from([0.0, 0.1, 0.4, 1.0])), draw(st.integers(0, 99))


@given(decodings())
def test_columns_straight_to_the_fused_kernel_give_the_tokens_of_scatter_and_softmax(
    drawing: tuple[Tensor, int, list[Limit], float, int],
) -> None:
    """XP-02, also where fewer are active than the beam wants, and where some sentences may not end."""
    tables, width, limits, share, seed = drawing
    model = Wide(tables[0])
    clusters = drawn(model.vocab, model.vocab, 4, share, [1, 3], seed)

    def steps(layer: type[SubsetOutput]) -> list[Any]:
        made: Any = SimpleNamespace(layer=lambda model, banned: layer(model, banned, clustered(clusters)))
        search = (BeamSearch if width > 1 else GreedySearch)(model, Search(width, scored=True), made)
        return steps_of(search, tables, list(limits))

    straight, scattered = steps(SubsetOutput), steps(Scattered)
    assert [step[0] for step in straight] == [step[0] for step in scattered]
    for one, other in zip(straight, scattered, strict=True):
        assert one[1] == pytest.approx(other[1], abs=1e-4)


def test_neither_padding_nor_the_end_of_a_forced_sentence_is_chosen() -> None:
    """Of both rows the end is likeliest, then padding; the second may not end."""
    table = torch.zeros((6, 6))
    table[:, 1], table[:, 0], table[:, 4] = 9.0, 8.0, 7.0
    model = Wide(table)
    banned = BannedTokens(model)
    banned.update([Limit(3), Limit(3, True)], 1)
    layer = output(model, listed(MadeLists([[0, 1, 4, 5]], 6)), banned, [[0], [0]])
    assert layer.likeliest(layer.project(table[:2], 0), False)[0].tolist() == [1, 4]
    tokens, log_probs = layer.likeliest(layer.project(table[:2], 1), True)
    assert log_probs is not None
    assert tokens.tolist() == [1, 4]
    # The end, 4 and 5 are left to the first; 4 and 5 to the second.
    expected = [-log(1 + exp(-2) + exp(-9)), -log(1 + exp(-7))]
    assert log_probs.tolist() == pytest.approx(expected, abs=1e-5)
