"""Benchmark cases of the sharp decoder: activations (SHARP-08), packed products (SHARP-18), and the paper's ladder (SHARP-11).

Every variant of a product has separate weights on huge pages: a pass over weights on small pages takes longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simnmt.kernels.activations import ERROR_BOUNDS, Activation, Function, activate
from simnmt.kernels.arrays import huge_pages
from simnmt.kernels.beam_search import SharpTranslation
from simnmt.kernels.cases import Case, Comparison, Number, Run, Work, last_cache_bytes, target_at
from simnmt.kernels.native_library import NONE, level_name
from simnmt.kernels.packed_products import PackedFloat32, PackedInt16
from simnmt.kernels.sharp.decoder import SharpDecoder
from simnmt.kernels.sharp.model import SharpWeights, candidate_positions
from simnmt.kernels.sharp.model_shapes import DecoderShape, RandomModels, operations, random_sentence
from simnmt.kernels.sharp.reference import ReferenceMember, plain, reference_forced
from simnmt.profile.decoder_settings import IDENTITIES, RUNGS, DecoderSettings, ladder, techniques

Float32 = NDArray[np.float32]

INT16, PACKED = "int16", "packed float32"
LIBRARY_VARIANTS = (
    "torch, weights [out, in]",
    "torch, weights [in, out]",
    "numpy, weights [out, in]",
    "numpy, weights [in, out]",
)
"""Library calls, by the order of the weights in memory."""
INPUT_LIMIT = 1.0
"""Largest magnitude of a recurrent state (SHARP-05)."""


@dataclass(frozen=True, slots=True)
class ProductVariants:
    """Square weights, and copies of them in the layout of each variant, for any number of rows.

    If cold, each variant cycles through copies that fill twice the last-level cache, so that none is still there when its turn
    comes again.
    """

    weight: Float32
    copies: Mapping[str, Sequence[Any]]
    """By variant: packed weights, or tensors and arrays [in, out]."""

    @classmethod
    def of(cls, size: int, cold: bool) -> ProductVariants:
        """Draw weights of the size of trained ones."""
        weight = random_matrix(size, size, 0.1)
        count = -(-2 * last_cache_bytes() // (2 * weight.size)) if cold else 1
        halved = range(-(-count // 2))
        first = PackedInt16.of(weight, INPUT_LIMIT)
        others = (PackedInt16.of(weight, INPUT_LIMIT, scales=first.scales) for _ in range(count - 1))
        copies: dict[str, Sequence[Any]] = {INT16: [first, *others], PACKED: [PackedFloat32.of(weight) for _ in halved]}
        for name in LIBRARY_VARIANTS:
            arrays = [_transposed_copy(weight, name.endswith("[in, out]")) for _ in halved]
            copies[name] = [torch.from_numpy(array) for array in arrays] if name.startswith("torch") else arrays
        return cls(weight, copies)

    def runs(self, x: Float32) -> dict[str, Run]:
        """Return the calls by variant; each takes the next of its copies and writes to an allocated output."""
        out, tensor = np.empty((len(x), len(self.weight)), np.float32), torch.from_numpy(x)
        result = torch.from_numpy(out)

        def call(name: str) -> Run:
            copies = cycle(self.copies[name])
            if name.startswith("torch"):
                return lambda: torch.mm(tensor, next(copies), out=result)
            if name.startswith("numpy"):
                return lambda: np.matmul(x, next(copies), out=out)
            return lambda: next(copies).multiply(x, out)

        return {name: call(name) for name in self.copies}


def random_matrix(rows: int, columns: int, reach: float = 1.0) -> Float32:
    """Draw a matrix uniform in [-reach, reach]."""
    return np.random.default_rng(rows).uniform(-reach, reach, (rows, columns)).astype(np.float32)


def _transposed_copy(weight: Float32, turned: bool) -> Float32:
    """Copy the weights as [in, out], with their columns side by side in memory (their rows if `turned`)."""
    kept = weight.T if turned else weight
    copy: NDArray[Any] = huge_pages(weight.size, np.float32).reshape(kept.shape)
    copy[:] = kept
    return copy if turned else copy.T


PRODUCT_SIZE = 1024
LIBRARY, LINEAR = "best float32 library call", "torch linear"


def int16_cases(threads: int, size: int = PRODUCT_SIZE) -> Iterator[Case]:
    """Yield products of 1 to 8 rows, hot and cold; cold products of 2 rows and more have a target."""
    for cold in (False, True):
        variants = ProductVariants.of(size, cold)
        packed: PackedInt16 = variants.copies[INT16][0]
        for rows in range(1, 9):
            x = random_matrix(rows, size)
            target = target_at(level_name(), avx512=2.5, avx2=2.0) if cold and rows > 1 else None
            yield _product_case(INT16, variants, x, cold, float(packed.error_bound(x).max()), target, {PACKED: (PACKED,)})


def float32_cases(threads: int, size: int = PRODUCT_SIZE) -> Iterator[Case]:
    """Yield products of few rows, hot and cold, by the packed kernel, which is a baseline of int16."""
    for cold in (False, True):
        variants = ProductVariants.of(size, cold)
        for rows in (1, 6):
            x = random_matrix(rows, size)
            bound = size * 2.0**-24 * float((np.abs(x) @ np.abs(variants.weight).T).max())
            yield _product_case(PACKED, variants, x, cold, bound, None, {LINEAR: LIBRARY_VARIANTS[:1]})


def _product_case(
    ours: str,
    variants: ProductVariants,
    x: Float32,
    cold: bool,
    bound: float,
    target: float | None,
    others: Mapping[str, tuple[str, ...]],
) -> Case:
    """Compare a kernel with the best library call, which has the target, and with further baselines, by their runs."""
    rows, size = x.shape
    product = variants.copies[ours][0].multiply(x)
    error = float(np.abs(product - x.astype(np.float64) @ variants.weight.astype(np.float64).T).max())
    work = product_work(rows, size, size, "int16" if ours == INT16 else "float32")
    against = partial(Comparison, ours, work=work, error=error, error_bound=bound)
    comparisons = [against(LIBRARY, baseline_runs=LIBRARY_VARIANTS, target=target)]
    comparisons += [against(baseline, baseline_runs=runs) for baseline, runs in others.items()]
    runs = {name: run for name, run in variants.runs(x).items() if ours == INT16 or name != INT16}
    text = f"{rows} row{'s' if rows > 1 else ''}, {size} x {size}"
    return Case(text, "cold" if cold else "hot", runs, tuple(comparisons))


def product_work(rows: int, outputs: int, inner: int, number: Number) -> Work:
    """Return the work of reading weights and inputs and writing outputs."""
    weights = outputs * inner * (4 if number == "float32" else 2)
    return Work(weights + 4 * rows * (outputs + inner), rows * outputs * inner, number)


ACTIVATION_COUNT = 6 * 3072
"""The gates of a beam of 6, width 1024."""
MATH_LIBRARY, TORCH = "the C library", "torch"


def activation_cases(function: Function, threads: int, count: int = ACTIVATION_COUNT) -> Iterator[Case]:
    """Yield one case in which tables and polynomial alternate with both baselines."""
    x = np.random.default_rng(1).normal(0.0, 3.0, count).astype(np.float32)
    out, tensor, result = np.empty_like(x), torch.from_numpy(x), torch.empty(count)
    by_torch = torch.tanh if function == "tanh" else torch.sigmoid
    exact = by_torch(tensor.double()).numpy()
    methods: dict[str, Activation] = {"table": "table", "linear table": "linear_table", "polynomial": "polynomial"}
    runs: dict[str, Run] = {name: partial(activate, function, x, method, out) for name, method in methods.items()}
    runs |= {MATH_LIBRARY: partial(activate, function, x, "library", out), TORCH: partial(by_torch, tensor, out=result)}
    comparisons = list[Comparison]()
    for name, method in methods.items():
        error, bound = float(np.abs(activate(function, x, method) - exact).max()), ERROR_BOUNDS[function, method]
        against = partial(Comparison, name, work=Work(8 * count), what=name, error=error, error_bound=bound)
        comparisons += map(against, (MATH_LIBRARY, TORCH, *(["polynomial"] if name == "table" else [])))
    yield Case(f"{count:,} values", "hot", runs, tuple(comparisons))


NAMES = {
    "baseline": "packed float32",
    "int16": "+ int16",
    "embeddings": "+ embeddings",
    "attention": "+ attention",
    "activations": "+ polynomial activations",
    "merge": "+ merge",
}
"""Names of the rungs."""
BASELINE, LAST, TABLE = NAMES[RUNGS[0]], NAMES[RUNGS[-1]], "+ table activations"
BEFORE = "the rung before"
TOTAL_TARGET, RUNG_TARGET = 4.4, 0.98
LOG_PROB_BOUND = 0.05
"""Error of a word's log-probability along a given translation, against float64. Weights and values in 16 bits change it by
0.01, a table by 0.03, because logits are as wide as they are here. Identities change it only by rounding (SHARP-10)."""
OTHER_WORDS = 1.0
"""Error of a rung that should find the same words as the rung before and does not."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """Sizes of the paper (SHARP-16), and those that it does not state."""

    width: int = 1024
    """Width of states, source states and attention keys."""
    embedding: int = 512
    """Not stated in the paper."""
    vocab: int = 8_000
    """Embeddings kept; 80,000 would take a gigabyte, of which a step reads only one row per hypothesis."""
    beam: int = 6
    src_len: int = 25
    tgt_len: int = 28
    candidates: int = 500

    @property
    def shape(self) -> DecoderShape:
        """The decoder's sizes."""
        return DecoderShape("attgru", self.width, self.embedding, self.width, self.width, (), self.candidates)

    def rungs(self) -> dict[str, DecoderSettings]:
        """Return settings by name, in order; the table and the polynomial belong to the same rung."""
        base = DecoderSettings(beam=self.beam, gemm="float32", candidates=self.candidates)
        by_key = ladder(base, techniques("precomputed", "polynomial"))
        table = ladder(base, techniques("precomputed", "table"))["activations"]
        return {NAMES[key]: settings for key, settings in by_key.items()} | {TABLE: table}

    def work(self, settings: DecoderSettings, distinct: float) -> Work:
        """Return the work of reading every matrix once per step and multiplying it with every hypothesis.

        `distinct`: share of the hypotheses' states that differ.
        """
        counts = operations(self.shape, settings, self.src_len, distinct_share=distinct)
        whole = operations(self.shape, settings.model_copy(update={"merge": False}), self.src_len)
        matrices = whole.recurrent + whole.embedding + whole.context + whole.output
        number: Number = "int16" if settings.gemm == "int16" else "float32"
        size_bytes = (2 if number == "int16" else 4) * matrices + 4 * whole.attention
        return Work(round(size_bytes), round(self.beam * counts.step), number, self.tgt_len)

    def drawn(self) -> tuple[SharpWeights, NDArray[np.float32], NDArray[np.int64]]:
        """Draw a model, and the source states and candidates of a sentence."""
        weights = RandomModels().of(self.shape, self.vocab)
        return weights, *random_sentence(weights, self.src_len, self.candidates, 1.0, self.vocab)


def ladder_cases(threads: int, ladder: Ladder | None = None) -> Iterator[Case]:
    """Yield one case of all rungs; none without compiled kernels, because it would measure only numpy."""
    if level_name() != NONE:
        yield _ladder_case(ladder or Ladder())


def _ladder_case(ladder: Ladder) -> Case:
    weights, states, candidates = ladder.drawn()
    settings = ladder.rungs()
    decoders = {
        name: SharpDecoder(weights, rung, max_len=ladder.tgt_len, most_src_len=ladder.src_len)
        for name, rung in settings.items()
    }
    runs = {name: partial(decoder.decode, states, candidates, ladder.tgt_len) for name, decoder in decoders.items()}
    translations = {name: run() for name, run in runs.items()}
    words = np.array(translations[BASELINE].tokens)
    places = candidate_positions(words, candidates, weights.vocab)
    oracle = ReferenceMember(weights, plain(np.float64))
    exact = reference_forced(oracle, states, weights.tokens, words, places, candidates).log_probs
    errors = {
        name: float(np.abs(decoder.forced(states, words, candidates).log_probs - exact).max())
        for name, decoder in decoders.items()
    } | dict.fromkeys(other_words(translations), OTHER_WORDS)

    def against(ours: str, baseline: str, baseline_run: str, target: float | None, what: str | None = None) -> Comparison:
        share = translations[ours].distinct_share
        return Comparison(
            ours,
            baseline,
            ladder.work(settings[ours], share),
            (baseline_run,),
            target,
            what or ours,
            f"{100 * share:.0f} % of states distinct",
            errors[ours],
            LOG_PROB_BOUND,
        )

    polynomial, before = NAMES["activations"], NAMES["attention"]
    rung, total = (target_at(level_name(), avx512=target, avx2=target) for target in (RUNG_TARGET, TOTAL_TARGET))
    comparisons = [against(upper, BEFORE, lower, rung) for lower, upper in pairwise(NAMES.values())]
    comparisons += [against(TABLE, BEFORE, before, rung), against(TABLE, polynomial, polynomial, None)]
    comparisons += [against(LAST, BASELINE, BASELINE, total, "the whole ladder")]
    lengths = f"{ladder.src_len} to {ladder.tgt_len} words"
    text = f"GRU {ladder.width}, beam {ladder.beam}, {lengths}, {ladder.candidates} candidates"
    return Case(text, "hot", runs, tuple(comparisons))


def other_words(translations: Mapping[str, SharpTranslation]) -> list[str]:
    """Return the rungs that are identities but whose translation differs from the translation of the rung before."""
    words = {key: translations[name].tokens for key, name in NAMES.items()}
    return [NAMES[upper] for lower, upper in pairwise(RUNGS) if upper in IDENTITIES and words[upper] != words[lower]]
