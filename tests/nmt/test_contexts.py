"""Contexts and their likeliest tokens, as decoding met them (FVP-02)."""

from __future__ import annotations

import pytest
import torch

from simnmt.nmt.errors import NmtError
from simnmt.nmt.searches import BeamSearch
from simnmt.nmt.slot_decoder import decode_batch
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.contexts import Contexts, collect, join_contexts
from tests.nmt.tiny import ARCHITECTURES, Table, lively, sources

LENGTHS = [3, 9, 5, 4, 7, 6, 5]
each_architecture = pytest.mark.parametrize("name", ["gru", "marian", "sharp"])


def stepwise(model: StepModel, source: list[int], tokens: list[int]) -> torch.Tensor:
    """The contexts of one sentence alone whose tokens are known, [steps, width]."""
    with torch.inference_mode():
        state = model.start(model.encode(torch.tensor([source]), torch.tensor([len(source)])), 1)
        contexts = []
        for token in [model.start_token, *tokens]:
            hidden, state = model.body(state, torch.tensor([token]))
            contexts.append(hidden[0].clone())
    return torch.stack(contexts)


@each_architecture
def test_every_step_of_every_sentence_is_recorded_with_the_tokens_that_dense_logits_rank_first(name: str) -> None:
    """Whatever the batch: contexts are those of each sentence decoded alone; the first token is the one it goes on with."""
    model = lively(name)
    alone, src, src_lengths = sources(ARCHITECTURES[name], LENGTHS)
    wanted = decode_batch(model, src, src_lengths, max_len=12)
    contexts_of_all = collect(model, alone, 4, batch=3, max_len=12)
    emitted = {model.eos_token}
    for sentence, (source, hypothesis) in enumerate(zip(alone, wanted, strict=True)):
        rows, tokens = contexts_of_all.sentence == sentence, list(hypothesis.tokens)
        written = [*tokens, model.eos_token][:12]
        assert contexts_of_all.top[rows][:, 0].tolist() == written
        contexts = stepwise(model, source, tokens)[: len(written)]
        assert torch.allclose(contexts_of_all.hidden[rows], contexts, atol=1e-5)
        emitted.update(tokens)
    logits = model.project(contexts_of_all.hidden).detach()
    if model.pad_token != model.eos_token:
        logits[:, model.pad_token] = float("-inf")
    ranked = logits.topk(4, dim=1)
    assert torch.allclose(logits.gather(1, contexts_of_all.top.long()), ranked.values, atol=1e-5)
    assert contexts_of_all.emitted.tolist() == sorted(emitted)
    assert (contexts_of_all.sentences, contexts_of_all.beam, contexts_of_all.top.dtype, contexts_of_all.hidden.dtype) == (
        7,
        1,
        torch.int32,
        torch.float32,
    )


def test_worked_example_of_fvp_01_and_the_lowest_of_equal_tokens_comes_first() -> None:
    """z = [1, 2.1, 0, 1, 1.7]: 1 and 4 lead, then 0 before 3. Here token 0 is padding, which no search may choose."""
    table = torch.full((6, 6), -9.0)
    table[2, 1:] = torch.tensor([1.0, 2.1, 0.0, 1.0, 1.7])  # shifted by one beside the padding
    table[:2, 1] = table[3:, 1] = 0.0
    table[2, 0] = 5.0
    contexts = collect(Table(table), [[4, 1]], 4, max_len=3)
    assert contexts.top[0].tolist() == [2, 5, 1, 4]


def test_a_beam_records_the_contexts_of_all_its_rows_and_the_emitted_tokens() -> None:
    model, (alone, src, src_lengths) = lively("gru"), sources(ARCHITECTURES["gru"], LENGTHS)
    wanted = decode_batch(model, src, src_lengths, beam=3, max_len=10)
    contexts = collect(model, alone, 2, beam=3, batch=4, max_len=10)
    assert contexts.beam == 3 and {len(contexts.hidden[contexts.sentence == sentence]) % 3 for sentence in range(7)} == {0}
    assert contexts.emitted.tolist() == sorted({model.eos_token}.union(*(hypothesis.tokens for hypothesis in wanted)))
    assert BeamSearch(model, 3).beam == 3


def test_sources_without_tokens_have_no_contexts_but_keep_their_index() -> None:
    model, (alone, _, _) = lively("gru"), sources(ARCHITECTURES["gru"], [4, 6])
    whole, gaps = collect(model, alone, 1), collect(model, [[], alone[0], [], alone[1]], 1)
    assert torch.equal(gaps.hidden, whole.hidden) and gaps.sentences == 4
    assert set(gaps.sentence.tolist()) == {1, 3}
    with pytest.raises(NmtError, match="text without a sentence"):
        collect(model, [[], []], 1)


def test_joined_contexts_number_the_sentences_of_all_texts() -> None:
    model, (alone, _, _) = lively("gru"), sources(ARCHITECTURES["gru"], [4, 6, 5])
    one, other = collect(model, alone[:2], 3), collect(model, alone[2:], 2)
    both: Contexts = join_contexts([one, other])
    assert len(both) == len(one) + len(other) and both.sentences == 3
    assert set(both.sentence.tolist()) == {0, 1, 2} and both.top.shape[1] == 2
    assert set(both.emitted.tolist()) == set(one.emitted.tolist()) | set(other.emitted.tolist())
    assert both.of(both.sentence == 2).hidden.equal(other.hidden)
