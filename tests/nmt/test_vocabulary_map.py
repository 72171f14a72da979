"""Candidate lists as CTranslate2's vocabulary map."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from simnmt.nmt.agreement import agreement
from simnmt.nmt.architecture import TransformerArchitecture
from simnmt.nmt.checkpoint import save_checkpoint
from simnmt.nmt.engine import Hypothesis, Work
from simnmt.nmt.engines import load_engine
from simnmt.nmt.errors import NmtError
from simnmt.nmt.marian_model import MarianModel
from simnmt.nmt.models import LoadedModel, build_model
from simnmt.nmt.slot_decoder import decode_batch
from simnmt.nmt.step_model import pad
from simnmt.nmt.vocabulary.active_columns import listed
from simnmt.nmt.vocabulary.candidate_lists import (
    CandidateLists,
    write_vocabulary_map,
)
from tests.nmt.tiny import ARCHITECTURES, VOCAB, lively, sources

if TYPE_CHECKING:
    from simnmt.nmt.ctranslate2_engine import CTranslate2Engine  # at run time only where it is used: it imports transformers

LENGTHS = [9, 3, 7, 4, 6, 8, 5, 3, 12, 3, 6, 4]
MODELS = ["marian", "own tokens"]


def lists_for(name: str, count: int = 6, seed: int = 1) -> CandidateLists:
    """So many of each source token, drawn at random among what the model may say."""
    architecture, draw = ARCHITECTURES[name], np.random.default_rng(seed)
    some = [token for token in range(VOCAB) if token not in (architecture.pad_token, architecture.start_token)]
    columns = np.concatenate([draw.choice(some, count, replace=False) for _ in range(VOCAB)]).astype(np.int32)
    always = np.array(sorted([architecture.eos_token, architecture.unk_token]), np.int32)
    starts = np.arange(VOCAB + 1, dtype=np.int64) * count
    return CandidateLists(starts, columns, np.full(len(columns), 0.1, np.float32), always, VOCAB)


def model_of(name: str) -> tuple[TransformerArchitecture, MarianModel]:
    architecture, model = ARCHITECTURES[name], lively(name)
    assert isinstance(architecture, TransformerArchitecture)
    assert isinstance(model, MarianModel)
    return architecture, model


def engine(name: str, lists: CandidateLists | None) -> CTranslate2Engine:
    from simnmt.nmt.ctranslate2_engine import CTranslate2Engine

    architecture, model = model_of(name)
    return CTranslate2Engine(LoadedModel(name, model, architecture, "random"), "cpu", 1, "float32", 0, lists)


def tokens_of(by: CTranslate2Engine, group: Sequence[Sequence[int]], beam: int = 1) -> list[list[int]]:
    hypotheses = by.translate([[str(token) for token in source] for source in group], beam=beam, max_len=12)
    return [[int(text) for text in texts] for texts in hypotheses]


def test_a_map_has_a_line_for_each_token_and_one_for_all(tmp_path: Path) -> None:
    starts, columns = np.array([0, 0, 2, 3], np.int64), np.array([2, 0, 1], np.int32)
    lists = CandidateLists(starts, columns, np.ones(3, np.float32), np.array([0, 3], np.int32), 4)
    write_vocabulary_map(tmp_path / "map", lists, ["<s>", "le", "chat"], ["</s>", "cat", "the", "<unk>"])
    assert (tmp_path / "map").read_text(encoding="utf-8") == "\t</s> <unk>\nle\tthe </s>\nchat\tcat\n"


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("beam", [1, 3])
def test_ctranslate2_emits_only_mapped_tokens(name: str, beam: int) -> None:
    lists, by = lists_for(name), engine(name, lists_for(name))
    alone, _, _ = sources(ARCHITECTURES[name], LENGTHS)
    outputs = [tokens_of(by, [source], beam)[0] for source in alone]
    assert all(set(output) <= set(lists.of(source).tolist()) for output, source in zip(outputs, alone, strict=True))
    assert outputs != [tokens_of(engine(name, None), [source], beam)[0] for source in alone], (
        "the lists forbid what it would say"
    )
    union = set(np.concatenate([lists.of(source) for source in alone]).tolist())
    assert all(set(output) <= union for output in tokens_of(by, alone, beam))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ctranslate2_translates_as_our_restricted_decoding(name: str, seed: int) -> None:
    """Whatever lists came before: it keeps in mind where an earlier list had its special tokens, were they to move."""
    _, model = model_of(name)
    lists = lists_for(name, seed=seed)
    by, (alone, _, _) = engine(name, lists), sources(ARCHITECTURES[name], LENGTHS, seed)
    for source in alone:
        (ours,) = decode_batch(model, *pad([source], model.pad_token), max_len=12, vocabulary=listed(lists))
        assert tokens_of(by, [source]) == [list(ours.tokens)]


@pytest.mark.parametrize("name", MODELS)
def test_a_map_of_all_tokens_changes_nothing(name: str) -> None:
    """Save near ties; greedily if the map excludes tokens with a probability, since a beam compares the changed scores."""
    _, model = model_of(name)
    alone, _, _ = sources(ARCHITECTURES[name], LENGTHS)
    excluded, beam = (1, 3) if name == "marian" else (2, 1)
    mapped, free = (
        [Hypothesis(tuple(tokens), 0.0) for tokens in tokens_of(engine(name, lists), alone, beam)]
        for lists in (lists_for(name, VOCAB - excluded), None)
    )
    assert agreement(model, alone, mapped, free, beam=beam, max_len=12).disagreements == ()


def test_ctranslate2_may_translate_to_nothing() -> None:
    """As our own search does: a list of the end token alone leaves no other choice."""
    only_end = CandidateLists(
        np.zeros(VOCAB + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(1, np.int32), VOCAB
    )
    assert tokens_of(engine("marian", only_end), [[5, 7, 0]]) == [[]]


def test_an_engine_of_a_trained_folder_uses_its_bundle_and_translates_as_our_decoder(tmp_path: Path) -> None:
    from simnmt.nmt.ctranslate2_engine import CTranslate2Engine

    architecture, model = model_of("own tokens")
    save_checkpoint(tmp_path / "trained", model, architecture)
    lists = lists_for("own tokens")
    lists.save(tmp_path / "lists", model)
    how = {"backend": "ctranslate2", "threads": 1, "vocabulary": str(tmp_path / "lists")}
    loaded = load_engine(str(tmp_path / "trained"), **how)
    assert isinstance(loaded, CTranslate2Engine)
    assert (loaded.account.vocabulary, loaded.account.weights) == ("candidates", "checkpoint")
    assert loaded.run(Work(5, 7, batch=2, beam=2)).total_s > 0
    for source in sources(architecture, LENGTHS)[0]:
        (ours,) = decode_batch(model, *pad([source], model.pad_token), max_len=12, vocabulary=listed(lists))
        assert tokens_of(loaded, [source]) == [list(ours.tokens)]
    save_checkpoint(tmp_path / "other", build_model(architecture, seed=6), architecture)
    with pytest.raises(NmtError, match="another model"):
        load_engine(str(tmp_path / "other"), **how)
