"""The sharp decoder timed on this box: products and activations, its ladder, stacks and ensembles (SHARP-05, 08, 11, 13 to 18).

One thread; random weights, on which times depend only by how many of a beam's states differ; sentences of forced length; all
that is compared takes turns. Words a second are of the whole translation, source side included, as the paper's are; the
decoder's share of the same runs is given beside it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from simnmt.base.random_streams import stream
from simnmt.kernels.activations import activate
from simnmt.kernels.measurement import interleaved, last_cache_bytes, library_threads
from simnmt.kernels.native_library import native_at
from simnmt.kernels.sharp.decoder import SharpDecoder, SourceEncoder, decode_ensemble
from simnmt.kernels.sharp.model import SharpTranslation, SharpWeights, SourceWeights, StageSeconds
from simnmt.kernels.sharp.model_shapes import (
    DecoderShape,
    RandomModels,
    operations,
    random_sentence,
    random_words,
    source_operations,
)
from simnmt.kernels.sharp_cases import INT16, LIBRARY_VARIANTS, PACKED, ProductVariants, random_matrix
from simnmt.nmt.architecture import SHARP_MODELS, AttentionalArchitecture
from simnmt.profile.decoder_settings import FREQUENT_WORDS, RUNGS, DecoderSettings, ladder, techniques

Activations = Literal["library", "table", "polynomial"]

PRODUCT_SIZE = 1024
PRODUCT_BATCHES = (1, 2, 4, 6, 8, 16, 32, 64)
SEQUENCE = 65_536
"""Elements whose activations are timed: they stay in the second cache."""


@dataclass(frozen=True, slots=True)
class ProductTime:
    """Products of one batch of rows with square weights, seconds of one, by round."""

    batch: int
    size: int
    """Of the weights, which are square."""
    cold: bool
    """Weights come from memory; else from the cache, as in the paper's repeated products."""
    seconds: Mapping[str, tuple[float, ...]]
    """`int16`, `float32` (packed the same way), `torch` and `numpy`, with weights stored in whichever order is faster."""

    def median_s(self, name: str) -> float:
        """Of one product."""
        return statistics.median(self.seconds[name])

    def ratios(self, name: str) -> tuple[float, ...]:
        """Return the ratios of int16 to another, by round; for `library`, to the faster of torch and numpy."""
        baseline = self.best_library if name == "library" else name
        return tuple(theirs / ours for ours, theirs in zip(self.seconds["int16"], self.seconds[baseline], strict=True))

    def ratio(self, name: str) -> float:
        """The median round's."""
        return statistics.median(self.ratios(name))

    @property
    def best_library(self) -> str:
        """`torch` or `numpy`, whichever is faster."""
        return min(("torch", "numpy"), key=self.median_s)


def product_times(rounds: int, batches: Sequence[int] = PRODUCT_BATCHES, size: int = PRODUCT_SIZE) -> list[ProductTime]:
    """Time all variants in turn, on as many threads as the libraries are held to; hot and cold of each batch in turn."""
    by_batch = dict[tuple[int, bool], ProductTime]()
    for cold in (False, True):
        variants = ProductVariants.of(size, cold)
        for batch in batches:
            times = interleaved(variants.runs(random_matrix(batch, size)), rounds, warm=True, least_s=0.05)
            seconds = {"int16": times.of[INT16], "float32": times.of[PACKED]}
            for name in ("torch", "numpy"):
                library_variants = [variant for variant in LIBRARY_VARIANTS if variant.startswith(name)]
                seconds[name] = times.of[min(library_variants, key=times.median_s)]
            by_batch[batch, cold] = ProductTime(batch, size, cold, seconds)
    return [by_batch[batch, cold] for batch in batches for cold in (False, True)]


def activation_times(rounds: int) -> dict[Activations, float]:
    """Return the seconds to activate one element by each method: the mean of tanh and sigmoid."""
    x = stream(1, 0, "sharp activations").standard_normal(SEQUENCE).astype(np.float32)
    out = np.empty_like(x)

    def both(method: Activations) -> None:
        activate("tanh", x, method, out)
        activate("sigmoid", x, method, out)

    methods: tuple[Activations, ...] = ("library", "table", "polynomial")
    times = interleaved({method: partial(both, method) for method in methods}, rounds, least_s=0.05)
    return {method: times.median_s(method) / (2 * SEQUENCE) for method in methods}


@dataclass(frozen=True, slots=True)
class RandomModel:
    """Both sides of one model."""

    source: SourceWeights
    target: SharpWeights


def random_weights(names: Iterable[str], vocab: int | None = None, seed: int = 1) -> dict[str, RandomModel]:
    """Models of `SHARP_MODELS` by name; large tables and equal source sides are shared. `vocab`: another than theirs."""
    models, drawn, sources = RandomModels(seed), dict[str, RandomModel](), dict[tuple[object, ...], SourceWeights]()
    for name in names:
        architecture = SHARP_MODELS[name]
        words, src_words = vocab or architecture.tgt_vocab, vocab or architecture.src_vocab
        target = models.of(_shape(architecture, words), words, architecture.attention)
        sizes = (
            architecture.source_cell,
            architecture.source_layers,
            architecture.source_hidden,
            architecture.embedding,
            src_words,
        )
        if sizes not in sources:
            sources[sizes] = models.source_of(*sizes)
        drawn[name] = RandomModel(sources[sizes], target)
    return drawn


def _shape(architecture: AttentionalArchitecture, words: int) -> DecoderShape:
    return DecoderShape(
        "attgru" if architecture.cell == "gru" else "attlstm",
        architecture.hidden,
        architecture.embedding,
        2 * architecture.source_hidden,
        architecture.compared,
        tuple((layer.kind, layer.width) for layer in architecture.layers),
        words,
    )


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
    """One model on one sentence, from source words to target words."""

    key: str
    """Of a rung or of a system."""
    settings: DecoderSettings
    sentence_s: tuple[float, ...]
    """Source side and search, one a round; what stands in the same place met the same box."""
    source_s: tuple[float, ...]
    """The source side's part of these."""
    words: int
    """Decoded a round."""
    products: float
    """Multiply-adds by weights a word, counted; those done once a sentence are shared out among its words. Those of
    `source_recurrent` are not among them."""
    source_recurrent: float
    """Multiply-adds a word of the source side's states, one row at a time."""
    attention: float
    """Multiply-adds of scores and weighted sums a word, which stay in float32."""
    activations: float
    """Elements a word whose tanh or sigmoid is taken, the source side's shared out."""
    distinct_share: float
    """Of the hypotheses' states (SHARP-09)."""
    stage_s: StageSeconds | None
    """Of one more run; None without compiled kernels."""
    members: int = 1

    @property
    def multiply_adds(self) -> float:
        """All of a word."""
        return self.products + self.source_recurrent + self.attention

    @property
    def decoder_s(self) -> tuple[float, ...]:
        """The search's part of each round."""
        return tuple(whole - source for whole, source in zip(self.sentence_s, self.source_s, strict=True))

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

    def decoder_ratios(self, other: DecoderTime) -> tuple[float, ...]:
        """Times as fast as another without the source side, by round."""
        return tuple(theirs / ours for ours, theirs in zip(self.decoder_s, other.decoder_s, strict=True))

    def decoder_over(self, other: DecoderTime) -> float:
        """The median of `decoder_ratios`."""
        return statistics.median(self.decoder_ratios(other))


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

    compiled = native_at()
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
    vocab = weights[LADDER_MODEL].target.vocab
    return SharpSpeeds(
        None if compiled is None else compiled.level, asked, vocab, last_cache_bytes(), rungs, systems, products, activations
    )


def _ladder(model: RandomModel, asked: Setting) -> dict[Activations, list[DecoderTime]]:
    methods: tuple[Activations, ...] = ("table", "polynomial")
    rungs = {method: rung_settings(asked.beam, asked.candidates, method) for method in methods}
    cases = {rung: _Case(key, rung, (model,)) for by_key in rungs.values() for key, rung in by_key.items()}
    timed = dict(zip(cases, _timed(list(cases.values()), asked), strict=True))
    return {method: [timed[rung] for rung in rungs[method].values()] for method in methods}


def _systems(models: Mapping[str, RandomModel], asked: Setting) -> list[DecoderTime]:
    best = rung_settings(asked.beam, asked.candidates, "polynomial")[LADDER[-1]]
    return _timed([_Case(key, best, (models[SYSTEMS[key][0]],) * SYSTEMS[key][1]) for key in asked.systems], asked)


@dataclass(frozen=True, slots=True)
class _Case:
    key: str
    settings: DecoderSettings
    models: tuple[RandomModel, ...]
    """Of each member; members of random weights may be the same, as each packs and reads its own."""


class _Sentences:
    """Translates two sentences by turns, so that what is timed finds its own weights as a sentence before left them, and
    other words' embeddings than those of that sentence."""

    def __init__(self, case: _Case, encoders: Sequence[SourceEncoder], asked: Setting) -> None:
        target = case.models[0].target
        _, self._candidates = random_sentence(target, asked.src_len, asked.candidates, COVERED, FREQUENT_WORDS)
        vocab = case.models[0].source.vocab
        self._words = [random_words(vocab, asked.src_len, COVERED, FREQUENT_WORDS, seed) for seed in (1, 2)]
        self._encoders, self._tgt_len, self._turn = encoders, asked.tgt_len, 0
        self._members = [
            SharpDecoder(model.target, case.settings, max_len=asked.tgt_len, most_src_len=asked.src_len)
            for model in case.models
        ]
        self.source_s = list[float]()
        """Of each translation so far."""

    def __call__(self, *, clock: bool = False) -> SharpTranslation:
        words, self._turn = self._words[self._turn], not self._turn
        start_s = time.perf_counter()
        states = [encoder.encode(words) for encoder in self._encoders]
        self.source_s.append(time.perf_counter() - start_s)
        return decode_ensemble(self._members, states, self._candidates, self._tgt_len, clock=clock)


def _timed(cases: Sequence[_Case], asked: Setting) -> list[DecoderTime]:
    """Each case's translation, in turn, each after one of its own."""
    sides = dict[tuple[object, ...], SourceEncoder]()
    runs = [
        _Sentences(case, [_encoder(sides, case, member, asked) for member in range(len(case.models))], asked) for case in cases
    ]
    times = interleaved({str(place): run for place, run in enumerate(runs)}, asked.rounds, warm=True)
    return [_time(case, run, times.of[str(place)], asked) for place, (case, run) in enumerate(zip(cases, runs, strict=True))]


def _encoder(sides: dict[tuple[object, ...], SourceEncoder], case: _Case, member: int, asked: Setting) -> SourceEncoder:
    """A member's source side; cases that write it alike share it, for the memory that its kept products take."""
    source, settings = case.models[member].source, case.settings
    key = id(source), member, settings.gemm, settings.embeddings, settings.frequent_words, settings.activations
    if key not in sides:
        sides[key] = SourceEncoder(source, settings, most_src_len=asked.src_len)
    return sides[key]


def _time(case: _Case, run: _Sentences, seconds: tuple[float, ...], asked: Setting) -> DecoderTime:
    # One untimed and one timed translation a round, after those of the warm-up.
    source_s = tuple(run.source_s[-2 * len(seconds) + 1 :: 2])
    once = run(clock=True)
    model = case.models[0]
    counted = operations(
        DecoderShape.of(model.target, asked.candidates),
        case.settings,
        asked.src_len,
        distinct_share=once.distinct_share,
    )
    source = source_operations(model.source, case.settings, asked.src_len)
    members, beam = len(case.models), case.settings.beam
    attention = members * beam * counted.attention
    return DecoderTime(
        case.key,
        case.settings,
        seconds,
        source_s,
        asked.tgt_len,
        members * (beam * counted.step + (counted.once + source.input) / asked.tgt_len) - attention,
        members * source.recurrent / asked.tgt_len,
        attention,
        members
        * (
            beam * _activations(model.target, asked.src_len) + _source_activations(model.source) * asked.src_len / asked.tgt_len
        ),
        once.distinct_share,
        once.stage_s,
        members,
    )


def _source_activations(weights: SourceWeights) -> int:
    """Elements of one position whose tanh or sigmoid is taken."""
    return sum(2 * ACTIVATIONS[layer.kind] * layer.width for layer in weights.layers)


def _activations(weights: SharpWeights, src_len: int) -> int:
    """Elements of one hypothesis in a step whose tanh or sigmoid is taken: gates, states, and what attention compares."""
    bottom, attention = weights.bottom, weights.bottom.attention
    compared = int(attention.state.shape[0]) * (src_len if attention.form == "additive" else 1)
    layers = [(bottom.kind.removeprefix("att"), bottom.width), *((layer.kind, layer.width) for layer in weights.stack)]
    return compared + sum(ACTIVATIONS[kind] * width for kind, width in layers)
