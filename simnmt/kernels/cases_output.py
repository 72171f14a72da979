"""The fused output layer's cases: sizes of the paper, against torch in place and against a copy (FNI-15)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor

from simnmt.kernels.contract import Case, Comparison, Contest, Work
from simnmt.kernels.interleaved import Run
from simnmt.kernels.native_library import library
from simnmt.kernels.output_forms import Best
from simnmt.kernels.output_layer import fused_argmax, fused_best

VOCAB = 85_000
"""Of the paper (FNI-13)."""
IN_PLACE = "torch in place"
COPY = "copy of as many bytes"
LOG_PROB_BOUND = 1e-5
"""Of a log probability, absolute (FNI-05)."""
BATCHES = (1, 8, 32, 128)
BEAM, BEAM_BATCHES = 5, (1, 8, 32)
BEYOND_CACHE_ROWS = 512
"""174 MB of products, several times the last-level cache of most boxes."""
ROWS_CHECKED = 8
"""Of a case, against float64: more would take longer than the timing."""
BANDWIDTH_TARGET = 0.6
PORTABLE_TARGET = 2.5
BEST_TARGET = 5.0
ARGMAX_TARGET = 7.0


def best_cases(threads: int, vocab: int = VOCAB) -> Iterator[Case]:
    """Every batch at beam 1 and at beam 5, halves, the portable build, and products that no cache holds."""
    level = level_name()
    for batch in BATCHES:
        yield _best(level, batch, 1, threads, vocab, target=BEST_TARGET)
    for batch in BEAM_BATCHES:
        yield _best(level, batch * BEAM, BEAM, threads, vocab, target=BEST_TARGET)
    for dtype in (torch.float16, torch.bfloat16):
        for rows, count in ((32, 1), (32 * BEAM, BEAM)):
            yield _best(level, rows, count, threads, vocab, dtype=dtype)
    yield _best(level, BEYOND_CACHE_ROWS, 1, threads, vocab, cold=True)
    if level not in ("fallback", "portable"):
        for rows, count in ((8, 1), (32, 1), (8 * BEAM, BEAM)):
            yield _best("portable", rows, count, threads, vocab, target=PORTABLE_TARGET)


def argmax_cases(threads: int, vocab: int = VOCAB) -> Iterator[Case]:
    """Every batch at beam 1."""
    for batch in BATCHES:
        yield Case(_text(batch, 1, vocab, torch.float32), False, level_name(), partial(_argmax, batch, vocab, threads))


def level_name() -> str:
    """The compiled level in use, or `fallback`."""
    native = library()
    return "fallback" if native is None else native.level


def output_work(rows: int, vocab: int, itemsize: int) -> Work:
    """Every product and every bias read once: 2 V elements a hypothesis if no cache held the bias (FNI-02)."""
    return Work(rows * vocab * itemsize + 4 * vocab)


def _text(rows: int, count: int, vocab: int, dtype: torch.dtype) -> str:
    return f"{rows} row{'s' if rows > 1 else ''}, best {count}, V {vocab:,}, {str(dtype).removeprefix('torch.')}"


def _best(
    level: str,
    rows: int,
    count: int,
    threads: int,
    vocab: int,
    *,
    dtype: torch.dtype = torch.float32,
    target: float | None = None,
    cold: bool = False,
) -> Case:
    def build() -> Contest:
        products, bias = _drawn(rows, vocab, dtype)
        out = Best(torch.empty(rows, count, dtype=torch.int64), torch.empty(rows, count), torch.empty(rows))

        def ours() -> None:
            fused_best(products, bias, count, threads=threads, out=out)

        ours()
        error = _log_prob_error(out, products, bias)
        runs: dict[str, Run] = {"fused": ours}
        work = output_work(rows, vocab, products.element_size())
        comparisons = []
        before = None
        if not cold:
            # What is overwritten is restored, which also leaves the products in the cache, as the product before them does.
            pristine = products.clone()
            before = _restorer(products, pristine)
            runs[IN_PLACE] = in_place(products, bias, count)
            comparisons.append(_comparison(IN_PLACE, work, target, error))
        runs[COPY] = _copy_of(work.bytes_moved)
        comparisons.append(_comparison(COPY, work, BANDWIDTH_TARGET if cold else None, error))
        return Contest(runs, tuple(comparisons), before)

    return Case(_text(rows, count, vocab, dtype), cold, level, build)


def _comparison(baseline: str, work: Work, target: float | None, error: float) -> Comparison:
    return Comparison("fused", baseline, (baseline,), work, target, error=error, error_bound=LOG_PROB_BOUND)


def _argmax(rows: int, vocab: int, threads: int) -> Contest:
    products, bias = _drawn(rows, vocab, torch.float32)
    pristine, columns = products.clone(), torch.empty(rows, dtype=torch.int64)

    def add_and_argmax() -> object:
        return torch.argmax(products.add_(bias), 1, out=columns)

    logits = products + bias
    chosen = logits.gather(1, fused_argmax(products, bias, threads=threads)[:, None])[:, 0]
    error = float((logits.max(1).values - chosen).max())
    work = output_work(rows, vocab, 4)
    runs: Mapping[str, Run] = {
        "argmax": lambda: fused_argmax(products, bias, threads=threads),
        IN_PLACE: in_place(products, bias, 1),
        "torch add and argmax": add_and_argmax,
    }
    targets = {IN_PLACE: ARGMAX_TARGET, "torch add and argmax": None}
    comparisons = tuple(Comparison("argmax", name, (name,), work, target, error=error) for name, target in targets.items())
    return Contest(runs, comparisons, _restorer(products, pristine))


def in_place(products: Tensor, bias: Tensor, count: int) -> Run:
    """Bias, log-softmax and search by torch, every output standing ready: the fastest that it offers in three calls."""
    rows = products.shape[0]
    shape = (rows,) if count == 1 else (rows, count)
    found = torch.empty(shape, dtype=products.dtype), torch.empty(shape, dtype=torch.int64)
    bias = bias.to(products.dtype)

    def run() -> object:
        products.add_(bias)
        torch.log_softmax(products, 1, out=products)
        if count == 1:
            return torch.max(products, 1, out=found)
        return torch.topk(products, count, 1, out=found)

    return run


def _drawn(rows: int, vocab: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Spread as the logits of a trained model are."""
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, vocab, generator=generator).mul_(3.0).to(dtype), torch.randn(vocab, generator=generator)


def _restorer(products: Tensor, pristine: Tensor) -> Callable[[], object]:
    return lambda: products.copy_(pristine)


def _copy_of(size_bytes: int) -> Run:
    """Reads half of the bytes, writes the other half."""
    source = torch.zeros(size_bytes // 8)
    target = torch.ones_like(source)
    return lambda: target.copy_(source)


def _log_prob_error(best: Best, products: Tensor, bias: Tensor) -> float:
    """Largest error of a log probability against float64, by rank: equal values may stand in either order."""
    error = 0.0
    for row in range(min(products.shape[0], ROWS_CHECKED)):
        logits = products[row].double() + bias
        wanted = logits.topk(best.columns.shape[1]).values - logits.logsumexp(0)
        error = max(error, float((best.log_probs[row] - wanted).abs().max()))
    return error
