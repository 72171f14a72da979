"""The sharp decoder behind the engine's face."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from simnmt.calibrate.profile_assembly import engine_block
from simnmt.kernels.packed_products import Clipping
from simnmt.nmt import sharp_engine
from simnmt.nmt.architecture import AttentionalArchitecture, StackBlock
from simnmt.nmt.attentional_model import AttentionalModel
from simnmt.nmt.engine import Work, load_engine
from simnmt.nmt.errors import NmtError
from simnmt.nmt.models import build_model, load_model
from simnmt.nmt.search import Search
from simnmt.nmt.sharp_engine import SharpEngine
from simnmt.nmt.sharp_translator import SharpTranslator
from simnmt.nmt.subwords import Subwords
from simnmt.nmt.training.recipe import CorpusFiles, Recipe, read_training_corpus
from simnmt.nmt.training.trainer import Budget
from simnmt.nmt.training.translation import EncodedPairs, TranslationLearner
from simnmt.nmt.training.translation import train_translation as train
from simnmt.profile.decoder_settings import DecoderSettings
from tests.nmt import toy_language
from tests.nmt.tiny import ARCHITECTURES, together


def loaded(tmp_path: Path, name: str = "sharp", **how: object) -> SharpEngine:
    path = tmp_path / f"{name}.json"
    path.write_text(ARCHITECTURES[name].model_dump_json(), encoding="utf-8")
    engine = load_engine(str(path), **{"backend": "sharp", **how})  # type: ignore[arg-type]
    assert isinstance(engine, SharpEngine)
    return engine


def test_the_sharp_engine_runs_and_names_its_settings(tmp_path: Path) -> None:
    engine = loaded(tmp_path, threads=2)
    timing = engine.run(Work(7, 5, batch=2, beam=3))
    assert timing.encode_s is not None
    assert 0 < timing.encode_s < timing.total_s
    assert timing.steps_s is None
    account = engine.account
    assert (account.backend, account.compute_type, account.device, account.threads) == ("sharp", "float32", "cpu", 1)
    assert account.decoder is not None
    assert account.decoder["candidates"] == 500
    assert "beam" not in account.decoder, "which is the work's"
    assert account.versions["kernels"] in ("AVX-512", "AVX2", "SSE2", "NEON", "numpy")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"name": "gru"}, "the sharp decoder runs no gru model (use the torch backend, or sharp, sharp-s1 to sharp-s7)"),
        (
            {"backend": "torch", "decoder": DecoderSettings()},
            "the backend torch has no option decoder (leave decoder out)",
        ),
    ],
)
def test_requests_that_the_sharp_engine_does_not_support_are_refused_in_one_line(
    tmp_path: Path, how: dict[str, object], message: str
) -> None:
    with pytest.raises(NmtError) as caught:
        loaded(tmp_path, **how)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_weights_that_16_bit_products_would_clip_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both sides of the model; they stand in the profile, whose doubts warn of them."""
    none = loaded(tmp_path).account.clipping
    assert none is not None and none.clipped == 0 and none.weights > 1_000

    def load_wide(*arguments: object, **options: object) -> object:
        wide = load_model(*arguments, **options)  # type: ignore[arg-type]
        with torch.no_grad():
            wide.model.bottom.keys.weight[0, :2] = -1.5
            wide.model.encoder.weight_ih_l0[0, 0] = 2.0
        return wide

    monkeypatch.setattr(sharp_engine, "load_model", load_wide)
    account = loaded(tmp_path, compute_type="int16").account
    assert account.clipping == Clipping(3, none.weights)
    block = engine_block(account, 1)
    assert (block.clipped_weights, block.product_weights) == (3, none.weights)


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
        self.sources = source.encode(sentence for sentence, _ in corpus.heldout)
        self.other = self._other(EncodedPairs.of(corpus.train, source, target, 100))

    def _other(self, pairs: EncodedPairs) -> AttentionalModel:
        model = build_model(SPELLER, seed=2)
        assert isinstance(model, AttentionalModel)
        learner = TranslationLearner(model, replace(RECIPE, seed=2), torch.device("cpu"), pairs)
        for step, rows in enumerate(learner.batches(0)[:10], 1):
            learner.step(rows, step)
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
    theirs = together(speller.model, speller.sources, Search(width, scored=True, length_penalty=0.0), max_len=30)
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
