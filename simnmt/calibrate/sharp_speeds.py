"""Time the sharp decoder on this box: products and activations, its ladder, stacks and ensembles (SHARP-05, 08, 11, 13 to 18).

One thread; random weights, which change times only by the number of distinct states in a beam; sentences of forced length. All
compared runs alternate. Words per second cover the whole translation with the source side, as in the paper; the decoder's share
of the same runs is given too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any, Literal, NamedTuple

import numpy as np

from simnmt.base.random_streams import stream
from simnmt.calibrate import harness
from simnmt.kernels.activations import activate
from simnmt.kernels.beam_search import StageSeconds
from simnmt.kernels.cases import Run, last_cache_bytes
from simnmt.kernels.native_library import native, processor
from simnmt.kernels.packed_products import INT16, LIBRARY_VARIANTS, PACKED, ProductVariants, random_matrix
from simnmt.kernels.sharp import model_shapes as shapes
from simnmt.kernels.sharp.decoder import SharpDecoder, SourceEncoder, decode_ensemble
from simnmt.kernels.sharp.model import SharpWeights, SourceWeights
from simnmt.nmt.architecture import SHARP_MODELS
from simnmt.nmt.devices import library_threads
from simnmt.profile.decoder_settings import FREQUENT_WORDS, RUNGS, DecoderSettings, ladder, techniques

Activations = Literal["library", "table", "polynomial"]

PRODUCT_SIZE = 1024
PRODUCT_BATCHES = (1, 2, 4, 6, 8, 16, 32, 64)
SEQUENCE = 65_536
"""Elements whose activations are timed: they fit the second cache."""


@dataclass(frozen=True, slots=True)
class ProductTime:
    """Seconds of one product of a batch of rows with square weights, by round."""

    batch: int
    size: int
    """Rows and columns of the weights."""
    cold: bool
    """True if weights are read from memory; else from the cache, as in the paper's repeated products."""
    seconds: Mapping[str, tuple[float, ...]]
    """`int16`, `float32` (packed the same way), `torch` and `numpy`, with weights stored in the faster order."""

    def median_s(self, name: str) -> float:
        """Return the median seconds of one product."""
        return statistics.median(self.seconds[name])

    def ratios(self, name: str) -> tuple[float, ...]:
        """Return how many times as fast int16 is as another product, by round; `library` is the faster of torch and numpy."""
        baseline = self.best_library if name == "library" else name
        return tuple(theirs / ours for ours, theirs in zip(self.seconds["int16"], self.seconds[baseline], strict=True))

    def ratio(self, name: str) -> float:
        """Return the median of `ratios`."""
        return statistics.median(self.ratios(name))

    @property
    def best_library(self) -> str:
        """`torch` or `numpy`, whichever is faster."""
        return min(("torch", "numpy"), key=self.median_s)


def product_times(rounds: int, batches: Sequence[int] = PRODUCT_BATCHES, size: int = PRODUCT_SIZE) -> list[ProductTime]:
    """Time all variants alternately, hot and cold, on the threads to which the libraries are limited."""
    by_batch = dict[tuple[int, bool], ProductTime]()
    for cold in (False, True):
        variants = ProductVariants.of(size, cold)
        for batch in batches:
            times_s = _times_s(variants.runs(random_matrix(batch, size)), rounds, warm=True)
            seconds = {"int16": times_s[INT16], "float32": times_s[PACKED]}
            for name in ("torch", "numpy"):
                library_variants = (times_s[variant] for variant in LIBRARY_VARIANTS if variant.startswith(name))
                seconds[name] = min(library_variants, key=statistics.median)
            by_batch[batch, cold] = ProductTime(batch, size, cold, seconds)
    return [by_batch[batch, cold] for batch in batches for cold in (False, True)]


def _times_s(runs: Mapping[Any, Run], rounds: int, *, warm: bool = False) -> dict[Any, tuple[float, ...]]:
    """Return the seconds of each run by round."""
    frame = harness.rounds({name: harness.Case(run, warm=warm) for name, run in runs.items()}, rounds, least_s=0.05)
    return {name: tuple(times_s.tolist()) for name, times_s in harness.by_round(frame).items()}


def activation_times(rounds: int) -> dict[Activations, float]:
    """Return the seconds to activate one element by each method: the mean of tanh and sigmoid."""
    x = stream(1, 0, "sharp activations").standard_normal(SEQUENCE).astype(np.float32)
    out = np.empty_like(x)

    def both(method: Activations) -> None:
        activate("tanh", x, method, out)
        activate("sigmoid", x, method, out)

    methods: tuple[Activations, ...] = ("library", "table", "polynomial")
    times_s = _times_s({method: partial(both, method) for method in methods}, rounds)
    return {method: statistics.median(times_s[method]) / (2 * SEQUENCE) for method in methods}


class RandomModel(NamedTuple):
    """Both sides of one model."""

    source: SourceWeights
    target: SharpWeights


def random_weights(names: Iterable[str], vocab: int | None = None, seed: int = 1) -> dict[str, RandomModel]:
    """Draw models of `SHARP_MODELS` by name, which share large tables and equal source sides.

    `vocab` replaces the sizes of their vocabularies.
    """
    models, drawn, sources = shapes.RandomModels(seed), dict[str, RandomModel](), dict[tuple[object, ...], SourceWeights]()
    for name in names:
        model = SHARP_MODELS[name]
        words, layers = vocab or model.tgt_vocab, tuple((layer.kind, layer.width) for layer in model.layers)
        cell: Literal["attgru", "attlstm"] = "attgru" if model.cell == "gru" else "attlstm"
        shape = shapes.DecoderShape(cell, model.hidden, model.embedding, 2 * model.source_hidden, model.compared, layers, words)
        sizes = model.source_cell, model.source_layers, model.source_hidden, model.embedding, vocab or model.src_vocab
        if sizes not in sources:
            sources[sizes] = models.source_of(*sizes)
        drawn[name] = RandomModel(sources[sizes], models.of(shape, words, model.attention))
    return drawn


LADDER = RUNGS
LADDER_MODEL = "sharp-s1"
"""Model of Table 1."""
SYSTEMS: Mapping[str, tuple[str, int]] = {
    **{f"S{number}": (f"sharp-s{number}", 1) for number in range(1, 8)},
    "E1": ("sharp-s4", 2),
    "E2": ("sharp-s4", 3),
}
"""Systems of Table 2: name and number of models."""
ACTIVATIONS = {"gru": 3, "lstm": 5, "fc_tanh": 1, "fc_relu": 0}
"""Activations of a layer per element of its width."""
COVERED = 0.95
"""Share of the candidates whose embedding products are kept, the paper's share of tokens (SHARP-06)."""

STEPS = ("products and activations", "drawing weights", "the ladder", "stacks and ensembles")
"""Parts of the measurement, in order."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Sizes of the measurement."""

    beam: int = 6
    src_len: int = 25
    tgt_len: int = 28
    """Steps of one word each."""
    candidates: int = 500
    vocab: int | None = None
    """None: the vocabulary of the paper."""
    rounds: int = 7
    systems: tuple[str, ...] = tuple(SYSTEMS)
    product_batches: tuple[int, ...] = PRODUCT_BATCHES
    product_size: int = PRODUCT_SIZE
    """Rows and columns of the weights of single products."""


QUICK = Setting(vocab=16_000, rounds=2, systems=("S1", "S4", "S7", "E1"), product_batches=(1, 6, 32))
"""A quick measurement: a smaller vocabulary's embedding products are more often in the cache."""


@dataclass(frozen=True, slots=True)
class DecoderTime:
    """Times and operation counts of one model or ensemble on one sentence, from source words to target words."""

    key: str
    """Key of a rung or of a system."""
    settings: DecoderSettings
    sentence_s: tuple[float, ...]
    """Seconds of source side and search by round; the same place of two decoders is the same round."""
    source_s: tuple[float, ...]
    """Seconds of the source side in these rounds."""
    words: int
    """Words decoded in a round."""
    products: float
    """Multiply-adds by weights per word, with a share of those done once per sentence, without `source_recurrent`."""
    source_recurrent: float
    """Multiply-adds per word with the states of the source side, one row at a time."""
    attention: float
    """Multiply-adds per word of scores and weighted sums, which stay in float32."""
    activations: float
    """Elements per word whose tanh or sigmoid is taken, with a share of those of the source side."""
    distinct_share: float
    """Share of distinct states among the hypotheses (SHARP-09)."""
    stage_s: StageSeconds | None
    """Stages of one more run; None without compiled kernels."""
    members: int = 1

    @property
    def multiply_adds(self) -> float:
        """Multiply-adds per word."""
        return self.products + self.source_recurrent + self.attention

    @property
    def decoder_s(self) -> tuple[float, ...]:
        """Seconds of the search by round."""
        return tuple(whole - source for whole, source in zip(self.sentence_s, self.source_s, strict=True))

    @property
    def word_s(self) -> float:
        """Seconds per word in the median round."""
        return statistics.median(self.sentence_s) / self.words

    @property
    def words_per_s(self) -> float:
        """Words per second in the median round."""
        return 1.0 / self.word_s

    def ratios(self, other: DecoderTime) -> tuple[float, ...]:
        """Return how many times as fast as `other`, by round."""
        return tuple(theirs / ours for ours, theirs in zip(self.sentence_s, other.sentence_s, strict=True))

    def over(self, other: DecoderTime) -> float:
        """Return the median of `ratios`."""
        return statistics.median(self.ratios(other))

    def decoder_over(self, other: DecoderTime) -> float:
        """Return how many times as fast as `other` without the source side, in the median round."""
        return statistics.median(theirs / ours for ours, theirs in zip(self.decoder_s, other.decoder_s, strict=True))


@dataclass(frozen=True, slots=True)
class SharpSpeeds:
    """All results of the measurement."""

    level: str | None
    """Level of the compiled kernels; None if the fallback ran."""
    setting: Setting
    vocab: int
    cache_bytes: int
    """Size of the processor's last cache."""
    ladder: Mapping[Activations, Sequence[DecoderTime]]
    """All rungs, with table or polynomial activations from the fifth rung on."""
    systems: Sequence[DecoderTime]
    products: Sequence[ProductTime]
    activation_s: Mapping[Activations, float]
    """Seconds per element."""


def rung_settings(beam: int, candidates: int | None, activations: Activations) -> dict[str, DecoderSettings]:
    """Return the settings of our decoder by rung of the ladder (SHARP-11)."""
    return ladder(DecoderSettings(beam=beam, candidates=candidates, gemm="float32"), techniques(activations=activations))


def sharp_speeds(setting: Setting | None = None, progress: Callable[[int, int, str], None] | None = None) -> SharpSpeeds:
    """Measure all parts, in some minutes with the paper's sizes.

    `progress`: called with the number of finished parts, the number of parts, and the name of the next part.
    """
    setting, progress = setting or Setting(), progress or (lambda done, whole, what: None)
    with library_threads(1):
        progress(0, len(STEPS), STEPS[0])
        products = product_times(setting.rounds, setting.product_batches, setting.product_size)
        activations = activation_times(setting.rounds)
        progress(1, len(STEPS), STEPS[1])
        names = dict.fromkeys([LADDER_MODEL, *(SYSTEMS[key][0] for key in setting.systems)])
        weights = random_weights(names, setting.vocab)
        progress(2, len(STEPS), STEPS[2])
        methods: tuple[Activations, ...] = ("table", "polynomial")
        rungs = {method: rung_settings(setting.beam, setting.candidates, method) for method in methods}
        # The rungs before the activations are the same in both ladders and are timed once.
        keys = {rung: key for by_key in rungs.values() for key, rung in by_key.items()}
        timed = _timed([(key, rung, (weights[LADDER_MODEL],)) for rung, key in keys.items()], setting)
        by_rung = dict(zip(keys, timed, strict=True))
        progress(3, len(STEPS), STEPS[3])
        best = rungs["polynomial"][LADDER[-1]]
        models = {key: (weights[SYSTEMS[key][0]],) * SYSTEMS[key][1] for key in setting.systems}
        systems = _timed([(key, best, members) for key, members in models.items()], setting)
    return SharpSpeeds(
        level=None if native() is None else processor(),
        setting=setting,
        vocab=weights[LADDER_MODEL].target.vocab,
        cache_bytes=last_cache_bytes(),
        ladder={method: [by_rung[rung] for rung in rungs[method].values()] for method in methods},
        systems=systems,
        products=products,
        activation_s=activations,
    )


def _timed(cases: Sequence[tuple[str, DecoderSettings, tuple[RandomModel, ...]]], setting: Setting) -> list[DecoderTime]:
    """Time the translations of all cases (key, settings, a model per member) alternately, each after an untimed one."""
    encoders: dict[tuple[object, ...], SourceEncoder] = {}
    runs = [_Translator(*case, setting, encoders) for case in cases]
    frame = harness.rounds({run: harness.Case(run.timed, warm=True) for run in runs}, setting.rounds, least_s=0.1)
    sentence_s, source_s = harness.by_round(frame), harness.by_round(frame, column="source_s")
    return [run.time(sentence_s[run], source_s[run]) for run in runs]


class _Translator:
    """Translates two sentences alternately: a timed run finds its weights in the cache as the run before left them, but other
    embeddings than those of its sentence. Members of an ensemble may be the same model, since each packs its own weights."""

    def __init__(
        self,
        key: str,
        settings: DecoderSettings,
        models: tuple[RandomModel, ...],
        setting: Setting,
        encoders: dict[tuple[object, ...], SourceEncoder],
    ) -> None:
        self._key, self._settings, self._models, self._setting = key, settings, models, setting
        target, vocab = models[0].target, models[0].source.vocab
        _, self._candidates = shapes.random_sentence(target, setting.src_len, setting.candidates, COVERED, FREQUENT_WORDS)
        sentences = [shapes.random_words(vocab, setting.src_len, COVERED, FREQUENT_WORDS, seed) for seed in (1, 2)]
        self._sentences, self._encoders, self._members = cycle(sentences), list[SourceEncoder](), list[SharpDecoder]()
        for member, model in enumerate(models):
            options = settings.gemm, settings.embeddings, settings.frequent_words, settings.activations
            encoder = id(model.source), member, *options  # shared by all cases, for the memory of its kept products
            if encoder not in encoders:
                encoders[encoder] = SourceEncoder(model.source, settings)
            self._encoders.append(encoders[encoder])
            self._members.append(SharpDecoder(model.target, settings, max_len=setting.tgt_len))

    def timed(self) -> dict[str, float]:
        """Translate the next sentence; return the seconds of its source side."""
        begin_s = time.perf_counter()
        states = self._encode()
        encoded_s = time.perf_counter()
        decode_ensemble(self._members, states, self._candidates, self._setting.tgt_len)
        return {"source_s": encoded_s - begin_s}

    def _encode(self) -> list[Any]:
        words = next(self._sentences)
        return [encoder.encode(words) for encoder in self._encoders]

    def time(self, sentence_s: Iterable[float], source_s: Iterable[float]) -> DecoderTime:
        """Return the times of the timed translations, with the counted operations and the stages of one more run."""
        once = decode_ensemble(self._members, self._encode(), self._candidates, self._setting.tgt_len, clock=True)
        model, settings = self._models[0], self._settings
        src_len, tgt_len, beam, members = self._setting.src_len, self._setting.tgt_len, settings.beam, len(self._models)
        shape = shapes.DecoderShape.of(model.target, self._setting.candidates)
        counted = shapes.operations(shape, settings, src_len, distinct_share=once.distinct_share)
        source = shapes.source_operations(model.source, settings, src_len)
        attention = members * beam * counted.attention
        source_activations = sum(2 * ACTIVATIONS[layer.kind] * layer.width for layer in model.source.layers) * src_len / tgt_len
        return DecoderTime(
            key=self._key,
            settings=settings,
            sentence_s=tuple(sentence_s),
            source_s=tuple(source_s),
            words=tgt_len,
            products=members * (beam * counted.step + (counted.once + source.input) / tgt_len) - attention,
            source_recurrent=members * source.recurrent / tgt_len,
            attention=attention,
            activations=members * (beam * _activations(model.target, src_len) + source_activations),
            distinct_share=once.distinct_share,
            stage_s=once.stage_s,
            members=members,
        )


def _activations(weights: SharpWeights, src_len: int) -> int:
    """Return the elements whose tanh or sigmoid one hypothesis takes in a step: gates, states, and what attention compares."""
    bottom, attention = weights.bottom, weights.bottom.attention
    compared = int(attention.state.shape[0]) * (src_len if attention.form == "additive" else 1)
    layers = [(bottom.kind.removeprefix("att"), bottom.width), *((layer.kind, layer.width) for layer in weights.stack)]
    return compared + sum(ACTIVATIONS[kind] * width for kind, width in layers)
