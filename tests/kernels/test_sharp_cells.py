"""The decoder's equations to the digits, in C and in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from simnmt.calibrate.sharp_speeds import layer_operations, operations
from simnmt.kernels.beam_search import beam_search
from simnmt.kernels.sharp_decoder import SharpDecoder
from simnmt.kernels.sharp_model import Float32, Layer, SharpTokens, SharpWeights
from simnmt.nmt.architecture import SHARP_MODELS
from simnmt.profile.decoder_settings import DecoderSettings
from tests.kernels.implementations import needs_compiled

PAD, UNK, START, EOS, A, B = range(6)


def zeros(*shape: int) -> Float32:
    return np.zeros(shape, np.float32)


def one_hot_model(word: Float32, output: Float32, stack: tuple[Layer, ...] = ()) -> SharpWeights:
    """A GRU without state and source whose embeddings are one-hot: column w of V is what word w adds to each gate."""
    gates, r = word.shape[0], word.shape[0] // 3
    return SharpWeights(
        cell="gru",
        embedding=np.eye(6, dtype=np.float32),
        state=zeros(gates + 1, r),
        word=np.concatenate((word, zeros(1, 6))),
        context=zeros(gates, 1),
        key=zeros(1, 1),
        bias=zeros(gates),
        score=None,
        stack=stack,
        output=output,
        output_bias=zeros(6),
        tokens=SharpTokens(START, EOS, PAD),
    )


def logit(weights: SharpWeights, word: int) -> float:
    """The logit of a first word: how much likelier it is than the end, whose logit is 0."""
    decoder = SharpDecoder(weights, DecoderSettings(), max_len=5)
    one, end = (decoder.forced(zeros(1, 1), np.array([first])).log_probs[0] for first in (word, EOS))
    return float(one - end)


@needs_compiled
@pytest.mark.parametrize(("layers", "value"), [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2), (5, 4)])
def test_sharp_12_connected_layers_with_their_skips(layers, value) -> None:
    """Identity weights over h^B = (1, -1): (1, 0), (1, 0), (2, 0), (2, 0), (4, 0), and on top (tanh 4, 0)."""
    word = zeros(6, 6)
    word[:, START] = (-200, -200, 0, 0, 20, -20)
    output = zeros(6, 2)
    output[A], output[B] = (1, 0), (0, 1)
    identity = np.eye(2, dtype=np.float32)
    relus = tuple(Layer("fc_relu", identity) for _ in range(layers))
    model = one_hot_model(word, output, relus)
    assert logit(model, A) == pytest.approx(value, abs=1e-6)
    assert logit(model, B) == pytest.approx(0 if layers else -1, abs=1e-6)
    topped = one_hot_model(word, output, (*relus, Layer("fc_tanh", identity)))
    assert logit(topped, A) == pytest.approx(np.tanh(value), abs=1e-6)
    if layers == 5:
        assert logit(topped, A) == pytest.approx(0.999329, abs=1e-6)
        limited = one_hot_model(word, output, (Layer("fc_relu", 37 * identity),))
        assert logit(limited, A) == pytest.approx(10, abs=1e-5), "a relu is at most ten"


@needs_compiled
@pytest.mark.parametrize(("ahead", "steps"), [(2.99, 2), (3.01, 1)])
def test_sharp_03_the_search_stops_at_the_margin(ahead, steps) -> None:
    """The end is `ahead` of the only other word at each step, so after one step the best partial one is that far behind."""
    model = one_hot_model(zeros(3, 6), zeros(6, 1))
    model.output_bias[EOS] = ahead
    decoder = SharpDecoder(model, DecoderSettings(beam=2), max_len=5)
    translation = decoder.decode(zeros(1, 1), np.array([EOS, A]))
    assert (translation.tokens, translation.steps, translation.stopped_early) == ((), steps, True)
    patient = SharpDecoder(model, DecoderSettings(beam=2), max_len=5, stop_margin=1e9)
    assert patient.decode(zeros(1, 1), np.array([EOS, A])).steps == 5


def test_sharp_09_hypotheses_share_the_state_of_their_parent() -> None:
    """a and d extend the start, then a b, a c and d e their parents: 1 of 1, 1 of 2 and 2 of 3 states are distinct."""
    a, b, c, d, e = range(1, 6)
    tables = [
        {(0, a): -1.0, (0, d): -1.1},
        {(a, b): -1.0, (a, c): -1.1, (d, e): -1.2},
        {(b, b): -1.0, (c, c): -1.0, (e, e): -1.0},
    ]
    steps = iter(tables)

    def step(words, parents):
        log_probs, table = np.full((len(words), 6), -np.inf), next(steps)
        for row, last in enumerate(words):
            for (before, word), log_prob in table.items():
                if before == last:
                    log_probs[row, word] = log_prob
        return log_probs, np.zeros(len(words), np.int64)

    translation = beam_search(step, beam=3, steps=3, start=0, eos=9)
    assert (translation.tokens, translation.log_prob, translation.distinct_share) == ((a, b, b), pytest.approx(-3.0), 4 / 6)


SHARP = DecoderSettings(beam=6, gemm="int16", embeddings="precomputed", attention="precomputed", merge=True, candidates=500)
PAPER = {name.removeprefix("sharp-").upper(): model for name, model in SHARP_MODELS.items() if name != "sharp"}


@pytest.mark.parametrize(("kind", "ratio"), [("gru", 6), ("lstm", 8), ("fc_tanh", 1)])
def test_sharp_13_a_recurrent_layer_costs_6_or_8_connected_ones(kind, ratio) -> None:
    assert layer_operations(kind, 1024, 1024) == ratio * layer_operations("fc_relu", 1024, 1024)


def test_sharp_15_the_counts_order_the_decoders_as_the_paper_measured_them() -> None:
    counted = {name: operations(model, SHARP, 25, 500, distinct_share=0.7) for name, model in PAPER.items()}
    step = {name: sum(parts.values()) - parts["once"] for name, parts in counted.items()}
    assert step["S1"] < step["S3"] < step["S4"] < step["S2"] < step["S5"] == step["S6"] < step["S7"] / 3
    assert step["S2"] / step["S4"] < 1.15
    assert counted["S5"]["stack"] == counted["S6"]["stack"] == pytest.approx(9.83e6, rel=1e-3)
    assert 2 * step["S4"] < step["S7"] / 2  # an ensemble of two, E1


def test_sharp_07_products_with_the_source_are_made_once_a_sentence() -> None:
    """Of 25 source words, 28 target words and a beam of 6: 168 to 25, 6.72 times fewer."""
    options = ({}, {"attention": "precomputed"})
    plain, kept = (operations(PAPER["S1"], DecoderSettings(beam=6, **option), 25, 500) for option in options)
    assert 28 * 6 * plain["context"] / (kept["once"] - plain["once"]) == pytest.approx(6.72)
    assert kept["context"] == 0
    assert kept["attention"] - plain["attention"] == 25 * (3 * 1024 - 1024)  # the weighted sum is wider
