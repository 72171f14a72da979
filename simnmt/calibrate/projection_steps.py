"""Stages and whole steps of a random output layer, with all and with some columns, as `vocabulary_bench` times them (FVP-09).

Active sets overlap as the sets of clusters do. Whole steps run from centroid to search, with the active columns or with all
columns by torch (FVP-15, XP-02).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simnmt.calibrate.projection_bench import ProjectionCost
from simnmt.kernels.cases import Run, last_cache_bytes
from simnmt.kernels.columns import Centroids, ColumnSets, gathered_products, scatter
from simnmt.kernels.native_library import processor
from simnmt.kernels.output_layer import fused_best
from simnmt.kernels.output_reference import Best
from simnmt.kernels.product_timing import dense_products
from simnmt.kernels.projection_cost import PRODUCT_METHODS, ProductMethod, StageCost, StagePoint, fit_stage

VARIANTS = 2
"""Steps that alternate, so that none finds its columns in the cache."""
MOST_DISTINCT = 40
"""Most clusters that the rows of a step fall into: with more rows, some share a cluster, as the rows of a beam do."""
SOME_RANKS = 8_192
"""Frequency ranks on which the share of a union in a large vocabulary is computed."""
NOISE = 0.1
"""Spread of hidden states about their centroid; the centroids' spread is 1."""


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
    """Inputs of one step, and the intermediate results of its stages."""

    sets: ColumnSets
    hidden: Tensor
    """float32 [rows, d], each row near the centroid of its set."""
    chosen: Tensor
    """int64 [rows]: the set of each row."""
    columns: Tensor
    """int32, ascending: union of the chosen sets."""
    indices: int
    """Number of indices in the distinct chosen sets together."""
    out: Tensor
    """float32 [rows, columns]: receives the products."""

    @property
    def rows(self) -> int:
        """Sentences x beam."""
        return len(self.hidden)


def random_layer(
    vocab: int, width: int, clusters: int, *, seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Layer:
    """Draw weights of the size of trained ones, and centroids."""
    generator = torch.Generator(device).manual_seed(seed)
    weight = torch.randn(vocab, width, generator=generator, device=device).mul_(width**-0.5).to(dtype)
    bias = torch.randn(vocab, generator=generator, device=device)
    points = torch.randn(clusters, width, generator=torch.Generator(device).manual_seed(seed + 1), device=device)
    return Layer(weight, bias, Centroids.of(points))


def random_steps(layer: Layer, rows: int, share: float, *, seed: int = 0) -> list[Step]:
    """Draw `VARIANTS` steps with about this share of V active, whose rows fall into up to `MOST_DISTINCT` different clusters.

    A column of frequency rank k is in each set with probability min(1, c/k), after Zipf's law; c is chosen so that the union of
    the rows' sets has the requested share. Sets that no row uses hold one column, which keeps them small.
    """
    random = np.random.default_rng((seed, rows, round(1e6 * share)))
    vocab, clusters = layer.vocab, len(layer.centroids)
    distinct = min(rows, MOST_DISTINCT, clusters)
    probability = _probabilities(vocab, distinct, share).astype(np.float32)
    by_rank = random.permutation(vocab).astype(np.int32)
    used = min(clusters, VARIANTS * distinct)
    drawn = [np.sort(by_rank[random.random(vocab, np.float32) < probability]) for _ in range(used)]
    columns = [column_set if column_set.size else by_rank[:1] for column_set in drawn] + [by_rank[:1]] * (clusters - used)
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
    columns = sets.union(chosen)
    return Step(sets, hidden, chosen, columns, indices, torch.empty(len(hidden), len(columns), device=near.device))


def _probabilities(vocab: int, rows: int, share: float) -> NDArray[np.float64]:
    """Return the probability of each rank with which the union of `rows` sets has this share."""
    from scipy.optimize import brentq  # importing it takes 0.2 s, and this module is imported with every benchmark

    rank = np.arange(1.0, vocab + 1.0)
    some = rank[:: 1 + vocab // SOME_RANKS]

    def excess(scale: float) -> float:
        return float(1.0 - ((1.0 - np.minimum(1.0, scale / some)) ** rows).mean() - share)

    return np.minimum(1.0, brentq(excess, 0.0, float(vocab)) / rank)


COLD = frozenset({"assign", *PRODUCT_METHODS})
"""Stages whose numbers are in memory, or in the last cache if it holds the weights; others find theirs in the nearer caches."""


class Timed(NamedTuple):
    """One callable to be timed, and the sizes that its cost depends on, as in `StagePoint`."""

    stage: str
    rows: int
    numbers: float
    columns: float
    run: Run


def search(products: Tensor, bias: Tensor | None) -> Best:
    """Search each row's best column, or the best two if there are several rows, as beam 2 does."""
    rows, columns = products.shape
    return fused_best(products, bias, min(1 if rows == 1 else 2, columns), threads=torch.get_num_threads())


def projection_cost(
    points: Mapping[str, Sequence[StagePoint]],
    heldout: Mapping[str, Sequence[StagePoint]],
    *,
    layer: Layer,
    provenance: Mapping[str, str],
) -> ProjectionCost:
    """Fit every stage to its points and evaluate the fit on the held-out points."""
    of_stages: dict[str, StageCost] = {stage: fit_stage(some, heldout.get(stage, ())) for stage, some in points.items()}
    return ProjectionCost(
        kind="measured",
        device="cuda" if layer.weight.is_cuda else "cpu",
        threads=torch.get_num_threads(),
        vocab=(layer.vocab,),
        width=(layer.width,),
        provenance={"processor": processor(), "torch": str(torch.__version__), **provenance},
        **of_stages,
    )


def search_of_all(layer: Layer, rows: int) -> Timed:
    """Return the search over all columns."""
    products = torch.zeros(rows, layer.vocab, dtype=layer.weight.dtype, device=layer.weight.device)
    return Timed("search", rows, layer.vocab, layer.vocab, partial(search, products, layer.bias))


def assign_stages(layer: Layer, rows: int) -> Iterator[Timed]:
    """Yield the search of the nearest centroids, among all of them and among a quarter."""
    for clusters in sorted({max(1, len(layer.centroids) // 4), len(layer.centroids)}):
        centroids = Centroids.of(layer.centroids.points[:clusters])
        hidden = layer.centroids.points[torch.arange(rows) % clusters]
        yield Timed("assign", rows, clusters * layer.width, clusters, partial(centroids.nearest, hidden))


def step_stages(layer: Layer, steps: Sequence[Step], logits: Tensor) -> list[Timed]:
    """Return all stages of these steps except the assignment; the steps alternate.

    `logits`: float32 [rows, V], receives scattered products.
    """
    first, vocab = steps[0], layer.vocab
    rows, count = first.rows, len(first.columns)
    columns = sum(len(step.columns) for step in steps) / len(steps)
    indices = sum(step.indices for step in steps) / len(steps)

    def multiply(step: Step, method: ProductMethod) -> Tensor:
        return gathered_products(layer.weight, step.hidden, step.columns, method=method, out=step.out)

    for step in steps:
        multiply(step, "row_wise")

    def alternating(stage: Callable[[Step], object]) -> Run:
        return alternate([partial(stage, step) for step in steps])

    scattered = alternating(lambda step: scatter(step.out, step.columns, vocab, layer.bias, logits))
    products = {method: alternating(partial(multiply, method=method)) for method in PRODUCT_METHODS}
    return [
        *(Timed(method, rows, columns * layer.width, columns, run) for method, run in products.items()),
        Timed("union", rows, vocab, indices, alternating(lambda step: step.sets.union(step.chosen))),
        Timed("scatter", rows, vocab, columns, scattered),
        Timed("search", rows, count, count, lambda: search(first.out, layer.bias[first.columns])),
    ]


def points_of(timed: Sequence[Timed], seconds: Mapping[Timed, float]) -> dict[str, list[StagePoint]]:
    """Return by stage the seconds of each timing, the fastest if several methods do the same work."""
    by_stage: dict[str, dict[tuple[int, float, float], float]] = {}
    for timing in timed:
        sizes, timed_s = (timing.rows, timing.numbers, timing.columns), seconds[timing]
        of_stage = by_stage.setdefault(timing.stage, {})
        of_stage[sizes] = min(timed_s, of_stage.get(sizes, timed_s))
    return {stage: [StagePoint(*sizes, timed_s) for sizes, timed_s in points.items()] for stage, points in by_stage.items()}


def flush_of_caches(device: torch.device) -> Run:
    """Return a run that reads more than the last cache of a device holds, so that all else leaves it."""
    return torch.ones(3 * cache_bytes(device) // 8, device=device).sum


def cache_bytes(device: torch.device) -> int:
    """Return the size of the last cache of the processor or GPU."""
    return last_cache_bytes() if device.type == "cpu" else int(torch.cuda.get_device_properties(device).L2_cache_size)


def clock_of(device: torch.device, clock: Callable[[], float] = time.perf_counter) -> Callable[[], float]:
    """Return the clock; on a GPU it first waits until the device has finished, because launches return long before."""
    if device.type != "cuda":
        return clock

    def waiting_clock() -> float:
        torch.cuda.synchronize(device)
        return clock()

    return waiting_clock


def alternate(runs: Sequence[Run]) -> Run:
    """Return a callable that calls the next of `runs` each time."""
    following = cycle(runs)
    return lambda: next(following)()


COLUMNS, SCATTERED = "columns", "scattered"
"""Active columns go straight into the search, or they are written to their places among V first."""


def dense_steps(layer: Layer, hidden: Tensor) -> dict[str, Run]:
    """Return runs that multiply all columns, one per torch method, each followed by the same search."""
    states = hidden.to(layer.weight.dtype)
    out = torch.empty(len(states), layer.vocab, dtype=states.dtype, device=states.device)

    def multiply_and_search(product: Callable[[], Tensor]) -> Best:
        return search(product(), layer.bias)

    products = dense_products(layer.weight, states, out)
    return {name: partial(multiply_and_search, product) for name, product in products.items()}


def active_steps(layer: Layer, steps: Sequence[Step], method: ProductMethod, logits: Tensor) -> dict[str, Run]:
    """Return runs of all stages of the steps, which alternate.

    `logits`: [rows, V], receives scattered products.
    """

    def union(step: Step) -> Tensor:
        return step.sets.union(layer.centroids.nearest(step.hidden))

    def product(step: Step, columns: Tensor) -> Tensor:
        return gathered_products(layer.weight, step.hidden, columns, method=method, out=step.out)

    def straight(step: Step) -> Tensor:
        columns = union(step)
        return columns[search(product(step, columns), layer.bias[columns]).columns]

    def scattered(step: Step) -> Tensor:
        columns = union(step)
        return search(scatter(product(step, columns), columns, layer.vocab, layer.bias, logits), None).columns

    return {
        COLUMNS: alternate([partial(straight, step) for step in steps]),
        SCATTERED: alternate([partial(scattered, step) for step in steps]),
    }
