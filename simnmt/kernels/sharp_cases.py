"""Benchmark cases of the sharp decoder: activations (SHARP-08), packed products (SHARP-18), and the paper's ladder (SHARP-11).

Every variant of a product has weights of its own on huge pages: a pass over weights on small pages would take longer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from simnmt.kernels.activations import ERROR_BOUNDS, Activation, Function, activate
from simnmt.kernels.arrays import huge_pages
from simnmt.kernels.measurement import Case, Comparison, Contest, Number, Run, Work, interleaved, last_cache_bytes
from simnmt.kernels.native_library import NONE, level_name
from simnmt.kernels.packed_products import PackedFloat32, PackedInt16
from simnmt.kernels.sharp import SharpDecoder, SharpTranslation, SharpWeights
from simnmt.kernels.sharp.model import candidate_positions
from simnmt.kernels.sharp.model_shapes import DecoderShape, RandomModels, operations, random_sentence
from simnmt.kernels.sharp.reference import ReferenceMember, plain, reference_forced
from simnmt.profile.decoder_settings import IDENTITIES, RUNGS, DecoderSettings, ladder, techniques

Float32 = NDArray[np.float32]
T = TypeVar("T")

INT16, PACKED = "int16", "packed float32"
LIBRARY_VARIANTS = (
    "torch, weights [out, in]",
    "torch, weights [in, out]",
    "numpy, weights [out, in]",
    "numpy, weights [in, out]",
)
"""By how the weights lie in memory."""
INPUT_LIMIT = 1.0
"""Of a recurrent state (SHARP-05)."""


@dataclass(frozen=True, slots=True)
class ProductVariants:
    """Square weights and their copies, laid out for each way; good for any number of rows.

    Where cold, each way takes as many copies in turn as fill twice the last-level cache, so that none is still there when its
    turn comes again.
    """

    weight: Float32
    int16: tuple[PackedInt16, ...]
    float32: tuple[PackedFloat32, ...]
    library: tuple[tuple[Float32, ...], ...]
    """In the order of `LIBRARY_VARIANTS`, as [in, out] each."""

    @classmethod
    def of(cls, size: int, cold: bool) -> ProductVariants:
        """Weights a fraction of 1, as trained ones are."""
        weight = random_matrix(size, size, 0.1)
        copies = -(-2 * last_cache_bytes() // (2 * weight.size)) if cold else 1
        halved = -(-copies // 2)
        first = PackedInt16.of(weight, INPUT_LIMIT)
        others = (PackedInt16.of(weight, INPUT_LIMIT, scales=first.scales) for _ in range(copies - 1))
        return cls(
            weight,
            (first, *others),
            tuple(PackedFloat32.of(weight) for _ in range(halved)),
            tuple(tuple(_transposed_copy(weight, turned) for _ in range(halved)) for turned in (False, True) * 2),
        )

    def runs(self, x: Float32) -> dict[str, Run]:
        """Calls by name, each with the next of its copies and an output that stands ready."""
        shape = len(x), len(self.weight)
        out, tensor, result = np.empty(shape, np.float32), torch.from_numpy(x), torch.empty(shape)

        def packed(weights: Callable[[], PackedInt16 | PackedFloat32]) -> object:
            return weights().multiply(x, out)

        def by_torch(weights: Callable[[], torch.Tensor]) -> object:
            return torch.mm(tensor, weights(), out=result)

        def by_numpy(weights: Callable[[], Float32]) -> object:
            return np.matmul(x, weights(), out=out)

        tensors = [[torch.from_numpy(weight) for weight in copies] for copies in self.library[:2]]
        calls: Iterator[Run] = itertools.chain(
            (partial(by_torch, _cycle(copies)) for copies in tensors),
            (partial(by_numpy, _cycle(copies)) for copies in self.library[2:]),
        )
        ours = {INT16: partial(packed, _cycle(self.int16)), PACKED: partial(packed, _cycle(self.float32))}
        return ours | dict(zip(LIBRARY_VARIANTS, calls, strict=True))


def random_matrix(rows: int, columns: int, reach: float = 1.0) -> Float32:
    """Uniform in [-reach, reach]."""
    return np.random.default_rng(rows).uniform(-reach, reach, (rows, columns)).astype(np.float32)


def _transposed_copy(weight: Float32, turned: bool) -> Float32:
    """A copy of the weights as [in, out], their columns (or, where turned, rows) side by side."""
    kept = weight.T if turned else weight
    copy: NDArray[Any] = huge_pages(weight.size, np.float32).reshape(kept.shape)
    copy[:] = kept
    return copy if turned else copy.T


def _cycle(items: Sequence[T]) -> Callable[[], T]:
    return itertools.cycle(items).__next__


PRODUCT_SIZE = 1024
PRODUCT_ROWS = tuple(range(1, 9))
PRODUCT_TARGET, PRODUCT_TARGET_ROWS = 2.5, range(2, 9)
LIBRARY, LINEAR = "best float32 library call", "torch linear"


def int16_cases(threads: int, size: int = PRODUCT_SIZE) -> Iterator[Case]:
    """Rows 1 to 8, hot and cold."""
    for cold in (False, True):
        ways = cache(partial(ProductVariants.of, size, cold))
        for rows in PRODUCT_ROWS:
            yield _product_case(INT16, rows, size, cold, ways, PRODUCT_TARGET if cold and rows in PRODUCT_TARGET_ROWS else None)


def float32_cases(threads: int, size: int = PRODUCT_SIZE) -> Iterator[Case]:
    """Few rows, hot and cold: the packed kernel that int16 is held against must itself be a good one."""
    for cold in (False, True):
        ways = cache(partial(ProductVariants.of, size, cold))
        for rows in (1, 6):
            yield _product_case(PACKED, rows, size, cold, ways, None)


def product_work(rows: int, outputs: int, inner: int, number: Number) -> Work:
    """Weights and inputs read, outputs written."""
    weights = outputs * inner * (4 if number == "float32" else 2)
    return Work(weights + 4 * rows * (outputs + inner), rows * outputs * inner, number)


def product_rates(rounds: int) -> tuple[float, float] | None:
    """Multiply-adds per second of our float32 and int16 products at their best, in the cache; None without native kernels."""
    weight, x, out = random_matrix(256, 512, 0.1), random_matrix(24, 512), np.empty((24, 256), np.float32)
    float32, int16 = PackedFloat32.of(weight), PackedInt16.of(weight, INPUT_LIMIT)
    if int16.level is None:
        return None
    runs: dict[str, Run] = {PACKED: lambda: float32.multiply(x, out), INT16: lambda: int16.multiply(x, out)}
    times = interleaved(runs, rounds, least_s=0.02)
    return 24 * weight.size / times.least_s(PACKED), 24 * weight.size / times.least_s(INT16)


def _product_case(
    ours: str, rows: int, size: int, cold: bool, ways: Callable[[], ProductVariants], target: float | None
) -> Case:
    text = f"{rows} row{'s' if rows > 1 else ''}, {size} x {size}"
    return Case(text, "cold" if cold else "hot", level_name(), lambda: _product_contest(ours, rows, ways(), target))


def _product_contest(ours: str, rows: int, ways: ProductVariants, target: float | None) -> Contest:
    weight, x = ways.weight, random_matrix(rows, len(ways.weight))
    exact = x.astype(np.float64) @ weight.astype(np.float64).T
    number: Number
    if ours == INT16:
        number, product, bound = "int16", ways.int16[0].multiply(x), float(ways.int16[0].error_bound(x).max())
    else:
        number, product = "float32", ways.float32[0].multiply(x)
        bound = len(weight) * 2.0**-24 * float((np.abs(x) @ np.abs(weight).T).max())
    error, work = float(np.abs(product - exact).max()), product_work(rows, len(weight), len(weight), number)
    runs = ways.runs(x)
    comparisons = [Comparison(ours, LIBRARY, LIBRARY_VARIANTS, work, target, error=error, error_bound=bound)]
    if ours == PACKED:
        del runs[INT16]
        comparisons.append(Comparison(ours, LINEAR, (LIBRARY_VARIANTS[0],), work, error=error, error_bound=bound))
    else:
        comparisons.append(Comparison(ours, PACKED, (PACKED,), work, error=error, error_bound=bound))
    return Contest(runs, tuple(comparisons))


ACTIVATION_COUNT = 6 * 3072
"""The gates of a beam of 6, width 1024."""
MATH_LIBRARY, TORCH = "the C library", "torch"


def activation_cases(function: Function, threads: int, count: int = ACTIVATION_COUNT) -> Iterator[Case]:
    """Table and polynomial take turns with both baselines in one contest."""
    yield Case(f"{count:,} values", "hot", level_name(), lambda: _activation_contest(function, count))


def _activation_contest(function: Function, count: int) -> Contest:
    x = np.random.default_rng(1).normal(0.0, 3.0, count).astype(np.float32)
    out, tensor, result = np.empty_like(x), torch.from_numpy(x), torch.empty(count)
    by_torch = torch.tanh if function == "tanh" else torch.sigmoid
    exact = by_torch(tensor.double()).numpy()

    def of(method: Activation) -> Run:
        return lambda: activate(function, x, method, out)

    ways: dict[str, Activation] = {"table": "table", "linear table": "linear_table", "polynomial": "polynomial"}
    runs: dict[str, Run] = {name: of(method) for name, method in ways.items()}
    runs |= {MATH_LIBRARY: of("library"), TORCH: lambda: by_torch(tensor, out=result)}
    comparisons = []
    for name, method in ways.items():
        error = float(np.abs(activate(function, x, method) - exact).max())
        for baseline in (MATH_LIBRARY, TORCH, *(["polynomial"] if name == "table" else [])):
            bound = ERROR_BOUNDS[function, method]
            comparisons.append(
                Comparison(name, baseline, (baseline,), Work(8 * count), what=name, error=error, error_bound=bound)
            )
    return Contest(runs, tuple(comparisons))


NAMES = {
    "baseline": "packed float32",
    "int16": "+ int16",
    "embeddings": "+ embeddings",
    "attention": "+ attention",
    "activations": "+ polynomial activations",
    "merge": "+ merge",
}
"""Of the rungs."""
BASELINE, LAST, TABLE = NAMES[RUNGS[0]], NAMES[RUNGS[-1]], "+ table activations"
BEFORE = "the rung before"
TOTAL_TARGET, RUNG_TARGET = 4.4, 0.98
LOG_PROB_BOUND = 0.05
"""Of a word's log-probability along a given translation, against float64: weights and values in 16 bits move it by 0.01, a
table by 0.03, logits being as wide as they are here. The identities move it by rounding alone (SHARP-10)."""
OTHER_WORDS = 1.0
"""The error of a rung that should find the same words as the one before, and does not."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """Sizes of the paper (SHARP-16); what it leaves open is here."""

    width: int = 1024
    """Of states, source states and attention keys."""
    embedding: int = 512
    """Not stated."""
    vocab: int = 8_000
    """Of the embeddings kept; 80,000 would take a gigabyte, and a step reads but a beam's rows of it."""
    beam: int = 6
    src_len: int = 25
    tgt_len: int = 28
    candidates: int = 500

    @property
    def shape(self) -> DecoderShape:
        """Of the decoder."""
        return DecoderShape("attgru", self.width, self.embedding, self.width, self.width, (), self.candidates)

    def rungs(self) -> dict[str, DecoderSettings]:
        """Return settings by name, in order; the table and the polynomial belong to the same rung."""
        base = DecoderSettings(beam=self.beam, gemm="float32", candidates=self.candidates)
        ladder_settings = ladder(base, techniques("precomputed", "polynomial"))
        settings_by_name = {NAMES[key]: settings for key, settings in ladder_settings.items()}
        return settings_by_name | {TABLE: ladder(base, techniques("precomputed", "table"))["activations"]}

    def work(self, settings: DecoderSettings, distinct: float) -> Work:
        """Every matrix read once a step and multiplied with every hypothesis; `distinct`: share of their states that differ."""
        counts = operations(self.shape, settings, self.src_len, distinct_share=distinct)
        whole = operations(self.shape, settings.model_copy(update={"merge": False}), self.src_len)
        matrices = whole.recurrent + whole.embedding + whole.context + whole.output
        number: Number = "int16" if settings.gemm == "int16" else "float32"
        size_bytes = (2 if number == "int16" else 4) * matrices + 4 * whole.attention
        return Work(round(size_bytes), round(self.beam * counts.step), number, self.tgt_len)

    def drawn(self) -> tuple[SharpWeights, NDArray[np.float32], NDArray[np.int64]]:
        """A model, and a sentence of source states and candidates."""
        weights = RandomModels().of(self.shape, self.vocab)
        return weights, *random_sentence(weights, self.src_len, self.candidates, 1.0, self.vocab)


def ladder_cases(threads: int, ladder: Ladder | None = None) -> Iterator[Case]:
    """One contest of all rungs; none without compiled kernels, where only numpy would be measured."""
    ladder = ladder or Ladder()
    if level_name() == NONE:
        return
    text = f"GRU {ladder.width}, beam {ladder.beam}, {ladder.src_len} to {ladder.tgt_len} words, {ladder.candidates} candidates"
    yield Case(text, "hot", level_name(), lambda: _ladder_contest(ladder))


def _ladder_contest(ladder: Ladder) -> Contest:
    weights, states, candidates = ladder.drawn()
    settings = ladder.rungs()
    decoders = {
        name: SharpDecoder(weights, rung, max_len=ladder.tgt_len, most_src_len=ladder.src_len)
        for name, rung in settings.items()
    }

    def decoded(name: str) -> Run:
        return lambda: decoders[name].decode(states, candidates, ladder.tgt_len)

    translations = {name: decoder.decode(states, candidates, ladder.tgt_len) for name, decoder in decoders.items()}
    words = np.array(translations[BASELINE].tokens)
    places = candidate_positions(words, candidates, weights.vocab)
    oracle = ReferenceMember(weights, plain(np.float64))
    exact = reference_forced(oracle, states, weights.tokens, words, places, candidates).log_probs
    errors = {
        name: float(np.abs(decoder.forced(states, words, candidates).log_probs - exact).max())
        for name, decoder in decoders.items()
    } | dict.fromkeys(other_words(translations), OTHER_WORDS)

    def against(ours: str, baseline: str, compared_run: str, target: float | None, what: str | None = None) -> Comparison:
        share = translations[ours].distinct_share
        return Comparison(
            ours,
            baseline,
            (compared_run,),
            ladder.work(settings[ours], share),
            target,
            what or ours,
            f"{100 * share:.0f} % of states distinct",
            errors[ours],
            LOG_PROB_BOUND,
        )

    polynomial, before = NAMES["activations"], NAMES["attention"]
    comparisons = [against(upper, BEFORE, lower, RUNG_TARGET) for lower, upper in pairwise(NAMES.values())]
    comparisons += [against(TABLE, BEFORE, before, RUNG_TARGET), against(TABLE, polynomial, polynomial, None)]
    comparisons += [against(LAST, BASELINE, BASELINE, TOTAL_TARGET, "the whole ladder")]
    return Contest({name: decoded(name) for name in settings}, tuple(comparisons))


def other_words(translations: Mapping[str, SharpTranslation]) -> list[str]:
    """Return the rungs that are identities but whose translation differs from that of the rung before."""
    words = {key: translations[name].tokens for key, name in NAMES.items()}
    return [NAMES[upper] for lower, upper in pairwise(RUNGS) if upper in IDENTITIES and words[upper] != words[lower]]
