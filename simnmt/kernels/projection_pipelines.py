"""Whole steps of the output layer: with all columns by torch, with the active ones from centroid to search (FVP-15, XP-02)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from simnmt.kernels.gathered import SubMatrix, Way, gathered_products
from simnmt.kernels.interleaved import Run
from simnmt.kernels.output_forms import Best
from simnmt.kernels.output_layer import fused_best
from simnmt.kernels.projection_setting import Layer, Step
from simnmt.kernels.projection_timing import best_of, dense_products, in_turn
from simnmt.kernels.scatter import scatter

COLUMNS, KEPT, SCATTERED = "columns", "kept", "scattered"
"""Active columns straight into the search; the same from a copy that was kept; written to their places among V first."""


def dense_steps(layer: Layer, hidden: Tensor) -> dict[str, Run]:
    """All columns by each of torch's ways, then the same search."""
    own = hidden.to(layer.weight.dtype)
    out = torch.empty(len(own), layer.vocab, dtype=own.dtype, device=own.device)

    def both(product: Callable[[], Tensor]) -> Best:
        return _search(product(), layer.bias)

    return {name: partial(both, product) for name, product in dense_products(layer.weight, own, out).items()}


def active_steps(layer: Layer, steps: Sequence[Step], way: Way, kept: SubMatrix, logits: Tensor) -> dict[str, Run]:
    """The steps in turn, all stages each; `kept`: of the first one's columns, which comes again; `logits`: [rows, V]."""
    outs = [torch.empty(step.rows, len(step.columns), device=step.hidden.device) for step in steps]

    def assigned(step: Step) -> Tensor:
        return step.sets.union(layer.centroids.nearest(step.hidden))

    def straight(step: Step, out: Tensor) -> Tensor:
        columns = assigned(step)
        products = gathered_products(layer.weight, step.hidden, columns, way=way, out=out)
        return columns[_search(products, layer.bias[columns]).columns]

    def from_copy(step: Step, out: Tensor) -> Tensor:
        columns = assigned(step)
        return columns[_search(kept.products(step.hidden, out), layer.bias[columns]).columns]

    def scattered(step: Step, out: Tensor) -> Tensor:
        columns = assigned(step)
        products = gathered_products(layer.weight, step.hidden, columns, way=way, out=out)
        return _search(scatter(products, columns, layer.vocab, layer.bias, logits), None).columns

    def all_of(run: Callable[[Step, Tensor], Tensor]) -> Run:
        return in_turn([partial(run, step, out) for step, out in zip(steps, outs, strict=True)])

    return {COLUMNS: all_of(straight), KEPT: partial(from_copy, steps[0], outs[0]), SCATTERED: all_of(scattered)}


def _search(products: Tensor, bias: Tensor | None) -> Best:
    rows, columns = products.shape
    return fused_best(products, bias, min(best_of(rows), columns), threads=torch.get_num_threads())
