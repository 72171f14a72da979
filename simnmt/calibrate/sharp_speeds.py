"""Time the sharp decoder on this box: products and activations, its ladder, stacks and ensembles (SHARP-05, 08, 11, 13 to 18).

One thread; random weights and sentences of forced length. Times depend on the sizes and, with merged states, on the number of
distinct states (SHARP-09): weights are drawn so that the beam of a random model branches as often as the beam of the paper. All
compared runs alternate. The results are frames: seconds by round (rows) and timed case (columns), and the counted multiply-adds
of a decoder by layer (SHARP-13).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from simnmt.base.random_streams import stream
from simnmt.calibrate import harness
from simnmt.kernels.beam_search import Ints
from simnmt.kernels.native_library import huge_pages, processor
from simnmt.kernels.packed_products import PackedMatrix
from simnmt.kernels.registry import last_cache_bytes
from simnmt.kernels.sharp_decoder import Activation, activate
from simnmt.kernels.sharp_model import GATES, Float32, Kind
from simnmt.nmt.architecture import SHARP_MODELS, AttentionalArchitecture
from simnmt.nmt.attentional_model import AttentionalModel
from simnmt.nmt.devices import library_threads
from simnmt.nmt.models import build_model
from simnmt.nmt.sharp_translator import SharpTranslator
from simnmt.profile.decoder_settings import FREQUENT_WORDS, DecoderSettings, ladder

KEPT_SHARES = {"computed": 0.0, "precomputed": 1.0, "frequent": 0.95}
"""Share of a text's words whose products are kept (SHARP-06).

The paper attributes 95 % with 8,000 of 80,000 words to Zipf's law. Its plain form gives 80.6 %; 95 % needs an exponent of
1.227.
"""
ACTIVATIONS: dict[Kind, int] = {"gru": 3, "lstm": 5, "fc_tanh": 1, "fc_relu": 0}
"""Activations of a layer per element of its width."""


def layer_operations(kind: Kind, width: int, below: int) -> int:
    """Return the multiply-adds of a layer of the stack.

    At equal widths a GRU takes 6 times and an LSTM 8 times those of a fully connected layer (SHARP-13).
    """
    return GATES[kind] * width * (below + (width if kind in ("gru", "lstm") else 0))


def operations(
    model: AttentionalArchitecture, settings: DecoderSettings, src_len: int, words: int, distinct_share: float = 1.0
) -> dict[str, float]:
    """Count the multiply-adds of one hypothesis in one step, by part, and `once` a sentence before its first step.

    `words`: words that the output layer scores; `distinct_share`: share of distinct states in the beam, if they are merged
    (SHARP-09). Kept products of embeddings take none (SHARP-06).
    """
    gates, compared, source = GATES[model.cell] * model.hidden, model.compared, 2 * model.source_hidden
    kept = settings.attention == "precomputed"
    below = [model.hidden, *(layer.width for layer in model.layers)]
    return {
        "recurrent": (gates + compared) * model.hidden * (distinct_share if settings.merge else 1.0),
        "embedding": (gates + compared) * model.embedding * (1.0 - KEPT_SHARES[settings.embeddings]),
        "context": 0.0 if kept else gates * source,
        "attention": src_len * (compared + (gates if kept else source)),
        "stack": sum(
            layer_operations(layer.kind, layer.width, width) for layer, width in zip(model.layers, below, strict=False)
        ),
        "output": words * below[-1],
        "once": src_len * source * (compared + (gates if kept else 0)),
    }


def operations_per_word(
    model: AttentionalArchitecture,
    settings: DecoderSettings,
    *,
    src_len: int,
    tgt_len: int,
    words: int,
    members: int = 1,
    distinct_share: float = 1.0,
) -> dict[str, float]:
    """Count the operations per word of an ensemble of equal models; see `SharpSpeeds.counts`."""
    counted = operations(model, settings, src_len, words, distinct_share)
    once, attention = counted.pop("once"), counted.pop("attention")
    width, rows = model.source_hidden, GATES[model.source_cell] * model.source_hidden
    above = model.source_layers - 1
    source_input = src_len * 2 * rows * (model.embedding * (1.0 - KEPT_SHARES[settings.embeddings]) + above * 2 * width)
    recurrent = members * (src_len - 1) * 2 * rows * width * model.source_layers / tgt_len
    products = members * (settings.beam * sum(counted.values()) + (once + source_input) / tgt_len)
    layers: list[tuple[Kind, int]] = [(model.cell, model.hidden), *((layer.kind, layer.width) for layer in model.layers)]
    compared = model.compared * (src_len if model.attention == "additive" else 1)
    activations = settings.beam * (compared + sum(ACTIVATIONS[kind] * size for kind, size in layers))
    source_activations = model.source_layers * 2 * ACTIVATIONS[model.source_cell] * width * src_len / tgt_len
    return {
        "products": products,
        "source_recurrent": recurrent,
        "attention": members * settings.beam * attention,
        "multiply_adds": products + recurrent + members * settings.beam * attention,
        "activations": members * (activations + source_activations),
    }


WORD_REACH, OUTPUT_REACH = 2.0, 8.0
"""Factors of the spread of a word's input to the states, and of the logits; products have a spread of 1.

With both factors at 1, half of a beam's states are distinct. With these it is 0.70 of 6, as in the paper (SHARP-09), in
sentences of 25 to 28 words with the bottom cell alone (0.68 to 0.74); layers above it lead some searches into loops and give
0.5 to 0.9.
"""


def random_models(names: Iterable[str], vocab: int | None = None) -> dict[str, AttentionalModel]:
    """Build models of `SHARP_MODELS` by name, which share equal tables and source sides; `vocab` replaces theirs."""
    sizes = {} if vocab is None else {"src_vocab": vocab, "tgt_vocab": vocab}
    models: dict[str, AttentionalModel] = {}
    for name in names:
        model = random_model(SHARP_MODELS[name].model_copy(update=sizes))
        for other in models.values():
            for part in ("src_embedding", "tgt_embedding", "projection", "encoder"):
                if repr(getattr(other, part)) == repr(getattr(model, part)):
                    setattr(model, part, getattr(other, part))
        models[name] = model
    return models


@torch.no_grad()
def random_model(architecture: AttentionalArchitecture, seed: int = 1) -> AttentionalModel:
    """Build a model whose products have variance 1, scaled by `WORD_REACH` and `OUTPUT_REACH`, with weights in [-1, 1].

    Embeddings are uniform in [-1, 1], biases 0.
    """
    model = build_model(architecture, seed=seed).eval()
    assert isinstance(model, AttentionalModel)
    for module in model.modules():
        for weight in module.parameters(recurse=False):
            weight.mul_(1.0 if isinstance(module, nn.Embedding) else 3.0**0.5)
    model.bottom.feed.weight[model.bottom.compared :].mul_(WORD_REACH)
    model.projection.weight.mul_(OUTPUT_REACH)
    for weight in model.parameters():
        weight.clamp_(-1.0, 1.0)
    return model


def random_candidates(model: AttentionalModel, count: int) -> Ints:
    """Draw different words, the end token among them, in ascending order."""
    words = _drawn(stream(1, 0, "sharp sentence"), model.vocab, count - 1, replace=False)
    return np.sort(np.concatenate([[model.eos_token], words])).astype(np.int64)


def random_words(model: AttentionalModel, src_len: int, seed: int) -> Ints:
    """Draw a source sentence of `src_len` words with the end token."""
    words = _drawn(stream(seed, 0, "sharp source"), model.architecture.src_vocab, src_len - 1, replace=True)
    return np.concatenate([words, [model.eos_token]]).astype(np.int64)


def _drawn(generator: np.random.Generator, vocab: int, count: int, *, replace: bool) -> Ints:
    """Draw words in a random order, `KEPT_SHARES["frequent"]` of which are among the first `FREQUENT_WORDS`."""
    frequent = min(FREQUENT_WORDS, vocab)
    rare = min(round((1.0 - KEPT_SHARES["frequent"]) * count), vocab - frequent)
    words = generator.choice(np.arange(4, frequent), count - rare, replace)
    others = frequent + generator.choice(vocab - frequent, rare, replace) if rare else np.empty(0, np.int64)
    return generator.permutation(np.concatenate([words, others]))


METHODS: tuple[Activation, ...] = ("library", "table", "polynomial")
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
STEPS = ("products and activations", "drawing weights", "the ladder", "stacks and ensembles")
"""Parts of the measurement, in order."""
Progress = Callable[[int, int, str], None]
"""Called with the number of finished parts, the number of parts, and the name of the next part."""


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

    level: str
    """The processor and the level of the compiled kernels."""
    setting: Setting
    vocab: int
    cache_bytes: int
    """Size of the processor's last cache."""
    products: pd.DataFrame
    """Seconds of one product by method (`int16`, `float32` packed the same way, `torch`, `numpy`), by rows of the batch, and by
    whether weights are read from memory (else from the cache, as in the paper's repeated products)."""
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
    `members`, and the share of distinct states among the hypotheses (`distinct_share`, SHARP-09)."""

    def ladder(self, activations: Activation) -> list[str]:
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
        return float(np.median(self.ratios(decoder, other, search=search)))


def rung_settings(beam: int, candidates: int | None, activations: Activation) -> dict[str, DecoderSettings]:
    return ladder(DecoderSettings(beam=beam, candidates=candidates, gemm="float32"), activations=activations)


def _ladder(setting: Setting, activations: Activation) -> dict[str, DecoderSettings]:
    """Return the settings by decoder; the rungs before the activations are the same decoders in both ladders."""
    rungs = rung_settings(setting.beam, setting.candidates, activations)
    return {f"{rung}, table" if settings.activations == "table" else rung: settings for rung, settings in rungs.items()}


def sharp_speeds(setting: Setting | None = None, progress: Progress | None = None) -> SharpSpeeds:
    """Measure all parts, in some minutes with the paper's sizes. Raises `KernelError` without compiled kernels."""
    setting, progress = setting or Setting(), progress or (lambda done, whole, what: None)
    with library_threads(1):
        progress(0, len(STEPS), STEPS[0])
        products, activations = product_times(setting), activation_times(setting)
        progress(1, len(STEPS), STEPS[1])
        models = random_models(dict.fromkeys([LADDER_MODEL, *(SYSTEMS[key][0] for key in setting.systems)]), setting.vocab)
        progress(2, len(STEPS), STEPS[2])
        rungs = _ladder(setting, "table") | _ladder(setting, "polynomial")
        timed = [_timed({rung: (settings, models[LADDER_MODEL], 1) for rung, settings in rungs.items()}, setting)]
        progress(3, len(STEPS), STEPS[3])
        systems = {key: SYSTEMS[key] for key in setting.systems}
        timed.append(_timed({key: (rungs["merge"], models[name], count) for key, (name, count) in systems.items()}, setting))
    sentences, sources, counts = zip(*timed, strict=True)
    return SharpSpeeds(
        level=processor(),
        setting=setting,
        vocab=models[LADDER_MODEL].vocab,
        cache_bytes=last_cache_bytes(),
        products=products,
        activations=activations,
        sentences=pd.concat(sentences, axis=1),
        sources=pd.concat(sources, axis=1),
        counts=pd.concat(counts),
    )


def product_times(setting: Setting) -> pd.DataFrame:
    """Time all products alternately; see `SharpSpeeds.products`. Of the orders of a library's weights the faster counts."""
    weight, columns = _uniform(setting.product_size, 0.1), {}
    for cold in (False, True):
        copies = _weight_copies(weight, cold)
        for batch in setting.product_batches:
            x, out = _uniform(batch, 1.0, setting.product_size), np.empty((batch, setting.product_size), np.float32)
            runs = {call: _call(cycle(kept), x, out, call[0]) for call, kept in copies.items()}
            times_s = _seconds({call: harness.Case(run, warm=True) for call, run in runs.items()}, setting)
            for method in dict.fromkeys(name for name, _ in copies):
                calls = [call for call in copies if call[0] == method]
                columns[method, batch, cold] = times_s[min(calls, key=lambda call: times_s[call].median())]
    return pd.DataFrame(columns)


def _weight_copies(weight: Float32, cold: bool) -> dict[tuple[str, bool], list[Any]]:
    """Return the weights as each method takes them, of a library in both orders in memory.

    If cold, copies fill twice the last cache, so that none is still there when its turn comes again. Every copy lies on huge
    pages: a pass over weights on small pages takes longer.
    """
    count = -(-2 * last_cache_bytes() // (2 * weight.size)) if cold else 1
    halved, first = range(-(-count // 2)), PackedMatrix(weight, 1.0)
    others = [PackedMatrix(weight, 1.0, scales=first.scales) for _ in range(count - 1)]
    copies: dict[tuple[str, bool], list[Any]] = {
        ("int16", False): [first, *others],
        ("float32", False): [PackedMatrix(weight) for _ in halved],
    }
    for turned in (False, True):
        arrays = [huge_pages(weight.size, np.float32).reshape(weight.shape) for _ in halved]
        for array in arrays:
            array[:] = weight.T if turned else weight
        in_out = [array if turned else array.T for array in arrays]
        copies |= {("torch", turned): [torch.from_numpy(array) for array in in_out], ("numpy", turned): in_out}
    return copies


def _call(copies: Iterator[Any], x: Float32, out: Float32, method: str) -> harness.Run:
    tensor, result = torch.from_numpy(x), torch.from_numpy(out)
    if method == "torch":
        return lambda: torch.mm(tensor, next(copies), out=result)
    if method == "numpy":
        return lambda: np.matmul(x, next(copies), out=out)
    return lambda: next(copies).multiply(x, out)


def _uniform(rows: int, reach: float, columns: int | None = None) -> Float32:
    return np.random.default_rng(rows).uniform(-reach, reach, (rows, columns or rows)).astype(np.float32)


def activation_times(setting: Setting) -> pd.DataFrame:
    """Time the activations by all methods alternately; see `SharpSpeeds.activations`."""
    x = stream(1, 0, "sharp activations").standard_normal(SEQUENCE).astype(np.float32)
    out = np.empty_like(x)

    def both(method: Activation) -> None:
        activate("tanh", x, method, out)
        activate("sigmoid", x, method, out)

    return _seconds({method: harness.Case(partial(both, method)) for method in METHODS}, setting) / (2 * SEQUENCE)


def _seconds(cases: Mapping[Any, harness.Case], setting: Setting) -> pd.DataFrame:
    return pd.DataFrame(harness.by_round(harness.rounds(cases, setting.rounds, least_s=0.05)))


Case = tuple[DecoderSettings, AttentionalModel, int]
"""A decoder's settings, its model, and how many members its ensemble has, of which each packs weights of its own."""


def _timed(cases: Mapping[str, Case], setting: Setting) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Time the translations of all decoders alternately, each after an untimed one.

    Returns the frames `sentences`, `sources` and `counts` of `SharpSpeeds`.
    """
    timed = {decoder: harness.Case(_translator(*case, setting), warm=True) for decoder, case in cases.items()}
    frame = harness.rounds(timed, setting.rounds, least_s=0.1)
    sentences, sources = (pd.DataFrame(harness.by_round(frame, column=column)) for column in ("seconds", "source_s"))
    shares, counts = frame.groupby("case")["distinct_share"].mean(), {}
    sizes = {"src_len": setting.src_len, "tgt_len": setting.tgt_len, "words": setting.candidates}
    for decoder, (settings, model, members) in cases.items():
        share = float(shares[decoder])
        counted = operations_per_word(model.architecture, settings, **sizes, members=members, distinct_share=share)
        counts[decoder] = {"settings": settings, "members": members, "distinct_share": share, **counted}
    return sentences, sources, pd.DataFrame(counts.values(), index=list(counts))


def _translator(
    settings: DecoderSettings, model: AttentionalModel, members: int, setting: Setting
) -> Callable[[], dict[str, float]]:
    """Return a function that translates two sentences alternately, and returns the seconds of the source side.

    A timed run finds its weights in the cache as the run before left them, but other embeddings than those of its sentence.
    """
    translator, candidates = SharpTranslator([model] * members, settings), random_candidates(model, setting.candidates)
    sentences = cycle([random_words(model, setting.src_len, seed) for seed in (1, 2)])

    def translate() -> dict[str, float]:
        words, begin_s = next(sentences), time.perf_counter()
        states = translator.encode(words)
        source_s = time.perf_counter() - begin_s
        translation = translator.decode(states, candidates=candidates, forced_len=setting.tgt_len)
        return {"source_s": source_s, "distinct_share": translation.distinct_share}

    return translate
