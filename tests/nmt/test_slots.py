"""Sentences that join and leave a decoder against each of them decoded alone by the model's plain steps."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simnmt.nmt.errors import NmtError
from simnmt.nmt.models import TranslationModel, build_model
from tests.campaigns.harness import thinned
from tests.nmt.tiny import ARCHITECTURES, MARIAN, lively, sources


def encoded(model: TranslationModel, lengths: list[int], seed: int = 1) -> Any:
    _, src, src_lengths = sources(model.architecture, lengths, seed)
    return model.encode(src, src_lengths)


class Alone:
    """Every sentence in slots, and decoded alone beside it."""

    def __init__(self, model: TranslationModel, beam: int, capacity_rows: int = 1) -> None:
        self.model, self.beam, self.slots = model, beam, model.slots(capacity_rows)
        self.states: list[Any] = []
        self.ages: list[int] = []
        self.draw = torch.Generator().manual_seed(5)
        self.difference = 0.0

    def join(self, lengths: list[int], chosen: list[int], seed: int = 1) -> None:
        sentences, src, src_lengths = sources(self.model.architecture, lengths, seed)
        self.slots.join(self.model.encode(src, src_lengths), chosen, [lengths[at] for at in chosen], self.beam)
        for sentence in chosen:
            memory = self.model.encode(torch.tensor([sentences[sentence]]), torch.tensor([lengths[sentence]]))
            self.states.append(self.model.start(memory, self.beam))
            self.ages.append(0)

    def leave(self, gone: list[int]) -> None:
        order = self.slots.leave(gone, self.beam)
        assert sorted(order) == [slot for slot in range(len(self.states)) if slot not in gone]
        self.states, self.ages = [self.states[slot] for slot in order], [self.ages[slot] for slot in order]

    def step(self) -> None:
        """One step of all, and where there are beams, one of them takes another's place."""
        rows = len(self.states) * self.beam
        tokens = torch.randint(4, 40, (rows,), generator=self.draw)
        parents = torch.randint(0, self.beam, (len(self.states), self.beam), generator=self.draw)
        logits = self.model.project(self.slots.body(tokens))
        for slot, (state, fed) in enumerate(zip(self.states, tokens.split(self.beam), strict=True)):
            expected, state = self.model.step(state, fed)
            slot_logits = logits[slot * self.beam : (slot + 1) * self.beam]
            apart = float((slot_logits - expected).abs().max() / expected.abs().max())
            self.difference = math.nan if math.isnan(apart) else max(self.difference, apart)
            self.states[slot] = self.model.reorder(state, parents[slot])
            self.ages[slot] += 1
        if self.beam > 1:
            self.slots.reorder((parents + torch.arange(0, rows, self.beam)[:, None]).view(-1))


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
            if both.states:
                both.leave(sorted({slot % len(both.states) for slot in leaving}))
            both.join(lengths, chosen, seed)
            for _ in range(steps if both.states else 0):
                both.step()
        assert both.difference < 1e-4


@pytest.mark.parametrize("name", thinned(ARCHITECTURES, ("gru", "marian")))
def test_long_refilling_of_all_slots_keeps_every_sentences_logits(name: str) -> None:
    """A hundred steps, at most 15 for each: columns of keys and values are given back again and again."""
    model = lively(name)
    with torch.inference_mode():
        both = Alone(model, 1, 4)
        for turn in range(20):
            both.join([3 + turn % 7, 5], [0, 1], seed=turn)
            for _ in range(5):
                both.step()
            both.leave([slot for slot, age in enumerate(both.ages) if age > 9 + slot % 5])
        assert both.difference < 1e-4


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("lengths", [[7, 7, 7, 7], [3, 9, 5, 7]])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_sentences_that_join_together_take_the_same_steps_as_a_batch(name: str, lengths: list[int], beam: int) -> None:
    """Byte by byte, over more steps than the first room for keys and values."""
    model = lively(name)
    with torch.inference_mode():
        memory = encoded(model, lengths)
        slots, state = model.slots(4 * beam), model.start(memory, beam)
        slots.join(memory, range(4), lengths, beam)
        for step in range(40):
            tokens = torch.arange(4 * beam) % 40 + step % 5 + 4
            expected, state = model.step(state, tokens)
            assert torch.equal(model.project(slots.body(tokens)), expected)
            rows = torch.arange(4 * beam).view(4, beam).roll(step, dims=1).reshape(-1)
            state = model.reorder(state, rows)
            slots.reorder(rows)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_after_the_longest_source_leaves_steps_read_only_the_others(name: str) -> None:
    """The others, equally long, take the very steps of a batch of their own, without a mask."""
    model = lively(name)
    with torch.inference_mode():
        slots, state = model.slots(3), model.start(encoded(model, [5, 5], seed=2), 1)
        slots.join(encoded(model, [9]), [0], [9], 1)
        slots.join(encoded(model, [5, 5], seed=2), [1, 0], [5, 5], 1)
        assert slots.leave([0], 1) == [2, 1]
        for _ in range(3):
            tokens = torch.tensor([6, 7])
            expected, state = model.step(state, tokens)
            assert torch.equal(model.project(slots.body(tokens)), expected)


def test_the_last_slots_fill_the_holes_of_those_that_leave() -> None:
    """A worked example: of six, 1 and 3 and 4 leave; 5 takes the place of 1."""
    model = lively("gru")
    slots = model.slots(12)
    slots.join(encoded(model, [4] * 6), range(6), [4] * 6, 2)
    assert slots.leave([4, 1, 3], 2) == [0, 5, 2]
    assert len(slots.body(torch.full((6,), 5))) == 6
    assert slots.leave([], 2) == [0, 1, 2]
    assert slots.leave([0, 1, 2], 2) == []


@pytest.mark.parametrize("name", ["gru", "bilstm", "marian"])
def test_nan_in_one_sentence_does_not_reach_others(name: str) -> None:
    """Not even the next one in its place: not-a-number times a weight of 0 is not a number."""
    model = lively(name)
    with torch.inference_mode():
        both = Alone(model, 1, 3)
        broken = encoded(model, [9])
        for part in (broken.cross,) if name == "marian" else (broken.source, *broken.kept):
            part.fill_(torch.nan)
        both.join([9, 2], [0, 1])
        both.slots.join(broken, [0], [9], 1)
        for _ in range(4):
            assert both.slots.body(torch.tensor([5, 5, 5])).isnan().any(dim=1).tolist() == [False, False, True]
            both.states = [both.model.step(state, torch.tensor([5]))[1] for state in both.states]
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


def test_a_sentence_that_joins_long_after_another_attends_only_to_its_own_columns() -> None:
    """More hidden columns than the blocks of 512 in which torch's attention goes through them."""
    model = build_model(MARIAN.model_copy(update={"max_positions": 600}), seed=1).eval()
    with torch.inference_mode():
        both = Alone(model, 1, 2)
        both.join([4], [0])
        for _ in range(530):
            both.slots.body(torch.tensor([7]))
        state = model.start(encoded(model, [6]), 1)
        both.slots.join(encoded(model, [6]), [0], [6], 1)
        for token in (9, 11, 13):
            expected, state = model.step(state, torch.tensor([token]))
            assert torch.allclose(model.project(both.slots.body(torch.tensor([7, token])))[1:], expected, atol=1e-5)
