"""The sharp decoder behind the engine's face."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from simnmt.calibrate.profile_assembly import engine_block
from simnmt.calibrate.sharp_speeds import random_model
from simnmt.kernels.native_library import references
from simnmt.kernels.packed_products import Clipping
from simnmt.nmt import sharp_engine
from simnmt.nmt.architecture import AttentionalArchitecture, StackBlock
from simnmt.nmt.attentional_model import AttentionalModel
from simnmt.nmt.engine import Work
from simnmt.nmt.models import load_model
from simnmt.nmt.search import Search
from simnmt.nmt.sharp_translator import SharpTranslator
from simnmt.profile.decoder_settings import DecoderSettings
from tests.kernels.implementations import needs_compiled
from tests.nmt.tiny import tiny_engine, together


@needs_compiled
def test_the_sharp_engine_runs_and_names_its_settings(tmp_path: Path) -> None:
    engine = tiny_engine(tmp_path, "sharp", backend="sharp", threads=2)
    timing = engine.run(Work(7, 5, batch=2, beam=3))
    assert 0 < timing.encode_s < timing.total_s
    assert timing.steps_s is None
    account = engine.account
    assert (account.backend, account.compute_type, account.device, account.threads) == ("sharp", "float32", "cpu", 1)
    assert account.decoder["candidates"] == 500 and "beam" not in account.decoder
    assert account.versions["kernels"] in ("AVX-512", "AVX2", "SSE2", "NEON", "numpy")


@needs_compiled
def test_without_compiled_kernels_numpy_finds_the_same(models: list[AttentionalModel]) -> None:
    """An ensemble's translations, and the steps of a forced one."""
    with references():
        in_numpy = translator(models, 4, {})
    compiled = translator(models, 4, {})
    for source in SOURCES[:10]:
        ours, theirs = (member.decode(member.encode(source)) for member in (in_numpy, compiled))
        assert (ours.tokens, ours.attended) == (theirs.tokens, theirs.attended)
        assert ours.log_prob == pytest.approx(theirs.log_prob, abs=1e-4)
        forced, expected = (member.forced(member.encode(source), emitted(ours.tokens)) for member in (in_numpy, compiled))
        assert forced.best.tolist() == expected.best.tolist()
        assert forced.log_probs == pytest.approx(expected.log_probs, abs=1e-4)


@needs_compiled
def test_weights_that_16_bit_products_would_clip_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both sides of the model; they stand in the profile, whose doubts warn of them."""
    none = tiny_engine(tmp_path, "sharp", backend="sharp").account.clipping
    assert none is not None and none.clipped == 0 and none.weights > 1_000

    def load_wide(*arguments: object, **options: object) -> object:
        wide = load_model(*arguments, **options)  # type: ignore[arg-type]
        with torch.no_grad():
            wide.model.bottom.keys.weight[0, :2] = -1.5
            wide.model.encoder.weight_ih_l0[0, 0] = 2.0
        return wide

    monkeypatch.setattr(sharp_engine, "load_model", load_wide)
    account = tiny_engine(tmp_path, "sharp", backend="sharp", compute_type="int16").account
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


MOST = 30
DRAW = Random(1)
SOURCES = [[*(DRAW.randrange(4, 30) for _ in range(DRAW.randrange(2, 9))), SPELLER.eos_token] for _ in range(60)]


@pytest.fixture(scope="module")
def models() -> list[AttentionalModel]:
    """Two models that attend, so that outputs differ by source; the first ends some of them."""
    drawn = [random_model(SPELLER, seed) for seed in (1, 5)]
    with torch.no_grad():
        for model in drawn:
            model.bottom.keys.weight.mul_(3.0).clamp_(-1.0, 1.0)
            model.bottom.read.weight.mul_(3.0).clamp_(-1.0, 1.0)
        drawn[0].projection.bias[SPELLER.eos_token] -= 1.5
    return drawn


def translator(models: list[AttentionalModel], width: int, changed: dict[str, object]) -> SharpTranslator:
    return SharpTranslator(models, DecoderSettings.model_validate({"beam": width} | changed), max_len=MOST)


def emitted(tokens: Sequence[int]) -> tuple[int, ...]:
    """The tokens, with the end if the translation ended."""
    return (*tokens, SPELLER.eos_token)[:MOST]


@pytest.mark.parametrize("width", [1, 6])
@pytest.mark.parametrize("identity", IDENTITIES)
def test_identities_find_what_torch_finds(models: list[AttentionalModel], identity: str, width: int) -> None:
    """The same search by torch: sums of log-probabilities without a length penalty, batched, full vocabulary."""
    theirs = together(models[0], SOURCES, Search(width, scored=True, length_penalty=0.0), max_len=MOST)
    ours = translator(models[:1], width, IDENTITIES[identity]).translate(SOURCES)
    assert [hypothesis.tokens for hypothesis in ours] == [hypothesis.tokens for hypothesis in theirs]
    assert [hypothesis.log_prob for hypothesis in ours] == pytest.approx([hypothesis.score for hypothesis in theirs], abs=1e-4)
    assert len({hypothesis.tokens for hypothesis in ours}) > 30 and any(len(hypothesis.tokens) < MOST for hypothesis in ours)


@needs_compiled
@pytest.mark.parametrize("technique", NOISE)
def test_noise_changes_only_tokens_that_nearly_tie(models: list[AttentionalModel], technique: str) -> None:
    """SHARP-10, teacher-forced along the translations in float32: a token may change only if float32 prefers its own by less
    than the noise of both."""
    plain, noisy = translator(models[:1], 4, {}), translator(models[:1], 4, NOISE[technique])
    noise, margins, tokens = list[float](), list[float](), 0
    for source in SOURCES:
        states = plain.encode(source)
        words = emitted(plain.decode(states).tokens)
        one, other = plain.forced(states, words), noisy.forced(noisy.encode(source), words)
        noise += np.abs(one.log_probs - other.log_probs).tolist()
        tokens += len(words)
        for at in np.flatnonzero(one.best != other.best):
            prefixes = [(*words[:at], int(steps.best[at])) for steps in (one, other)]
            preferred, changed = (plain.forced(states, prefix).log_probs[at] for prefix in prefixes)
            margins.append(float(preferred - changed))
    assert tokens > 250 and 0 < max(noise) < 0.1
    assert len(margins) < 0.01 * tokens and max(margins, default=0.0) < 2 * max(noise)


def test_an_ensemble_of_one_model_twice_is_that_model(models: list[AttentionalModel]) -> None:
    """SHARP-14."""
    twice, once = (translator(models[:1] * count, 4, {}).translate(SOURCES[:20]) for count in (2, 1))
    assert [translation.tokens for translation in twice] == [translation.tokens for translation in once]
    assert [one.log_prob for one in twice] == pytest.approx([other.log_prob for other in once], abs=1e-4)


def test_an_ensemble_averages_the_distributions_of_its_models(models: list[AttentionalModel]) -> None:
    """SHARP-14: its score is the sum of the logarithms of mean probabilities, each model reading its own source states."""
    both, *alone = (translator(members, 3, {}) for members in (models, models[:1], models[1:]))
    for source in SOURCES[:10]:
        translation = both.decode(both.encode(source))
        words = emitted(translation.tokens)
        log_probs = [member.forced(member.encode(source), words).log_probs.astype(np.float64) for member in alone]
        assert math.isclose(translation.log_prob, float((np.logaddexp(*log_probs) - math.log(2)).sum()), abs_tol=1e-4)
