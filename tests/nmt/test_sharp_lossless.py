"""The sharp decoder on a trained model: what is an identity changes no token, what is noise hardly any (SHARP-10)."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from simnmt.nmt.architecture import AttentionalArchitecture, StackBlock
from simnmt.nmt.attentional_model import AttentionalModel
from simnmt.nmt.models import build_model, load_model
from simnmt.nmt.sharp_translator import SharpTranslator
from simnmt.nmt.slot_decoder import decode_batch
from simnmt.nmt.step_model import pad
from simnmt.nmt.subwords import Subwords
from simnmt.nmt.training.learner import (
    EncodedPairs,
    Learner,
    epoch_batches,
)
from simnmt.nmt.training.recipe import Budget, CorpusFiles, Recipe, read_training_corpus, side_of
from simnmt.nmt.training.trainer import train
from simnmt.profile.decoder_settings import DecoderSettings
from tests.nmt import toy_language

SPELLER = AttentionalArchitecture(
    kind="attentional",
    hidden=40,
    embedding=24,
    stack=(StackBlock(kind="fc_relu", width=36, layers=3),),
    source_layers=1,
    source_hidden=20,
    src_vocab=30,
    tgt_vocab=28,
)
RECIPE = Recipe(SPELLER, heldout=60, batch_tokens=384, peak_rate=0.02, warmup_steps=15, dropout=0.0, validate_every=50)
IDENTITIES = {
    "plain": {},
    "embeddings": {"embeddings": "precomputed"},
    "frequent embeddings": {"embeddings": "frequent", "frequent_words": 9},
    "attention": {"attention": "precomputed"},
    "merge": {"merge": True},
    "all": {"embeddings": "precomputed", "attention": "precomputed", "merge": True, "fused": True},
}
NOISE = {
    "int16": {"gemm": "int16"},
    "table": {"activations": "table"},
    "polynomial": {"activations": "polynomial"},
    "all": {**IDENTITIES["all"], "gemm": "int16", "activations": "polynomial"},
}


class Speller:
    """A model trained on numbers spelt in two ways, one of another seed that learnt less, and sources that neither has seen."""

    def __init__(self, folder: Path) -> None:
        text = CorpusFiles(*toy_language.write(folder, 1_200))
        train(text, folder / "model", RECIPE, budget=Budget(steps=100), threads=1)
        loaded = load_model(str(folder / "model")).model
        assert isinstance(loaded, AttentionalModel)
        source, target = (Subwords.read(folder / "model" / f"{side}.model") for side in ("source", "target"))
        corpus = read_training_corpus(text, heldout=RECIPE.heldout, seed=RECIPE.seed)
        self.model = loaded
        self.sources = source.encode(side_of(corpus.heldout, 0))
        self.other = self._other(EncodedPairs.of(corpus.train, source, target, SPELLER, 100))

    def _other(self, pairs: EncodedPairs) -> AttentionalModel:
        model = build_model(SPELLER, seed=2)
        assert isinstance(model, AttentionalModel)
        learner = Learner(model, replace(RECIPE, seed=2), torch.device("cpu"))
        for step, rows in enumerate(epoch_batches(pairs.lengths, RECIPE.batch_tokens, seed=2, epoch=0)[:10], 1):
            learner.step(pairs.batch(rows, learner.device), step)
        return model.eval()

    def translator(self, width: int, how: dict[str, object]) -> SharpTranslator:
        settings = DecoderSettings.model_validate({"beam": width} | how)
        return SharpTranslator([self.model], settings, max_len=30)


@pytest.fixture(scope="module")
def speller(tmp_path_factory: pytest.TempPathFactory) -> Speller:
    return Speller(tmp_path_factory.mktemp("speller"))


@pytest.mark.parametrize("width", [1, 6])
@pytest.mark.parametrize("how", IDENTITIES)
def test_identities_find_what_torch_finds(speller: Speller, how: str, width: int) -> None:
    """The same search by torch: sums of log-probabilities without a length penalty, batched, full vocabulary."""
    src, lengths = pad(speller.sources, SPELLER.pad_token)
    theirs = decode_batch(speller.model, src, lengths, beam=width, max_len=30, length_penalty=0.0)
    ours = speller.translator(width, IDENTITIES[how]).translate(speller.sources)
    assert [hypothesis.tokens for hypothesis in ours] == [hypothesis.tokens for hypothesis in theirs]
    assert [hypothesis.log_prob for hypothesis in ours] == pytest.approx([hypothesis.score for hypothesis in theirs], abs=1e-4)
    assert len({hypothesis.tokens for hypothesis in ours}) > 30


@pytest.mark.parametrize("how", NOISE)
def test_noise_changes_only_tokens_that_nearly_tie(speller: Speller, how: str) -> None:
    """SHARP-10, teacher-forced along the translations in float32.

    How many tokens nearly tie depends on the processor, by the rounding of the training: a token may change only if float32
    prefers its own by less than the noise of both.
    """
    plain, noisy = speller.translator(4, {}), speller.translator(4, NOISE[how])
    noise, margins, tokens = list[float](), list[float](), 0
    for source in speller.sources:
        states = plain.encode(source)
        emitted = (*plain.decode(states).tokens, SPELLER.eos_token)
        one, other = plain.forced(states, emitted), noisy.forced(noisy.encode(source), emitted)
        noise += np.abs(one.log_probs - other.log_probs).tolist()
        tokens += len(emitted)
        for at in np.flatnonzero(one.best != other.best):
            words = [(*emitted[:at], int(steps.best[at])) for steps in (one, other)]
            preferred, changed = (plain.forced(states, prefix).log_probs[at] for prefix in words)
            margins.append(float(preferred - changed))
    assert tokens > 250
    assert 0 < max(noise) < 0.05
    assert len(margins) < 0.01 * tokens
    assert max(margins, default=0.0) < 2 * max(noise)


def test_an_ensemble_of_one_model_twice_is_that_model(speller: Speller) -> None:
    """SHARP-14."""
    settings = DecoderSettings(beam=4)
    twice = SharpTranslator([speller.model] * 2, settings, max_len=30).translate(speller.sources[:20])
    once = SharpTranslator([speller.model], settings, max_len=30).translate(speller.sources[:20])
    assert [translation.tokens for translation in twice] == [translation.tokens for translation in once]
    assert [translation.log_prob for translation in twice] == pytest.approx(
        [translation.log_prob for translation in once], abs=1e-4
    )


def test_an_ensemble_averages_the_distributions_of_its_models(speller: Speller) -> None:
    """SHARP-14: its score is the sum of the logarithms of mean probabilities, each model reading its own source states."""
    settings, members = DecoderSettings(beam=3), [speller.model, speller.other]
    both = SharpTranslator(members, settings, max_len=30)
    alone = [SharpTranslator([member], settings, max_len=30) for member in members]
    for source in speller.sources[:10]:
        translation = both.decode(both.encode(source))
        emitted = (*translation.tokens, SPELLER.eos_token)
        log_probs = [member.forced(member.encode(source), emitted).log_probs.astype(np.float64) for member in alone]
        assert math.isclose(translation.log_prob, float((np.logaddexp(*log_probs) - math.log(2)).sum()), abs_tol=1e-4)
