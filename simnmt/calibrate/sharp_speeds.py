"""Time the sharp decoder on this box: products and activations, its ladder, stacks and ensembles (SHARP-05, 08, 11, 13 to 18).

One thread; random weights, which change times only by the number of distinct states in a beam; sentences of forced length. All
compared runs alternate. The results are frames: seconds by round (rows) and timed case (columns), and the operations that a
decoder was counted to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from simnmt.base.random_streams import stream
from simnmt.calibrate import harness
from simnmt.kernels.activations import activate
from simnmt.kernels.cases import last_cache_bytes
from simnmt.kernels.native_library import native, processor
from simnmt.kernels.packed_products import INT16, LIBRARY_VARIANTS, PACKED, ProductVariants, random_matrix
from simnmt.kernels.sharp import model_shapes as shapes
from simnmt.kernels.sharp.decoder import SharpDecoder, SourceEncoder, decode_ensemble
from simnmt.kernels.sharp.model import SharpWeights, SourceWeights
from simnmt.nmt.architecture import SHARP_MODELS
from simnmt.nmt.devices import library_threads
from simnmt.profile.decoder_settings import FREQUENT_WORDS, DecoderSettings, ladder, techniques

Activations = Literal["library", "table", "polynomial"]
METHODS: tuple[Activations, ...] = ("library", "table", "polynomial")
PRODUCTS = {"int16": (INT16,), "float32": (PACKED,), "torch": LIBRARY_VARIANTS[:2], "numpy": LIBRARY_VARIANTS[2:]}
"""The timed products, and the calls of which the fastest counts: of a library, one for each order of the weights."""
SEQUENCE = 65_536
"""Elements whose activations are timed: they fit the second cache."""
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
    product_batches: tuple[int, ...] = (1, 2, 4, 6, 8, 16, 32, 64)
    product_size: int = 1024
    """Rows and columns of the weights of single products."""


QUICK = Setting(vocab=16_000, rounds=2, systems=("S1", "S4", "S7", "E1"), product_batches=(1, 6, 32))
"""A quick measurement: a smaller vocabulary's embedding products are more often in the cache."""


@dataclass(frozen=True, slots=True)
class SharpSpeeds:
    """All results of the measurement.

    The columns of `sentences`, `sources` and the rows of `counts` are the decoders: the rungs by key (with the paper's table
    from the fifth rung on `activations, table` and `merge, table`), and the systems.
    """

    level: str | None
    """Level of the compiled kernels; None if the fallback ran."""
    setting: Setting
    vocab: int
    cache_bytes: int
    """Size of the processor's last cache."""
    products: pd.DataFrame
    """Seconds of one product, by `PRODUCTS`, rows of the batch, and whether weights are read from memory (else from the cache,
    as in the paper's repeated products)."""
    activations: pd.DataFrame
    """Seconds to activate one element by each method: the mean of tanh and sigmoid."""
    sentences: pd.DataFrame
    """Seconds of one sentence, source side and search, as in the paper."""
    sources: pd.DataFrame
    """Seconds of the source side in these rounds."""
    counts: pd.DataFrame
    """Per word multiply-adds by weights (`products`, with a share of those done once per sentence), with the source side's
    states one row at a time (`source_recurrent`), and of attention's scores and sums, which stay in float32 (`attention`);
    `multiply_adds` is their sum. `activations`: elements per word whose tanh or sigmoid is taken. Beside them `settings`,
    `members`, the share of distinct states among the hypotheses (`distinct_share`, SHARP-09), and the seconds of the stages in
    one more run (`prepare_s` to `search_s`; none without compiled kernels)."""

    def ladder(self, activations: Activations) -> list[str]:
        """Return the decoders of Table 1, with table or polynomial activations from the fifth rung on."""
        return list(_ladder(self.setting, activations))

    def word_s(self, decoder: str) -> float:
        """Return the seconds per word in the median round."""
        return float(self.sentences[decoder].median()) / self.setting.tgt_len

    def ratios(self, decoder: str, other: str, *, search: bool = False) -> list[float]:
        """Return how many times as fast a decoder is as another, by round; `search`: without the source side."""
        seconds = self.sentences - self.sources if search else self.sentences
        return (seconds[other] / seconds[decoder]).dropna().tolist()

    def ratio(self, decoder: str, other: str, *, search: bool = False) -> float:
        """Return the median of `ratios`."""
        return float(np.median(self.ratios(decoder, other, search=search)))


def rung_settings(beam: int, candidates: int | None, activations: Activations) -> dict[str, DecoderSettings]:
    """Return the settings of our decoder by rung of the ladder (SHARP-11)."""
    return ladder(DecoderSettings(beam=beam, candidates=candidates, gemm="float32"), techniques(activations=activations))


def _ladder(setting: Setting, activations: Activations) -> dict[str, DecoderSettings]:
    """Return the settings by decoder; the rungs before the activations are the same decoders in both ladders."""
    rungs = rung_settings(setting.beam, setting.candidates, activations)
    return {f"{rung}, table" if settings.activations == "table" else rung: settings for rung, settings in rungs.items()}


def sharp_speeds(setting: Setting | None = None, progress: Callable[[int, int, str], None] | None = None) -> SharpSpeeds:
    """Measure all parts, in some minutes with the paper's sizes.

    `progress`: called with the number of finished parts, the number of parts, and the name of the next part.
    """
    setting, progress = setting or Setting(), progress or (lambda done, whole, what: None)
    with library_threads(1):
        progress(0, len(STEPS), STEPS[0])
        products, activations = product_times(setting), activation_times(setting)
        progress(1, len(STEPS), STEPS[1])
        names = dict.fromkeys([LADDER_MODEL, *(SYSTEMS[key][0] for key in setting.systems)])
        weights = random_weights(names, setting.vocab)
        progress(2, len(STEPS), STEPS[2])
        rungs = _ladder(setting, "table") | _ladder(setting, "polynomial")
        timed = [_timed({rung: (settings, (weights[LADDER_MODEL],)) for rung, settings in rungs.items()}, setting)]
        progress(3, len(STEPS), STEPS[3])
        models = {key: (weights[SYSTEMS[key][0]],) * SYSTEMS[key][1] for key in setting.systems}
        timed.append(_timed({key: (rungs["merge"], members) for key, members in models.items()}, setting))
    sentences, sources, counts = zip(*timed, strict=True)
    return SharpSpeeds(
        level=None if native() is None else processor(),
        setting=setting,
        vocab=weights[LADDER_MODEL].target.vocab,
        cache_bytes=last_cache_bytes(),
        products=products,
        activations=activations,
        sentences=pd.concat(sentences, axis=1),
        sources=pd.concat(sources, axis=1),
        counts=pd.concat(counts),
    )


def product_times(setting: Setting) -> pd.DataFrame:
    """Time all products alternately, on the threads to which the libraries are limited; see `SharpSpeeds.products`."""
    columns = {}
    for cold in (False, True):
        variants = ProductVariants.of(setting.product_size, cold)
        for batch in setting.product_batches:
            runs = variants.runs(random_matrix(batch, setting.product_size))
            times_s = _seconds({name: harness.Case(run, warm=True) for name, run in runs.items()}, setting)
            for name, calls in PRODUCTS.items():
                columns[name, batch, cold] = times_s[min(calls, key=lambda call: times_s[call].median())]
    return pd.DataFrame(columns)


def activation_times(setting: Setting) -> pd.DataFrame:
    """Time the activations by all methods alternately; see `SharpSpeeds.activations`."""
    x = stream(1, 0, "sharp activations").standard_normal(SEQUENCE).astype(np.float32)
    out = np.empty_like(x)

    def both(method: Activations) -> None:
        activate("tanh", x, method, out)
        activate("sigmoid", x, method, out)

    return _seconds({method: harness.Case(partial(both, method)) for method in METHODS}, setting) / (2 * SEQUENCE)


def _seconds(cases: Mapping[str, harness.Case], setting: Setting) -> pd.DataFrame:
    return pd.DataFrame(harness.by_round(harness.rounds(cases, setting.rounds, least_s=0.05)))


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


def _timed(
    cases: Mapping[str, tuple[DecoderSettings, tuple[RandomModel, ...]]], setting: Setting
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Time the translations of all decoders (settings, and a model per member) alternately, each after an untimed one.

    Returns the frames `sentences`, `sources` and `counts` of `SharpSpeeds`.
    """
    encoders: dict[tuple[object, ...], SourceEncoder] = {}
    runs = {decoder: _Translator(*case, setting, encoders) for decoder, case in cases.items()}
    timed = {decoder: harness.Case(run.timed, warm=True) for decoder, run in runs.items()}
    frame = harness.rounds(timed, setting.rounds, least_s=0.1)
    sentences, sources = (pd.DataFrame(harness.by_round(frame, column=column)) for column in ("seconds", "source_s"))
    return sentences, sources, pd.DataFrame([run.counts() for run in runs.values()], index=list(runs))


class _Translator:
    """Translates two sentences alternately: a timed run finds its weights in the cache as the run before left them, but other
    embeddings than those of its sentence. Members of an ensemble may be the same model, since each packs its own weights."""

    def __init__(
        self,
        settings: DecoderSettings,
        models: tuple[RandomModel, ...],
        setting: Setting,
        encoders: dict[tuple[object, ...], SourceEncoder],
    ) -> None:
        self._settings, self._models, self._setting = settings, models, setting
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

    def counts(self) -> dict[str, Any]:
        """Return the decoder's row of `SharpSpeeds.counts`, with the stages of one more run."""
        once = decode_ensemble(self._members, self._encode(), self._candidates, self._setting.tgt_len, clock=True)
        model, settings = self._models[0], self._settings
        src_len, tgt_len, beam, members = self._setting.src_len, self._setting.tgt_len, settings.beam, len(self._models)
        shape = shapes.DecoderShape.of(model.target, self._setting.candidates)
        counted = shapes.operations(shape, settings, src_len, distinct_share=once.distinct_share)
        source = shapes.source_operations(model.source, settings, src_len)
        attention, recurrent = members * beam * counted.attention, members * source.recurrent / tgt_len
        products = members * (beam * counted.step + (counted.once + source.input) / tgt_len) - attention
        source_activations = sum(2 * ACTIVATIONS[layer.kind] * layer.width for layer in model.source.layers) * src_len / tgt_len
        return {
            "settings": settings,
            "members": members,
            "products": products,
            "source_recurrent": recurrent,
            "attention": attention,
            "multiply_adds": products + recurrent + attention,
            "activations": members * (beam * _activations(model.target, src_len) + source_activations),
            "distinct_share": once.distinct_share,
            **({} if once.stage_s is None else asdict(once.stage_s)),
        }


def _activations(weights: SharpWeights, src_len: int) -> int:
    """Return the elements whose tanh or sigmoid one hypothesis takes in a step: gates, states, and what attention compares."""
    bottom, attention = weights.bottom, weights.bottom.attention
    compared = int(attention.state.shape[0]) * (src_len if attention.form == "additive" else 1)
    layers = [(bottom.kind.removeprefix("att"), bottom.width), *((layer.kind, layer.width) for layer in weights.stack)]
    return compared + sum(ACTIVATIONS[kind] * width for kind, width in layers)
