"""Time the products of a model's output layer when it is loaded, so that a decoder takes the faster one (FVP-09)."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import linear

from simnmt.kernels.cases import Run, last_cache_bytes, nearer_cache_bytes
from simnmt.kernels.columns import gathered_products
from simnmt.kernels.projection_cost import ProductCosts, StagePoint, fit_stage

ROWS = (1, 2, 8, 40, 160)
"""One, two (torch's product of two may take twice as long), a few, 20 sentences of beam 2, and a full batch server."""
SHARES = (0.02, 0.15)
"""Active shares of the vocabulary."""
MOST_NUMBERS = 1 << 22
"""Most weights of active columns: of a larger layer smaller shares are timed."""
MOST_DENSE = 1 << 24
"""Most weights of all columns: of a larger layer the first columns are timed, in proportion."""
ROWS_OF_MOST = 16
"""Rows above which proportionally fewer weights are taken, because the arithmetic then takes the time."""
PIECE = 1_024
"""Columns per piece of the dense product in pieces, which is often faster."""


def measure_products(
    weight: Tensor,
    *,
    rounds: int = 3,
    clock: Callable[[], float] = time.perf_counter,
    dense: Callable[[Tensor], object] | None = None,
) -> ProductCosts:
    """Time the products of a model on the CPU, in well below a second for a usual layer, with torch's threads.

    Weights that fit into the cache are found there, as during decoding; columns of larger weights are not. The least of few
    rounds counts, since one disturbed round would decide the median; figures that are reported are measured by
    `simnmt.calibrate.harness`.

    Args:
        weight: [V, d] of the model.
        rounds: timings of each product, after an untimed one.
        clock: seconds.
        dense: the model's product of hidden states [rows, d] with all columns, if it is not torch's product with `weight`.
    """
    vocab, width = weight.shape
    generator = torch.Generator().manual_seed(0)
    timed: list[tuple[str, int, int, Run]] = []
    for rows in ROWS:
        fewer, hidden = max(1.0, rows / ROWS_OF_MOST), torch.randn(rows, width, generator=generator)
        if dense is None:
            count = min(vocab, max(1, int(MOST_DENSE / fewer / width)))
            whole = dense_products(weight[:count], hidden.to(weight.dtype), torch.empty(rows, count, dtype=weight.dtype))
            timed += [("dense", rows, count, run) for run in whole.values()]
        else:
            timed.append(("dense", rows, vocab, partial(dense, hidden)))
        most = min(1.0, MOST_NUMBERS / fewer / (max(SHARES) * vocab * width))
        for share in SHARES:
            count = max(1, round(most * share * vocab))
            columns = torch.randperm(vocab, generator=generator)[:count].sort().values.int()
            product = partial(gathered_products, weight, hidden, columns, out=torch.empty(rows, count))
            timed.append(("product", rows, count, product))
    # Weights that fit the last cache stay there beside the decoder's other data, but not in the caches nearer to the processor;
    # without the flush a product would find the data that the product timed before it has just read.
    cache_bytes = last_cache_bytes()
    fits = weight.nbytes <= cache_bytes // 2
    flush = torch.ones((min(4 * nearer_cache_bytes(), cache_bytes // 4) if fits else 3 * cache_bytes // 2) // 4).sum
    least_s: dict[str, dict[tuple[int, int], float]] = {"product": {}, "dense": {}}
    for number in range(1 + rounds):
        for name, rows, count, run in timed:
            flush()
            begin_s = clock()
            run()
            if number:
                seconds = clock() - begin_s
                least_s[name][rows, count] = min(least_s[name].get((rows, count), seconds), seconds)
    least_s["dense"] = {(rows, vocab): seconds * vocab / count for (rows, count), seconds in least_s["dense"].items()}
    points = {name: [StagePoint(*size, seconds) for size, seconds in sizes.items()] for name, sizes in least_s.items()}
    return ProductCosts(**{name: fit_stage(of_stage) for name, of_stage in points.items()})


def dense_products(weight: Tensor, hidden: Tensor, out: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Return torch's methods for the product with all columns, [rows, V], by name; `out` receives the result of most."""

    def whole() -> Tensor:
        if len(hidden) == 1:
            torch.mv(weight, hidden[0], out=out[0])
        else:
            torch.mm(hidden, weight.T, out=out)
        return out

    def in_pieces() -> Tensor:
        for begin in range(0, len(weight), PIECE):
            torch.mm(hidden, weight[begin : begin + PIECE].T, out=out[:, begin : begin + PIECE])
        return out

    runs: dict[str, Callable[[], Tensor]] = {"whole": whole, "linear": partial(linear, hidden, weight)}
    if weight.is_cpu and len(hidden) > 1:
        runs["pieces"] = in_pieces
    return runs
