"""The sharp decoder timed on this box: its ladder, the paper's stacks and ensembles (SHARP-11, 13, 14, 15, 17).

One thread; random weights, on which times depend by how many of a beam's states differ alone; one sentence of forced length;
all that is compared takes turns. The source side, done once a sentence, is not in any of these times.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from simnmt.calibrate.sharp_products import (
    PRODUCT_BATCHES,
    PRODUCT_SIZE,
    Activations,
    ProductTime,
    activation_times,
    product_times,
)
from simnmt.calibrate.sharp_random import random_weights
from simnmt.costs.decoder_settings import FREQUENT_WORDS, DecoderSettings
from simnmt.costs.sharp_ladder import RUNGS, ladder, techniques
from simnmt.kernels.interleaved import interleaved
from simnmt.kernels.library_threads import library_threads
from simnmt.kernels.native_library import library
from simnmt.kernels.roofline import last_cache_bytes
from simnmt.kernels.sharp import SharpDecoder, SharpTranslation, SharpWeights, StageSeconds, decode_ensemble
from simnmt.kernels.sharp.operations import DecoderShape, operations
from simnmt.kernels.sharp.random_models import random_sentence

Progress = Callable[[int, int, str], None]
"""Called with what is done, what there is in all, and what comes next."""

LADDER = RUNGS
LADDER_MODEL = "sharp-s1"
"""Of Table 1."""
SYSTEMS: Mapping[str, tuple[str, int]] = {
    **{f"S{number}": (f"sharp-s{number}", 1) for number in range(1, 8)},
    "E1": ("sharp-s4", 2),
    "E2": ("sharp-s4", 3),
}
"""Of Table 2: which model, and how many of it."""
ACTIVATIONS = {"gru": 3, "lstm": 5, "fc_tanh": 1, "fc_relu": 0}
"""Of a layer, for each element of its width."""
COVERED = 0.95
"""Share of the candidates whose embeddings' products are kept, as the paper says of tokens (SHARP-06)."""

STEPS = ("products and activations", "drawing weights", "the ladder", "stacks and ensembles")
"""Of the measurement, one after the other."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is decoded."""

    beam: int = 6
    src_len: int = 25
    tgt_len: int = 28
    """Steps, one word each."""
    candidates: int = 500
    vocab: int | None = None
    """None: the paper's."""
    rounds: int = 7
    systems: tuple[str, ...] = tuple(SYSTEMS)
    product_batches: tuple[int, ...] = PRODUCT_BATCHES
    product_size: int = PRODUCT_SIZE
    """Of the weights of single products, which are square."""


QUICK = Setting(vocab=16_000, rounds=2, systems=("S1", "S4", "S7", "E1"), product_batches=(1, 6, 32))
"""A look: the products of a smaller vocabulary's embeddings are found in the cache more often."""


@dataclass(frozen=True, slots=True)
class DecoderTime:
    """One decoder on one sentence."""

    key: str
    """Of a rung or of a system."""
    settings: DecoderSettings
    sentence_s: tuple[float, ...]
    """One a round; what stands in the same place met the same box."""
    words: int
    """Decoded a round."""
    products: float
    """Multiply-adds by weights a word, counted; those done once a sentence are shared out among its words."""
    attention: float
    """Multiply-adds of scores and weighted sums a word, which stay in float32."""
    activations: int
    """Of a decode step: elements whose tanh or sigmoid is taken."""
    distinct_share: float
    """Of the hypotheses' states (SHARP-09)."""
    stage_s: StageSeconds | None
    """Of one more run; None without compiled kernels."""
    members: int = 1

    @property
    def multiply_adds(self) -> float:
        """All of a word."""
        return self.products + self.attention

    @property
    def word_s(self) -> float:
        """Seconds of a word, the median round's."""
        return statistics.median(self.sentence_s) / self.words

    @property
    def words_per_s(self) -> float:
        """Of the median round."""
        return 1.0 / self.word_s

    def ratios(self, other: DecoderTime) -> tuple[float, ...]:
        """Times as fast as another, by round."""
        return tuple(theirs / ours for ours, theirs in zip(self.sentence_s, other.sentence_s, strict=True))

    def over(self, other: DecoderTime) -> float:
        """Times as fast as another: the median of the rounds' ratios."""
        return statistics.median(self.ratios(other))


@dataclass(frozen=True, slots=True)
class SharpSpeeds:
    """All that was timed."""

    level: str | None
    """Of the compiled kernels; None: there are none, and the fallback ran."""
    setting: Setting
    vocab: int
    cache_bytes: int
    """Of the processor's last cache."""
    ladder: Mapping[Activations, Sequence[DecoderTime]]
    """The rungs up to the end, with table or polynomial activations from the fifth on."""
    systems: Sequence[DecoderTime]
    products: Sequence[ProductTime]
    activation_s: Mapping[Activations, float]
    """Seconds of one element."""


def rung_settings(beam: int, candidates: int | None, activations: Activations) -> dict[str, DecoderSettings]:
    """The ladder as settings of our decoder, by rung (SHARP-11)."""
    return ladder(DecoderSettings(beam=beam, candidates=candidates, gemm="float32"), techniques(activations=activations))


def sharp_speeds(setting: Setting | None = None, progress: Progress | None = None) -> SharpSpeeds:
    """Time everything; some minutes with the paper's sizes."""
    asked = setting or Setting()

    def begin(place: int) -> None:
        if progress is not None:
            progress(place, len(STEPS), STEPS[place])

    compiled = library()
    with library_threads(1):
        begin(0)
        products = product_times(asked.rounds, asked.product_batches, asked.product_size)
        activations = activation_times(asked.rounds)
        begin(1)
        names = dict.fromkeys([LADDER_MODEL, *(SYSTEMS[key][0] for key in asked.systems)])
        weights = random_weights(names, asked.vocab)
        begin(2)
        rungs = _ladder(weights[LADDER_MODEL], asked)
        begin(3)
        systems = _systems(weights, asked)
    vocab = weights[LADDER_MODEL].vocab
    return SharpSpeeds(
        None if compiled is None else compiled.level, asked, vocab, last_cache_bytes(), rungs, systems, products, activations
    )


def _ladder(weights: SharpWeights, asked: Setting) -> dict[Activations, list[DecoderTime]]:
    ways: tuple[Activations, ...] = ("table", "polynomial")
    rungs = {way: rung_settings(asked.beam, asked.candidates, way) for way in ways}
    cases = {own: _Case(key, own, (weights,)) for each in rungs.values() for key, own in each.items()}
    timed = dict(zip(cases, _timed(list(cases.values()), asked), strict=True))
    return {way: [timed[own] for own in rungs[way].values()] for way in ways}


def _systems(weights: Mapping[str, SharpWeights], asked: Setting) -> list[DecoderTime]:
    best = rung_settings(asked.beam, asked.candidates, "polynomial")[LADDER[-1]]
    return _timed([_Case(key, best, (weights[SYSTEMS[key][0]],) * SYSTEMS[key][1]) for key in asked.systems], asked)


@dataclass(frozen=True, slots=True)
class _Case:
    key: str
    settings: DecoderSettings
    weights: tuple[SharpWeights, ...]
    """Of each member; members of random weights may be the same, as each packs and reads its own."""


def _timed(cases: Sequence[_Case], asked: Setting) -> list[DecoderTime]:
    """Each case's sentence, in turn."""
    runs = []
    for case in cases:
        states, candidates = random_sentence(case.weights[0], asked.src_len, asked.candidates, COVERED, FREQUENT_WORDS)
        members = [SharpDecoder(own, case.settings, max_len=asked.tgt_len, most_src_len=asked.src_len) for own in case.weights]
        runs.append(partial(decode_ensemble, members, [states] * len(members), candidates, asked.tgt_len))
    times = interleaved({str(place): run for place, run in enumerate(runs)}, asked.rounds)
    return [_time(case, run, times.of[str(place)], asked) for place, (case, run) in enumerate(zip(cases, runs, strict=True))]


def _time(case: _Case, run: Callable[..., SharpTranslation], seconds: tuple[float, ...], asked: Setting) -> DecoderTime:
    once = run(clock=True)
    counted = operations(
        DecoderShape.of(case.weights[0], asked.candidates),
        case.settings,
        asked.src_len,
        distinct_share=once.distinct_share,
    )
    members, beam = len(case.weights), case.settings.beam
    attention = members * beam * counted.attention
    return DecoderTime(
        case.key,
        case.settings,
        seconds,
        asked.tgt_len,
        members * (beam * counted.step + counted.once / asked.tgt_len) - attention,
        attention,
        members * beam * _activations(case.weights[0], asked.src_len),
        once.distinct_share,
        once.stage_s,
        members,
    )


def _activations(weights: SharpWeights, src_len: int) -> int:
    """Elements of one hypothesis in a step whose tanh or sigmoid is taken: gates, states, and what attention compares."""
    bottom, attention = weights.bottom, weights.bottom.attention
    compared = int(attention.state.shape[0]) * (src_len if attention.form == "additive" else 1)
    layers = [(bottom.kind.removeprefix("att"), bottom.width), *((layer.kind, layer.width) for layer in weights.stack)]
    return compared + sum(ACTIVATIONS[kind] * width for kind, width in layers)
