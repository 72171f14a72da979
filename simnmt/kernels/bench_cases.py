"""Benchmark cases of fused search (FNI-15), of steps with active columns alone (FVP-15), and of unpacking (STI-06)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simnmt.kernels.arrays import huge_pages
from simnmt.kernels.columns import SubMatrix, gathered_products
from simnmt.kernels.measurement import Case, Comparison, Contest, Memory, Run, Work, last_cache_bytes
from simnmt.kernels.native_library import NONE, at_once, level_name
from simnmt.kernels.output_layer import fused_argmax, fused_best
from simnmt.kernels.output_reference import Best
from simnmt.kernels.projection_timing import (
    COLUMNS,
    KEPT,
    SCATTERED,
    Layer,
    Step,
    active_steps,
    clustered_layer,
    dense_steps,
    random_steps,
    search_width,
)
from simnmt.kernels.unpack import ALIGNED, PACKED_BITS, Place, unpack
from simnmt.profile.projection_cost import ProductMethod

VOCAB = 85_000
"""Of the paper (FNI-13)."""
IN_PLACE, ARGMAX_IN_PLACE = "torch in place", "torch add and argmax"
COPY = "copy of as many bytes"
LOG_PROB_BOUND = 1e-5
"""Of a log probability, absolute (FNI-05)."""
BATCHES = (1, 8, 32, 128)
BEAM, BEAM_BATCHES = 5, (1, 8, 32)
SIZES = (*((batch, 1) for batch in BATCHES), *((batch * BEAM, BEAM) for batch in BEAM_BATCHES))
"""Rows and how many of the best."""
HALF_SIZES = ((32, 1), (8 * BEAM, BEAM))
BEYOND_CACHE_ROWS = 512
"""174 MB of products, several times the last-level cache of most boxes."""
ROWS_AT_ONCE = 8
"""Checked in float64."""
BANDWIDTH_TARGET = 0.6
PORTABLE_TARGET = 2.5
BEST_TARGET = 5.0
ARGMAX_TARGET = 7.0


def best_cases(threads: int, vocab: int = VOCAB) -> Iterator[Case]:
    """Every batch at beam 1 and at beam 5, by the level in use and the portable one; halves; more than a cache holds."""
    for level, target in _levels(BEST_TARGET):
        for rows, count in SIZES:
            yield _best_case(level, rows, count, threads, vocab, target=target)
    for dtype in (torch.float16, torch.bfloat16):
        for rows, count in HALF_SIZES:
            yield _best_case(level_name(), rows, count, threads, vocab, dtype=dtype)
    yield _best_case(level_name(), BEYOND_CACHE_ROWS, 1, threads, vocab, copy_alone=True)


def argmax_cases(threads: int, vocab: int = VOCAB) -> Iterator[Case]:
    """Every batch at beam 1, by the level in use and by the portable one."""
    for level, target in _levels(ARGMAX_TARGET):
        for batch in BATCHES:
            build = partial(_argmax, level, batch, vocab, threads, target)
            yield Case(_text(batch, 1, vocab, torch.float32), _memory(output_work(batch, vocab, 4)), level, build)


def output_work(rows: int, vocab: int, itemsize: int) -> Work:
    """Every product and every bias read once: 2 V elements a hypothesis if no cache held the bias (FNI-02)."""
    return Work(rows * vocab * itemsize + 4 * vocab)


def _levels(target: float) -> Iterator[tuple[str, float]]:
    """The level in use with this target, then the portable one with its own, where that is another."""
    level = level_name()
    yield level, target
    if level not in (NONE, "portable"):
        yield "portable", PORTABLE_TARGET


def _memory(work: Work) -> Memory:
    return "hot" if work.bytes_moved <= last_cache_bytes() else "beyond"


def _text(rows: int, count: int, vocab: int, dtype: torch.dtype) -> str:
    return f"{rows} row{'s' if rows > 1 else ''}, best {count}, V {vocab:,}, {str(dtype).removeprefix('torch.')}"


def _best_case(
    level: str,
    rows: int,
    count: int,
    threads: int,
    vocab: int,
    *,
    dtype: torch.dtype = torch.float32,
    target: float | None = None,
    copy_alone: bool = False,
) -> Case:
    """`target`: over torch in place, which is left out for `copy_alone`, of which bandwidth is asked."""
    work = output_work(rows, vocab, dtype.itemsize)

    def build() -> Contest:
        products, bias = _drawn(rows, vocab, dtype)
        out = Best(torch.empty(rows, count, dtype=torch.int64), torch.empty(rows, count), torch.empty(rows))

        def ours() -> None:
            fused_best(products, bias, count, threads=threads, out=out, level=level)

        ours()
        error = best_error(out, products, bias)

        def against(baseline: str, asked: float | None) -> Comparison:
            return Comparison("fused", baseline, (baseline,), work, asked, error=error, error_bound=LOG_PROB_BOUND)

        runs: dict[str, Run] = {"fused": ours, COPY: _copy_of(work.bytes_moved)}
        if copy_alone:
            return Contest(runs, (against(COPY, BANDWIDTH_TARGET),))
        overwritten = products.clone()
        runs[IN_PLACE] = in_place(overwritten, bias, count)
        return Contest(runs, (against(IN_PLACE, target), against(COPY, None)), {IN_PLACE: _restorer(overwritten, products)})

    return Case(_text(rows, count, vocab, dtype), _memory(work), level, build)


def _argmax(level: str, rows: int, vocab: int, threads: int, target: float) -> Contest:
    products, bias = _drawn(rows, vocab, torch.float32)
    overwritten, columns = products.clone(), torch.empty(rows, dtype=torch.int64)

    def ours() -> Tensor:
        return fused_argmax(products, bias, threads=threads, level=level)

    def add_and_argmax() -> object:
        return torch.argmax(overwritten.add_(bias), 1, out=columns)

    # In float32, as the sums that are compared: with rounding the best column in float64 may be another.
    logits = products + bias
    error = float((logits.max(1).values - logits.gather(1, ours()[:, None])[:, 0]).max())
    work = output_work(rows, vocab, 4)
    runs: dict[str, Run] = {"argmax": ours, IN_PLACE: in_place(overwritten, bias, 1), ARGMAX_IN_PLACE: add_and_argmax}
    targets = {IN_PLACE: target, ARGMAX_IN_PLACE: None}
    comparisons = tuple(Comparison("argmax", name, (name,), work, asked, error=error) for name, asked in targets.items())
    return Contest(runs, comparisons, dict.fromkeys(targets, _restorer(overwritten, products)))


def in_place(products: Tensor, bias: Tensor, count: int) -> Run:
    """Return bias, log-softmax and search by torch into preallocated outputs: torch's fastest three calls."""
    rows = products.shape[0]
    shape = (rows,) if count == 1 else (rows, count)
    outputs = torch.empty(shape, dtype=products.dtype), torch.empty(shape, dtype=torch.int64)
    bias = bias.to(products.dtype)

    def run() -> object:
        products.add_(bias)
        torch.log_softmax(products, 1, out=products)
        if count == 1:
            return torch.max(products, 1, out=outputs)
        return torch.topk(products, count, 1, out=outputs)

    return run


def best_error(best: Best, products: Tensor, bias: Tensor) -> float:
    """Largest error against float64 of a log probability, and of how good a column is beside the one that has its rank.

    Equal values may stand in either order; a column that is named twice counts as an error of 1.
    """
    error, count = 0.0, best.columns.shape[1]
    for begin in range(0, products.shape[0], ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        logits, columns = products[rows].double() + bias, best.columns[rows]
        wanted = logits.topk(count).values
        log_probs = wanted - logits.logsumexp(1, keepdim=True)
        error = max(
            error,
            float((best.log_probs[rows] - log_probs).abs().max()),
            float((logits.gather(1, columns) - wanted).abs().max()),
        )
        if any(len(set(row)) < count for row in columns.tolist()):
            error = max(error, 1.0)
    return error


def _drawn(rows: int, vocab: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Spread as the logits of a trained model are."""
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, vocab, generator=generator).mul_(3.0).to(dtype), torch.randn(vocab, generator=generator)


def _restorer(overwritten: Tensor, pristine: Tensor) -> Run:
    """Leaves the products in the cache, as the product before the search does."""
    return lambda: overwritten.copy_(pristine)


def _copy_of(size_bytes: int) -> Run:
    """Reads half of the bytes, writes the other half."""
    source = torch.zeros(size_bytes // 8)
    target = torch.ones_like(source)
    return lambda: target.copy_(source)


LARGE_VOCAB, WIDTH, CLUSTERS = 250_000, 1024, 2000
"""FVP-13: 1 GB of weights, of which no cache holds what is active either."""
GATHERED_ROWS = (1, 40)
"""One sentence; 20 of beam 2, as published."""
GATHERED_TARGETS = {0.06: 10.0, 0.12: 5.0}
"""By share of the vocabulary that is active, of one row alone."""
DENSE, OWN_KERNEL = "best torch product, same search", "all columns by the same kernel"
ROW_WISE = "row-wise"
STEPS: dict[str, tuple[ProductMethod, str]] = {
    ROW_WISE: ("row_wise", COLUMNS),
    "gathered": ("gather", COLUMNS),
    "kept copy": ("row_wise", KEPT),
    "row-wise, scattered": ("row_wise", SCATTERED),
}
"""Whole steps by what they are called: how the product is taken, and what becomes of it."""


def gathered_cases(threads: int, vocab: int = LARGE_VOCAB, width: int = WIDTH, clusters: int = CLUSTERS) -> Iterator[Case]:
    """One row and forty, both shares in one contest: the product with all columns takes most of the time."""
    layer = cache(partial(_random_layer, vocab, width, clusters))
    for rows in GATHERED_ROWS:
        text = f"{rows} row{'s' if rows > 1 else ''}, V {vocab:,}"
        yield Case(text, "beyond", level_name(), partial(_gathered_contest, layer, rows))


def _random_layer(vocab: int, width: int, clusters: int) -> Layer:
    """Random weights on huge pages: on small ones a pass over all of them takes longer, whoever makes it."""
    weight = torch.from_numpy(huge_pages(vocab * width, np.float32)).view(vocab, width)
    generator = torch.Generator().manual_seed(0)
    return clustered_layer(
        weight.normal_(0, width**-0.5, generator=generator), torch.randn(vocab, generator=generator), clusters
    )


def _gathered_contest(drawn: Callable[[], Layer], rows: int) -> Contest:
    layer = drawn()
    hidden = random_steps(layer, rows, min(GATHERED_TARGETS))[0].hidden
    # Of many rows torch.linear is torch.mm with a new 40 MB to write to: the same product, half a second a round.
    dense = {name: run for name, run in dense_steps(layer, hidden).items() if rows == 1 or name != "linear"}
    runs: dict[str, Run] = {**dense, OWN_KERNEL: _all_columns(layer, rows)}
    comparisons = []
    for share, target in GATHERED_TARGETS.items():
        steps = random_steps(layer, rows, share)
        first, percent = steps[0], f"{100 * share:.0f} % active"
        error, bound = _product_error(layer, first)
        work = _step_work(layer, first)
        kept, logits = SubMatrix.of(layer.weight, first.columns), torch.empty(rows, layer.vocab)
        for what, (method, kind) in STEPS.items():
            name = f"{percent}, {what}"
            runs[name] = active_steps(layer, steps, method, kept, logits)[kind]
            against = partial(Comparison, name, work=work, what=name, error=error, error_bound=bound)
            comparisons.append(against(DENSE, tuple(dense), target=target if what == ROW_WISE and rows == 1 else None))
            if what == ROW_WISE:
                comparisons.append(against(OWN_KERNEL, (OWN_KERNEL,)))
    return Contest(runs, tuple(comparisons))


def _all_columns(layer: Layer, rows: int) -> Run:
    every, out = torch.arange(layer.vocab, dtype=torch.int32), torch.empty(rows, layer.vocab)
    hidden = layer.centroids.points[torch.arange(rows) % len(layer.centroids)]

    def run() -> object:
        products = gathered_products(layer.weight, hidden, every, out=out)
        return fused_best(products, layer.bias, search_width(rows), threads=torch.get_num_threads())

    return run


def _product_error(layer: Layer, step: Step) -> tuple[float, float]:
    """Return the largest error of the products against float64, and the bound on it."""
    weight, hidden = layer.weight[step.columns].double(), step.hidden.double()
    products = gathered_products(layer.weight, step.hidden, step.columns).double()
    error = float((products - hidden @ weight.T).abs().max())
    return error, layer.width * 2.0**-24 * float((hidden.abs() @ weight.abs().T).max())


def _step_work(layer: Layer, step: Step) -> Work:
    """Centroids and active columns read once, their products written and read again."""
    columns, rows = len(step.columns) + len(layer.centroids), step.rows
    return Work(4 * columns * (layer.width + 2 * rows), rows * columns * layer.width)


WORD = {2: (1, 4), 3: (3, 4), 4: (1, 2), 5: (5, 2), 6: (3, 2)}
"""By bits: bytes after which words of whole codes begin anew, and codes a word; a table has an entry for each word."""
OURS, BY_CODES, BY_WORDS = "unpack", "torch, a code at a time", "torch, a word of codes at a time"


@dataclass(frozen=True, slots=True)
class RandomShard:
    """Random codes, centroids and outliers of one width."""

    bits: int
    weights: int
    codes: NDArray[np.uint8]
    centroids: NDArray[np.float32]
    outlier_at: NDArray[np.int32]
    outlier_values: NDArray[np.float32]

    @staticmethod
    def of(bits: int, weights: int, outlier_share: float = 0.0015, seed: int = 1) -> RandomShard:
        """`weights`: a multiple of 8. The share of outliers is the published one."""
        draw = np.random.default_rng(seed)
        outliers = round(outlier_share * weights)
        return RandomShard(
            bits,
            weights,
            draw.integers(0, 256, weights * bits // ALIGNED, np.uint8),
            np.sort(draw.normal(0.0, 0.04, 1 << bits)).astype(np.float32),
            np.sort(draw.choice(weights, outliers, replace=False)).astype(np.int32),
            draw.normal(0.0, 0.2, outliers).astype(np.float32),
        )

    def ours(self, out: NDArray[np.float32], start: int = 0) -> Run:
        """Return a run that unpacks six segments with the kernel, one after another from `start` of `out`."""
        length = self.weights // 6 // ALIGNED * ALIGNED
        begins = [segment * length for segment in range(6)] + [self.weights]
        places: list[Place] = [(low, start + low, high - low) for low, high in itertools.pairwise(begins)]
        outliers = self.outlier_at, self.outlier_values
        arguments = (self.codes, self.bits, self.centroids, *outliers, out, np.array(places, np.int64))
        return lambda: unpack(*arguments)

    def torchs(self, out: Tensor) -> dict[str, Run]:
        """Return runs that unpack with torch into the first `weights` of `out`; all tables are prepared beforehand."""
        codes, centroids = torch.from_numpy(self.codes), torch.from_numpy(self.centroids)
        at, values = torch.from_numpy(self.outlier_at).long(), torch.from_numpy(self.outlier_values)
        flat = out[: self.weights]

        def laid(look_up: Callable[[], object]) -> Run:
            def run() -> None:
                look_up()
                flat.index_copy_(0, at, values)

            return run

        period, codes_per_word = WORD[self.bits]
        table, words = word_table(centroids, self.bits, codes_per_word), flat.view(-1, codes_per_word)
        shifts = torch.arange(ALIGNED) * self.bits

        def by_codes() -> None:
            eights = sum(codes[byte :: self.bits].long() << 8 * byte for byte in range(self.bits))
            indices = (torch.as_tensor(eights)[:, None] >> shifts & (1 << self.bits) - 1).view(-1)
            torch.index_select(centroids, 0, indices, out=flat)

        def by_words() -> None:
            torch.index_select(table, 0, words_of(codes, self.bits, period, codes_per_word), out=words)

        return {BY_CODES: laid(by_codes), BY_WORDS: laid(by_words)}


def word_table(centroids: Tensor, bits: int, codes_per_word: int) -> Tensor:
    """Return the weights of all words of `codes_per_word` codes, [2^(bits x codes_per_word), codes_per_word]."""
    word = torch.arange(1 << bits * codes_per_word)
    return centroids[word[:, None] >> torch.arange(codes_per_word) * bits & (1 << bits) - 1]


def words_of(codes: Tensor, bits: int, period: int, codes_per_word: int) -> Tensor:
    """Return the words of a stream of codes, int32."""
    width = bits * codes_per_word
    if width == 8:
        return codes.int()
    parts = codes.view(-1, period).int()
    columns = []
    for word in range(8 * period // width):
        low = word * width
        first, last = low // 8, (low + width - 1) // 8
        column = parts[:, first] >> low % 8
        for byte in range(first + 1, last + 1):
            column = column | parts[:, byte] << 8 * byte - low
        columns.append(column & (1 << width) - 1)
    return torch.stack(columns, 1).view(-1)


SHARD_WEIGHTS = 589_824
"""STI-01: a twelfth of a layer."""
SHARDS = 12
TORCH, FEWEST_BITS, WEIGHTS_COPY = "torch", "the same at 2 bits", "copy of as many weights"
TARGET, EVEN_TARGET = 2.0, 0.8
"""Times as fast as torch; and 6 bits as fast as 2, a quarter longer at most."""


def unpack_cases(threads: int, weights: int = SHARD_WEIGHTS) -> Iterator[Case]:
    """One shard, in the cache; and the twelve of a layer, into the 28 MB of a working buffer, divided among `threads`."""
    yield Case("a shard", "hot", level_name(), partial(_contest, weights, 1, threads))
    yield Case("a layer of 12 shards", "beyond", level_name(), partial(_contest, weights, SHARDS, threads))


def _contest(weights: int, shards: int, threads: int) -> Contest:
    out, source = np.zeros(weights * shards, np.float32), np.zeros(weights * shards, np.float32)
    runs: dict[str, Run] = {WEIGHTS_COPY: partial(np.copyto, out, source)}
    comparisons = []
    for bits in PACKED_BITS:
        drawn = [RandomShard.of(bits, weights, seed=1 + shard) for shard in range(shards)]
        ours, theirs = f"{bits} bits", [f"{bits} bits, {method}" for method in (BY_CODES, BY_WORDS)]
        pieces = [drawn_shard.ours(out, start=i * weights) for i, drawn_shard in enumerate(drawn)]
        shares = [_one_after_another(pieces[part::threads]) for part in range(min(threads, shards))]
        runs[ours] = partial(at_once, shares)
        parts = [drawn_shard.torchs(torch.from_numpy(out)[i * weights :]) for i, drawn_shard in enumerate(drawn)]
        for name, method in zip(theirs, (BY_CODES, BY_WORDS), strict=True):
            runs[name] = _one_after_another([part[method] for part in parts])
        work = Work(shards * (4 * weights + weights * bits // ALIGNED))
        against = partial(Comparison, ours, work=work, what=ours, error=_error(drawn[0]))
        comparisons.append(against(TORCH, tuple(theirs), target=TARGET))
        if bits != PACKED_BITS[0]:
            even = EVEN_TARGET if bits == PACKED_BITS[-1] else None
            comparisons.append(against(FEWEST_BITS, (f"{PACKED_BITS[0]} bits",), target=even))
        comparisons.append(against(WEIGHTS_COPY, (WEIGHTS_COPY,)))
    return Contest(runs, tuple(comparisons))


def _one_after_another(runs: list[Run]) -> Run:
    def run() -> None:
        for call in runs:
            call()

    return run if len(runs) > 1 else runs[0]


def _error(drawn: RandomShard) -> float:
    """Return the largest difference of a weight from what numpy computes bit by bit."""
    unpacked = np.empty(drawn.weights, np.float32)
    drawn.ours(unpacked)()
    stream = np.unpackbits(drawn.codes, bitorder="little").reshape(drawn.weights, drawn.bits)
    wanted = drawn.centroids[stream @ (1 << np.arange(drawn.bits))]
    wanted[drawn.outlier_at] = drawn.outlier_values
    return float(np.abs(unpacked - wanted).max())
