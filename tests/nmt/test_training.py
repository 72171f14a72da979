"""Training itself, on a language that a tiny model learns within seconds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
from safetensors.torch import load_file

from simnmt.nmt.errors import TrainingError
from simnmt.nmt.models import build_model, load_model
from simnmt.nmt.subwords import Subwords
from simnmt.nmt.training import trainer
from simnmt.nmt.training.recipe import CorpusFiles, Recipe, read_training_corpus
from simnmt.nmt.training.trainer import Budget
from simnmt.nmt.training.translation import EncodedPairs, TranslationLearner
from simnmt.nmt.training.translation import train_translation as train
from simnmt.nmt.translation import Translator
from tests.nmt import toy_language

QUICK = Recipe(toy_language.GRU, heldout=60, batch_tokens=384, peak_rate=0.02, warmup_steps=30, dropout=0.0, validate_every=50)
SHORT = replace(QUICK, dropout=0.2, validate_every=4, heldout=8, batch_tokens=200)
TO_STEPS = [(toy_language.GRU, 14), (toy_language.TRANSFORMER, 6)]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> CorpusFiles:
    return CorpusFiles(*toy_language.write(tmp_path_factory.mktemp("text"), 2_000))


@pytest.fixture(scope="module")
def small_text(tmp_path_factory: pytest.TempPathFactory) -> CorpusFiles:
    return CorpusFiles(*toy_language.write(tmp_path_factory.mktemp("text"), 300))


@pytest.fixture(scope="module")
def trained(text: CorpusFiles, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("trained") / "model"
    return folder, train(text, folder, QUICK, budget=Budget(steps=120), threads=1)


class Stopped(BaseException):
    """As an interrupt of the command line is: no Exception."""


def stop_at(step: int) -> Callable[[str, float | None], None]:
    def tell(stage: str, share: float | None) -> None:
        if re.search(rf"step {step}\b", stage):
            raise Stopped

    return tell


def test_two_trainings_do_not_write_one_folder(small_text: CorpusFiles, tmp_path: Path) -> None:
    """Without the lock both ended well, and the vocabulary of one could stand beside the weights of the other."""
    refusals: list[str | None] = []

    def train_again(stage: str, share: float | None) -> None:
        if not refusals and stage.startswith("epoch"):
            with pytest.raises(TrainingError) as refusal:
                train(small_text, tmp_path / "m", SHORT, budget=Budget(steps=1), threads=1)
            refusals.append(refusal.value.path)

    train(small_text, tmp_path / "m", SHORT, budget=Budget(steps=1), threads=1, progress=train_again)
    assert refusals == [str(tmp_path / "m")]
    with pytest.raises(TrainingError, match="heldout"):
        train(small_text, tmp_path / "deep" / "n", replace(SHORT, heldout=10**6), budget=Budget(steps=1))
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_the_score_equals_that_of_the_folder_on_unseen_text(trained: tuple[Path, dict[str, Any]], text: CorpusFiles) -> None:
    """Loaded anew, by another way than training took."""
    folder, account = trained
    corpus = read_training_corpus(text, heldout=QUICK.heldout, seed=QUICK.seed)
    translator = Translator.load(folder)
    translations = translator.stream([source for source, _ in corpus.heldout])
    texts = [translation.text for translation in translations]
    references = [target for _, target in corpus.heldout]
    result = account["result"]
    assert result["bleu"] == pytest.approx(sacrebleu.corpus_bleu(texts, [references]).score)
    assert result["chrf"] == pytest.approx(sacrebleu.corpus_chrf(texts, [references]).score)
    assert result["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert [sample["translation"] for sample in result["samples"]] == texts[:10]


def test_the_folder_is_a_checkpoint_with_an_account(trained: tuple[Path, dict[str, Any]]) -> None:
    folder, account = trained
    assert json.loads((folder / "training.json").read_text()) == account
    names = {"architecture.json", "model.safetensors", "source.model", "target.model", "training.json", "state.safetensors"}
    assert {path.name for path in folder.glob("[!.]*")} == names
    loaded = load_model(str(folder))
    assert (loaded.weights, loaded.architecture) == ("checkpoint", QUICK.architecture)
    assert account["data"]["train"] + 2 * QUICK.heldout == account["data"]["read"] == 2_000
    assert account["training"]["steps"] == 120 and account["training"]["examples_per_s"] > 0
    assert {"torch", "sentencepiece", "sacrebleu"} <= account["versions"].keys()


def test_the_loss_is_the_mean_negative_logarithm_of_the_references_probability(small_text: CorpusFiles, tmp_path: Path) -> None:
    """Against a loop over single sentences without padding, and, before any step, near that of a uniform guess."""
    train(small_text, tmp_path / "m", SHORT, budget=Budget(steps=0), threads=1)
    corpus = read_training_corpus(small_text, heldout=SHORT.heldout, seed=SHORT.seed)
    source, target = (Subwords.read(tmp_path / "m" / name) for name in ("source.model", "target.model"))
    pairs = EncodedPairs.of(corpus.dev, source, target, 100)
    model = build_model(SHORT.architecture, seed=SHORT.seed)
    loss = TranslationLearner(model, SHORT, torch.device("cpu"), pairs).mean_loss(pairs)
    logs = []
    with torch.inference_mode():
        for src, tgt in zip(pairs.src, pairs.tgt, strict=True):
            fed = torch.tensor([[SHORT.architecture.start_token, *tgt[:-1]]])
            logits = model(torch.tensor([src]), torch.tensor([len(src)]), fed)[0]
            logs += [float(row.log_softmax(0)[token]) for row, token in zip(logits, tgt, strict=True)]
    assert loss == pytest.approx(-sum(logs) / len(logs), rel=1e-5)
    assert loss == pytest.approx(math.log(SHORT.architecture.tgt_vocab), rel=0.1)


@pytest.mark.parametrize(("architecture", "steps"), TO_STEPS, ids=["gru", "transformer"])
def test_a_training_that_goes_on_from_its_last_save_equals_an_uninterrupted_one(
    small_text: CorpusFiles, tmp_path: Path, architecture: Any, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout, over the end of an epoch, and stopped where the weights were just looked at and where not."""
    monkeypatch.setattr(trainer, "SAVE_EVERY_S", -1.0)
    recipe = replace(SHORT, architecture=architecture)
    whole = train(small_text, tmp_path / "whole", recipe, budget=Budget(steps=steps), threads=1)
    for stop in (3, 4, steps - 1):
        with pytest.raises(Stopped):
            train(small_text, tmp_path / "parts", recipe, budget=Budget(steps=steps), threads=1, progress=stop_at(stop))
        assert json.loads((tmp_path / "parts" / "training.json").read_text())["training"]["steps"] == stop
    parts = train(small_text, tmp_path / "parts", recipe, budget=Budget(steps=steps), threads=1)
    assert parts["training"]["sessions"] == 4
    assert (tmp_path / "parts/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()
    assert_equal_states(tmp_path / "whole", tmp_path / "parts")
    for account in (whole, parts):
        for point in account["training"]["curve"]:
            del point["seconds"]
    assert whole["training"]["curve"] == parts["training"]["curve"]
    assert whole["training"]["epochs"] == parts["training"]["epochs"]


def assert_equal_states(one: Path, other: Path) -> None:
    """Assert that weights and moments are equal to the bit."""
    states = [load_file(folder / trainer.STATE_FILE) for folder in (one, other)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())


def test_more_budget_resumes_a_training_and_no_budget_only_scores(small_text: CorpusFiles, tmp_path: Path) -> None:
    train(small_text, tmp_path / "a", SHORT, budget=Budget(steps=8), threads=1)
    longer = train(small_text, tmp_path / "a", SHORT, budget=Budget(steps=12), threads=1)
    assert longer["training"]["steps"] == 12
    again = train(small_text, tmp_path / "a", SHORT, budget=Budget(minutes=0.0), threads=1, beam=2)
    assert again["training"]["steps"] == 12 and again["result"]["beam"] == 2
    assert again["training"]["curve"] == longer["training"]["curve"]
    greedy = train(small_text, tmp_path / "a", SHORT, budget=Budget(steps=12), threads=1)
    assert greedy["result"]["samples"] == longer["result"]["samples"]  # judged without dropout, also without a step before


def test_the_best_weights_are_kept_and_judged_not_the_last(
    small_text: CorpusFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = train(small_text, tmp_path / "early", SHORT, budget=Budget(steps=4), threads=1)
    losses = iter([1.0, 2.0])
    monkeypatch.setattr(TranslationLearner, "mean_loss", lambda learner, pairs: next(losses))
    later = train(small_text, tmp_path / "later", SHORT, budget=Budget(steps=8), threads=1)
    assert (later["training"]["steps"], later["result"]["step"]) == (8, 4)
    assert later["result"]["dev_perplexity"] == pytest.approx(math.e)
    assert (tmp_path / "later/model.safetensors").read_bytes() == (tmp_path / "early/model.safetensors").read_bytes()
    assert later["result"]["samples"] == early["result"]["samples"]


def test_another_recipe_or_text_is_not_mixed_into_a_training(
    small_text: CorpusFiles, text: CorpusFiles, tmp_path: Path
) -> None:
    train(small_text, tmp_path / "m", SHORT, budget=Budget(steps=1), threads=1)
    before = (tmp_path / "m" / trainer.STATE_FILE).read_bytes()
    for other_text, other in (
        (small_text, replace(SHORT, seed=2)),
        (small_text, replace(SHORT, architecture=toy_language.TRANSFORMER)),
        (text, SHORT),
    ):
        with pytest.raises(TrainingError) as refusal:
            train(other_text, tmp_path / "m", other, budget=Budget(steps=2), threads=1)
        assert refusal.value.path == str(tmp_path / "m") and refusal.value.remedy
    assert (tmp_path / "m" / trainer.STATE_FILE).read_bytes() == before


def test_a_damaged_state_is_refused_and_the_leftover_of_a_killed_start_is_used(small_text: CorpusFiles, tmp_path: Path) -> None:
    (tmp_path / "m" / ".simnmt-partial-0a1b2c3d").mkdir(parents=True)
    train(small_text, tmp_path / "m", SHORT, budget=Budget(steps=1), threads=1)
    state = tmp_path / "m" / trainer.STATE_FILE
    whole = state.read_bytes()
    for content in (b"", b"no state", whole[: len(whole) // 2]):
        state.write_bytes(content)
        with pytest.raises(TrainingError) as refusal:
            train(small_text, tmp_path / "m", SHORT, budget=Budget(steps=2), threads=1)
        assert refusal.value.path == str(state)
