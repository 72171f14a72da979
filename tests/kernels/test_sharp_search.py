"""The search in C against exhaustive search, against torch in float64, and against itself with each technique on."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simnmt.kernels.beam_search import SharpTranslation
from simnmt.kernels.sharp_decoder import SharpDecoder, SourceEncoder, decode_ensemble
from simnmt.kernels.sharp_model import Float32
from simnmt.nmt.attentional_model import AttentionalModel
from simnmt.nmt.sharp_reference import ReferenceMember, averaged, reference_decode
from simnmt.nmt.sharp_translator import sharp_weights, source_weights
from simnmt.profile.decoder_settings import DecoderSettings
from tests.kernels.implementations import needs_compiled
from tests.kernels.sharp_models import TOKENS, source, source_model, target_model

pytestmark = needs_compiled
MAX_LEN = 14
STACKS = [(), (("fc_relu", 24),) * 5 + (("gru", 31),), (("gru", 20), ("fc_relu", 33), ("fc_tanh", 18)), (("lstm", 20),)]
IDENTITIES = [
    {"embeddings": "precomputed"},
    {"embeddings": "frequent", "frequent_words": 20},
    {"merge": True},
    {"attention": "precomputed"},
    {"fused": True},
    {"embeddings": "frequent", "frequent_words": 40, "attention": "precomputed", "merge": True, "fused": True},
]


def decoder(model: AttentionalModel, **options: object) -> SharpDecoder:
    return SharpDecoder(sharp_weights(model), DecoderSettings(**{"beam": 4} | options), max_len=MAX_LEN)


def member(model: AttentionalModel) -> ReferenceMember:
    return ReferenceMember(copy.deepcopy(model).double())


def oracle(
    models: Sequence[AttentionalModel],
    states: Sequence[Float32],
    beam: int,
    candidates: object = None,
    forced_len: int | None = None,
) -> SharpTranslation:
    """The search in numpy over torch in float64."""
    members, steps = [member(model) for model in models], forced_len or MAX_LEN
    return reference_decode(members, states, beam, steps, candidates, forced=forced_len is not None)


def score(models: Sequence[AttentionalModel], states: Sequence[Float32], words: Sequence[int], candidates: object) -> float:
    """The log-probability of words in float64, the end where it is one of them."""
    members = [member(model) for model in models]
    for one, state in zip(members, states, strict=True):
        one.begin(state)
    total, last = 0.0, TOKENS.start
    for word in words:
        log_probs, _ = averaged(members, np.array([last]), np.array([0]), candidates, candidates == TOKENS.pad)
        total += log_probs[0, list(candidates).index(word)]
        last = word
    return total


def assert_close(translation: SharpTranslation, expected: SharpTranslation, tolerance: float = 2e-5) -> None:
    assert translation == replace(expected, log_prob=pytest.approx(expected.log_prob, abs=tolerance))


@pytest.mark.parametrize("members", [1, 2])
def test_a_beam_wide_enough_finds_the_best_of_all_translations(members) -> None:
    """Of up to 3 words: 3^3 of full length and 1 + 3 + 9 that end before."""
    models = [target_model(seed, vocab=9) for seed in range(members)]
    states = [source(seed) for seed in range(members)]
    candidates = np.array([5, TOKENS.eos, 8, 6])
    inner = [5, 8, 6]
    complete = [(*words, TOKENS.eos) for n in range(3) for words in itertools.product(inner, repeat=n)]
    cut = list(itertools.product(inner, repeat=3))
    best = max((score(models, states, words, candidates), words) for words in (*complete, *cut))
    decoders = [SharpDecoder(sharp_weights(model), DecoderSettings(beam=30), max_len=3, stop_margin=1e9) for model in models]
    translation = decode_ensemble(decoders, states, candidates)
    assert translation.log_prob == pytest.approx(best[0], abs=1e-5)
    assert translation.tokens == tuple(word for word in best[1] if word != TOKENS.eos)


@given(
    seed=st.integers(0, 10**6),
    sizes=st.tuples(*[st.integers(1, 70)] * 4),
    vocab=st.integers(4, 90),
    beam=st.integers(1, 20),
    src_len=st.integers(1, 12),
    options=st.sampled_from([{}, *IDENTITIES]),
    form=st.tuples(st.sampled_from(["gru", "lstm"]), st.booleans(), st.sampled_from(STACKS)),
    forced_len=st.none() | st.integers(1, MAX_LEN),
)
def test_any_model_and_sizes_find_the_translation_of_float64(
    seed, sizes, vocab, beam, src_len, options, form, forced_len
) -> None:
    """By the value: where two translations are within rounding of each other, either may be found.

    Derandomised: where rounding decides what leaves the beam, even the value may differ, about once in ten thousand.
    """
    (r, e, s, a), (kind, additive, stack) = sizes, form
    model = target_model(seed, kind=kind, additive=additive, r=r, e=e, s=2 * s, a=a, vocab=vocab, stack=stack)
    states = source(seed, src_len, 2 * s)
    translation = decoder(model, beam=beam, **options).decode(states, None, forced_len)
    expected = oracle([model], [states], beam, forced_len=forced_len)
    assert translation.log_prob == pytest.approx(expected.log_prob, abs=1e-3)
    assert len(translation.tokens) == len(translation.attended) <= translation.steps
    if forced_len is not None:
        assert len(translation.tokens) == translation.steps == forced_len
        return
    words = translation.tokens if len(translation.tokens) == MAX_LEN else (*translation.tokens, TOKENS.eos)
    assert translation.log_prob == pytest.approx(score([model], [states], words, np.arange(vocab)), abs=1e-3)


@torch.no_grad()
def with_logits(offset: float, seed: int) -> AttentionalModel:
    """A model whose logits are its output biases: multiples of 1/1024, which float32 holds exactly up to 16,384."""
    model = target_model(seed)
    biases = offset + np.random.default_rng(seed).integers(-4_096, 4_096, model.vocab) / 1_024
    model.projection.weight.zero_()
    model.projection.bias.copy_(torch.from_numpy(biases))
    return model


@pytest.mark.parametrize("options", [{}, {"fused": True}, {"gemm": "int16", "merge": True}], ids=str)
@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
def test_log_probabilities_hold_at_large_logits(options, offset) -> None:
    """FNI-07: subtracting a rounded log-sum, each would be off by 5e-4 at 1e4."""
    model, words, steps = with_logits(offset, 8), [5, 40, 7, TOKENS.eos], 6
    logits = model.projection.bias.detach().double().numpy()
    logits[TOKENS.pad] = -np.inf  # never chosen
    exact = (logits - logits.max()) - np.log(np.exp(logits - logits.max()).sum())
    assert np.abs(decoder(model, **options).forced(source(), words).log_probs - exact[words]).max() <= 1e-5
    alone = decoder(model, **options).decode(source(), forced_len=steps)
    theirs = oracle([model], [source()], 4, forced_len=steps)
    assert abs(alone.log_prob - theirs.log_prob) <= steps * 1e-5
    models = [model, with_logits(offset, 9)]
    both = decode_ensemble([decoder(model, **options) for model in models], [source()] * 2, forced_len=steps)
    assert abs(both.log_prob - oracle(models, [source()] * 2, 4, forced_len=steps).log_prob) <= steps * 1e-5


def test_only_candidates_are_chosen_and_their_order_changes_nothing() -> None:
    model = target_model(5)
    candidates = np.array([3, 9, 17, 5, 11, 1, 60, 44])
    translation = decoder(model).decode(source(5), candidates)
    assert_close(translation, oracle([model], [source(5)], 4, candidates))
    assert set(translation.tokens) <= set(candidates.tolist())
    turned = decoder(model).decode(source(5), candidates[::-1].copy())
    assert_close(turned, translation)
    everything = decoder(model).decode(source(5), np.arange(67))
    assert_close(everything, decoder(model).decode(source(5)), 0.0)


@pytest.mark.parametrize("fused", [False, True])
def test_ties_go_to_the_first_hypothesis_then_word_then_position(fused) -> None:
    """All words and all source positions alike."""
    model = target_model(0)
    for layer in (model.projection, model.bottom.keys):
        for weight in layer.parameters():
            torch.nn.init.zeros_(weight)
    translation = decoder(model, beam=3, fused=fused).decode(source(0), np.array([9, 7, TOKENS.eos, 8]), 4)
    assert (translation.tokens, translation.attended) == ((9,) * 4, (0,) * 4)
    one = decoder(model, beam=1, fused=fused)
    alike = [one.decode(source(0), np.array([TOKENS.eos, *order]), 1) for order in ([7, 9], [9, 7])]
    assert [other.tokens for other in alike] == [(7,), (9,)]


def test_a_decoder_forgets_its_last_sentence() -> None:
    """Longer and shorter sentences and lists of candidates between leave no trace."""
    model = target_model(6, kind="lstm", stack=STACKS[1])
    used = decoder(model, merge=True)
    first = used.decode(source(6, 12))
    used.decode(source(7, 1), np.array([3, 4]))
    used.forced(source(8, 5), [4, 5])
    used.decode(source(8, 5), np.arange(60), 3)
    assert used.decode(source(6, 12)) == first
    encodes = encoder(source_model(6, kind="lstm", layers=3), gemm="int16", embeddings="frequent", frequent_words=20)
    states = encodes.encode(SENTENCE)
    encodes.encode([48] * 12)
    assert np.array_equal(encodes.encode(SENTENCE), states)


def test_padding_is_never_chosen_and_a_forced_search_never_ends() -> None:
    model = target_model(2)
    with torch.no_grad():
        model.projection.bias[[TOKENS.pad, TOKENS.eos]] = 50.0
    translation = decoder(model).decode(source(2), None, 9)
    assert len(translation.tokens) == translation.steps == 9
    assert not {TOKENS.pad, TOKENS.eos} & set(translation.tokens)
    assert decoder(model).decode(source(2)).tokens == ()


SENTENCE = [5, 7, 9, 3, 49, 4, 49, 8, 3]
NOISE = {
    "int16": ({"gemm": "int16"}, 5e-4),
    "table": ({"activations": "table"}, 0.01),
    "polynomial": ({"activations": "polynomial"}, 1e-5),
    "all": ({"gemm": "int16", "embeddings": "frequent", "frequent_words": 8, "activations": "polynomial"}, 5e-4),
}


def encoder(model: AttentionalModel, **options: object) -> SourceEncoder:
    return SourceEncoder(source_weights(model), DecoderSettings(**options))


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("kept", [{"embeddings": "precomputed"}, {"embeddings": "frequent", "frequent_words": 8}], ids=str)
def test_sharp_06_kept_products_of_source_embeddings_change_no_bit(kind: str, kept: dict[str, object]) -> None:
    """In float32 and in 16 bits: words with and without kept products, some of them twice in the sentence."""
    model = source_model(4, kind=kind)
    for gemm in ("float32", "int16"):
        computed = encoder(model, gemm=gemm).encode(SENTENCE)
        assert np.array_equal(encoder(model, gemm=gemm, **kept).encode(SENTENCE), computed)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("technique", NOISE)
def test_sharp_10_noise_exists_and_stays_within_its_bound(kind: str, technique: str) -> None:
    model, (options, bound) = source_model(5, kind=kind, layers=3), NOISE[technique]
    off = np.abs(encoder(model, **options).encode(SENTENCE) - member(model).encode(SENTENCE)).max()
    assert off <= bound
    if technique in ("int16", "table", "all"):
        assert off > 2e-6, "the technique runs"
