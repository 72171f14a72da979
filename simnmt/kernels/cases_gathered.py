"""The cases of products with the active columns alone: whole steps at the paper's largest vocabulary (FVP-15)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np
import torch

from simnmt.kernels.arrays import huge_pages
from simnmt.kernels.contract import Case, Comparison, Contest, Work
from simnmt.kernels.gathered import SubMatrix, Way, gathered_products
from simnmt.kernels.interleaved import Run
from simnmt.kernels.native_at import level_name
from simnmt.kernels.output_layer import fused_best
from simnmt.kernels.projection_pipelines import COLUMNS, KEPT, SCATTERED, active_steps, dense_steps
from simnmt.kernels.projection_setting import Layer, Step, drawn_steps, layer_of
from simnmt.kernels.projection_timing import best_of

VOCAB, WIDTH, CLUSTERS = 250_000, 1024, 2000
"""FVP-13: 1 GB of weights, of which no cache holds what is active either."""
ROWS = (1, 40)
"""One sentence; 20 of beam 2, as published."""
TARGETS = {0.06: 10.0, 0.12: 5.0}
"""By share of the vocabulary that is active, of one row alone."""
DENSE, OWN = "best torch product, same search", "all columns by the same kernel"
ROW_WISE = "row-wise"
STEPS: dict[str, tuple[Way, str]] = {
    ROW_WISE: ("row_wise", COLUMNS),
    "gathered": ("gather", COLUMNS),
    "kept copy": ("row_wise", KEPT),
    "row-wise, scattered": ("row_wise", SCATTERED),
}
"""Whole steps by what they are called: how the product is taken, and what becomes of it."""


def gathered_cases(threads: int, vocab: int = VOCAB, width: int = WIDTH, clusters: int = CLUSTERS) -> Iterator[Case]:
    """One row and forty, both shares in one contest: the product with all columns takes most of the time."""
    layer = cache(partial(_layer, vocab, width, clusters))
    for rows in ROWS:
        text = f"{rows} row{'s' if rows > 1 else ''}, V {vocab:,}"
        yield Case(text, "beyond", level_name(), partial(_contest, layer, rows))


def _layer(vocab: int, width: int, clusters: int) -> Layer:
    """Random weights on huge pages: on small ones a pass over all of them takes longer, whoever makes it."""
    weight = torch.from_numpy(huge_pages(vocab * width, np.float32)).view(vocab, width)
    generator = torch.Generator().manual_seed(0)
    return layer_of(weight.normal_(0, width**-0.5, generator=generator), torch.randn(vocab, generator=generator), clusters)


def _contest(drawn: Callable[[], Layer], rows: int) -> Contest:
    layer = drawn()
    hidden = drawn_steps(layer, rows, min(TARGETS))[0].hidden
    # Of many rows torch.linear is torch.mm with a new 40 MB to write to: the same product, half a second a round.
    dense = {name: run for name, run in dense_steps(layer, hidden).items() if rows == 1 or name != "linear"}
    runs: dict[str, Run] = {**dense, OWN: _all_columns(layer, rows)}
    comparisons = []
    for share, target in TARGETS.items():
        steps = drawn_steps(layer, rows, share)
        first, percent = steps[0], f"{100 * share:.0f} % active"
        error, bound = _error(layer, first)
        work = _work(layer, first)
        kept, logits = SubMatrix.of(layer.weight, first.columns), torch.empty(rows, layer.vocab)
        for what, (way, kind) in STEPS.items():
            name = f"{percent}, {what}"
            runs[name] = active_steps(layer, steps, way, kept, logits)[kind]
            against = partial(Comparison, name, work=work, what=name, error=error, error_bound=bound)
            comparisons.append(against(DENSE, tuple(dense), target=target if what == ROW_WISE and rows == 1 else None))
            if what == ROW_WISE:
                comparisons.append(against(OWN, (OWN,)))
    return Contest(runs, tuple(comparisons))


def _all_columns(layer: Layer, rows: int) -> Run:
    every, out = torch.arange(layer.vocab, dtype=torch.int32), torch.empty(rows, layer.vocab)
    hidden = layer.centroids.points[torch.arange(rows) % len(layer.centroids)]

    def run() -> object:
        products = gathered_products(layer.weight, hidden, every, out=out)
        return fused_best(products, layer.bias, best_of(rows), threads=torch.get_num_threads())

    return run


def _error(layer: Layer, step: Step) -> tuple[float, float]:
    """Of the products against float64, and its bound."""
    weight, hidden = layer.weight[step.columns].double(), step.hidden.double()
    found = gathered_products(layer.weight, step.hidden, step.columns).double()
    error = float((found - hidden @ weight.T).abs().max())
    return error, layer.width * 2.0**-24 * float((hidden.abs() @ weight.abs().T).max())


def _work(layer: Layer, step: Step) -> Work:
    """Centroids and active columns read once, their products written and read again."""
    columns, rows = len(step.columns) + len(layer.centroids), step.rows
    return Work(4 * columns * (layer.width + 2 * rows), rows * columns * layer.width)
