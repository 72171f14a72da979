"""Times of the output layer's stages and whole steps, with all and with some columns, and the cost fitted to them (FVP-09).

Layers and steps are random, with active sets that overlap as the sets of clusters do. Whole steps run from centroid to search,
with the active columns or with all columns by torch (FVP-15, XP-02).
"""

from __future__ import annotations

import math
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
from torch.nn.functional import linear

from simnmt.kernels.arrays import huge_pages
from simnmt.kernels.cases import Case, Comparison, Kernel, Run, Work, last_cache_bytes, nearer_cache_bytes, target_at
from simnmt.kernels.columns import Centroids, ColumnSets, gathered_products, scatter
from simnmt.kernels.native_library import processor
from simnmt.kernels.output_layer import fused_best
from simnmt.kernels.output_reference import Best
from simnmt.kernels.projection_cost import PRODUCT_METHODS, ProductMethod, ProjectionCost, StageCost, StagePoint, fit_stage

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
    return clustered_layer(weight, torch.randn(vocab, generator=generator, device=device), clusters, seed=seed)


def clustered_layer(weight: Tensor, bias: Tensor, clusters: int, *, seed: int = 0) -> Layer:
    """Return a layer with given weights and random centroids."""
    generator = torch.Generator(weight.device).manual_seed(seed + 1)
    points = torch.randn(clusters, weight.shape[1], generator=generator, device=weight.device)
    return Layer(weight.detach(), bias.detach().float(), Centroids.of(points))


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


ROWS = (1, 2, 8, 40, 160)
"""Rows of a quick measurement: one, two (torch's product of two may take twice as long), a few, 20 sentences of beam 2 as
published, and a full batch server."""
SHARES = (0.02, 0.15)
MOST_NUMBERS = 1 << 22
"""Most weights of active columns in a quick measurement: a larger layer is measured with smaller shares."""
MOST_DENSE = 1 << 24
"""Most weights of all columns in a quick measurement: a larger layer is measured with its first columns."""
MOST_LOGITS = 1 << 21
"""Rows times V up to which a quick measurement scatters, which only the published method does."""
ROWS_OF_MOST = 16
"""Rows above which proportionally fewer weights are taken, because the arithmetic then takes the time."""
COLD = frozenset({"dense", "assign", *PRODUCT_METHODS})
"""Stages whose numbers are in memory, or in the last cache if it holds the weights; others find theirs in the nearer caches."""
PIECE = 1_024
"""Columns per piece of the dense product in pieces, which is often faster."""


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


def measure_projection(
    weight: Tensor,
    bias: Tensor,
    *,
    clusters: int,
    rounds: int = 3,
    clock: Callable[[], float] = time.perf_counter,
    dense: Callable[[Tensor], object] | None = None,
) -> ProjectionCost:
    """Measure the stages of a model's output layer quickly, in well below a second for a usual layer, with torch's threads.

    Weights that fit into the cache are found there, as during decoding; columns of larger weights are not.

    Args:
        weight: [V, d] of the model; of a layer beyond `MOST_NUMBERS` smaller shares are active.
        bias: [V].
        clusters: number of random centroids.
        rounds: timings of each stage, of which the least counts.
        clock: seconds.
        dense: the model's product of hidden states [rows, d] with all columns, if it is not torch's product with `weight`.
    """
    layer = clustered_layer(weight, bias, clusters)
    timed: list[Timed] = []
    for count in ROWS:
        fewer = max(1.0, count / ROWS_OF_MOST)
        scale = min(1.0, MOST_NUMBERS / fewer / (max(SHARES) * layer.vocab * layer.width))
        all_columns = list(dense_stages(layer, count, most_columns=max(1, int(MOST_DENSE / fewer / layer.width))))
        if dense is not None:
            run = partial(dense, torch.zeros(count, layer.width))
            model_dense = Timed("dense", count, layer.vocab * layer.width, layer.vocab, run)
            all_columns = [model_dense, *(timing for timing in all_columns if timing.stage != "dense")]
        timed += all_columns
        timed += assign_stages(layer, count)
        logits = torch.empty(count, layer.vocab, device=weight.device)
        for share in SHARES:
            stages = step_stages(layer, random_steps(layer, count, scale * share), logits)
            few = count == ROWS[0] or logits.numel() <= MOST_LOGITS
            timed += [timing for timing in stages if few or timing.stage != "scatter"]
    # Weights that fit the last cache stay there beside the decoder's other data, but not in the caches nearer to the processor;
    # without the flush each method would find the data that the method timed before it has just read.
    fits = weight.nbytes <= cache_bytes(weight.device) // 2
    flush = flush_of_nearer_caches(weight.device) if fits else flush_of_caches(weight.device)
    points = points_of(timed, _least_s(timed, rounds, flush, clock_of(weight.device, clock)))
    return projection_cost(points, provenance={"how": f"quick, {rounds} rounds"}, layers=[layer])


def projection_cost(
    points: Mapping[str, Sequence[StagePoint]],
    heldout: Mapping[str, Sequence[StagePoint]] | None = None,
    *,
    layers: Sequence[Layer],
    provenance: Mapping[str, str] | None = None,
) -> ProjectionCost:
    """Fit every stage to its points and evaluate the fit on the held-out points."""
    of_stages: dict[str, StageCost] = {
        stage: fit_stage(stage_points, (heldout or {}).get(stage, ())) for stage, stage_points in points.items()
    }
    known = {"processor": processor(), "torch": str(torch.__version__)}
    return ProjectionCost(
        kind="measured",
        device="cuda" if layers[0].weight.is_cuda else "cpu",
        threads=torch.get_num_threads(),
        vocab=tuple(sorted({layer.vocab for layer in layers})),
        width=tuple(sorted({layer.width for layer in layers})),
        provenance=known | dict(provenance or {}),
        **of_stages,
    )


def dense_stages(layer: Layer, rows: int, *, most_columns: int | None = None) -> Iterator[Timed]:
    """Yield torch's products with all columns (at most the first `most_columns`) by each method, and the search over them."""
    columns = min(layer.vocab, most_columns or layer.vocab)
    weight, bias = layer.weight[:columns], layer.bias[:columns]
    hidden = layer.centroids.points[torch.arange(rows) % len(layer.centroids)].to(weight.dtype)
    out = torch.zeros(rows, columns, dtype=weight.dtype, device=weight.device)
    for run in dense_products(weight, hidden, out).values():
        yield Timed("dense", rows, columns * layer.width, columns, run)
    yield Timed("search", rows, columns, columns, partial(search, out, bias))


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


def assign_stages(layer: Layer, rows: int) -> Iterator[Timed]:
    """Yield the search of the nearest centroids, among all of them and among a quarter."""
    for clusters in sorted({max(1, len(layer.centroids) // 4), len(layer.centroids)}):
        centroids = Centroids.of(layer.centroids.points[:clusters])
        hidden = layer.centroids.points[torch.arange(rows) % clusters]
        yield Timed("assign", rows, clusters * layer.width, clusters, partial(centroids.nearest, hidden))


def multiply(layer: Layer, step: Step, method: ProductMethod = "row_wise") -> Tensor:
    """Multiply the step's columns into its `out`."""
    return gathered_products(layer.weight, step.hidden, step.columns, method=method, out=step.out)


def step_stages(layer: Layer, steps: Sequence[Step], logits: Tensor) -> list[Timed]:
    """Return all stages of these steps except the assignment; the steps alternate.

    `logits`: float32 [rows, V], receives scattered products.
    """
    first, vocab = steps[0], layer.vocab
    rows, count = first.rows, len(first.columns)
    columns = sum(len(step.columns) for step in steps) / len(steps)
    indices = sum(step.indices for step in steps) / len(steps)
    for step in steps:
        multiply(layer, step)

    def alternating(stage: Callable[[Step], object]) -> Run:
        return alternate([partial(stage, step) for step in steps])

    scattered = alternating(lambda step: scatter(step.out, step.columns, vocab, layer.bias, logits))
    products = {method: alternating(partial(multiply, layer, method=method)) for method in PRODUCT_METHODS}
    return [
        *(Timed(method, rows, columns * layer.width, columns, run) for method, run in products.items()),
        Timed("union", rows, vocab, indices, alternating(lambda step: step.sets.union(step.chosen))),
        Timed("scatter", rows, vocab, columns, scattered),
        Timed("search", rows, count, count, lambda: search(first.out, layer.bias[first.columns])),
    ]


def _least_s(timed: Sequence[Timed], rounds: int, flush: Run, now_s: Callable[[], float]) -> dict[Timed, float]:
    """Return the least seconds of few rounds, after an untimed one: a decoder chooses its methods by them when it is loaded.

    One disturbed round would decide the median. Figures that are reported are measured by `simnmt.calibrate.harness`.
    """
    least_s = dict.fromkeys(timed, math.inf)
    for number in range(1 + rounds):
        for timing in timed:
            if timing.stage in COLD:
                flush()
            begin_s = now_s()
            timing.run()
            if number:
                least_s[timing] = min(least_s[timing], now_s() - begin_s)
    return least_s


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
    return _reading(device, 3 * cache_bytes(device) // 2)


def flush_of_nearer_caches(device: torch.device) -> Run:
    """Return a run that reads four times the largest cache but the last; on a GPU, and at most, a quarter of the last one."""
    most_bytes = cache_bytes(device) // 4
    return _reading(device, min(4 * nearer_cache_bytes(), most_bytes) if device.type == "cpu" else most_bytes)


def _reading(device: torch.device, size_bytes: int) -> Run:
    return torch.ones(size_bytes // 4, device=device).sum


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


LARGE_VOCAB, WIDTH, CLUSTERS = 250_000, 1024, 2000
"""FVP-13: 1 GB of weights; even their active columns exceed every cache."""
GATHERED_ROWS = (1, 40)
"""One sentence; 20 sentences of beam 2, as published."""
GATHERED_TARGETS = {0.06: 10.0, 0.12: 5.0}
"""Targets for one row, by active share of the vocabulary."""
DENSE, OWN_KERNEL = "best torch product, same search", "all columns by the same kernel"
ROW_WISE = "row-wise"
STEPS: dict[str, tuple[ProductMethod, str]] = {
    ROW_WISE: ("row_wise", COLUMNS),
    "gathered": ("gather", COLUMNS),
    "row-wise, scattered": ("row_wise", SCATTERED),
}
"""Whole steps by name: the method of the product, and how its columns reach the search."""


def gathered_cases(threads: int, vocab: int = LARGE_VOCAB, width: int = WIDTH, clusters: int = CLUSTERS) -> Iterator[Case]:
    """Yield a case of one row and one of forty rows, with both shares in a case: the dense product takes most of the time.

    The weights are random and on huge pages: on small pages a pass over all of them takes longer for every method.
    """
    weight = torch.from_numpy(huge_pages(vocab * width, np.float32)).view(vocab, width)
    generator = torch.Generator().manual_seed(0)
    weight.normal_(0, width**-0.5, generator=generator)
    layer = clustered_layer(weight, torch.randn(vocab, generator=generator), clusters)
    for rows in GATHERED_ROWS:
        yield _gathered_case(layer, rows)


def _gathered_case(layer: Layer, rows: int) -> Case:
    hidden = random_steps(layer, rows, min(GATHERED_TARGETS))[0].hidden
    # For many rows torch.linear is torch.mm with a new output of 40 MB: the same product, half a second per round.
    dense = {name: run for name, run in dense_steps(layer, hidden).items() if rows == 1 or name != "linear"}
    runs: dict[str, Run] = {**dense, OWN_KERNEL: _all_columns(layer, rows)}
    comparisons = []
    for share, target in GATHERED_TARGETS.items():
        steps = random_steps(layer, rows, share)
        error, bound = _product_error(layer, steps[0])
        work = _step_work(layer, steps[0])
        logits = torch.empty(rows, layer.vocab)
        for what, (method, kind) in STEPS.items():
            name = f"{100 * share:.0f} % active, {what}"
            runs[name] = active_steps(layer, steps, method, logits)[kind]
            against = partial(Comparison, name, work=work, what=name, error=error, error_bound=bound)
            step_target = target_at(avx512=target, avx2=target) if what == ROW_WISE and rows == 1 else None
            comparisons.append(against(DENSE, baseline_runs=tuple(dense), target=step_target))
            if what == ROW_WISE:
                comparisons.append(against(OWN_KERNEL))
    return Case(f"{rows} row{'s' if rows > 1 else ''}, V {layer.vocab:,}", "beyond", runs, tuple(comparisons))


def _all_columns(layer: Layer, rows: int) -> Run:
    columns, out = torch.arange(layer.vocab, dtype=torch.int32), torch.empty(rows, layer.vocab)
    hidden = layer.centroids.points[torch.arange(rows) % len(layer.centroids)]
    return lambda: search(gathered_products(layer.weight, hidden, columns, out=out), layer.bias)


def _product_error(layer: Layer, step: Step) -> tuple[float, float]:
    """Return the largest error of the products against float64, and the bound on it."""
    weight, hidden = layer.weight[step.columns].double(), step.hidden.double()
    products = gathered_products(layer.weight, step.hidden, step.columns).double()
    error = float((products - hidden @ weight.T).abs().max())
    return error, layer.width * 2.0**-24 * float((hidden.abs() @ weight.abs().T).max())


def _step_work(layer: Layer, step: Step) -> Work:
    """Return the work of reading centroids and active columns once, and writing and reading their products."""
    columns, rows = len(step.columns) + len(layer.centroids), step.rows
    return Work(4 * columns * (layer.width + 2 * rows), rows * columns * layer.width)


KERNELS = [
    Kernel(
        name="gathered_product",
        meaning="nearest centroids, union, product with the active columns alone, search",
        source="FVP-05 to FVP-07, XP-02",
        reference="torch in float64",
        bound="inner size x 2^-24 x the sum of magnitudes",
        cost="reads 4 bytes a weight of the active columns and of the centroids (FVP-09)",
        baselines=(DENSE, OWN_KERNEL),
        cases=gathered_cases,
    )
]
