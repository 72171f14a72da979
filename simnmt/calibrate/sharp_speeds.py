"""Time the sharp decoder on this box: products and activations, its ladder, stacks and ensembles (SHARP-05, 08, 11, 13 to 18).

One thread; random weights, which change times only by the number of distinct states in a beam; sentences of forced length. All
compared runs alternate. The results are frames: seconds by round (rows) and timed case (columns), and the operations that a
decoder was counted to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
import torch

from simnmt.base.random_streams import stream
from simnmt.calibrate import harness
from simnmt.calibrate.sharp_models import operations_per_word, random_candidates, random_models, random_words
from simnmt.kernels.native_library import huge_pages, processor
from simnmt.kernels.packed_products import PackedMatrix
from simnmt.kernels.registry import last_cache_bytes
from simnmt.kernels.sharp_decoder import Activation, activate
from simnmt.kernels.sharp_model import Float32
from simnmt.nmt.attentional_model import AttentionalModel
from simnmt.nmt.devices import library_threads
from simnmt.nmt.sharp_translator import SharpTranslator
from simnmt.profile.decoder_settings import DecoderSettings, ladder

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
        """Return the median of `ratios`."""
        return float(np.median(self.ratios(decoder, other, search=search)))


def rung_settings(beam: int, candidates: int | None, activations: Activation) -> dict[str, DecoderSettings]:
    """Return the settings of our decoder by rung of the ladder (SHARP-11)."""
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
