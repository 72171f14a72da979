"""Output layers and steps to measure with: random weights, and active sets that overlap as those of clusters do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simnmt.kernels.centroids import Centroids
from simnmt.kernels.column_sets import ColumnSets

VARIANTS = 2
"""Steps that take turns, so that none finds its own columns where it left them."""
MOST_DISTINCT = 40
"""Clusters that a step's rows fall into: of more rows some meet in one, as the rows of a beam do."""
SOME_RANKS = 8_192
"""Of a large vocabulary that the share of a union is counted on."""
NOISE = 0.1
"""Of hidden states about their centroid, whose own spread is 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """An output layer with clusters of contexts."""

    weight: Tensor
    """[V, d]."""
    bias: Tensor
    """float32 [V]."""
    centroids: Centroids

    @property
    def vocab(self) -> int:
        """V."""
        return self.weight.shape[0]

    @property
    def width(self) -> int:
        """d."""
        return self.weight.shape[1]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What one step is given, and what its stages leave for each other."""

    sets: ColumnSets
    hidden: Tensor
    """float32 [rows, d], each row near the centroid of its set."""
    chosen: Tensor
    """int64 [rows]: these sets."""
    columns: Tensor
    """int32, ascending: their union."""
    indices: int
    """In all these sets together."""

    @property
    def rows(self) -> int:
        """Sentences x beam."""
        return len(self.hidden)


def drawn_layer(
    vocab: int, width: int, clusters: int, *, seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Layer:
    """Random weights, a fraction of 1 each as trained ones are, and random centroids."""
    generator = torch.Generator(device).manual_seed(seed)
    weight = torch.randn(vocab, width, generator=generator, device=device).mul_(width**-0.5)
    weight = weight.to(dtype)
    return layer_of(weight, torch.randn(vocab, generator=generator, device=device), clusters, seed=seed)


def layer_of(weight: Tensor, bias: Tensor | None, clusters: int, *, seed: int = 0) -> Layer:
    """Weights that are there, with random centroids."""
    generator = torch.Generator(weight.device).manual_seed(seed + 1)
    points = torch.randn(clusters, weight.shape[1], generator=generator, device=weight.device)
    if bias is None:
        bias = torch.zeros(len(weight), device=weight.device)
    return Layer(weight.detach(), bias.detach().float(), Centroids.of(points))


def drawn_steps(layer: Layer, rows: int, share: float, *, seed: int = 0) -> list[Step]:
    """`VARIANTS` steps whose rows fall into clusters of their own, up to `MOST_DISTINCT`, with about this share of V active.

    A column of frequency rank k is in each set with probability min(1, c/k), as of Zipf's law, c being such that the union of
    the rows' sets has the share asked for. Sets that no row asks for hold one column, which keeps the sets small.
    """
    random = np.random.default_rng((seed, rows, round(1e6 * share)))
    vocab, clusters = layer.vocab, len(layer.centroids)
    distinct = min(rows, MOST_DISTINCT, clusters)
    probability = _probabilities(vocab, distinct, share).astype(np.float32)
    by_rank = random.permutation(vocab).astype(np.int32)
    used = min(clusters, VARIANTS * distinct)
    drawn = [np.sort(by_rank[random.random(vocab, np.float32) < probability]) for _ in range(used)]
    columns = [each if each.size else by_rank[:1] for each in drawn] + [by_rank[:1]] * (clusters - used)
    starts = np.cumsum([0, *map(len, columns)])
    device = layer.weight.device
    sets = ColumnSets(torch.from_numpy(starts), torch.from_numpy(np.concatenate(columns)).to(device), vocab)
    clusters_of_rows = torch.arange(rows) % distinct
    return [_step(layer, sets, (variant * distinct + clusters_of_rows) % used) for variant in range(VARIANTS)]


def _step(layer: Layer, sets: ColumnSets, chosen: Tensor) -> Step:
    near = layer.centroids.points[chosen.to(layer.weight.device)]
    generator = torch.Generator(near.device).manual_seed(int(chosen[0]))
    hidden = near + NOISE * torch.randn(near.shape, generator=generator, device=near.device)
    indices = int(sets.sizes()[torch.unique(chosen)].sum())
    chosen = chosen.to(near.device)
    return Step(sets, hidden, chosen, sets.union(chosen), indices)


def _probabilities(vocab: int, rows: int, share: float) -> NDArray[np.float64]:
    """Of each rank, so that `rows` sets have a union of this share, found by halving."""
    rank = np.arange(1.0, vocab + 1.0)
    some = rank[:: 1 + vocab // SOME_RANKS]
    low, high = 0.0, float(vocab)
    for _ in range(30):
        middle = (low + high) / 2
        union = 1.0 - (1.0 - np.minimum(1.0, middle / some)) ** rows
        low, high = (middle, high) if union.mean() < share else (low, middle)
    return np.minimum(1.0, high / rank)
