"""Benchmark cases of fused search (FNI-15), of steps with active columns alone (FVP-15), and of unpacking (STI-06)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from simnmt.kernels import projection_timing as timing
from simnmt.kernels.arrays import huge_pages
from simnmt.kernels.cases import Case, Comparison, Memory, Run, Work, last_cache_bytes, one_after_another, target_at
from simnmt.kernels.columns import gathered_products
from simnmt.kernels.native_library import NONE, at_once, level_name
from simnmt.kernels.output_layer import fused_argmax, fused_best
from simnmt.kernels.output_reference import Best
from simnmt.kernels.unpack import ALIGNED, PACKED_BITS, Float32, PackedWeights, Place, unpack
from simnmt.profile.projection_cost import ProductMethod

VOCAB = 85_000
"""Vocabulary of the paper (FNI-13)."""
IN_PLACE, ARGMAX_IN_PLACE = "torch in place", "torch add and argmax"
COPY = "copy of as many bytes"
LOG_PROB_BOUND = 1e-5
"""Absolute error of a log-probability (FNI-05)."""
BATCHES = (1, 8, 32, 128)
BEAM, BEAM_BATCHES = 5, (1, 8, 32)
SIZES = (*((batch, 1) for batch in BATCHES), *((batch * BEAM, BEAM) for batch in BEAM_BATCHES))
"""(rows, best columns per row)."""
HALF_SIZES = ((32, 1), (8 * BEAM, BEAM))
BEYOND_CACHE_ROWS = 512
"""174 MB of products, several times the last-level cache of most boxes."""
ROWS_AT_ONCE = 8
"""Rows that are checked in float64 together."""
BANDWIDTH_TARGET = 0.6


def best_cases(threads: int, vocab: int = VOCAB) -> Iterator[Case]:
    """Yield all batches at beams 1 and 5, at the level in use and the portable level; halves; more data than a cache holds."""
    for level in _levels():
        target = target_at(level, avx512=5.0, avx2=4.0, portable=2.5)
        for rows, count in SIZES:
            yield _best_case(rows, count, threads, vocab, level=level, target=target)
    for dtype in (torch.float16, torch.bfloat16):
        for rows, count in HALF_SIZES:
            yield _best_case(rows, count, threads, vocab, dtype=dtype)
    yield _best_case(BEYOND_CACHE_ROWS, 1, threads, vocab, copy_alone=True)


def argmax_cases(threads: int, vocab: int = VOCAB) -> Iterator[Case]:
    """Yield all batches at beam 1, at the level in use and at the portable level."""
    for level in _levels():
        target = target_at(level, avx512=7.0, avx2=7.0, portable=2.5)
        for batch in BATCHES:
            yield _argmax_case(batch, threads, vocab, level, target)


def output_work(rows: int, vocab: int, itemsize: int) -> Work:
    """Return the work of reading all products and biases once: 2 V elements per hypothesis without a cache (FNI-02)."""
    return Work(rows * vocab * itemsize + 4 * vocab)


def _levels() -> tuple[str, ...]:
    """Return the level in use, and the portable level if that is another one."""
    level = level_name()
    return (level,) if level in (NONE, "portable") else (level, "portable")


def _memory(work: Work) -> Memory:
    return "hot" if work.bytes_moved <= last_cache_bytes() else "beyond"


def _text(rows: int, count: int, vocab: int, dtype: torch.dtype) -> str:
    return f"{rows} row{'s' if rows > 1 else ''}, best {count}, V {vocab:,}, {str(dtype).removeprefix('torch.')}"


def _best_case(
    rows: int,
    count: int,
    threads: int,
    vocab: int,
    *,
    level: str | None = None,
    dtype: torch.dtype = torch.float32,
    target: float | None = None,
    copy_alone: bool = False,
) -> Case:
    """`target`: ratio to torch in place, which `copy_alone` leaves out: its target is a share of the copy's bandwidth."""
    work = output_work(rows, vocab, dtype.itemsize)
    products, bias = _random_products(rows, vocab, dtype)
    fused = partial(fused_best, products, bias, count, threads=threads, out=Best.empty(rows, count), level=level)
    error = best_error(fused(), products, bias)
    against = partial(Comparison, "fused", work=work, error=error, error_bound=LOG_PROB_BOUND)
    runs: dict[str, Run] = {"fused": fused, COPY: _copy_of(work.bytes_moved)}
    bandwidth_target = target_at(level_name(), avx512=BANDWIDTH_TARGET, avx2=BANDWIDTH_TARGET) if copy_alone else None
    comparisons, before = [against(COPY, target=bandwidth_target)], dict[str, Run]()
    if not copy_alone:
        overwritten = products.clone()
        runs[IN_PLACE] = in_place(overwritten, bias, count)
        before[IN_PLACE] = partial(overwritten.copy_, products)
        comparisons.insert(0, against(IN_PLACE, target=target))
    return Case(_text(rows, count, vocab, dtype), _memory(work), runs, tuple(comparisons), before, level or level_name())


def _argmax_case(rows: int, threads: int, vocab: int, level: str, target: float | None) -> Case:
    products, bias = _random_products(rows, vocab, torch.float32)
    overwritten, columns = products.clone(), torch.empty(rows, dtype=torch.int64)
    argmax = partial(fused_argmax, products, bias, threads=threads, level=level)
    # In float32, as the sums that are compared: after rounding, the best column in float64 may be another.
    logits = products + bias
    error = float((logits.max(1).values - logits.gather(1, argmax()[:, None])[:, 0]).max())
    work = output_work(rows, vocab, 4)
    runs: dict[str, Run] = {
        "argmax": argmax,
        IN_PLACE: in_place(overwritten, bias, 1),
        ARGMAX_IN_PLACE: lambda: torch.argmax(overwritten.add_(bias), 1, out=columns),
    }
    # Restoring leaves the products in the cache, as the product before the search does.
    before = dict.fromkeys((IN_PLACE, ARGMAX_IN_PLACE), partial(overwritten.copy_, products))
    against = partial(Comparison, "argmax", work=work, error=error)
    comparisons = against(IN_PLACE, target=target), against(ARGMAX_IN_PLACE)
    return Case(_text(rows, 1, vocab, torch.float32), _memory(work), runs, comparisons, before, level)


def in_place(products: Tensor, bias: Tensor, count: int) -> Run:
    """Return a run of bias, log-softmax and search by torch into allocated outputs: torch's fastest three calls."""
    rows = products.shape[0]
    shape = (rows,) if count == 1 else (rows, count)
    values, columns = (torch.empty(shape, dtype=dtype, device=products.device) for dtype in (products.dtype, torch.int64))
    bias = bias.to(products.dtype)

    def run() -> object:
        products.add_(bias)
        torch.log_softmax(products, 1, out=products)
        if count == 1:
            return torch.max(products, 1, out=(values, columns))
        return torch.topk(products, count, 1, out=(values, columns))

    return run


def best_error(best: Best, products: Tensor, bias: Tensor) -> float:
    """Return the largest error in float64 of a log-probability, and of the value of a column against the value of its rank.

    Columns of equal values may be in any order; a column that is returned twice counts as an error of 1.
    """
    error, count = 0.0, best.columns.shape[1]
    for begin in range(0, products.shape[0], ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        logits, columns = products[rows].double() + bias, best.columns[rows]
        wanted = logits.topk(count).values
        log_probs = wanted - logits.logsumexp(1, keepdim=True)
        for difference in (best.log_probs[rows] - log_probs, logits.gather(1, columns) - wanted):
            error = max(error, float(difference.abs().max()))
        if any(len(set(row)) < count for row in columns.tolist()):
            error = max(error, 1.0)
    return error


def _random_products(rows: int, vocab: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Draw products and bias, spread as the logits of a trained model."""
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, vocab, generator=generator).mul_(3.0).to(dtype), torch.randn(vocab, generator=generator)


def _copy_of(size_bytes: int) -> Run:
    """Return a run that reads half of the bytes and writes the other half."""
    source = torch.zeros(size_bytes // 8)
    return partial(torch.ones_like(source).copy_, source)


LARGE_VOCAB, WIDTH, CLUSTERS = 250_000, 1024, 2000
"""FVP-13: 1 GB of weights; even their active columns exceed every cache."""
GATHERED_ROWS = (1, 40)
"""One sentence; 20 sentences of beam 2, as published."""
GATHERED_TARGETS = {0.06: 10.0, 0.12: 5.0}
"""Targets for one row, by active share of the vocabulary."""
DENSE, OWN_KERNEL = "best torch product, same search", "all columns by the same kernel"
ROW_WISE = "row-wise"
STEPS: dict[str, tuple[ProductMethod, str]] = {
    ROW_WISE: ("row_wise", timing.COLUMNS),
    "gathered": ("gather", timing.COLUMNS),
    "row-wise, scattered": ("row_wise", timing.SCATTERED),
}
"""Whole steps by name: the method of the product, and how its columns reach the search."""


def gathered_cases(threads: int, vocab: int = LARGE_VOCAB, width: int = WIDTH, clusters: int = CLUSTERS) -> Iterator[Case]:
    """Yield a case of one row and one of forty rows, with both shares in a case: the dense product takes most of the time.

    The weights are random and on huge pages: on small pages a pass over all of them takes longer for every method.
    """
    weight = torch.from_numpy(huge_pages(vocab * width, np.float32)).view(vocab, width)
    generator = torch.Generator().manual_seed(0)
    weight.normal_(0, width**-0.5, generator=generator)
    layer = timing.clustered_layer(weight, torch.randn(vocab, generator=generator), clusters)
    for rows in GATHERED_ROWS:
        yield _gathered_case(layer, rows)


def _gathered_case(layer: timing.Layer, rows: int) -> Case:
    hidden = timing.random_steps(layer, rows, min(GATHERED_TARGETS))[0].hidden
    # For many rows torch.linear is torch.mm with a new output of 40 MB: the same product, half a second per round.
    dense = {name: run for name, run in timing.dense_steps(layer, hidden).items() if rows == 1 or name != "linear"}
    runs: dict[str, Run] = {**dense, OWN_KERNEL: _all_columns(layer, rows)}
    comparisons = []
    for share, target in GATHERED_TARGETS.items():
        steps = timing.random_steps(layer, rows, share)
        error, bound = _product_error(layer, steps[0])
        work = _step_work(layer, steps[0])
        logits = torch.empty(rows, layer.vocab)
        for what, (method, kind) in STEPS.items():
            name = f"{100 * share:.0f} % active, {what}"
            runs[name] = timing.active_steps(layer, steps, method, logits)[kind]
            against = partial(Comparison, name, work=work, what=name, error=error, error_bound=bound)
            step_target = target_at(level_name(), avx512=target, avx2=target) if what == ROW_WISE and rows == 1 else None
            comparisons.append(against(DENSE, baseline_runs=tuple(dense), target=step_target))
            if what == ROW_WISE:
                comparisons.append(against(OWN_KERNEL))
    return Case(f"{rows} row{'s' if rows > 1 else ''}, V {layer.vocab:,}", "beyond", runs, tuple(comparisons))


def _all_columns(layer: timing.Layer, rows: int) -> Run:
    columns, out = torch.arange(layer.vocab, dtype=torch.int32), torch.empty(rows, layer.vocab)
    hidden = layer.centroids.points[torch.arange(rows) % len(layer.centroids)]
    return lambda: timing.search(gathered_products(layer.weight, hidden, columns, out=out), layer.bias)


def _product_error(layer: timing.Layer, step: timing.Step) -> tuple[float, float]:
    """Return the largest error of the products against float64, and the bound on it."""
    weight, hidden = layer.weight[step.columns].double(), step.hidden.double()
    products = gathered_products(layer.weight, step.hidden, step.columns).double()
    error = float((products - hidden @ weight.T).abs().max())
    return error, layer.width * 2.0**-24 * float((hidden.abs() @ weight.abs().T).max())


def _step_work(layer: timing.Layer, step: timing.Step) -> Work:
    """Return the work of reading centroids and active columns once, and writing and reading their products."""
    columns, rows = len(step.columns) + len(layer.centroids), step.rows
    return Work(4 * columns * (layer.width + 2 * rows), rows * columns * layer.width)


WORD = {2: (1, 4), 3: (3, 4), 4: (1, 2), 5: (5, 2), 6: (3, 2)}
"""By bits: bytes after which words of whole codes start at a byte again, and codes per word; a table has an entry per word."""
BY_CODES, BY_WORDS = "torch, a code at a time", "torch, a word of codes at a time"


def unpack_run(packed: PackedWeights, out: Float32, start: int = 0) -> Run:
    """Return a run that unpacks six segments with the kernel, one after another from `start` of `out`."""
    length = packed.weights // 6 // ALIGNED * ALIGNED
    begins = [segment * length for segment in range(6)] + [packed.weights]
    places: list[Place] = [(low, start + low, high - low) for low, high in itertools.pairwise(begins)]
    return partial(unpack, packed, out, np.array(places, np.int64))


def torch_unpack_runs(packed: PackedWeights, out: Tensor) -> dict[str, Run]:
    """Return runs that unpack with torch to the start of `out`; all tables are prepared beforehand."""
    bits, codes, centroids = packed.bits, torch.from_numpy(packed.codes), torch.from_numpy(packed.centroids)
    at, values = torch.from_numpy(packed.outlier_at).long(), torch.from_numpy(packed.outlier_values)
    flat = out[: packed.weights]
    period, codes_per_word = WORD[bits]
    table, words = word_table(centroids, bits, codes_per_word), flat.view(-1, codes_per_word)
    shifts = torch.arange(ALIGNED) * bits

    def by_codes() -> None:
        eights = sum(codes[byte::bits].long() << 8 * byte for byte in range(bits))
        indices = (torch.as_tensor(eights)[:, None] >> shifts & (1 << bits) - 1).view(-1)
        torch.index_select(centroids, 0, indices, out=flat)

    def by_words() -> None:
        torch.index_select(table, 0, words_of(codes, bits, period, codes_per_word), out=words)

    lay_outliers = partial(flat.index_copy_, 0, at, values)
    return {name: one_after_another([run, lay_outliers]) for name, run in ((BY_CODES, by_codes), (BY_WORDS, by_words))}


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
    for low in range(0, 8 * period, width):
        column = parts[:, low // 8] >> low % 8
        for byte in range(low // 8 + 1, (low + width - 1) // 8 + 1):
            column = column | parts[:, byte] << 8 * byte - low
        columns.append(column & (1 << width) - 1)
    return torch.stack(columns, 1).view(-1)


SHARD_WEIGHTS = 589_824
"""A twelfth of a layer (STI-01)."""
SHARDS = 12
TORCH, FEWEST_BITS, WEIGHTS_COPY = "torch", "the same at 2 bits", "copy of as many weights"


def unpack_cases(threads: int, weights: int = SHARD_WEIGHTS) -> Iterator[Case]:
    """Yield one shard in the cache, and the 12 shards of a layer, divided among `threads`, into a buffer of 28 MB."""
    yield _unpack_case("a shard", "hot", weights, 1, threads)
    yield _unpack_case("a layer of 12 shards", "beyond", weights, SHARDS, threads)


def _unpack_case(text: str, memory: Memory, weights: int, count: int, threads: int) -> Case:
    out, source = np.zeros(weights * count, np.float32), np.zeros(weights * count, np.float32)
    starts = range(0, weights * count, weights)
    runs: dict[str, Run] = {WEIGHTS_COPY: partial(np.copyto, out, source)}
    comparisons = []
    for bits in PACKED_BITS:
        shards = [PackedWeights.random(bits, weights, seed=1 + number) for number in range(count)]
        ours = f"{bits} bits"
        pieces = [unpack_run(shard, out, start) for shard, start in zip(shards, starts, strict=True)]
        runs[ours] = partial(at_once, [one_after_another(pieces[part::threads]) for part in range(min(threads, count))])
        by_torch = [
            torch_unpack_runs(shard, torch.from_numpy(out)[start:]) for shard, start in zip(shards, starts, strict=True)
        ]
        theirs = {f"{ours}, {method}": one_after_another([part[method] for part in by_torch]) for method in by_torch[0]}
        runs |= theirs
        work = Work(count * (4 * weights + weights * bits // ALIGNED))
        against = partial(Comparison, ours, work=work, what=ours, error=_unpack_error(shards[0]))
        comparisons.append(against(TORCH, baseline_runs=tuple(theirs), target=target_at(level_name(), avx512=2.0, avx2=2.0)))
        if bits != PACKED_BITS[0]:
            target = target_at(level_name(), avx512=0.8, avx2=0.5) if bits == PACKED_BITS[-1] else None
            comparisons.append(against(FEWEST_BITS, baseline_runs=(f"{PACKED_BITS[0]} bits",), target=target))
        comparisons.append(against(WEIGHTS_COPY))
    return Case(text, memory, runs, tuple(comparisons))


def _unpack_error(packed: PackedWeights) -> float:
    """Return the largest difference of a weight from the result of numpy, bit by bit."""
    unpacked = np.empty(packed.weights, np.float32)
    unpack_run(packed, unpacked)()
    stream = np.unpackbits(packed.codes, bitorder="little").reshape(packed.weights, packed.bits)
    wanted = packed.centroids[stream @ (1 << np.arange(packed.bits))]
    wanted[packed.outlier_at] = packed.outlier_values
    return float(np.abs(unpacked - wanted).max())
